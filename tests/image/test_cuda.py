"""CUDA without a GPU: its libraries are there once, are found by name, and the framework is built for the fleet."""

import json
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from trainwright.image.inputs import Inputs
from trainwright.matrix import compat as compatibility
from trainwright.matrix.matrix import load_intent

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.component("cuda")
ALONE = "env -i /opt/venv/bin/python"
RUNTIME_VERSION = "n = ctypes.c_int(); assert lib.cudaRuntimeGetVersion(ctypes.byref(n)) == 0; said = n.value"


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


@pytest.mark.component("torch")
def test_framework_runs_on_the_fleet(
    host: Any, programs: str, declared: Inputs, lacking: Callable[[list[str]], list[str]]
) -> None:
    library = f"/opt/venv/lib/python{declared.variant.python}/site-packages/torch/lib/libtorch_cuda.so"
    built = json.loads(host.check_output(f"python {programs}/architectures.py {library}"))[library]["sass"]
    assert lacking(built) == [], built


def test_no_driver_library(host: Any, declared: Inputs) -> None:
    """libcuda.so.1 belongs to the host: a copy, or a stub, on the loader's path would stand before it."""
    compat = "-not -path '/usr/local/cuda/compat/*'" if "cuda-compat" in declared.pins else ""
    assert host.check_output(f"find / -xdev -name 'libcuda.so*' {compat}") == ""


def test_image_asks_for_gpus(host: Any) -> None:
    """enroot, and a runtime that reads the environment, bring GPUs and libcuda only to an image that asks for both."""
    assert host.check_output("printenv NVIDIA_VISIBLE_DEVICES NVIDIA_DRIVER_CAPABILITIES") == "all\ncompute,utility"


# --- the entrypoint: a forward-compatibility libcuda only where the host's driver is older than this CUDA needs ------

ENTRYPOINT = "/opt/trainwright/bin/with-cuda"
MODULE = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  {version}  Thu Jan  2 03:04:05 UTC 2025"
OPEN_MODULE = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {version}  Release Build  (root@host)"
SHOW = "sh -c 'echo \"[$LD_LIBRARY_PATH]\"'"


@pytest.fixture(scope="module")
def floor(host: Any, declared: Inputs) -> str:
    """The oldest driver for this CUDA, as compat.toml has it."""
    intent = load_intent(ROOT)
    return compatibility.floor(intent.compat, "cuda", declared.pins["cuda"], "driver")


def test_floor_is_that_of_the_rules(host: Any, floor: str) -> None:
    assert floor
    assert host.check_output("cat /opt/trainwright/cuda/driver-floor") == floor


@pytest.fixture(scope="module")
def compat(host: Any) -> str:
    host.check_output("mkdir -p /tmp/compat && touch /tmp/compat/libcuda.so.1")
    return "/tmp/compat"


def start(host: Any, module: str, version: str, folder: str) -> Any:
    """The entrypoint on a host with this driver."""
    host.check_output("printf '%%s\\nGCC version: 14.2.0\\n' %s > /tmp/driver", module.format(version=version))
    return host.run(f"{ENTRYPOINT} --driver /tmp/driver --compat {folder} {SHOW}")


@pytest.mark.parametrize("module", [MODULE, OPEN_MODULE])
def test_older_driver_gets_help(host: Any, floor: str, compat: str, module: str) -> None:
    result = start(host, module, f"{int(floor.split('.')[0]) - 1}.999.99", compat)
    assert result.stdout.strip() == f"[{compat}]"
    assert floor in result.stderr
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize("module", [MODULE, OPEN_MODULE])
@pytest.mark.parametrize("above", [0, 15, 1000])
def test_driver_that_is_new_enough_stays(host: Any, floor: str, compat: str, module: str, above: int) -> None:
    major, *rest = floor.split(".")
    version = ".".join([str(int(major) + above), *(rest or ["65", "06"])])
    result = start(host, module, version, compat)
    assert (result.stdout.strip(), result.stderr) == ("[]", "")


def test_older_driver_without_help_is_told(host: Any, floor: str) -> None:
    """The command runs: not every job needs a GPU."""
    result = start(host, MODULE, "400.10.20", "/tmp/no-such-folder")
    assert result.stdout.strip() == "[]"
    assert "400.10.20 is older than " + floor in result.stderr


def test_no_driver_is_no_news(host: Any, compat: str) -> None:
    result = host.run(f"{ENTRYPOINT} --driver /tmp/no-such-file --compat {compat} sh -c 'exit 7'")
    assert (result.rc, result.stdout, result.stderr) == (7, "", "")
