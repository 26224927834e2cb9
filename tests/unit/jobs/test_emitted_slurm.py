"""Give what `trainwright emit` writes for sbatch to a real Slurm of two nodes on loopback, if it is installed.

Only the container is missing: a stand-in for srun drops pyxis' options, and one for the launcher prints what the
launcher's own code reads from the environment. Tried with Debian 12's slurmctld, slurmd, slurm-client (22.05.8) and
munge, which may also be unpacked into a folder on PATH (with LD_LIBRARY_PATH). The tests need no GPUs.
"""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hostile.words import HOSTILE

pytestmark = pytest.mark.slurm
ROOT = Path(__file__).parents[3]
LAUNCHER = ROOT / "dockerfiles/rootfs/common/opt/trainwright/launcher"
PROGRAMS = ("munged", "slurmctld", "slurmd", "slurmstepd", "sbatch", "srun", "scontrol", "scancel", "sinfo")
WAIT = 60  # seconds, for anything
CONF = """\
ClusterName=proof
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock
CredType=cred/munge
PluginDir={plugins}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
MpiDefault=none
SwitchType=switch/none
ReturnToService=2
JobRequeue=0
SlurmdParameters=config_overrides
NodeName=n1 NodeHostname=localhost NodeAddr=127.0.0.1 Port={ports[1]} CPUs=4
NodeName=n2 NodeHostname=localhost NodeAddr=127.0.0.1 Port={ports[2]} CPUs=4
PartitionName=all Nodes=n1,n2 Default=YES MaxTime=INFINITE State=UP
"""
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


def until(true: Callable[[], Any], what: str) -> Any:
    end = time.monotonic() + WAIT
    while time.monotonic() < end:
        if found := true():
            return found
        time.sleep(0.2)
    raise AssertionError(f"{what}: not within {WAIT} s")


Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def slurm() -> Iterator[Run]:
    """Start Slurm; yield a function that runs one of its commands, and stop all of it afterwards."""
    found = {name: shutil.which(name) or shutil.which(f"{name}-wlm") for name in PROGRAMS}
    if missing := [name for name, path in found.items() if not path]:
        pytest.skip(f"not run: no {', '.join(missing)} (Debian's slurmctld, slurmd, slurm-client, munge)")
    if os.geteuid():
        pytest.skip("not run: slurmd wants root")
    plugins = next(Path(str(found["slurmd"])).parents[1].glob("lib/*/slurm*/auth_munge.so"), Path("/none/none")).parent
    with tempfile.TemporaryDirectory(prefix="slurm-") as name:  # short: a socket's path has 107 characters
        folder = Path(name)
        for part in ("bin", "state", "job"):
            (folder / part).mkdir()
        (folder / "key").write_bytes(os.urandom(1024))
        (folder / "key").chmod(0o600)
        (folder / "slurm.conf").write_text(CONF.format(folder=folder, plugins=plugins, ports=free_ports(3)))
        launch = LAUNCH.format(python=sys.executable, launcher=LAUNCHER, wait=WAIT)
        for program, text in (
            ("srun", SRUN.format(srun=found["srun"])),
            ("trainwright-launch", launch),
            ("all_reduce_perf", ALONE),
        ):
            (folder / "bin" / program).write_text(text)
            (folder / "bin" / program).chmod(0o755)
        own = {"SLURM_CONF": str(folder / "slurm.conf"), "PATH": f"{folder}/bin:{os.environ['PATH']}"}
        if libraries := os.environ.get("LD_LIBRARY_PATH"):
            own["LD_LIBRARY_PATH"] = libraries
        munge = [f"--{word}={folder}/{word}" for word in ("pid-file", "log-file", "seed-file")]
        commands = [
            [found["munged"], "-F", "--force", f"--key-file={folder}/key", f"--socket={folder}/munge.sock", *munge],
            [found["slurmctld"], "-D"],
            *([found["slurmd"], "-D", "-N", node, "-d", found["slurmstepd"]] for node in ("n1", "n2")),
        ]
        started = list["subprocess.Popen[bytes]"]()

        def run(program: str, *words: str) -> "subprocess.CompletedProcess[str]":
            command = [str(found[program]), *words]
            return subprocess.run(command, cwd=folder / "job", env=own, capture_output=True, text=True, timeout=WAIT)

        try:
            with (folder / "log").open("wb") as log:
                for command in commands:
                    started.append(subprocess.Popen([str(word) for word in command], env=own, stdout=log, stderr=log))
                    until(lambda: len(started) > 1 or (folder / "munge.sock").exists(), "munged")
            until(lambda: run("sinfo", "-h", "-N", "-o", "%T").stdout.split() == ["idle", "idle"], "two nodes")
            yield run
        finally:
            if len(started) == len(commands):
                run("scancel", "--user=root")
                time.sleep(1)
            for child in reversed(started):
                child.terminate()
            for child in started:
                try:
                    child.wait(10)
                except subprocess.TimeoutExpired:
                    child.kill()
                    child.wait()


def free_ports(count: int) -> list[int]:
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    try:
        return [one.getsockname()[1] for one in held]
    finally:
        for one in held:
            one.close()


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


def log_of(slurm: Run, job: str) -> Path:
    return Path(re.findall(r"StdOut=(\S+)", slurm("scontrol", "show", "job", job).stdout)[0])


def state(slurm: Run, job: str) -> str:
    return str(re.findall(r"JobState=(\w+)", slurm("scontrol", "show", "job", job).stdout)[0])


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
