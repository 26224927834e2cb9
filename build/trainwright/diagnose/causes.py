"""Match failure signatures: log lines that identify a cause. The rows are `dockerfiles/causes.toml`."""

import re
from pathlib import Path

from pydantic import Field

from trainwright.core.errors import printable
from trainwright.core.toml import Model, load
from trainwright.diagnose.log_lines import LOOKED_AT

FILE = "dockerfiles/causes.toml"
NO_DIGITS = str.maketrans("", "", "0123456789")
MOST_SHAPES = 10_000
BULK = ("NCCL INFO Channel", "opCount", "NCCL INFO Ring", "NCCL INFO Trees")  # most of a long log


class Cause(Model):
    """One signature."""

    id: str
    what: str
    lines: list[str] = Field(
        default=[]
    )  # regular expressions that must each match some line; none: the judge's checks find the cause
    without: list[str] = Field(default=[])  # regular expressions that must match no line
    fix: str
    fatal: bool = False  # a finished log with this cause proves a failure
    stops: bool = False  # no program survives such lines: a job that still runs counts as over
    network: bool = False  # between hosts: ignored if the job is known to have one host
    seen: str


class Causes(Model):
    """The whole of causes.toml."""

    causes: list[Cause]  # the closed list of causes that a verdict may name


def load_causes(root: Path) -> list[Cause]:
    return load(root / FILE, Causes).causes


class Signatures:
    """A matcher to feed every line to; `found` then holds the causes whose conditions are met, most specific first."""

    def __init__(self, causes: list[Cause]) -> None:
        self.causes = causes
        texts = dict.fromkeys(text for cause in causes for text in [*cause.lines, *cause.without])
        self._any = re.compile("|".join(f"(?:{text})" for text in texts) or r"(?!)")  # one search for most lines
        self._each = {text: re.compile(text) for text in texts}
        self._seen: dict[str, tuple[int, str]] = {}
        self._shapes = set[str]()  # NCCL's bulk lines without their digits: each is searched once

    def feed(self, text: str, number: int) -> bool:
        """Return whether the line meets a condition that no earlier line met."""
        text = printable(text[:LOOKED_AT])
        if any(word in text for word in BULK):
            shape = text.translate(NO_DIGITS)
            if shape in self._shapes:
                return False
            if len(self._shapes) < MOST_SHAPES:
                self._shapes.add(shape)
        if len(self._seen) == len(self._each) or not self._any.search(text):
            return False
        met = len(self._seen)
        for pattern, compiled in self._each.items():
            if pattern not in self._seen and compiled.search(text):
                self._seen[pattern] = (number, text.strip()[:500])
        return len(self._seen) > met

    @property
    def found(self) -> list[tuple[Cause, str]]:
        """Return each found cause with its evidence: the matching line of every condition."""
        return [
            (cause, "; ".join("line {}: {}".format(*self._seen[text]) for text in cause.lines))
            for cause in self.causes
            if cause.lines
            and all(text in self._seen for text in cause.lines)
            and not any(text in self._seen for text in cause.without)
        ]
