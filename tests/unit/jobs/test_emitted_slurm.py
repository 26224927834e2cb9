"""Give what `trainwright emit` writes for sbatch to a real Slurm of two nodes on loopback, if it is installed.

Only the container is missing: a stand-in for srun drops pyxis' options, and one for the launcher prints what the
launcher's own code reads from the environment. The tests need no GPUs; tests/slurms.py says what they need.
"""

import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hostile.words import HOSTILE
from slurms import WAIT, Run, log_of, programs, running, state, until

pytestmark = pytest.mark.slurm
ROOT = Path(__file__).parents[3]
LAUNCHER = ROOT / "dockerfiles/rootfs/common/opt/trainwright/launcher"
SRUN = """\
#!/bin/bash
words=()
for word in "$@"; do case "$word" in --*container-* | --auto-resume=1) ;; *) words+=("$word") ;; esac; done
exec {srun} "${{words[@]}}"
"""
ALONE = """\
#!/bin/bash
echo "#  Rank  0 Group  0 Pid $$ on $(hostname) device  0 [0x00] stand-in" # as each task prints that finds no other
"""
LAUNCH = """\
#!{python}
import hashlib, json, os, signal, sys, time
sys.dont_write_bytecode = True
sys.path.insert(0, "{launcher}")
import worlds

found = worlds.world(os.environ, lambda path: None, worlds.Flags(processes=int(sys.argv[4])))
secret = os.environ["TRAINWRIGHT_JOB_SECRET"]
row = dict(hosts=found.hosts, index=found.index, processes=found.processes, platform=found.platform, words=sys.argv[1:])
row["cpus"] = int(os.environ["SLURM_CPUS_PER_TASK"])
print(json.dumps(dict(row, bits=len(secret) * 4, secret=hashlib.sha256(secret.encode()).hexdigest()[:8])), flush=True)


def stop(*_):
    print("SIGTERM on", found.host, flush=True)
    sys.exit(143)


signal.signal(signal.SIGTERM, stop)
if "--wait" in sys.argv:
    time.sleep({wait})
"""


@pytest.fixture(scope="module")
def slurm() -> Iterator[Run]:
    """Start Slurm with two nodes."""
    launch = LAUNCH.format(python=sys.executable, launcher=LAUNCHER, wait=WAIT)
    texts = {"srun": SRUN.format(srun=programs()["srun"]), "trainwright-launch": launch, "all_reduce_perf": ALONE}
    with running(2, texts) as run:
        yield run


@pytest.fixture
def file(cli: Any, tmp_path: Path) -> Callable[..., Path]:
    def write(*words: str, on: str = "slurm", more: tuple[str, ...] = ()) -> Path:
        path = tmp_path / f"{on}.sbatch"
        fixed = ["--code", ".", "--nodes", "2", "--processes", "8", "--instance", "c5n.18xlarge", "--output", str(path)]
        fixed += ["--model", str(tmp_path)]  # else the folder is made in the container, and here is none
        fixed += more
        ended = cli(ROOT, "emit", "registry.example.com/x:1", "train.py", "--on", on, *fixed, "--", *words)
        assert ended.code == 0, ended.err
        return path

    return write


@pytest.mark.parametrize("on", ["slurm", "hyperpod-slurm"])
def test_sbatch_takes_the_file(slurm: Run, file: Callable[..., Path], on: str) -> None:
    path = file(on=on)
    said = slurm("sbatch", "--test-only", str(path))
    assert (said.returncode, "on nodes n[1-2]" in said.stderr) == (0, True), said.stderr
    for right, wrong in (("--requeue", "--reqeue"), ("=TERM@", "=TREM@"), ("--nodes=2", "--nodes=3")):
        path.write_text(path.read_text().replace(right, wrong))
        assert slurm("sbatch", "--test-only", str(path)).returncode != 0, wrong
        path.write_text(path.read_text().replace(wrong, right))


@pytest.fixture
def gate(cli: Any, tmp_path: Path) -> Callable[..., Path]:
    def write(*words: str) -> Path:
        path = tmp_path / "gate.sbatch"
        fixed = ["--on", "slurm", "--nodes", "2", "--gpus", "1", "--collective", "all_reduce", "--emit", str(path)]
        ended = cli(ROOT, "gate", *fixed, *words)
        assert ended.code == 0, ended.err
        return path

    return write


