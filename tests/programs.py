"""Import a program of an image, which is in no package, from its file."""

import importlib.util
from pathlib import Path
from types import ModuleType


def imported(path: Path) -> ModuleType:
    """Import a new copy of it; its name in tracebacks is that of the file."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
