"""Read a log in one pass: a search for words finds the few lines to look at, and what a diagnosis needs is kept."""

import copy
import gc
import re
from collections import Counter, deque
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from ahocorasick_rs import BytesAhoCorasick, Implementation
from pydantic import Field

from trainwright.core.errors import masked, printable
from trainwright.core.toml import Model, load
from trainwright.diagnose.causes import MOST_TEXT, SURVIVED, Cause, Expression, Signatures
from trainwright.diagnose.log_lines import LONGEST, LOOKED_AT, NUMBER, moment, unprefixed
from trainwright.diagnose.nccl_debug import Seen
from trainwright.diagnose.tracebacks import BEGIN, FRAMES, IGNORED, Tracebacks

FILE = "dockerfiles/diagnose.toml"
BLOCK = 1 << 18  # bytes
WIDEST = 1 << 22  # bytes of a line that is read at once
MOST_OF_A_WORD = 5_000  # lines of NCCL's facts that are read for one word: one job says each once per process
SUSPECTS = 24  # of the first and of the last suspicious lines
BURST = 200  # lines after a suspicious one in which others count as of the same event
FACTS = (  # words in the lines that Seen reads
    "Using network ",
    "Assigned NET plugin ",
    "elected Provider is",
    "elected provider is",
    "nNodes ",
    "NCCL version ",
    "via NET/Socket",
    "gate: ",
    "xited with ",
    "Exit code:",
    "exit status ",
)
TABLES = ("out-of-place", "# nThread", "Avg bus bandwidth", "# nccl-tests version")  # words of nccl-tests
COLOURS = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]")
CONDITION, FACT, TABLE, TRACEBACK, PROGRESS, SUSPECT = range(6)


class Place(Model):
    """Where a job ran, recognised from its log."""

    id: str
    lines: list[Expression]
    next: str  # the next step if nothing proves a cause


class Form(Model):
    """How one kind of program writes its errors."""

    who: str
    line: str
    weak: bool = False  # such lines are often no error: any other form goes first


class Settings(Model):
    """The content of diagnose.toml."""

    passed: list[Expression]  # lines that say that all went well
    failed: list[Expression]  # lines that say that the job failed, but not why
    progress: list[str]  # lines that a program prints while it trains
    progress_words: list[str]
    suspects: list[str]  # words in lines that may be a reason
    harmless: list[str]  # lines with such words that are none
    consequences: list[str]  # lines with such words that only say that something else failed
    statements: list[Form]  # how programs write their own errors
    statement_prefix: str  # what else stands before them
    wrappers: list[str]  # exceptions of launchers, which only report that another process failed
    places: list[Place]
    otherwise: str = Field(description="the next step where the place is unknown")


def load_settings(root: Path) -> Settings:
    return load(root / FILE, Settings)


