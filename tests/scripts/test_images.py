"""Test scripts/test-images.sh: which images `make test` and CI use; none is built."""

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from trainwright.matrix.matrix import load_intent

ROOT = Path(__file__).parents[2]


def run(*words: str) -> subprocess.CompletedProcess[str]:
    command = [str(ROOT / "scripts/test-images.sh"), "--dry-run", *words]
    return subprocess.run(command, env=os.environ, capture_output=True, text=True, timeout=60)


def chosen(*words: str) -> list[str]:
    ended = run(*words)
    assert ended.returncode == 0, ended.stderr
    return [line.split()[0] for line in ended.stdout.splitlines()]


def test_by_whom_is_what_the_matrix_says() -> None:
    tested = load_intent(ROOT).matrix.tested
    assert chosen("--by", "make test") == tested.make_test != []
    ended = run("--by", "CI")
    assert ended.returncode == 0, ended.stderr
    said = re.findall(r"^(to prove|left out): (\S+): .", ended.stderr, re.MULTILINE)
    assert {name for _, name in said} == set(tested.ci) != set()
    assert [line.split()[0] for line in ended.stdout.splitlines()] == [
        name for what, name in said if what == "to prove"
    ]


def test_by_name() -> None:
    assert chosen("--keep", "pytorch-2.13-cpu-py311-ec2") == ["pytorch-2.13-cpu-py311-ec2"]


DOCKER = """#!/usr/bin/env bash
set -o pipefail
case "$2 $*" in
  ls*) cat {place}/engine ;;
  inspect*) grep -m1 "$5" {place}/engine.after | cut -d' ' -f2 ;;
  rm*) echo "${{@:4}}" >>{place}/removed ;;
esac
"""
PYTHON = """#!/bin/sh
case "$*" in *"$FAILING"*) exit 2 ;; esac # pytest's word for an interrupt
[ "$2" != pytest ] || exec echo "$@" >>{place}/tests
exec {python} "$@"
"""
TRAINWRIGHT = """#!/usr/bin/env bash
echo "$1" >>{place}/asked
uri=$([ {action} != skip ] || echo 127.0.0.1:1/team/a@sha256:1)
case $1 in
  list) echo '{{"images": [{{"id": "a-1.0-cpu-py311-ec2", "tested": "CI",
    "target": "sagemaker", "accelerator": "cpu"}}]}}' ;;
  ci) echo '[{{"id": "a-1.0-cpu-py311-ec2", "action": "prove", "reason": "its turn"}}]' ;;
  build) echo '[{{"id": "a-1.0-cpu-py311-ec2", "action": "{action}", "uri": "'"$uri"'"}}]' ;;
  registry) echo 127.0.0.1:1 ;;
  push) echo '[{{"uri": "127.0.0.1:1/team/a@sha256:1", "key": "k", "tags": ["a-1.0-cpu-py311-ec2-key"]}}]' ;;
esac
"""


NAME = "trainwright/a:a-1.0-cpu-py311-ec2-key"


def with_stand_ins(
    place: Path, action: str, held: bool, *words: str, recorded: str = "", failing: str = "no words"
) -> subprocess.CompletedProcess[str]:
    """Run the script with stand-ins for the engine and the command line, which record when they are asked for what."""
    (place / "scripts").mkdir()
    for name in ("test-images.sh", "lib.sh"):
        shutil.copy(ROOT / "scripts" / name, place / "scripts")
    (place / ".venv/bin").mkdir(parents=True)
    (place / "dockerfiles").mkdir()
    shutil.copy(ROOT / "dockerfiles/matrix.toml", place / "dockerfiles")
    if recorded:
        (place / "dockerfiles/proofs").mkdir()
        (place / "dockerfiles/proofs/a-1.0-cpu-py311-ec2.toml").write_text(recorded)
    commands = {
        ".venv/bin/python": PYTHON.format(place=place, python=sys.executable),
        ".venv/bin/trainwright": TRAINWRIGHT.format(action=action, place=place),
        "docker": DOCKER.format(place=place),
    }
    for name, text in commands.items():
        (place / name).write_text(text)
        (place / name).chmod(0o755)
    (place / "engine").write_text("sha256:other\n" + "sha256:own\n" * held)
    (place / "engine.after").write_text(f"{NAME} sha256:own\n")
    env = os.environ | {"PATH": f"{place}:{os.environ['PATH']}", "FAILING": failing}
    command = [str(place / "scripts/test-images.sh"), *words]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("action", ["skip", "build", "reuse"])
