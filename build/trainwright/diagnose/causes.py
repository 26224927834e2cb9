"""Match failure signatures: log lines that identify a cause. The rows are `dockerfiles/causes/*.toml`."""

import copy
import re
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Annotated

from ahocorasick_rs import BytesAhoCorasick, Implementation
from pydantic import AfterValidator, Field

from trainwright.core.errors import ConfigError, masked, printable
from trainwright.core.toml import Model, load
from trainwright.diagnose.anchors import literals, split
from trainwright.diagnose.log_lines import LOOKED_AT, Moment, moment, unprefixed

FOLDER = "dockerfiles/causes"
MOST_TEXT = 500  # characters of a line that are kept as evidence
LATER = 4  # later candidates of a met condition that are kept
SURVIVED = 3  # lines of progress after an error which show that the program went on
BOUND = re.compile(r"(?<!\[)\^|\$|\\[ABZ]|\(\?<?[=!]|[^\x00-\x7f]")  # where prefixes or the end of a line matter
CODE = re.compile(  # of a traceback, with IPython's numbers or without
    r"\s*(?:-+> ?)?\d{1,6}\s+(?:if|elif|except|return|raise|assert|with|def)\b|\s{4,}(?:if|elif|except|def)\b.*:$"
)
RAISING = re.compile(r"\s*raise ")
ANY, EARLIER = "any", "earlier"  # words in `follows` that stand for no id


@lru_cache(maxsize=4096)
def searchable(text: str) -> str:
    """Return an expression that can be searched for. Raises ValueError for one that is not valid or has no literal."""
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"{text!r} is not a regular expression: {error}") from None
    literals(text)
    return text


Expression = Annotated[str, AfterValidator(searchable)]


class Cause(Model):
    """One signature."""

    id: str
    what: str
    lines: list[Expression] = Field(
        default=[]
    )  # regular expressions that must each match some line; none: the judge's checks, or a traceback, find the cause
    without: list[Expression] = Field(default=[])  # regular expressions that must match no line
    until: list[Expression] = Field(default=[])  # a line behind it that meets one: a later try succeeded
    follows: list[str] = Field(default=[])  # ids of causes that this one follows from; see dockerfiles/causes/README.md
    fix: str
    fixes: dict[str, str] = Field(default={})  # by place, as dockerfiles/diagnose.toml names them
    fatal: bool = False  # a finished log with this cause proves a failure
    stops: bool = False  # no program survives such lines: a job that still runs counts as over
    outside: bool = False  # the program ran until then, and was ended by a person, a scheduler or the kernel
    network: bool = False  # between hosts: ignored if the job is known to have one host
    slows: bool = False  # a job that goes on after it does so on a slower path: a cause all the same
    seen: str


class Causes(Model):
    """One file of the folder."""

    causes: list[Cause]  # all files together: the closed list of causes that a verdict may name
    later: dict[str, Expression] = Field(default={})  # expressions that `until` of several rows names

    def rows(self) -> list[Cause]:
        """Return the causes, with what they name in `until` in its place."""
        named = ([self.later.get(text, text) for text in cause.until] for cause in self.causes)
        return [cause.model_copy(update={"until": until}) for cause, until in zip(self.causes, named, strict=True)]


def load_causes(root: Path) -> list[Cause]:
    """Return the rows of all files, in the order of their names. Raises ConfigError."""
    files = sorted((root / FOLDER).glob("*.toml"))
    if not files:
        raise ConfigError("the causes are missing", where=FOLDER, fix=f"git checkout -- {FOLDER}")
    return [cause for file in files for cause in load(file, Causes).rows()]


