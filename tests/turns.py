"""Take some of many cases at each commit, so that a few commits in a row take them all."""

import subprocess
from pathlib import Path
from typing import TypeVar

ROOT = Path(__file__).parents[1]
Case = TypeVar("Case")


def commits() -> int:
    """Count the commits up to this one; 0 outside a repository."""
    words = ["git", "rev-list", "--count", "HEAD"]
    return int(subprocess.run(words, cwd=ROOT, capture_output=True, text=True).stdout.strip() or 0)


def taken(cases: list[Case], count: int, commit: int | None = None) -> list[Case]:
    """Return the `count` cases of a commit, whose number is how many commits there are up to it."""
    start = (commits() if commit is None else commit) * count
    return [cases[(start + number) % len(cases)] for number in range(count)]
