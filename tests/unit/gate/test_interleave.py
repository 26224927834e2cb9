"""Test two images in turn: the emitted script runs them A B B A, and the logs show which one is slower."""

import gzip
import json
import re
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hosts import DIGEST, GOOD, LOGS, ROOT, SCRIPT, Host, quick, slowed
from unit.gate.launchers.conftest import KEYS

from trainwright.build import lint
from trainwright.core.errors import NotRunError
from trainwright.gate import floors, interleave, run, spec
from trainwright.matrix import instances

A = f"123456789012.dkr.ecr.us-east-1.amazonaws.com/trainwright/pytorch@{DIGEST}"
B = A.replace("a1", "b2")
TURNS = ["01-a", "02-b", "03-b", "04-a", "05-a", "06-b", "07-b", "08-a"]
ORDER = [A if turn.endswith("a") else B for turn in TURNS]
# The image's own programs know which image they are of.
DOCKER = """\
[ "$1" = run ] || exit 0
while [ "$1" != --entrypoint ]; do shift; done
echo "$3" >> "${0%/*}/ran"
IMAGE=$3; export IMAGE; shift 3
exec bash "$@"
"""
SRUN = """\
for word; do
  case $word in --container-image=*) IMAGE=${word#*=}; export IMAGE ;; esac
done
[[ "$*" != *--mpi=* ]] || echo "$IMAGE" >> "${0%/*}/ran"
while [ $# -gt 0 ] && [ "$1" != bash ]; do shift; done
exec "$@"
"""

SSH = """\
while [ $# -gt 0 ]; do case $1 in -o) shift 2 ;; *) break ;; esac; done
shift
exec bash -c "$*"
"""

Cli = Callable[..., Any]


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    """Make a host on which image B is 6% slower and the cluster becomes slower with time."""
    folder = tmp_path / "bin"
    folder.mkdir()
    host = Host(folder)
    host.program("docker", DOCKER)
    host.program("srun", SRUN)
    host.program("ssh", SSH)
    text = (LOGS / GOOD).read_text()
    (tmp_path / "fast").write_text(text)
    (tmp_path / "slow").write_text(slowed(text, 0.94, ranks=8))
    named = 'echo "c$RANDOM$RANDOM:1:1 [0] NCCL INFO Using network Libfabric"'  # each container has a name of its own
    which = f"case $IMAGE in *b2b2*) cat {tmp_path}/slow ;; *) cat {tmp_path}/fast ;; esac"
    host.program("all_reduce_perf", f"{named}; {which}")
    for name in ("PATH", "MARK"):
        monkeypatch.setenv(name, host.environment[name])
    monkeypatch.setattr(run, "gpus_here", lambda: 8)
    return host


@pytest.fixture
def checkout(tree: Path) -> Path:
    (tree / "scripts/gate.sh").write_text(quick())
    return tree


WORDS = ["--collective", "all_reduce", "--runs", "4"]


@pytest.mark.waits
def test_a_loss_is_found_here(cli: Cli, host: Host, checkout: Path) -> None:
    ended = cli(checkout, "gate", A, "--against", B, "--collective", "all_reduce", "--runs", "6", "--json")
    assert ended.code == 6, ended.err
    said = json.loads(ended.out)
    assert said["verdict"] == "regression"
    assert {round(one["change"], 2) for one in said["differences"] if one["state"] == "regression"} == {-0.06}
    assert (host.folder / "ran").read_text().split() == [*ORDER, A, B, B, A]
    (folder,) = (checkout / "out/gate").iterdir()
    assert sorted(path.stem for path in folder.iterdir())[:8] == TURNS


def test_a_run_that_fails_ends_it(cli: Cli, host: Host, checkout: Path) -> None:
    host.program("all_reduce_perf", "case $IMAGE in *b2b2*) exit 7 ;; esac")
    ended = cli(checkout, "gate", A, "--against", B, *WORDS)
    assert ended.code == 7
    assert "a run ended with code 7" in ended.err
    assert "02-b.log" in ended.err
    assert (host.folder / "ran").read_text().split() == ORDER[:2]