@dataclass
class Met:
    """A condition that a line met: the first such line, and candidates for the last one."""

    number: int
    text: str
    rank: str
    when: Moment | None
    progress: int  # lines of progress before it
    later: deque[tuple[int, bytes, int]] = field(default_factory=lambda: deque(maxlen=LATER))

    def last(self, expression: re.Pattern[str]) -> tuple[int, int, str]:
        """Return the number of the last line that meets the condition, lines of progress before it, and its text."""
        return next(self.latest(expression))

    def latest(self, expression: re.Pattern[str]) -> Iterator[tuple[int, int, str]]:
        """Yield number, progress and text of each kept line that meets the condition, the newest first."""
        for number, text, progress in reversed(self.later):
            parts = (unprefixed(part[:LOOKED_AT].decode(errors="replace"))[0] for part in text.split(b"\r"))
            if (
                part := next((part for part in parts if expression.search(part) and not CODE.match(part)), None)
            ) is not None:
                yield number, progress, cut(part, expression)
        yield self.number, self.progress, self.text


def cut(text: str, expression: re.Pattern[str]) -> str:
    """Return a line without credentials, shortened to MOST_TEXT characters that hold the words of the expression."""
    text = masked(text.strip())
    found = expression.search(text)
    if not found or found.end() <= MOST_TEXT:
        return text[:MOST_TEXT]
    head = text[: MOST_TEXT // 4]
    return f"{head} ... {text[found.end() - (MOST_TEXT - len(head) - 5) : found.end()]}"


class Compiled:
    """What follows from the texts of conditions alone: expressions, and the literals of which a match holds one."""

    def __init__(self, texts: tuple[str, ...]) -> None:
        self.texts = texts
        self.numbers = {text: number for number, text in enumerate(texts)}
        self.each = [re.compile(text) for text in texts]
        anchors = dict[str, dict[int, list[str]]]()  # with the alternatives of each condition that hold the literal
        for number, text in enumerate(texts):
            for alternative in split(text):
                for literal in literals(alternative):
                    anchors.setdefault(literal, {}).setdefault(number, []).append(alternative)
        self.anchors = [anchor.encode() for anchor in anchors]
        self.behind = [list(conditions) for conditions in anchors.values()]  # of each anchor
        # The same for lines as they are, with prefixes, where that makes no difference: most lines need no more.
        self.raw = [{one: _raw("|".join(some)) for one, some in each.items()} for each in anchors.values()]
        self.words = BytesAhoCorasick(self.anchors, implementation=Implementation.DFA)


@lru_cache(maxsize=4)
def compiled(texts: tuple[str, ...]) -> Compiled:
    """Compile conditions. The result is kept, because all logs of a folder, and ranks of a job, have the same ones."""
    return Compiled(texts)


class Conditions:
    """Regular expressions to look for in lines; only lines that hold a literal of one of them are searched."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._compiled = compiled(tuple(dict.fromkeys(texts)))
        self.texts, self.each, self.behind = self._compiled.texts, self._compiled.each, self._compiled.behind
        self.anchors = self._compiled.anchors
        self.met: dict[int, Met] = {}
        self.progress = 0

    def fresh(self) -> "Conditions":
        """Return the same conditions, none of them met."""
        other = copy.copy(self)
        other.met, other.progress = {}, 0
        return other

    def candidates(self, text: str) -> set[int]:
        """Return the conditions that a line may meet."""
        hits = self._compiled.words.find_matches_as_indexes(text.encode(errors="replace"), overlapping=True)
        return {number for index, _, _ in hits for number in self.behind[index]}

    def may_meet(self, one: int, anchor: int, line: bytes) -> bool:
        """Return False for a line that does not meet a condition by an anchor in it, whatever its prefixes are."""
        expression = self._compiled.raw[anchor][one]
        return expression is None or not line.isascii() or bool(expression.search(line))

    def look(self, text: str, number: int, rank: str, which: Iterable[int], raw: str = "") -> bool:
        """Search a line without its prefixes; return whether it meets a condition that no earlier line met."""
        new = False
        for one in which:
            if one in self.met:
                self.met[one].later.append((number, text.encode(errors="replace"), self.progress))
            elif self.each[one].search(text) and not CODE.match(text):
                self.met[one] = Met(number, cut(text, self.each[one]), rank, moment(raw or text), self.progress)
                new = True
        return new

    @property
    def met_texts(self) -> set[str]:
        """Return the texts of the conditions that a line met."""
        return {self.texts[number] for number in self.met}

    def at(self, text: str) -> Met | None:
        """Return the first line that met a condition."""
        return self.met.get(self._compiled.numbers[text])

    def last(self, text: str) -> tuple[int, int, str]:
        """Return the number of the last line that met a condition, the lines of progress before it, and its text."""
        number = self._compiled.numbers[text]
        return self.met[number].last(self.each[number])


def _raw(text: str) -> re.Pattern[bytes] | None:
    return None if BOUND.search(text) else re.compile(text.encode())


@dataclass
class Finding:
    """A cause that a log shows."""

    cause: Cause
    number: int  # of its decisive line, the one that meets the first condition
    evidence: list[tuple[int, str]]
    rank: str = ""
    when: Moment | None = None
    survived: bool = False  # the program went on after it

    @property
    def told(self) -> str:
        return "; ".join(f"line {number}: {text}" for number, text in self.evidence)


class Signatures:
    """A matcher to feed every line to; `found` holds the causes whose conditions are met, what came first first."""

    def __init__(self, causes: list[Cause], more: Iterable[str] = ()) -> None:
        self.causes = causes
        texts = (text for one in causes for text in [*one.lines, *one.without, *one.until])
        self.conditions = Conditions([*texts, *more])

    def fresh(self) -> "Signatures":
        """Return the same signatures, none of them found."""
        other = copy.copy(self)
        other.conditions = self.conditions.fresh()
        return other

    def feed(self, text: str, number: int, rank: str = "") -> bool:
        """Return whether the line, which has no prefixes, meets a condition that no earlier line met."""
        text = printable(text[:LOOKED_AT])
        which = self.conditions.candidates(text)
        return bool(which) and self.conditions.look(text, number, rank, which)

    @property
    def findings(self) -> list[Finding]:
        """Return the causes whose conditions are met, in the order of their rows."""
        met = self.conditions.met_texts  # a cause whose first condition is not among them needs no closer look
        likely = (cause for cause in self.causes if cause.lines and cause.lines[0] in met)
        return [finding for cause in likely if (finding := self._finding(cause))]

    def _finding(self, cause: Cause) -> Finding | None:
        met = [one for text in cause.lines if (one := self.conditions.at(text))]
        if len(met) < len(cause.lines) or any(self.conditions.at(text) for text in cause.without):
            return None
        first = met[0]
        if RAISING.match(first.text):  # a line of code; the exception says more
            number, _, text = self.conditions.last(cause.lines[0])
            if not RAISING.match(text):
                met[0] = first = replace(first, number=number, text=text, when=None)
        after = self.conditions.progress - self.conditions.last(cause.lines[0])[1]
        evidence = {one.number: one.text for one in met}
        return Finding(
            cause, first.number, list(evidence.items()), first.rank, first.when, after >= SURVIVED and not cause.stops
        )

    @property
    def found(self) -> list[tuple[Cause, str]]:
        """Return each found cause with its evidence: the matching line of every condition."""
        return [(one.cause, one.told) for one in ordered(self.findings)]


def ordered(findings: list[Finding]) -> list[Finding]:
    """Return what came first first; then what followed from it; then what the program survived."""
    kinds = {one.when[0] for one in findings if one.when}
    timed = len(kinds) == 1 and all(one.when for one in findings)

    def place(one: Finding) -> tuple[float, int]:
        return (one.when[1] if timed and one.when else 0.0), one.number

    def follows(one: Finding) -> bool:
        words = one.cause.follows
        for other in findings:
            if other.cause.id == one.cause.id or other.survived > one.survived:
                continue
            if one.cause.id in other.cause.follows and other.cause.id not in words:
                continue
            symptom = ANY in other.cause.follows
            first = ANY in words or (EARLIER in words and place(other) <= place(one))
            if other.cause.id in words or (first and not symptom):
                return True
        return False

    # Of rows for the same line the one with more conditions is more specific; then their order counts.
    return sorted(
        findings,
        key=lambda one: (one.survived, follows(one), place(one), -len(one.cause.lines)),
    )
