"""CUDA without a GPU: its libraries are there once, are found by name, and the framework is built for the fleet."""

import json
import re
import time
from collections import Counter
from collections.abc import Callable
from pathlib import PurePosixPath
from typing import Any

import pytest

from trainwright.inputs import Inputs

pytestmark = pytest.mark.component("cuda")
ALONE = "env -i /opt/venv/bin/python"
RUNTIME_VERSION = "n = ctypes.c_int(); assert lib.cudaRuntimeGetVersion(ctypes.byref(n)) == 0; said = n.value"
IMPORT_SECONDS = 120  # the measurement is what counts; beyond this a job has every reason to complain


def short(version: str) -> str:
    """13.2.2 as CUDA itself and the framework say it: 13.2."""
    return ".".join(version.split(".")[:2])


@pytest.mark.parametrize("name", ["libcudart.so", "libcudart.so.{major}"])
def test_runtime_is_found_by_name(host: Any, programs: str, declared: Inputs, name: str) -> None:
    """The fabric plugin opens `libcudart.so`: ldd does not see that, and without it EFA is lost in silence."""
    pin = declared.pins["cuda"]
    library = name.format(major=pin.split(".")[0])
    loaded = json.loads(host.check_output(f"{ALONE} {programs}/loaded.py {library} '{RUNTIME_VERSION}'"))
    assert f"{loaded['said'] // 1000}.{loaded['said'] // 10 % 100}" == short(pin)


def test_every_library_is_there_once(host: Any, expected: dict[str, Any]) -> None:
    """A toolkit in the base and the wheels of the framework would bring each of them twice."""
    names = " -o ".join(f"-name '{name}.so*'" for name in expected["once"])
    files = host.check_output(f"find / -xdev -type f \\( {names} \\)").splitlines()
    copies = Counter(PurePosixPath(file).name.split(".so")[0] for file in files)
    assert {name: count for name, count in copies.items() if count > 1} == {}, files
    assert copies["libcudart"] == 1, "the search has lost its object"


@pytest.mark.component("torch")
def test_framework_is_built_with_this_cuda(host: Any, declared: Inputs) -> None:
    printed = host.check_output("python -c 'import torch; print(torch.version.cuda, torch.cuda.is_available())'")
    assert printed.split() == [short(declared.pins["cuda"]), "False"]


@pytest.mark.component("torch")
def test_import_without_a_driver(host: Any, record_property: Any) -> None:
    """Seconds are a measurement: they stand in tests.xml and on the screen."""
    began = time.monotonic()
    result = host.run("python -c 'import torch; torch.ones(2).sum()'")
    seconds = time.monotonic() - began
    record_property("import_seconds", round(seconds, 1))
    print(f"import torch: {seconds:.1f} s")
    assert (result.rc, result.stderr) == (0, "")
    assert seconds < IMPORT_SECONDS


@pytest.mark.component("torch")
def test_framework_runs_on_the_fleet(
    host: Any, programs: str, declared: Inputs, lacking: Callable[[list[str]], list[str]]
) -> None:
    library = f"/opt/venv/lib/python{declared.variant.python}/site-packages/torch/lib/libtorch_cuda.so"
    built = json.loads(host.check_output(f"python {programs}/architectures.py {library}"))[library]["sass"]
    assert lacking(built) == [], built


def test_no_driver_library(host: Any) -> None:
    """libcuda.so.1 belongs to the host: a copy, or a stub, on the loader's path would stand before it."""
    assert re.findall(r"\blibcuda\.so\S*", host.check_output("/sbin/ldconfig -p")) == []
