"""Twelve jobs over Gloo with one fault each, in namespaces of one container: `diagnose` names cause and rank."""

import json
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from trainwright.gate.diagnosis import diagnosed

pytestmark = [pytest.mark.component("torch"), pytest.mark.xdist_group("diagnosis")]
ROOT = Path(__file__).parents[2]
BENCHMARK = ROOT / "benchmarks/diagnosis"
CASES = tomllib.loads((BENCHMARK / "cases.toml").read_text())["faults"]
JOBS = (  # up to 8 ranks, none of them under torchrun: each of its processes would import PyTorch
    "skipped-00",
    "doubled-01",
    "misshapen-05",
    "stopped-01",
    "slow-loader-01",
    "killed-02",
    "killed-host-00",
    "cut-network-04",
    "shm-02",
    "disk-01",
    "wrong-world-01",
    "exception-01",
)
LIMIT_SECONDS = 1200


@pytest.fixture(scope="module")
def jobs(image: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folders of all jobs: one container runs them, one after the other."""
    out = tmp_path_factory.mktemp("jobs")
    command = ["docker", "run", "--rm", "--privileged", "--network=none", "--user=0", "--entrypoint="]
    command += [f"--volume={BENCHMARK}:/diagnosis:ro", f"--volume={out}:/out", image]
    command += ["python3", "-B", "/diagnosis/generate.py", "/out", "--jobs", ",".join(JOBS)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_SECONDS)
    assert done.returncode == 0, done.stderr
    return out


@pytest.mark.parametrize("name", JOBS)
def test_a_job_with_a_fault_is_diagnosed(jobs: Path, name: str) -> None:
    folder = jobs / name
    label: dict[str, Any] = json.loads((folder / "label.json").read_text())
    (folder / "label.json").unlink()  # diagnose reads what lies there
    (row,) = diagnosed(ROOT, [str(folder)])
    print(row["what"], row["evidence"], sep="\n", file=sys.stderr)
    assert row["cause"] in CASES[label["fault"]]["causes"]
    assert row["job"]["failed_first"] == label["culprits"]
