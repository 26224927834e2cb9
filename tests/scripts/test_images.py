"""scripts/test-images.sh: which images `make test` and CI take, without building one."""

import os
import subprocess
from pathlib import Path

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