@pytest.mark.waits
@pytest.mark.parametrize("on", ["docker", pytest.param("ssh", marks=KEYS), "slurm"])
def test_what_is_emitted_runs_both_in_turn(cli: Cli, host: Host, tmp_path: Path, on: str) -> None:
    file = tmp_path / "both.sh"
    host.program("all_reduce_perf", f'echo "# run $RANDOM$RANDOM"; cat {LOGS / GOOD}')  # neither is slower
    hosts = tmp_path / "hosts"
    hosts.write_text("one\n")
    words = ["--gpus", "8", *(["--hosts", str(hosts)] if on == "ssh" else [])]
    ended = cli(ROOT, "gate", A, "--against", B, *WORDS, "--on", on, *words, "--emit", str(file))
    assert ended.code == 0, ended.err
    assert "at most" in ended.err
    sound(file)
    text = file.read_text()
    assert text.count(SCRIPT.read_text()) == 2  # of A and of B
    file.write_text(text.replace(SCRIPT.read_text(), quick()))
    environment = {**host.environment, "SLURM_JOB_ID": "77"}
    done = subprocess.run([file], env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    ran = (host.folder / "ran").read_text().split()
    ran = ran[::2] if on == "slurm" else ran  # under srun a short one comes first
    assert ["b2b2" in image for image in ran] == [image == B for image in ORDER]
    words = shlex.split(ended.err.splitlines()[-1])
    assert (Path(words[0]).name, words[1]) == ("trainwright", "compare")
    assert words[words.index("--world-size") + 1] == str(8)
    words = [str(tmp_path / word) if "*" in word else word for word in words]
    ended = cli(ROOT, *words[1:], "--instance", "p5.48xlarge")
    assert ended.code == 0, ended.err
    assert "no difference: a loss of 5% is excluded" in ended.out
    again = subprocess.run([file], env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert again.returncode != 0  # logs of two allocations are never mixed


def test_what_is_emitted_stops_at_a_run_that_fails(cli: Cli, host: Host, tmp_path: Path) -> None:
    file = tmp_path / "both.sh"
    host.program("all_reduce_perf", "exit 7")
    assert cli(ROOT, "gate", A, "--against", B, *WORDS, "--gpus", "8", "--emit", str(file)).code == 0
    done = subprocess.run([file], env=host.environment, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert (done.returncode, (host.folder / "ran").read_text().split()) == (7, [A])
    assert "run 01-a ended with code 7" in done.stderr


def test_slurm_keeps_one_allocation_for_all_of_it(cli: Cli, tmp_path: Path) -> None:
    words = ["--on", "slurm", "--instance", "p5.48xlarge", "--nodes", "2"]
    once, both = (
        cli(ROOT, "gate", A, *words, *more, "--emit", "-").out
        for more in ([], ["--against", B, "--runs", "4", "--collective", "all_reduce"])
    )
    assert both.startswith("#!/bin/bash\n#SBATCH")
    assert re.findall(r"^#SBATCH --nodes=(\d+)", both, re.MULTILINE) == ["2"]
    assert "--time=" in once
    sweep = spec.load_settings(ROOT).run
    minutes = -(-8 * (sweep.wait + 60 + 2 * (sweep.limit + sweep.grace + 30)) // 60)  # the first shows one world
    assert f"#SBATCH --time={minutes // 60:02}:{minutes % 60:02}:00" in both
    file = tmp_path / "both.sbatch"
    file.write_text(both)
    sound(file)


def sound(file: Path) -> None:
    said = subprocess.run([lint.program("shellcheck"), "--severity", "warning", file], capture_output=True, text=True)
    assert said.stdout == ""


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--against", B, "--on", "sagemaker"], "a training job runs one image"),
        (["--against", B, "--on", "kubernetes"], "runs in a separate job"),
        (["--against", B, "--on", "slrum"], "did you mean 'slurm'"),
        (["--against", B, "--runs", "2"], "a comparison requires at least 4 runs of each image"),
        (["--against", B, "--runs", "5"], "an even number"),
        (["--runs", "4"], "--runs requires --against"),
    ],
)
def test_what_cannot_be_compared_is_refused(cli: Cli, words: list[str], said: str) -> None:
    ended = cli(ROOT, "gate", A, *words)
    assert ended.code == 2
    assert said in ended.err


def test_fewer_ranks_and_interfaces_are_declared_of_both(cli: Cli, tmp_path: Path) -> None:
    words = ["--on", "slurm", "--instance", "p4d.24xlarge", "--nodes", "2", "--efa", "3", "--runs", "4"]
    advised = cli(ROOT, "gate", A, "--against", B, *words, "--gpus", "4").err.splitlines()[-1]
    assert "--nodes 2 --world-size 8 --instance p4d.24xlarge --nics 3" in advised
    text = (LOGS / "07_ok_p4d_2node_efa_old_error_column_interleaved_log.txt").read_text()
    text = text.replace("Selected Provider is efa", "Selected Provider is efa (found 3 nics)")
    for number, turn in enumerate(TURNS):
        (tmp_path / f"{turn}.log").write_text(f"gate: started at 2026-01-01T00:{number:02}:00Z\n{text}")
    files = ["--a", f"{tmp_path}/*-a.log", "--b", f"{tmp_path}/*-b.log", "--nodes", "2", "--instance", "p4d.24xlarge"]
    assert "nics" in cli(ROOT, "compare", *files).err
    assert cli(ROOT, "compare", *files, "--nics", "3", "--world-size", "16").code == 0
    assert "rank count" in cli(ROOT, "compare", *files, "--nics", "3", "--world-size", "8").err

    table, floor = instances.load_instances(ROOT), floors.load_floors(ROOT)
    asked: dict[str, Any] = {"instance": "p4d.24xlarge", "nodes": 2, "efa": 3}
    run = spec.make(spec.load_settings(ROOT), table, floor, name="gate", **asked)
    assert interleave.compared(ROOT, interleave.pair(run, run, 4), "slurm", tmp_path).verdict == "no difference"
    half = run.model_copy(update={"gpus": 4})
    with pytest.raises(NotRunError, match="has no valid speed"):
        interleave.compared(ROOT, interleave.pair(half, half, 4), "slurm", tmp_path)


def test_a_copy_is_no_run(cli: Cli, tmp_path: Path) -> None:
    text = (LOGS / GOOD).read_text()
    for turn in TURNS:
        (tmp_path / f"{turn}.log").write_text(f"gate: run {turn}\n{text}")
    files = ["--a", f"{tmp_path}/*-a.log", "--b", f"{tmp_path}/*-b.log"]
    assert "is a copy of" not in cli(ROOT, "compare", *files).err
    (tmp_path / "03-b.log").write_bytes(gzip.compress((tmp_path / "02-b.log").read_bytes()))
    ended = cli(ROOT, "compare", *files)
    assert (ended.code, ended.out) == (7, "")
    assert "is a copy of" in ended.err
