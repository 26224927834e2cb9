"""Test the wheel: it holds every module and their data, so that every command works without a checkout."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "build/trainwright"
START = "import sys; sys.path.insert(0, sys.argv.pop(1)); from trainwright.cli import main; main()"
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
    return folder


def run(installed: Path, folder: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-I", "-c", START, str(installed), *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True)


def test_the_wheel_holds_every_module(wheel: Path) -> None:
    held = set(ZipFile(wheel).namelist())
    assert {f"trainwright/{path.relative_to(PACKAGE)}" for path in PACKAGE.rglob("*.py")} <= held
    assert not [name for name in held if name.startswith(("build/", "tests/")) or name.endswith(".pyc")]


def test_diagnose_and_watch_without_a_checkout(installed: Path, tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text(FAILED)
    done = run(installed, tmp_path, "diagnose", "train.log", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)[0]["cause"] == "exception"
    log.write_text("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n")
    done = run(installed, tmp_path, "watch", "train.log")
    assert "out-of-memory: " in done.stdout + done.stderr


def test_diagnose_a_job_without_a_checkout(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "job").mkdir()
    for rank, text in enumerate((FAILED, "RuntimeError: Connection closed by peer [10.0.0.1]:99\n")):
        (tmp_path / f"job/rank-{rank}.log").write_text(text)
    done = run(installed, tmp_path, "diagnose", "job", "--json", "--html", "job.html")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)[0]["job"]["failed_first"] == [0]
    assert (tmp_path / "job.html").read_text().startswith("<!doctype html>")


def test_judge_and_estimate_without_a_checkout(installed: Path, tmp_path: Path) -> None:
    log = next((ROOT / "tests/unit/nccl-tests").glob("*_ok_*.txt"))
    done = run(installed, tmp_path, "judge", str(log), "--json")
    assert done.returncode in (0, 7), done.stderr
    assert json.loads(done.stdout)[0]["verdict"]
    done = run(installed, tmp_path, "estimate", "--parameters", "7B", "--instance", FLOOR, "--nodes", "16", "--json")
    assert done.returncode == 0, done.stderr


def test_a_checkout_wins(installed: Path, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "dockerfiles/causes", tmp_path / "dockerfiles/causes")
    for name in ("diagnose", "diagnose-job", "floors", "instances", "follow", "stragglers", "matrix"):
        shutil.copyfile(ROOT / f"dockerfiles/{name}.toml", tmp_path / f"dockerfiles/{name}.toml")
    table = tmp_path / "dockerfiles/causes/script.toml"
    table.write_text(table.read_text().replace("the script raised {told}", "this checkout says {told}"))
    (tmp_path / "train.log").write_text(FAILED)
    assert "this checkout says ValueError" in run(installed, tmp_path, "diagnose", "train.log").stdout


def test_a_team_starts_with_the_wheel_alone(installed: Path, tmp_path: Path, cli: Any) -> None:
    """A project with a row and a component of its own, from an empty folder; and images of ours have our keys."""
    done = run(installed, tmp_path, "init", "team")
    assert done.returncode == 0, done.stderr
    team = tmp_path / "team"
    (team / "job.log").write_text("Traceback (most recent call last):\nFeatureStoreError: no answer from 10.0.0.1\n")
    rows = json.loads(run(installed, team, "list", "base-1.0-cpu-*", "--json").stdout)["images"]
    assert TEAM in [row["id"] for row in rows]
    here = json.loads(cli(ROOT, "list", PROVED, "--json").out)["images"]
    said = [(row["state"], row["reason"]) for row in rows if row["id"] == PROVED]
    assert said == [(row["state"], row["reason"]) for row in here]  # the wheel's tests and proving code are the same
    ours = json.loads(cli(ROOT, "plan", "base-1.0-cpu-*", "--json").out)
    theirs = json.loads(run(installed, team, "plan", "base-1.0-cpu-*", "--json").stdout)
    assert {row["id"]: row["key"] for row in ours}.items() < {row["id"]: row["key"] for row in theirs}.items()
    done = run(installed, team, "render", TEAM)
    assert done.returncode == 0, done.stderr
    assert "/opt/team/bin" in (team / f"out/{TEAM}/Dockerfile").read_text()
    assert "team-no-features" in run(installed, team, "diagnose", "job.log").stdout
    before = sorted(path for path in installed.rglob("*") if "__pycache__" not in path.parts)
    assert run(installed, team, "upgrade").returncode == 0
    assert sorted(path for path in installed.rglob("*") if "__pycache__" not in path.parts) == before


def test_a_push_without_pytest_says_what_to_install(installed: Path, tmp_path: Path) -> None:
    """Before minutes of a build."""
    without = f"import sys; sys.modules['pytest'] = None; {START}"
    command = [sys.executable, "-I", "-c", without, str(installed), "test", "base-1.0-cpu-py313-ec2"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 10
    assert "the image tests require pytest" in done.stderr
    assert "trainwright[prove]" in done.stderr
