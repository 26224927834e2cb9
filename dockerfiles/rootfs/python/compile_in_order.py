"""Byte code of every installed module that has none yet: a fixed number of processes, each with its files in one order.

Of one file Python writes one of several byte codes: what marshal refers to instead of repeating depends on which files
the same process compiled before. An installer hands files to whichever of its processes is free, so two builds differ.
Here every process starts as a copy of this one, and the number of processors decides over nothing but the time.
"""

import py_compile
import sys
import sysconfig
from contextlib import suppress
from importlib.util import cache_from_source
from multiprocessing import get_context
from pathlib import Path

# A step of a build touches files after this: what is compared with the source must be its content, not its time.
CHECKED = py_compile.PycInvalidationMode.CHECKED_HASH
PARTS = 8  # another number makes other bytes


def compile_all(sources):
    for source in sources:
        # Packages carry files that no Python can read: templates, tests of parsers.
        with suppress(py_compile.PyCompileError, UnicodeError):
            py_compile.compile(str(source), doraise=True, invalidation_mode=CHECKED)


if __name__ == "__main__":
    folders = sorted({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")})
    found = [source for folder in folders for source in sorted(Path(folder).rglob("*.py"))]
    # What a lower layer has stays there.
    waiting = [source for source in found if not Path(cache_from_source(source)).exists()]
    parts = [get_context("fork").Process(target=compile_all, args=(waiting[part::PARTS],)) for part in range(PARTS)]
    for part in parts:
        part.start()
    for part in parts:
        part.join()
    sys.exit(any(part.exitcode for part in parts))
