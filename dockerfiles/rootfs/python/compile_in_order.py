"""Byte code of every installed module that has none yet, by one process and in one order.

Of one file Python writes one of several byte codes: what marshal refers to instead of repeating depends on which files
the same process compiled before. An installer hands files to whichever of its processes is free, so two builds differ.
"""

import py_compile
import sysconfig
from contextlib import suppress
from importlib.util import cache_from_source
from pathlib import Path

# A step of a build touches files after this: what is compared with the source must be its content, not its time.
CHECKED = py_compile.PycInvalidationMode.CHECKED_HASH

for folder in sorted({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}):
    for source in sorted(Path(folder).rglob("*.py")):
        # What a lower layer has stays there. Packages carry files that no Python can read: templates, tests of parsers.
        if not Path(cache_from_source(source)).exists():
            with suppress(py_compile.PyCompileError, UnicodeError):
                py_compile.compile(str(source), doraise=True, invalidation_mode=CHECKED)
