"""Diagnose logs with causes and expressions that are compiled once for all tests, as one command compiles them once."""

import tomllib
from functools import lru_cache
from pathlib import Path
from typing import Any

from trainwright.gate import diagnosis

ROOT = Path(__file__).parents[3]

# Texts of which tests put logs together.
CALM = "page typeset\n"
OOM = "torch.OutOfMemoryError: CUDA out of memory.\n"
RAISED = 'Traceback (most recent call last):\n  File "/job/train.py", line 5, in <module>\n    main()\n{}\n'
SECOND = RAISED.format("ValueError: b")


def lines() -> list[dict[str, Any]]:
    """Return the rows of lines/: the text of a log, and the cause that the answer must name for it."""
    files = sorted((Path(__file__).parent / "lines").glob("*.toml"))
    return [row for file in files for row in tomllib.loads(file.read_text())["logs"]]


@lru_cache
def known() -> diagnosis.Known:
    return diagnosis.known_of(ROOT)


def diagnosed(*paths: Path) -> list[dict[str, Any]]:
    return diagnosis.diagnosed(ROOT, [str(path) for path in paths], known())


def told(folder: Path, text: str) -> dict[str, Any]:
    """Return the answer for a log of this text, which is written into a folder."""
    path = folder / "log"
    path.write_text(text)
    (answer,) = diagnosed(path)
    return answer
