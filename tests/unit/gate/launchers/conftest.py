"""Provide a run of the gate, and two simulated hosts."""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hosts import DIGEST, ROOT, Host

from trainwright.gate import floors, spec
from trainwright.gate.spec import Run
from trainwright.matrix import instances
from trainwright.matrix.instances import Instance
from trainwright.schedulers import clusters

IMAGE = f"123456789012.dkr.ecr.us-east-1.amazonaws.com/trainwright/pytorch@{DIGEST}"
SCRIPT = (ROOT / "scripts/gate.sh").read_text()
# Where real keys are made.
KEYS = pytest.mark.skipif(not shutil.which("ssh-keygen"), reason="not run: no ssh-keygen")
NOT_SET = ("FI_PROVIDER", "FI_EFA_USE_DEVICE_RDMA", "FI_EFA_FORK_SAFE", "RDMAV_FORK_SAFE", "NCCL_PROTO", "NCCL_ALGO")


@pytest.fixture(scope="module")
def table() -> dict[str, Instance]:
    return instances.load_instances(ROOT)


Make = Callable[..., Run]
Cli = Callable[..., Any]


@pytest.fixture
def make(table: dict[str, Instance]) -> Make:
    def of(cluster: str = "slurm", **asked: Any) -> Run:
        settings: dict[str, Any] = {
            # Its own name: an interrupted run ends every process of this machine that has its name.
            "name": f"gate-pytorch-{os.getpid()}",
            "image": IMAGE,
            "instance": "p5.48xlarge",
            "nodes": 2,
        }
        settings["kinds"] = clusters.load_kinds(ROOT)
        settings["cluster"] = settings["kinds"].clusters[cluster]
        return spec.make(spec.load_settings(ROOT), table, floors.load_floors(ROOT), **{**settings, **asked})

    return of


ROLE, OUTPUT, KEY = "arn:aws:iam::123456789012:role/trainer", "s3://bucket/gate", "b3BlbnNzaC1rZXkt"


SSH_HERE = """\
while [ $# -gt 0 ]; do case $1 in -o | -F | -p) shift 2 ;; *) break ;; esac; done
shift
[ "$*" = true ] && exit 0
exec bash -c "$*"
"""
DOCKER_HERE = """\
echo "docker $*" | cut -c1-2000 >> "${0%/*}/docker.log"
[ "$1" = run ] || exit 0
while [ "$1" != --entrypoint ]; do shift; done
shift 3
exec bash "$@"
"""
MPIRUN_HERE = 'while [[ $1 != *_perf ]]; do if [ "$1" = -x ]; then shift; fi; shift; done\nexec "$@"'


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    """Simulate two hosts on this one: programs that would connect to a host run here instead."""
    folder = tmp_path / "bin"
    folder.mkdir()
    host = Host(folder)
    for name, text in (("ssh", SSH_HERE), ("docker", DOCKER_HERE), ("mpirun", MPIRUN_HERE), ("sshd", "exec sleep 60")):
        host.program(name, text)
    monkeypatch.setenv("GATE_FOLDER", str(tmp_path / "work"))
    return host


def run_here(host: Host, text: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-c", text], env=host.environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60
    )
