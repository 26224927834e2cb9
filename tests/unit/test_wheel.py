"""Test the wheel: it holds every module and their data, so that every command works without a checkout."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "build/trainwright"
START = "import sys; sys.path.insert(0, sys.argv.pop(1)); from trainwright.cli import main; main()"
# Imports the command line of the wheel once, and forks for each command: to start takes longer than most commands.
SERVE = """
import json, os, sys
sys.path.insert(0, sys.argv[1])
from trainwright import cli
from trainwright.commands import options
for line in sys.stdin:
    folder, files, words = json.loads(line)
    if not (child := os.fork()):
        os.chdir(folder)
        for number, file in enumerate(files, 1):
            os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
        sys.argv = ["trainwright", *words]
        sys.exit(cli.main())
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
FAILED = (
    'Traceback (most recent call last):\n  File "/job/train.py", line 7, in main\nValueError: 3 channels expected\n'
)
FLOOR = "p5.48xlarge"
TEAM, PROVED = "base-1.0-cpu-py313-ec2-team", "base-1.0-cpu-py313-sagemaker"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from what git would hand out, without a network."""
    folder = tmp_path_factory.mktemp("wheel")
    skipped = shutil.ignore_patterns(
        *(".venv", ".sdk", ".docs", ".git", "out", "dist", "__pycache__", ".*_cache", ".hypothesis"),
        *("unit", "golden", "benchmarks"),
    )
    shutil.copytree(ROOT, folder / "clone", ignore=skipped)
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=folder / "clone", check=True, capture_output=True)
    (found,) = folder.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that an installer unpacks the wheel into."""
    folder = tmp_path_factory.mktemp("site")
    with ZipFile(wheel) as archive:
        archive.extractall(folder)
        for entry in archive.infolist():  # as installers do: keys depend on what can be executed
            if entry.external_attr >> 16 & 0o100:
                (folder / entry.filename).chmod(0o755)
    # The same source is compiled already, in the checkout: with its time, what was compiled is that of the copy, too.
    for path in PACKAGE.rglob("*.py"):
        about = path.stat()
        os.utime(folder / "trainwright" / path.relative_to(PACKAGE), ns=(about.st_atime_ns, about.st_mtime_ns))
    for cache in PACKAGE.rglob("__pycache__"):
        shutil.copytree(cache, folder / "trainwright" / cache.relative_to(PACKAGE))
    return folder


Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def run(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """Return a function that runs a command of the wheel in a folder, each in a process of its own."""
    files = [str(tmp_path_factory.mktemp("said") / name) for name in ("out", "err")]
    command = [sys.executable, "-I", "-c", SERVE, str(installed)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1) as server:

        def call(folder: Path, *words: str) -> "subprocess.CompletedProcess[str]":
            assert server.stdin
            assert server.stdout
            server.stdin.write(json.dumps([str(folder), files, words]) + "\n")
            code = int(server.stdout.readline())
            return subprocess.CompletedProcess(words, code, *(Path(file).read_text() for file in files))

        yield call


def test_the_wheel_holds_every_module(wheel: Path) -> None:
    held = set(ZipFile(wheel).namelist())
    assert {f"trainwright/{path.relative_to(PACKAGE)}" for path in PACKAGE.rglob("*.py")} <= held
    assert not [name for name in held if name.startswith(("build/", "tests/")) or name.endswith(".pyc")]


def test_diagnose_and_watch_without_a_checkout(run: Run, tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text(FAILED)
    done = run(tmp_path, "diagnose", "train.log", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)[0]["cause"] == "exception"
    log.write_text("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n")
    done = run(tmp_path, "watch", "train.log")
    assert "out-of-memory: " in done.stdout + done.stderr


def test_diagnose_a_job_without_a_checkout(run: Run, tmp_path: Path) -> None:
    (tmp_path / "job").mkdir()
    for rank, text in enumerate((FAILED, "RuntimeError: Connection closed by peer [10.0.0.1]:99\n")):
        (tmp_path / f"job/rank-{rank}.log").write_text(text)
    done = run(tmp_path, "diagnose", "job", "--json", "--html", "job.html")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)[0]["job"]["failed_first"] == [0]
    assert (tmp_path / "job.html").read_text().startswith("<!doctype html>")


def test_judge_and_estimate_without_a_checkout(run: Run, tmp_path: Path) -> None:
    log = next((ROOT / "tests/unit/nccl-tests").glob("*_ok_*.txt"))
    done = run(tmp_path, "judge", str(log), "--json")
    assert done.returncode in (0, 7), done.stderr
    assert json.loads(done.stdout)[0]["verdict"]
    done = run(tmp_path, "estimate", "--parameters", "7B", "--instance", FLOOR, "--nodes", "16", "--json")
    assert done.returncode == 0, done.stderr


def test_a_checkout_wins(run: Run, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "dockerfiles/causes", tmp_path / "dockerfiles/causes")
    for name in ("diagnose", "diagnose-job", "floors", "instances", "follow", "stragglers", "matrix"):
        shutil.copyfile(ROOT / f"dockerfiles/{name}.toml", tmp_path / f"dockerfiles/{name}.toml")
    table = tmp_path / "dockerfiles/causes/script.toml"
    table.write_text(table.read_text().replace("the program raised {told}", "this checkout says {told}"))
    (tmp_path / "train.log").write_text(FAILED)
    assert "this checkout says ValueError" in run(tmp_path, "diagnose", "train.log").stdout


def test_a_team_starts_with_the_wheel_alone(run: Run, installed: Path, tmp_path: Path, cli: Any) -> None:
    """A project with a row and a component of its own, from an empty folder; and images of ours have our keys."""
    done = run(tmp_path, "init", "team")
    assert done.returncode == 0, done.stderr
    team = tmp_path / "team"
    (team / "job.log").write_text("Traceback (most recent call last):\nFeatureStoreError: no answer from 10.0.0.1\n")
    rows = json.loads(run(team, "list", "base-1.0-cpu-*", "--json").stdout)["images"]
    assert TEAM in [row["id"] for row in rows]
    here = json.loads(cli(ROOT, "list", PROVED, "--json").out)["images"]
    said = [(row["state"], row["reason"]) for row in rows if row["id"] == PROVED]
    assert said == [(row["state"], row["reason"]) for row in here]  # the wheel's tests and proving code are the same
    ours = json.loads(cli(ROOT, "plan", "base-1.0-cpu-*", "--json").out)
    theirs = json.loads(run(team, "plan", "base-1.0-cpu-*", "--json").stdout)
    assert {row["id"]: row["key"] for row in ours}.items() < {row["id"]: row["key"] for row in theirs}.items()
    done = run(team, "render", TEAM)
    assert done.returncode == 0, done.stderr
    assert "/opt/team/bin" in (team / f"out/{TEAM}/Dockerfile").read_text()
    assert "team-no-features" in run(team, "diagnose", "job.log").stdout
    before = sorted(path for path in installed.rglob("*") if "__pycache__" not in path.parts)
    assert run(team, "upgrade").returncode == 0
    assert sorted(path for path in installed.rglob("*") if "__pycache__" not in path.parts) == before


def test_a_push_without_pytest_says_what_to_install(installed: Path, tmp_path: Path) -> None:
    """Before minutes of a build."""
    without = f"import sys; sys.modules['pytest'] = None; {START}"
    command = [sys.executable, "-I", "-c", without, str(installed), "test", "base-1.0-cpu-py313-ec2"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 10
    assert "the image tests require pytest" in done.stderr
    assert "trainwright[prove]" in done.stderr
