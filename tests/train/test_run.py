"""`trainwright run`: hosts that are containers, with live output, one exit code, and nothing left behind."""

import json
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from trainwright import engine, running

pytestmark = pytest.mark.component("sagemaker-training")
LIMIT_SECONDS = 180
SUM = """
import argparse, os, torch, torch.distributed as dist
asked = argparse.ArgumentParser()
asked.add_argument("--factor", type=float)
dist.init_process_group("gloo")
total = torch.full((4,), (dist.get_rank() + 1) * asked.parse_args().factor)
dist.all_reduce(total)
open(f"/opt/ml/model/{dist.get_rank()}.txt", "w").write(str(total[0].item()))
dist.destroy_process_group()
os.symlink("/opt/ml/model", "/opt/ml/model/last")
assert os.listdir("/opt/ml/code") == ["script.py"]
"""
MPI = """
import os, socket
from mpi4py import MPI
world = MPI.COMM_WORLD
assert world.allreduce(world.rank + 1) == 10
assert len(set(world.allgather(socket.gethostname()))) == 2
open(f"/opt/ml/model/{world.rank}.txt", "w").write(str(world.size))
assert "TRAINWRIGHT_JOB_SECRET_FILE" not in os.environ
"""
ONE_FAILS = """
import os, time
if os.environ["SM_CURRENT_HOST"] == "algo-2":
    raise RuntimeError("the second host gave up")
print("the first one waits", flush=True)
time.sleep(600)
"""


def begun(image: str, folder: Path, text: str, *words: str) -> subprocess.Popen[str]:
    script = folder / "script.py"
    script.write_text(text)
    command = [sys.executable, "-m", "trainwright.cli", "run", image, str(script), "--hosts", "2", "--json", *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def ended(started: subprocess.Popen[str]) -> tuple[int, list[dict[str, Any]], str]:
    said, lines = started.communicate(timeout=LIMIT_SECONDS)
    return started.returncode, json.loads(said), lines


def left(name: str) -> list[Any]:
    asked = {"label": f"{running.LABEL}={name}"}
    client = engine.client()
    return [*client.containers.list(all=True, filters=asked), *client.networks.list(filters=asked)]


@pytest.mark.component("torch")
def test_two_hosts_train_together(image: str, tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()  # of an earlier run
    words = ["--output", str(tmp_path / "kept"), "--distribution", "torchrun", "--factor", "0.5"]
    code, hosts, lines = ended(begun(image, tmp_path, SUM, *words))
    assert (code, [host["code"] for host in hosts]) == (0, [0, 0]), lines
    for rank in (0, 1):
        assert (tmp_path / f"kept/algo-{rank + 1}/model/{rank}.txt").read_text() == "1.5"
        assert not (tmp_path / f"kept/algo-{rank + 1}/model/last").exists()  # a link to elsewhere means nothing here


@pytest.mark.component("mpi4py")
def test_mpi_on_two_hosts(image: str, tmp_path: Path) -> None:
    """Two ranks on each; mpirun logs in on the second host, which trusts the first one by this run's own secret."""
    words = ["--output", str(tmp_path / "kept"), "--distribution", "mpi", "--processes", "2"]
    code, hosts, lines = ended(begun(image, tmp_path, MPI, *words))
    assert (code, [host["code"] for host in hosts]) == (0, [0, 0]), lines
    for rank in range(4):
        assert (tmp_path / f"kept/algo-{rank // 2 + 1}/model/{rank}.txt").read_text() == "4"


def test_a_host_that_fails_ends_all(image: str, tmp_path: Path) -> None:
    words = ["--distribution", "none", "--grace", "1"]
    code, hosts, lines = ended(begun(image, tmp_path, ONE_FAILS, *words))
    assert code == 9, lines
    assert "the second host gave up" in hosts[1]["failure"]
    assert "algo-2 ended with exit code" in lines
    assert hosts[0]["code"] != 0


def test_an_interrupt_leaves_nothing(image: str, tmp_path: Path) -> None:
    started = begun(image, tmp_path, ONE_FAILS.replace("algo-2", "none"), "--distribution", "none", "--grace", "1")
    assert started.stderr
    name = started.stderr.readline().split()[2].rstrip(":")
    limit = threading.Timer(LIMIT_SECONDS, started.kill)
    limit.start()
    while "the first one waits" not in started.stderr.readline():
        assert started.poll() is None
    limit.cancel()
    assert left(name) != []
    began = time.monotonic()
    started.send_signal(signal.SIGINT)
    assert ended(started)[0] == 130
    assert time.monotonic() - began < 30
    assert left(name) == []