@pytest.mark.parametrize(
    ("words", "taken"),
    [(["--cluster", "hyperpod-slurm"], True), (["--no-gpus-per-node"], True), ([], False)],
    ids=["hyperpod", "without", "with"],
)
def test_a_slurm_that_counts_no_gpus(slurm: Run, gate: Callable[..., Path], words: list[str], taken: bool) -> None:
    """This Slurm has no GRES, like many clusters of HyperPod."""
    said = slurm("sbatch", "--test-only", str(gate(*words)))
    assert (said.returncode == 0) is taken, said.stderr
    assert ("Invalid generic resource" in said.stderr) is not taken


@pytest.mark.parametrize("mpi", ["none", "pmix_v99"])
def test_tasks_that_do_not_find_each_other_end_the_gate(slurm: Run, gate: Callable[..., Path], mpi: str) -> None:
    """The second type is one that no Slurm has."""
    path = gate("--no-gpus-per-node", "--mpi-type", mpi)
    job = slurm("sbatch", "--parsable", str(path)).stdout.strip()
    until(lambda: state(slurm, job) == "FAILED", "the job")
    log = log_of(slurm, job).read_text()
    assert f"gate: 2 tasks were started, and are no world of 2 ranks: srun --mpi={mpi} did not connect them" in log
    assert "begins" not in log


def test_the_hosts_find_each_other_and_share_a_secret(slurm: Run, file: Callable[..., Path]) -> None:
    job = slurm("sbatch", "--parsable", str(file("--epochs", "a b"))).stdout.strip()
    until(lambda: state(slurm, job) == "COMPLETED", "the job")
    rows = sorted(map(json.loads, log_of(slurm, job).read_text().splitlines()), key=lambda row: row["index"])
    assert [row["index"] for row in rows] == [0, 1]
    for row in rows:
        assert (row["platform"], row["hosts"], row["processes"]) == ("slurm", ["n1", "n2"], 8)
        assert row["words"][-3:] == ["train.py", "--epochs", "a b"]
        assert row["bits"] == 256
        assert row["cpus"] == 4  # all that Slurm counts on a node
    assert rows[0]["secret"] == rows[1]["secret"]
    assert not re.search("[0-9a-f]{64}", slurm("scontrol", "-dd", "show", "job", job).stdout)


def test_words_that_mean_something_else_arrive_as_they_were(slurm: Run, file: Callable[..., Path]) -> None:
    words = [word for word in HOSTILE if word.isprintable()]
    job = slurm("sbatch", "--parsable", str(file(*words))).stdout.strip()
    until(lambda: state(slurm, job) == "COMPLETED", "the job")
    rows = list(map(json.loads, log_of(slurm, job).read_text().splitlines()))
    assert [row["words"][-len(words) :] for row in rows] == [words, words]


def test_a_job_that_is_taken_back_hears_sigterm_and_is_queued_again(slurm: Run, file: Callable[..., Path]) -> None:
    job = slurm("sbatch", "--parsable", str(file("--wait"))).stdout.strip()
    until(lambda: state(slurm, job) == "RUNNING" and log_of(slurm, job).exists(), "the start")  # RUNNING comes first
    until(lambda: log_of(slurm, job).read_text().count("secret") == 2, "both hosts")
    assert slurm("scontrol", "requeue", job).returncode == 0
    until(lambda: log_of(slurm, job).read_text().count("SIGTERM on n") == 2, "SIGTERM on both")
    until(lambda: state(slurm, job) == "PENDING", "the queue")
    assert "Restarts=1" in slurm("scontrol", "show", "job", job).stdout
    slurm("scancel", job)


def test_a_job_at_its_time_limit_is_queued_again(slurm: Run, file: Callable[..., Path], tmp_path: Path) -> None:
    """Slurm sends SIGTERM two minutes before the limit, or up to a minute earlier: here at once."""
    path = file("--wait", more=("--checkpoints", str(tmp_path)))
    job = slurm("sbatch", "--parsable", "--time=2", str(path)).stdout.strip()
    until(lambda: "Restarts=1" in slurm("scontrol", "show", "job", job).stdout, "the second start")
    assert log_of(slurm, job).read_text().count("SIGTERM on n") == 2
    slurm("scancel", job)
    until(lambda: state(slurm, job) == "CANCELLED", "the end")