@pytest.mark.parametrize("held", [True, False])
@pytest.mark.parametrize("keep", [True, False])
def test_what_the_engine_held_before_stays(tmp_path: Path, action: str, held: bool, keep: bool) -> None:
    ended = with_stand_ins(tmp_path, action, held, "--by", "CI", *["--keep"] * keep)
    assert ended.returncode == 0, ended.stderr
    assert "tests/cluster/test_jobs.py --image 127.0.0.1:1/team/a@sha256:1" in (tmp_path / "tests").read_text()
    removed = tmp_path / "removed"
    assert (removed.read_text().split() if removed.exists() else []) == ([] if held or keep else [NAME])


@pytest.mark.parametrize(("action", "image"), [("build", ""), ("skip", " --image 127.0.0.1:1/team/a@sha256:1")])
def test_jobs_of_several_hosts_alone(tmp_path: Path, action: str, image: str) -> None:
    """What was built here has its own name; what a registry holds already is pulled from there. Nothing is pushed."""
    ended = with_stand_ins(tmp_path, action, False, "--cluster", "--keep", "--by", "CI")
    assert ended.returncode == 0, ended.stderr
    (said,) = (tmp_path / "tests").read_text().splitlines()
    assert f" tests/cluster{image} --variant a-1.0-cpu-py311-ec2 " in said
    assert (tmp_path / "asked").read_text().split() == ["list", "ci", "registry", "build"]


@pytest.mark.parametrize(
    ("key", "digest", "code"), [("k", "sha256:1", 0), ("k", "sha256:2", 6), ("other", "sha256:2", 0)]
)
def test_the_recorded_digest_must_come_out_again(tmp_path: Path, key: str, digest: str, code: int) -> None:
    recorded = f'key = "{key}"\ndigest = "{digest}"\n'
    ended = with_stand_ins(tmp_path, "build", False, "--keep", "--by", "CI", recorded=recorded)
    assert ended.returncode == code, ended.stderr
    assert ("came out as another image than the recorded one" in ended.stderr) == (code == 6)


@pytest.mark.parametrize("failing", ["pytest --quiet --require-engine tests/train", "tests/cluster/test_jobs.py"])
def test_failed_tests_are_an_exit_code_of_ours(tmp_path: Path, failing: str) -> None:
    ended = with_stand_ins(tmp_path, "build", False, "--keep", "--by", "CI", failing=failing)
    assert ended.returncode == 6, ended.stderr


@pytest.mark.parametrize(("began", "code"), [(0, 7), (int(time.time()), 0)], ids=["long ago", "now"])
def test_what_there_is_no_time_for_is_said_and_red(tmp_path: Path, began: int, code: int) -> None:
    ended = with_stand_ins(tmp_path, "build", False, "--keep", "--by", "CI", "--began", str(began))
    assert ended.returncode == code, ended.stderr
    assert ("not run: a-1.0-cpu-py311-ec2: CI began longer ago" in ended.stderr) == (code == 7)
    assert (tmp_path / "tests").exists() == (code == 0)


def test_jobs_of_several_hosts_may_be_somebody_elses(tmp_path: Path) -> None:
    ended = with_stand_ins(tmp_path, "build", False, "--keep", "--by", "CI", "--without-jobs")
    assert ended.returncode == 0, ended.stderr
    assert "tests/cluster" not in (tmp_path / "tests").read_text()


def test_nothing_and_nobody_are_errors() -> None:
    for words, why in (
        ((), "no image was asked for"),
        (("--by", "nobody"), "no image is built and tested by 'nobody'"),
    ):
        ended = run(*words)
        assert (ended.returncode, why in ended.stderr) == (2, True), ended.stderr
    ended = run("pytroch-*")
    assert ended.returncode != 0
    assert "no image matches" in ended.stderr
