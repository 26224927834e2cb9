"""Take some of many cases at each commit, so that a few commits in a row take them all."""

import subprocess
from pathlib import Path
from typing import TypeVar

ROOT = Path(__file__).parents[1]
Case = TypeVar("Case")


def commits() -> int:
    """Count the commits up to this one; in a shallow clone, which has not all, a number of this commit alone."""
    if _git("rev-parse", "--is-shallow-repository") == "true":
        return int(_git("rev-parse", "HEAD"), 16)
    return int(_git("rev-list", "--count", "HEAD") or 0)


def taken(cases: list[Case], count: int, commit: int | None = None) -> list[Case]:
    """Return the `count` cases of a commit, whose number is how many commits there are up to it."""
    start = (commits() if commit is None else commit) * count
    return [cases[(start + number) % len(cases)] for number in range(count)]


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True).stdout.strip()
