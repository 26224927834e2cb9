"""Import a program of an image from its file, because it is in no package."""

import importlib.util
from pathlib import Path
from types import ModuleType


def imported(path: Path) -> ModuleType:
    """Import a new copy of a program; tracebacks show its file name."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