class Reader:
    """What a log shows. Feed it blocks, or single lines while the log is written."""

    def __init__(self, causes: list[Cause], settings: Settings) -> None:
        self.settings = settings
        places = [line for place in settings.places for line in place.lines]
        self.signatures = Signatures(causes, [*settings.passed, *settings.failed, *places])
        self._progress = re.compile("|".join(f"(?:{text})" for text in settings.progress).encode())
        kinds: list[tuple[int, list[bytes]]] = [
            (CONDITION, self.signatures.conditions.anchors),
            (FACT, [word.encode() for word in FACTS]),
            (TABLE, [word.encode() for word in TABLES]),
            (TRACEBACK, [BEGIN.encode(), FRAMES.encode(), IGNORED.encode()]),
            (PROGRESS, [word.encode() for word in settings.progress_words]),
            (SUSPECT, [word.encode() for word in settings.suspects]),
        ]
        self._kinds = [kind for kind, words in kinds for _ in words]
        words = [word for _, some in kinds for word in some]
        self._words = BytesAhoCorasick(words, implementation=Implementation.DFA)
        # Later lines matter for what decides a cause: whether the program went on after the last of them.
        decisive = {cause.lines[0] for cause in causes if cause.lines} | {*settings.passed, *settings.failed}
        texts = self.signatures.conditions.texts
        self._places = {number for number, text in enumerate(texts) if text in places}
        self._again = {number for number, text in enumerate(texts) if text in decisive}
        self._begin_log()

    def _begin_log(self) -> None:
        self.conditions = self.signatures.conditions
        self.seen, self.tracebacks = Seen(), Tracebacks()
        self.lines = 0
        self.tables = self.binary = False
        self.suspects: list[tuple[int, bytes, int]] = []  # number, line, lines of progress before it
        self.last_suspects: deque[tuple[int, bytes, int]] = deque(maxlen=SUSPECTS)
        self._watched = 0  # the last suspicious line whose progress is counted
        self._stepped = 0  # the last line of progress: its further words count no more
        self._calm = SURVIVED  # lines of progress since the last line that met a condition
        self._facts = Counter[int]()

    def fresh(self) -> "Reader":
        """Return a reader for another log, which shares what was compiled."""
        other = copy.copy(self)
        other.signatures = self.signatures.fresh()
        other._begin_log()
        return other

    # --- whole logs ------------------------------------------------------------------------------------------------

    def read(self, stream: BinaryIO) -> None:
        """Read a log to its end."""
        block, collects = b"\n", gc.isenabled()
        gc.disable()  # millions of short tuples without a cycle: to look for one takes an eighth of the time
        try:
            for block in blocks(stream):
                if self.lines == 0 and b"\0" in block[:LOOKED_AT]:
                    self.binary = True
                    return
                self.block(block)
            self.lines += not block.endswith(b"\n")
        finally:
            if collects:
                gc.enable()

    def block(self, data: bytes) -> None:
        """Read whole lines."""
        if b"\x1b" in data:
            data = COLOURS.sub(b"", data)
        read_to = self._sequel(data, 0, self.lines) if self.tracebacks.open else 0
        start, end, counted, number, suspected, piece, text = 0, -1, 0, self.lines + 1, 0, b"", ""
        met, again, kinds, behind = self.conditions.met, self._again, self._kinds, self.conditions.behind
        for index, at, to in self._words.find_matches_as_indexes(data, overlapping=True):
            kind = kinds[index]
            if kind == PROGRESS and self._calm >= SURVIVED:
                continue
            if at >= end:
                start = data.rfind(b"\n", 0, at) + 1
                end = data.find(b"\n", to)
                end = len(data) if end < 0 else end
                number += data.count(b"\n", counted, start)
                counted, text = start, ""
            if kind == PROGRESS:
                if number != self._stepped and self._progress.search(data, start, min(end, start + LOOKED_AT)):
                    self._step(number)
                continue
            if at - start > LONGEST or kind == SUSPECT:
                if kind == SUSPECT and number != suspected:
                    suspected = number
                    self._suspect(data[start : min(end, start + LONGEST)], number)
                continue
            if kind == CONDITION and all(one in met for one in behind[index]):
                for one in behind[index]:
                    if one in again:
                        self._calm = 0
                        met[one].later.append(
                            (number, data[start : min(end, start + LONGEST)], self.conditions.progress)
                        )
                continue
            if not text or b"\r" in piece:
                piece = data[start:end]
                text = _text(piece, at - start)
            if kind == CONDITION:
                self._condition(text, number, behind[index])
            elif kind == TRACEBACK:
                if start >= read_to:
                    self._begin(text, number)
                    self._calm, read_to = 0, self._sequel(data, min(end + 1, len(data)), number)
            else:
                self._other(kind, index, text, number)
        self.lines += data.count(b"\n")

    def _sequel(self, data: bytes, at: int, number: int) -> int:
        """Feed the lines from `at` to the open tracebacks; return where the lines after them begin."""
        while at < len(data) and self.tracebacks.open:
            end = data.find(b"\n", at)
            end = len(data) if end < 0 else end
            number += 1
            text, rank = unprefixed(data[at : min(end, at + LOOKED_AT)].decode(errors="replace"))
            if BEGIN in text or FRAMES in text:
                self._begin(text, number, rank)
            self.tracebacks.feed(text, number, rank, self.conditions.progress)
            at = end + 1
        return at

    # --- single lines ----------------------------------------------------------------------------------------------

    def feed(self, line: str, number: int) -> bool:
        """Read one line; return whether it meets a condition that no earlier line met."""
        self.lines = number
        text, rank = unprefixed(line)
        if text.startswith("##"):  # a heading that was added to the log
            return False
        new, which = False, set[int]()
        if self.tracebacks.open:
            self.tracebacks.feed(text, number, rank, self.conditions.progress)
        for index, _, _ in self._words.find_matches_as_indexes(text.encode(errors="replace"), overlapping=True):
            kind = self._kinds[index]
            if kind == CONDITION:
                which.update(self.conditions.behind[index])
            elif kind == TRACEBACK:
                self._begin(line, number)
            elif kind == SUSPECT:
                self._suspect(line.encode(errors="replace"), number)
            else:
                self._other(kind, index, line, number)
        if which:
            new = self._condition(line, number, which)
        return new

    def _begin(self, raw: str, number: int, rank: str = "") -> None:
        text, found = unprefixed(raw)
        self.tracebacks.begin(text, number, found or rank, moment(raw))

    def _condition(self, raw: str, number: int, which: "list[int] | set[int]") -> bool:
        text, rank = unprefixed(raw)
        if text.startswith("##"):
            return False
        new = self.conditions.look(printable(text), number, rank, which, raw)
        if places := self._places.intersection(which) - self.conditions.met.keys():  # prefixes say where a job ran, too
            self.conditions.look(printable(raw[:LOOKED_AT]), number, rank, places, raw)
        if new:
            self._calm = 0
        return new

    def _other(self, kind: int, index: int, raw: str, number: int) -> None:
        if kind == TABLE:
            self.tables = True
        elif kind == PROGRESS:
            if (
                self._calm < SURVIVED
                and number != self._stepped
                and self._progress.search(raw.encode(errors="replace"))
            ):
                self._step(number)
        elif self._facts[index] < MOST_OF_A_WORD:
            self._facts[index] += 1
            text, rank = unprefixed(NUMBER.sub("?", raw))
            self.seen.feed(text, rank, number)

    def _step(self, number: int) -> None:
        """Count one line of progress."""
        self._stepped = number
        self._calm += 1
        self.conditions.progress += 1

    def _suspect(self, raw: bytes, number: int) -> None:
        first = len(self.suspects) < SUSPECTS or number - self._watched > BURST
        if first:  # the lines of progress after it are counted, but not after each one of many: that would take time
            self._calm, self._watched = 0, number
        progress = self.conditions.progress if first or self._calm == 0 else -SURVIVED
        if self.tracebacks.wanted and (b"Error: " in raw or b"Exception: " in raw):
            text, rank = unprefixed(raw[:LOOKED_AT].rpartition(b"\r")[2].decode(errors="replace"))
            if self.tracebacks.alone(text, number, rank, self.conditions.progress):
                self._calm = 0
        if len(self.suspects) < SUSPECTS and (not self.suspects or self.suspects[-1][0] != number):
            self.suspects.append((number, raw, progress))
        elif not self.last_suspects or self.last_suspects[-1][0] != number:
            self.last_suspects.append((number, raw, progress))

    def suspicious(self, most: int) -> list[tuple[int, str]]:
        """Return the lines that look most like a reason: of the first and the last ones, each shape once."""
        harmless = re.compile("|".join(self.settings.harmless) or r"(?!)")
        found = dict[str, tuple[int, str]]()
        for number, raw, _ in [*self.suspects, *self.last_suspects]:
            text = unprefixed(raw.rpartition(b"\r")[2].decode(errors="replace"))[0].strip()
            if text and not text.startswith("##") and not harmless.search(text):
                found.setdefault(NUMBER_SHAPE.sub("", text), (number, masked(text[:MOST_TEXT])))
        rows = list(found.values())
        return rows if len(rows) <= most else [*rows[:1], *rows[1 - most :]]


NUMBER_SHAPE = re.compile(r"[\d\W]+")


def _text(piece: bytes, at: int) -> str:
    """Return the part of a line around a position, without what a progress bar wrote over with \\r."""
    if b"\r" in piece:
        start = piece.rfind(b"\r", 0, at) + 1
        end = piece.find(b"\r", at)
        piece = piece[start : len(piece) if end < 0 else end]
    return piece[:LONGEST].decode(errors="replace")


def blocks(stream: BinaryIO) -> Iterator[bytes]:
    """Yield whole lines, about BLOCK bytes at a time; of a line of many megabytes the parts between its \\r."""
    rest = b""
    while piece := stream.read(BLOCK):
        data = rest + piece
        end = data.rfind(b"\n") + 1
        if not end and len(data) > WIDEST:
            end = data.rfind(b"\r") + 1 or len(data)
        rest = data[end:]
        if end:
            yield data[:end]
    if rest:
        yield rest
