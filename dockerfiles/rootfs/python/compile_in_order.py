"""Compile every installed module that has no byte code yet, so that each build writes identical .pyc files.

The bytes of a .pyc file depend on which files the same process compiled before, because marshal writes references to
objects that it has already seen. Installers give each file to the next free process, so their results differ between
builds. Here a fixed number of forked processes each compile a fixed list in a fixed order, whatever the number of CPUs.
"""

import py_compile
import sys
import sysconfig
from contextlib import suppress
from importlib.util import cache_from_source
from multiprocessing import get_context
from pathlib import Path

# A later build step changes file times, so byte code must be validated by the source's hash, not by its time.
CHECKED = py_compile.PycInvalidationMode.CHECKED_HASH
PARTS = 8  # processes; another number gives other bytes


def compile_all(sources):
    for source in sources:
        # Packages contain .py files that are not valid Python: templates, tests of parsers.
        with suppress(py_compile.PyCompileError, UnicodeError):
            py_compile.compile(str(source), doraise=True, invalidation_mode=CHECKED)


if __name__ == "__main__":
    folders = sorted({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")})
    found = [source for folder in folders for source in sorted(Path(folder).rglob("*.py"))]
    # Modules that a lower layer has compiled keep their byte code.
    waiting = [source for source in found if not Path(cache_from_source(source)).exists()]
    parts = [get_context("fork").Process(target=compile_all, args=(waiting[part::PARTS],)) for part in range(PARTS)]
    for part in parts:
        part.start()
    for part in parts:
        part.join()
    sys.exit(any(part.exitcode for part in parts))
