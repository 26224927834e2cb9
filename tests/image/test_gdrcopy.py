"""GDRCopy's library; the kernel module is the host's."""

import json
from typing import Any

import pytest

from trainwright.image.inputs import Inputs

pytestmark = pytest.mark.component("gdrcopy")
LIBRARY = "libgdrapi.so.2"  # the name that NCCL and libfabric open
VERSION = """
major, minor = ctypes.c_int(), ctypes.c_int()
lib.gdr_runtime_get_version(ctypes.byref(major), ctypes.byref(minor))
lib.gdr_open.restype = ctypes.c_void_p
said = [major.value, minor.value, lib.gdr_open()]
"""


def test_found_by_name_and_says_its_version(host: Any, programs: str, declared: Inputs) -> None:
    """And without the module it says no, rather than ending the process."""
    result = host.run(f"env -i /opt/venv/bin/python {programs}/loaded.py {LIBRARY} '{VERSION}'")
    assert result.rc == 0, result.stderr
    major, minor, *_ = map(int, declared.pins["gdrcopy"].split("."))
    assert json.loads(result.stdout.splitlines()[-1])["said"] == [major, minor, None]


def test_no_kernel_module(host: Any) -> None:
    assert host.check_output("find / -xdev -name 'gdrdrv*' -not -name '*.h'") == ""
