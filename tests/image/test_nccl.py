"""NCCL without a GPU: the pinned one, alone, and it gets as far as the network."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from trainwright.image.inputs import Inputs

pytestmark = pytest.mark.component("nccl")
VERSION = "n = ctypes.c_int(); assert lib.ncclGetVersion(ctypes.byref(n)) == 0; said = n.value"
# ncclUniqueId is 128 bytes; getting one opens the bootstrap socket, so this is more than loading.
UNIQUE_ID = "b = (ctypes.c_char * 128)(); assert lib.ncclGetUniqueId(ctypes.byref(b)) == 0; said = len(set(b.raw)) > 8"


@pytest.fixture(scope="module")
def library(host: Any) -> str:
    """The one file; what carries NCCL in its name and is a plugin does not count."""
    files = host.check_output(
        "find / -xdev -type f -name 'libnccl.so*' -o -type f -name 'libnccl-????????.so*'"
    ).split()
    assert len(files) == 1, files
    return str(files[0])


def test_version(host: Any, programs: str, library: str, nccl_number: int) -> None:
    loaded = json.loads(host.check_output(f"env -i /opt/venv/bin/python {programs}/loaded.py {library} '{VERSION}'"))
    assert loaded == {"path": library, "said": nccl_number}


def test_unique_id(host: Any, programs: str, library: str) -> None:
    result = host.run(f"python {programs}/loaded.py {library} '{UNIQUE_ID}'")
    assert result.rc == 0, result.stdout + result.stderr
    assert json.loads(result.stdout.splitlines()[-1])["said"], "an id without randomness"


@pytest.mark.component("torch")
def test_framework_maps_this_one(host: Any, library: str) -> None:
    maps = host.check_output("python -c 'import torch; print(open(\"/proc/self/maps\").read())'").splitlines()
    assert {line.split()[-1] for line in maps if "/libnccl" in line} == {library}


@pytest.mark.component("torch")
def test_framework_was_built_against_this_version(host: Any, declared: Inputs) -> None:
    """What `torch.cuda.nccl.version()` says comes from the headers of its build, not from the library."""
    printed = host.check_output("python -c 'import torch; print(*torch.cuda.nccl.version(), sep=\".\")'")
    assert printed == declared.pins["nccl"]


def test_code_for_the_fleet(host: Any, programs: str, library: str, lacking: Callable[[list[str]], list[str]]) -> None:
    built = json.loads(host.check_output(f"python {programs}/architectures.py {library}"))[library]["sass"]
    assert lacking(built) == [], built
