"""scripts/test-images.sh: which images `make test` and CI take, without building one."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from trainwright.matrix import load_intent

ROOT = Path(__file__).parents[2]


def run(*words: str) -> subprocess.CompletedProcess[str]:
    command = [str(ROOT / "scripts/test-images.sh"), "--dry-run", *words]
    return subprocess.run(command, env=os.environ, capture_output=True, text=True, timeout=60)


def chosen(*words: str) -> list[str]:
    ended = run(*words)
    assert ended.returncode == 0, ended.stderr
    return [line.split()[0] for line in ended.stdout.splitlines()]


def test_by_whom_is_what_the_matrix_says() -> None:
    variants = load_intent(ROOT).variants
    for by in ("make test", "CI"):
        assert chosen("--by", by) == [variant.id for variant in variants if variant.tested == by] != []


def test_by_name() -> None:
    assert chosen("--keep", "--only", "pytorch-2.13-cpu-py311-ec2") == ["pytorch-2.13-cpu-py311-ec2"]


DOCKER = """#!/usr/bin/env bash
set -o pipefail
case "$2 $*" in
  ls*) cat {place}/engine ;;
  inspect*) grep -m1 "$5" {place}/engine.after | cut -d' ' -f2 ;;
  rm*) echo "${{@:4}}" >>{place}/removed ;;
esac
"""
PYTHON = """#!/bin/sh
[ "$2" != pytest ] || exec echo "$@" >>{place}/tests
exec {python} "$@"
"""
TRAINWRIGHT = """#!/usr/bin/env bash
echo "$1" >>{place}/asked
uri=$([ {action} != skip ] || echo 127.0.0.1:1/team/a@sha256:1)
case $1 in
  list) echo '{{"images": [{{"id": "a-1.0-cpu-py311-ec2", "target": "ec2", "accelerator": "cpu", "tested": "CI"}}]}}' ;;
  build) echo '[{{"id": "a-1.0-cpu-py311-ec2", "action": "{action}", "uri": "'"$uri"'"}}]' ;;
  push) echo '[{{"uri": "127.0.0.1:1/team/a@sha256:1", "tags": ["a-1.0-cpu-py311-ec2-key"]}}]' ;;
esac
"""


NAME = "trainwright/a:a-1.0-cpu-py311-ec2-key"


def with_stand_ins(place: Path, action: str, held: bool, *words: str) -> subprocess.CompletedProcess[str]:
    """The engine and the command line stand in for themselves: only what is asked of them, and when, is of interest."""
    (place / "scripts").mkdir()
    for name in ("test-images.sh", "lib.sh"):
        shutil.copy(ROOT / "scripts" / name, place / "scripts")
    (place / ".venv/bin").mkdir(parents=True)
    commands = {
        "scripts/registry.sh": "#!/bin/sh\necho 127.0.0.1:1\n",
        ".venv/bin/python": PYTHON.format(place=place, python=sys.executable),
        ".venv/bin/trainwright": TRAINWRIGHT.format(action=action, place=place),
        "docker": DOCKER.format(place=place),
    }
    for name, text in commands.items():
        (place / name).write_text(text)
        (place / name).chmod(0o755)
    (place / "engine").write_text("sha256:other\n" + "sha256:own\n" * held)
    (place / "engine.after").write_text(f"{NAME} sha256:own\n")
    env = os.environ | {"PATH": f"{place}:{os.environ['PATH']}"}
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
    assert (tmp_path / "asked").read_text().split() == ["list", "build"]


def test_nothing_and_nobody_are_errors() -> None:
    assert (run().returncode, "no image was asked for" in run().stderr) == (2, True)
    assert (
        run("--by", "nobody").returncode,
        "no image is built and tested by 'nobody'" in run("--by", "nobody").stderr,
    ) == (
        2,
        True,
    )
    ended = run("--only", "pytroch-*")
    assert ended.returncode != 0
    assert "no image is called" in ended.stderr
