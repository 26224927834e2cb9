"""`trainwright run`: hosts that are containers, with live output, one exit code, and nothing left behind."""

import json
import os
import re
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tls_index

from trainwright.docker import engine
from trainwright.jobs import run

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


SAVES = """
import os
open("/opt/ml/model/weights", "wb").write(bytes(8 << 20))
"""


def begun(
    image: str, folder: Path, text: str, *words: str, limit: Callable[[], object] | None = None
) -> subprocess.Popen[str]:
    script = folder / "script.py"
    script.write_text(text)
    command = [sys.executable, "-m", "trainwright.cli", "run", image, str(script), "--nodes", "2", "--json", *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=limit)


def ended(started: subprocess.Popen[str]) -> tuple[int, list[dict[str, Any]], str]:
    said, lines = started.communicate(timeout=LIMIT_SECONDS)
    return started.returncode, json.loads(said), lines


def named(lines: str) -> str:
    """Read the job's name, which its containers and its network have in theirs."""
    found = re.search(r"trainwright-run-[0-9a-f]{8}", lines)
    assert found, lines
    return found[0]


def left(name: str) -> list[Any]:
    asked = {"label": f"{run.LABEL}={name}"}
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
    name = named(started.stderr.readline())
    limit = threading.Timer(LIMIT_SECONDS, started.kill)
    limit.start()
    while "the first one waits" not in started.stderr.readline():
        assert started.poll() is None
    limit.cancel()
    assert left(name) != []
    started.send_signal(signal.SIGINT)
    assert ended(started)[0] == 130
    assert left(name) == []


def test_an_output_of_another_run_or_of_none_is_refused_before_anything_starts(image: str, tmp_path: Path) -> None:
    (tmp_path / "kept/algo-1/output").mkdir(parents=True)
    (tmp_path / "kept/algo-1/output/failure").write_text("of an earlier run")
    (tmp_path / "file").touch()
    for option, folder, code, says in (
        ("--output", "kept", 2, "is not empty"),
        ("--output", "file/kept", 10, "cannot be written"),
        ("--output", "file", 10, "cannot be written"),
        ("--checkpoints", "file/kept", 10, "cannot be written"),
    ):
        started = begun(image, tmp_path, SAVES, "--distribution", "none", option, str(tmp_path / folder))
        said, lines = started.communicate(timeout=LIMIT_SECONDS)
        assert started.returncode == code, lines
        assert says in json.loads(said or lines)["error"]
        assert "preflight" not in lines
        assert "Traceback" not in lines


def test_what_cannot_be_written_in_the_end_stays_in_the_containers(image: str, tmp_path: Path) -> None:
    """As on a full disk: a model of hours is not thrown away."""
    few = 4 << 20
    words = ["--distribution", "none", "--output", str(tmp_path / "kept")]
    started = begun(image, tmp_path, SAVES, *words, limit=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (few, few)))
    said, lines = started.communicate(timeout=LIMIT_SECONDS)
    name = named(lines)
    try:
        assert started.returncode == 10, lines
        assert "Traceback" not in lines
        assert f"docker cp {name}-algo-1:/opt/ml" in said + lines
        assert "algo-2 ended with 0" in lines
        for host in ("algo-1", "algo-2"):
            pieces, about = engine.client().containers.get(f"{name}-{host}").get_archive("/opt/ml/model/weights")
            assert about["size"] == 8 << 20
            assert sum(map(len, pieces)) > 8 << 20
    finally:
        for container in engine.client().containers.list(all=True, filters={"label": f"{run.LABEL}={name}"}):
            container.remove(force=True, v=True)
    assert left(name) == []


def test_a_corporate_index_reaches_the_jobs_requirements(
    image: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its CA and its address are this host's settings; without the CA it is the certificate that is to blame."""
    job = tmp_path / "job"
    job.mkdir()
    (job / "requirements.txt").write_text("trainwright-corporate==1.0\n")
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)  # this machine's own have no say
    for name in ("PIP_CERT", "PIP_EXTRA_INDEX_URL", "TRAINWRIGHT_MIRRORS", "TRAINWRIGHT_CA"):
        monkeypatch.delenv(name, raising=False)
    with tls_index.serving(tmp_path, "trainwright-corporate") as index:
        monkeypatch.setenv("PIP_INDEX_URL", index.address)
        code, hosts, lines = ended(begun(image, job, "import trainwright_corporate_marker", "--distribution", "none"))
        assert code == 9, lines
        failures = " ".join(host["failure"] for host in hosts)  # the host that fails first has the other one stopped
        assert "CERTIFICATE_VERIFY_FAILED" in failures, lines
        assert "constraint" not in failures
        monkeypatch.setenv("TRAINWRIGHT_CA", str(index.ca))
        code, hosts, lines = ended(begun(image, job, "import trainwright_corporate_marker", "--distribution", "none"))
        assert code == 0, lines
