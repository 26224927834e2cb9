"""Failure signatures: lines of a log that name a cause. The rows are dockerfiles/causes.toml."""

import re
from pathlib import Path

from pydantic import Field

from trainwright.config import load
from trainwright.errors import printable
from trainwright.model import Model
from trainwright.nccl_tests import LOOKED_AT

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
    )  # regular expressions, each of which some line must hold; none: the judge's checks say it
    without: list[str] = Field(default=[])  # and these no line
    fix: str
    fatal: bool = False  # such a log, once it is over, proves a failure
    stops: bool = False  # no program lives on after such lines: a job that still runs is as good as over
    network: bool = False  # between hosts: of no weight where the job is known to have one alone
    seen: str


class Causes(Model):
    """The whole of causes.toml."""

    causes: list[Cause]  # the closed list of what a verdict may name


def load_causes(root: Path) -> list[Cause]:
    return load(root / FILE, Causes).causes


class Signatures:
    """Feed it every line; afterwards `found` are the causes whose lines were all seen, the most specific first."""

    def __init__(self, causes: list[Cause]) -> None:
        self.causes = causes
        texts = dict.fromkeys(text for cause in causes for text in [*cause.lines, *cause.without])
        self._any = re.compile("|".join(f"(?:{text})" for text in texts) or r"(?!)")  # one look for most lines
        self._each = {text: re.compile(text) for text in texts}
        self._seen: dict[str, tuple[int, str]] = {}
        self._shapes = set[str]()  # of what NCCL says at length, without its numbers: looked at once

    def feed(self, text: str, number: int) -> bool:
        """Whether the line meets a condition that no line before it met."""
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
        """Each with its evidence: the line of its last condition."""
        return [
            (cause, "; ".join("line {}: {}".format(*self._seen[text]) for text in cause.lines))
            for cause in self.causes
            if cause.lines
            and all(text in self._seen for text in cause.lines)
            and not any(text in self._seen for text in cause.without)
        ]
