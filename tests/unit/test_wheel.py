"""Test the wheel: it holds every module and their data, so that four commands work without a checkout."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "build/trainwright"
START = "import sys; sys.path.insert(0, sys.argv.pop(1)); from trainwright.cli import main; main()"
FAILED = (
    'Traceback (most recent call last):\n  File "/job/train.py", line 7, in main\nValueError: 3 channels expected\n'
)
FLOOR = "p5.48xlarge"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from what git would hand out, without a network."""
    folder = tmp_path_factory.mktemp("wheel")
    skipped = shutil.ignore_patterns(
        ".venv", ".sdk", ".docs", ".git", "out", "dist", "__pycache__", ".*_cache", ".hypothesis", "tests", "benchmarks"
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
    return folder


def run(installed: Path, folder: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-I", "-c", START, str(installed), *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True)


def test_the_wheel_holds_every_module(wheel: Path) -> None:
    held = set(ZipFile(wheel).namelist())
    assert {f"trainwright/{path.relative_to(PACKAGE)}" for path in PACKAGE.rglob("*.py")} <= held
    assert not [name for name in held if name.startswith(("build/", "tests/"))]


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


def test_what_needs_a_checkout_says_so(installed: Path, tmp_path: Path) -> None:
    done = run(installed, tmp_path, "list")
    assert done.returncode == 2
    assert "this folder is not in a trainwright checkout" in done.stderr
