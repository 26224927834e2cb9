"""The image on this host's GPUs: preflight, entrypoint, a training step, and what real failures print."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from trainwright.diagnose.causes import load_causes

ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.component("cuda"), pytest.mark.component("torch"), pytest.mark.engine]
OnGpus = Callable[..., tuple[int, str]]


def test_the_preflight_counts_gpus_and_takes_the_driver(on_gpus: OnGpus, gpus: int) -> None:
    code, said = on_gpus("trainwright-check")
    assert code == 0, said
    assert re.search(rf"gpus\W.*\b{gpus}\b", said), said
    assert re.search(r"driver\W.*libcuda is for CUDA", said), said


def test_the_entrypoint_leaves_a_new_driver_alone(on_gpus: OnGpus) -> None:
    code, said = on_gpus("sh", "-c", 'echo "path [$LD_LIBRARY_PATH]"')
    assert (code, said.strip()) == (0, "path []")


def test_a_training_step_lowers_the_loss(on_gpus: OnGpus) -> None:
    code, said = on_gpus("trainwright-launch", "/programs/trains.py")
    assert code == 0, said
    before, after = map(float, re.findall(r"losses (\S+) (\S+)", said)[0])
    assert after < before


@pytest.mark.component("torchvision")
def test_an_operator_of_torchvision(on_gpus: OnGpus) -> None:
    code, said = on_gpus("python", "/programs/boxes.py")
    assert (code, said.splitlines()[-1:]) == (0, ["kept 0 2"]), said


@pytest.mark.component("nccl-tests")
def test_nccl_tests_run_on_the_gpus(on_gpus: OnGpus, gpus: int) -> None:
    code, said = on_gpus("all_reduce_perf", "-b", "1M", "-e", "64M", "-f", "2", "-g", str(gpus))
    assert code == 0, said
    assert "# Out of bounds values : 0 OK" in said


FAILURES = {
    "out-of-memory": (["python", "/programs/fails.py", "out-of-memory"], "out-of-memory"),
    "duplicate-gpu": (
        ["trainwright-launch", "--distribution", "torchrun", "--processes", "2", "/programs/one_gpu.py"],
        "duplicate-gpu",
    ),
}


@pytest.mark.parametrize("way", FAILURES)
def test_the_cause_of_a_real_failure_is_known(on_gpus: OnGpus, way: str) -> None:
    command, cause = FAILURES[way]
    code, said = on_gpus(*command, environment={"NCCL_DEBUG": "WARN"})
    assert code != 0
    rows = [row for row in load_causes(ROOT) if row.id == cause]
    assert any(re.search(line, said) for row in rows for line in row.lines), said


@pytest.mark.parametrize("way", ["invalid-device", "illegal-index"])
def test_a_failure_names_cuda(on_gpus: OnGpus, way: str) -> None:
    code, said = on_gpus("python", "/programs/fails.py", way, environment={"CUDA_LAUNCH_BLOCKING": "1"})
    assert code != 0
    assert "CUDA error" in said or "AcceleratorError" in said or "invalid device ordinal" in said, said
