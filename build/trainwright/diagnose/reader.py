"""Read a log in one pass: a search for words finds the few lines to look at, and what a diagnosis needs is kept."""

import copy
import gc
import re
from bisect import bisect_left
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from itertools import accumulate
from operator import itemgetter
from pathlib import Path
from typing import BinaryIO, Literal, get_args

from ahocorasick_rs import BytesAhoCorasick, Implementation
from pydantic import Field

from trainwright.core.errors import masked, printable
from trainwright.core.toml import Model, load
from trainwright.diagnose.causes import LATER, MOST_TEXT, SURVIVED, Cause, Expression, Signatures
from trainwright.diagnose.log_lines import LONGEST, LOOKED_AT, NUMBER, last_drawn, moment, unprefixed, writer
from trainwright.diagnose.nccl_debug import Seen
from trainwright.diagnose.tracebacks import BEGIN, FRAMES, HOOK, IGNORED, LOGGING, Tracebacks
from trainwright.diagnose.writers import ANSI

FILE = "dockerfiles/diagnose.toml"
BLOCK = 1 << 20  # bytes
STRIDE = 1 << 11  # bytes between which lines are counted
WIDEST = 1 << 22  # bytes of a line that is read at once
MOST_OF_A_WORD = 5_000  # lines of NCCL's facts that are read for one word: one job says each once per process
SUSPECTS = 24  # of the first and of the last suspicious lines
MOST_RUNS = 1000  # of one log; what comes more often begins no run
BELOW = 4  # lines below a heading in which its words are looked for
HEADING_END = 200  # bytes at the end of a line that show whether it is a heading
HEAD = 24  # bytes that the first two lines of a log have at least, if they are to be known again
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
CONTROLS = re.compile(rb"[\x01-\x06\x0e-\x1a\x1c-\x1f\x7f]")
MOST_CONTROLS = 100  # a file with zero bytes is binary if more than one of so many bytes is a control character
COLOURS = re.compile(ANSI.pattern.encode())
CONDITION, FACT, TABLE, TRACEBACK, PROGRESS, SUSPECT = range(6)
# In the line above a traceback that a logger wrote; with what the program does instead, it handled the exception.
COMPLAINS = re.compile(r"\b(?:ERROR|WARN|WARNING|CRITICAL|[Ff]ailed|[Cc]ould not|[Cc]annot|[Ee]rror)\b")
WARNING = re.compile(r"\bWARN(?:ING)?\b")  # a level of Python's loggers
FEW = 8  # lines above a traceback, which other ranks may have written in between
MOST_CHAINS = 200  # sentences of such chains that are kept
CHAIN = re.compile(rb"(?:During handling of the|The) above exception,? (?:another|was the direct cause)")
# What a line that names an exception has.
RAISES = (b"Error: ", b"Exception: ", b"Error(", b"Exception(", b"Error (see above")


class Place(Model):
    """Where a job ran, recognised from its log."""

    id: str
    lines: list[Expression]
    next: str  # the next step if nothing proves a cause


Strength = Literal["strong", "weak", "last"]
STRENGTHS: tuple[Strength, ...] = get_args(Strength)  # a weaker form counts only where none of a stronger one is left


class Form(Model):
    """How one kind of program writes its errors."""

    who: str
    line: str
    strength: Strength = "strong"  # weak: such lines are often no error; last: they count only near the end of a log


class Settings(Model):
    """The content of diagnose.toml."""

    passed: list[Expression]  # lines that say that all went well
    ended: list[Expression]  # the same, if one of the last lines says it, and no failure stands just before it
    failed: list[Expression]  # lines that say that the job failed, but not why
    reports: list[Expression]  # lines in which a launcher names the rank that failed
    progress: list[str]  # lines that a program prints while it trains
    no_progress: str  # what such a line begins with that is none: a tracker's summary after the end
    progress_words: list[str]
    suspects: list[str]  # words in lines that may be a reason
    harmless: list[str]  # lines with such words that are none
    recovered: list[str]  # lines that say themselves that the program does something else instead, and goes on
    headings: list[str]  # ends of error lines whose words stand in the next line
    several: list[Expression]  # lines that show that several processes of one job write into the log
    serving: list[Expression]  # lines that show that a server is up
    later_success: list[Expression]  # lines that show that a later try succeeded, so that what failed before was caught
    closing: list[Expression]  # the program says what it has done: what only may be an error before it was survived
    prompts: list[Expression]  # where a person starts a script at a prompt; the only group is the script
    job_begins: list[Expression]  # where a script says that a job began; the only group is the job's id
    job_ends: list[Expression]  # where a batch system says that a job ended; the only group is the job's id
    informative: list[str]  # lines that say themselves that they only inform: a reason only if the log shows a failure
    warning: str  # lines that only warn: no reason if the program failed for another one after it
    consequences: list[str]  # lines with such words that only say that something else failed
    statements: list[Form]  # how programs write their own errors
    statement_prefix: str  # what else stands before them
    telling: list[str]  # types of exceptions that say by themselves what is wrong
    late: list[str]  # types of exceptions that threads and workers raise while the process ends
    wrappers: list[str]  # exceptions that only say that something else failed: never the reason
    lacking: str  # exceptions that a later step of a job script raises, because the one that failed wrote no file
    tried: str  # exceptions of a first try: no reason where another one was raised while they were handled
    raised_again: str  # exceptions that pass on another one, the reason only if that is not there
    places: list[Place]
    fast_providers: list[str]  # what the name of a provider of libfabric begins with, if it is a fast network, not EFA
    otherwise: str = Field(description="the next step where the place is unknown")


def load_settings(root: Path) -> Settings:
    return load(root / FILE, Settings)


Hit = tuple[int, int, int]  # a word by its index, and where in a block it begins and ends
Above = Callable[[int], bytes]
Following = Callable[[int], Iterator[tuple[int, int, bytes]]]  # from a position: start, number and text of each line


_AT = itemgetter(1)


class Block:
    """Whole lines of a log, with their numbers."""

    def __init__(self, data: bytes, before: int) -> None:
        self.data = data
        self._counts = list(
            accumulate((data.count(b"\n", at, at + STRIDE) for at in range(0, len(data), STRIDE)), initial=before)
        )

    @property
    def last(self) -> int:
        """Return the number of lines up to the block's end."""
        return self._counts[-1]

    def number(self, start: int) -> int:
        """Return the number of the line that begins at a position."""
        stride = start // STRIDE
        return self._counts[stride] + self.data.count(b"\n", stride * STRIDE, start) + 1

    def line(self, at: int, to: int) -> tuple[int, int]:
        """Return where the line around a word begins and ends."""
        end = self.data.find(b"\n", to)
        return self.data.rfind(b"\n", 0, at) + 1, end if end >= 0 else len(self.data)

    def lines_from(self, start: int) -> Iterator[tuple[int, int, bytes]]:
        number = self.number(start)
        while start < len(self.data):
            _, end = self.line(start, start)
            yield start, number, self.data[start:end]
            start, number = end + 1, number + 1


class _Steps:
    """The lines of progress in a block. They are looked at after an error alone, until enough of them came."""

    def __init__(self, reader: "Reader", block: Block, hits: list[list[Hit]]) -> None:
        self._reader, self._block, self._hits, self._next = reader, block, hits, 0

    def count_to(self, position: int) -> None:
        reader, block = self._reader, self._block
        while not reader.calm and (hit := self._following()) and hit[1] < position:
            start, end = block.line(*hit[1:])
            self._next = end + 1
            if reader.is_progress(block.data, start, end):
                reader.step(1 + block.data.count(b"\r", start, end - 1))
        self._next = max(self._next, position)

    def count_within(self, start: int, at: int, end: int) -> None:
        """Count what a progress bar drew in a line before an error, and skip the rest, which shows no survival."""
        self.count_to(start)
        reader, data = self._reader, self._block.data
        if self._next > start or data.find(b"\r", start, end) < 0:
            return
        drawn = data.rfind(b"\r", start, at)
        if drawn > start and reader.is_progress(data, start, drawn):
            reader.step(data.count(b"\r", start, drawn))
        self._next = end + 1

    def _following(self) -> Hit | None:
        """Return the first word of progress in the lines that were not looked at."""
        of_each = ((hits, bisect_left(hits, self._next, key=_AT)) for hits in self._hits)
        return min((hits[at] for hits, at in of_each if at < len(hits)), key=_AT, default=None)


@lru_cache(maxsize=4)
def automaton(words: tuple[bytes, ...]) -> BytesAhoCorasick:
    """Return what finds all of these words in one pass; it is kept, because making it takes as long as a short log."""
    return BytesAhoCorasick(words, implementation=Implementation.DFA)


class Reader:
    """What a log shows. Feed it blocks, or single lines while the log is written."""

    def __init__(self, causes: list[Cause], settings: Settings) -> None:
        self.settings = settings
        places = [line for place in settings.places for line in place.lines]
        decisive = [*settings.passed, *settings.ended, *settings.failed, *settings.later_success]
        decisive += [*settings.serving, *settings.closing, *settings.prompts, *settings.job_begins, *settings.job_ends]
        self.signatures = Signatures(causes, [*decisive, *settings.reports, *settings.several, *places])
        self._progress = re.compile("|".join(f"(?:{text})" for text in settings.progress).encode(), re.MULTILINE)
        self._heading = re.compile(rf"(?:{'|'.join(settings.headings)})\s{{0,80}}$".encode())
        self._no_progress = re.compile(settings.no_progress.encode())
        kinds: list[tuple[int, list[bytes]]] = [
            (CONDITION, self.signatures.conditions.anchors),
            (FACT, [word.encode() for word in FACTS]),
            (TABLE, [word.encode() for word in TABLES]),
            (TRACEBACK, [one.encode() for one in (BEGIN, FRAMES, HOOK, IGNORED, LOGGING)]),
            (PROGRESS, [word.encode() for word in settings.progress_words]),
            (SUSPECT, [word.encode() for word in settings.suspects]),
        ]
        self._kinds = [kind for kind, words in kinds for _ in words]
        words = [word for _, some in kinds for word in some]
        self.words = words
        self._words = automaton(tuple(words))
        self._recovered = re.compile("|".join(f"(?:{text})" for text in settings.recovered) or r"(?!)")
        self._harmless = re.compile("|".join(f"(?:{text})" for text in settings.harmless) or r"(?!)")
        silent = [*settings.informative, *settings.harmless, *settings.recovered]
        self._silent = re.compile("|".join(f"(?:{text})" for text in silent) or r"(?!)")
        # Later lines matter for what decides a cause: whether the program went on after the last of them.
        decisive += [text for cause in causes for text in (*cause.lines[:1], *cause.until)]
        texts = self.signatures.conditions.texts
        self._places = {number for number, text in enumerate(texts) if text in places}
        again = set(decisive)
        self._again = {number for number, text in enumerate(texts) if text in again}
        self.opens = {index for index, kind in enumerate(self._kinds) if kind == TRACEBACK}
        self._raises = {index for index, word in enumerate(words) if any(word in raised for raised in RAISES)}
        self._begin_log()

    def _begin_log(self) -> None:
        self.conditions = self.signatures.conditions
        self.seen, self.tracebacks = Seen(), Tracebacks()
        self.lines = 0
        self.tables = self.binary = False
        self.runs: list[int] = []  # lines at which the program began again: the first two lines of the log come again
        self._head, self._recent = b"", b""  # the first two lines, once both were read; the last line before a block
        self._opening: bytes | None = b""  # what was read until then
        self.suspects: list[tuple[int, bytes, int]] = []  # number, line, lines of progress before it
        self.last_suspects: deque[tuple[int, bytes, int]] = deque(maxlen=SUSPECTS)
        self._newest: list[tuple[int, bytes, int]] | deque[tuple[int, bytes, int]] = self.suspects  # has the last one
        self.complaint = 0  # the last suspicious line that neither informs, nor is harmless, nor says that all goes on
        self._unjudged: list[tuple[int, bytes]] = []  # suspicious lines since
        self._above = b""  # the last line of the block before
        self._below = 0  # lines in which the words of the last suspicious line, a heading, are still looked for
        self._watched = 0  # the last suspicious line whose progress is counted
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
        block = b"\n"
        with without_collection():
            for block in blocks(stream):
                if self.lines == 0 and _binary(block[:LOOKED_AT]):
                    self.binary = True
                    return
                self.block(block)
            self.lines += not block.endswith(b"\n")

    def block(self, data: bytes) -> None:
        """Read whole lines."""
        if b"\x1b" in data:
            data = COLOURS.sub(b"", data)
        block = Block(data, self.lines)
        self._begins(block)
        self.take(block, self._words.find_matches_as_indexes(data, overlapping=True), block.lines_from)
        self.lines = block.last

    def _begins(self, block: Block) -> None:
        """Note where a log, to which several runs were appended, begins anew. Its two lines may stand in two blocks."""
        data, start, used = self._recent + block.data, 0, 0
        if self._opening is not None:
            self._opening += block.data
            end = self._opening.find(b"\n", self._opening.find(b"\n") + 1) + 1
            if end:
                head = self._opening[:end]
                self._head = head if len(head) >= HEAD and BEGIN.encode() not in head else b""
                start = used = len(data) - len(self._opening) + end
                self._opening = None
        while self._head and (start := data.find(self._head, start)) >= 0:
            if start == 0 or data[start - 1 : start] == b"\n":
                at = start - len(self._recent)
                self.runs.append(block.number(at) if at >= 0 else self.lines)
            start += len(self._head)
            used = start
            if len(self.runs) > MOST_RUNS:
                self.runs, self._head = [], b""
        last = max(used, data.rfind(b"\n", 0, len(data) - 1) + 1)
        self._recent = data[last:] if self._head or self._opening else b""

    def take(self, block: "Block", hits: list[Hit], following: Following, above: Above | None = None) -> None:
        """Look at the lines of a block that hold a word; `following` yields the lines of the same writer.

        `above` returns its last line before a position.

        Of a condition that is met only the last lines count, and of progress only what comes after an error, so of the
        many words of a long log few are looked at.
        """
        read_to = self._sequel(following(0)) if self.tracebacks.open else 0
        if self._below:  # the block before ended with a heading
            self._read_below(following(0))
        of_word = defaultdict[int, list[Hit]](list)
        for hit in hits:
            of_word[hit[0]].append(hit)
        steps = _Steps(self, block, [some for index, some in of_word.items() if self._kinds[index] == PROGRESS])
        suspected, looked = 0, dict[int, int]()  # where each word was found last
        for at, to, index in sorted(self._wanted(of_word)):
            kind, (start, end) = self._kinds[index], block.line(at, to)
            if at - start > LONGEST:  # a progress bar of hours in one line, and something behind it
                steps.count_within(start, at, end)
                start = max(start, block.data.rfind(b"\r", start, at) + 1)
            before, looked[index] = looked.get(index, -1), at
            if before >= start and block.data.find(b"\r", before, at) < 0:  # once, however often the word stands in it
                continue
            if kind == CONDITION:
                if at - start <= LONGEST:
                    self._meets(block, at, (start, end), index, steps)
                continue
            if kind == SUSPECT:
                if start != suspected - 1:
                    suspected = start + 1
                    steps.count_within(start, at, end)
                    raw = block.data[start : min(end, start + LONGEST)]
                    self._suspect(raw, block.number(start))
                    if self._heading.search(raw[-HEADING_END:]) or self.tracebacks.goes_on(block.number(start)):
                        self._below = BELOW
                        self._read_below(following(min(end + 1, len(block.data))))
            elif at - start > LONGEST:
                continue
            elif kind == TRACEBACK:
                if start >= read_to:
                    steps.count_within(start, at, end)
                    last = above(start) if above else self._line_above(block.data, start)
                    self._begin(_text(block.data[start:end], at - start), block.number(start), last)
                    self._calm, read_to = 0, self._sequel(following(min(end + 1, len(block.data))))
            else:
                self._fact(index, _text(block.data[start:end], at - start), block.number(start))
        steps.count_to(len(block.data))
        self._above = _last_of(block.data, len(block.data) - block.data.endswith(b"\n"))
        self._judge()

    def _judge(self) -> None:
        """Find the last complaint, from the end on: few lines are looked at, unless all of them are harmless."""
        for number, raw in reversed(self._unjudged):
            if not self._silent.search(unprefixed(last_drawn(raw))[0]):
                self.complaint = max(self.complaint, number)
                break
        self._unjudged.clear()

    def _wanted(self, of_word: dict[int, list[Hit]]) -> Iterator[tuple[int, int, int]]:
        """Yield the places of a block to look at, each with its word."""
        met, full = self.conditions.met, len(self.suspects) == SUSPECTS
        for index, hits in of_word.items():
            kind = self._kinds[index]
            if kind == PROGRESS or (kind == FACT and self._facts[index] >= MOST_OF_A_WORD):
                continue
            if kind == TABLE:
                self.tables = True
                continue
            if kind == CONDITION and all(one in met for one in self.conditions.behind[index]):
                if self._again.isdisjoint(self.conditions.behind[index]):
                    continue
                hits = hits[-LATER:]
            elif kind == SUSPECT and full and not (self.tracebacks.wanted and index in self._raises):
                hits = hits[-SUSPECTS:]
            for _, at, to in hits:
                yield at, to, index

    def _meets(self, block: Block, at: int, span: tuple[int, int], anchor: int, steps: _Steps) -> None:
        """Look at a line for conditions that no earlier line met, and note it for those that one did."""
        conditions, (start, end) = self.conditions, span
        line, which = block.data[start : min(end, start + LONGEST)], conditions.behind[anchor]
        new = [one for one in which if one not in conditions.met and conditions.may_meet(one, anchor, line)]
        again = [one for one in which if one in conditions.met and one in self._again]
        if not new and not again:
            return
        steps.count_within(start, at, end)
        number = block.number(start)
        for one in again:
            self._calm = 0
            conditions.met[one].later.append((number, line, conditions.progress))
        if new:
            self._condition(_text(line, at - start), number, new)

    def _sequel(self, lines: Iterator[tuple[int, int, bytes]]) -> int:
        """Feed lines to the open tracebacks until none is open; return where the lines after them begin."""
        end = 0
        for start, number, line in lines:
            if not self.tracebacks.open:
                break
            raw = line[:LOOKED_AT].decode(errors="replace")
            text, rank = unprefixed(raw)
            if BEGIN in text or FRAMES in text:
                self._begin(raw, number)
            self.tracebacks.feed(text, number, rank or writer(raw), self.conditions.progress)
            end = start + len(line) + 1
        return end

    # --- single lines ----------------------------------------------------------------------------------------------

    def feed(self, line: str, number: int) -> bool:
        """Read one line; return whether it meets a condition that no earlier line met."""
        self.lines, met = number - 1, len(self.conditions.met)
        self.block(line.encode(errors="replace") + b"\n")
        return len(self.conditions.met) > met

    def _line_above(self, data: bytes, start: int) -> bytes:
        """Return the last line before a position that the same rank wrote, of the few right above it."""
        rank, end = unprefixed(data[start : start + LOOKED_AT].decode(errors="replace"))[1], start - 1
        for _ in range(FEW):
            line = _last_of(data, end) if end > 0 else self._above
            if unprefixed(last_drawn(line))[1] == rank:
                return line
            if end <= 0:
                break
            end = data.rfind(b"\n", 0, end)
        return b""

    def _begin(self, raw: str, number: int, above: bytes = b"") -> None:
        text, rank = unprefixed(raw)
        told = unprefixed(last_drawn(above))[0]
        handled = bool(COMPLAINS.search(told) and self._recovered.search(told))
        warned = bool(WARNING.search(told))
        self.tracebacks.begin(text, number, rank or writer(raw), moment(raw), handled, warned)

    def _condition(self, raw: str, number: int, which: list[int]) -> None:
        text, rank = unprefixed(raw)
        if text.startswith("##"):  # a heading that was added to the log
            return
        new = self.conditions.look(printable(text), number, rank, which, raw)
        if places := self._places.intersection(which) - self.conditions.met.keys():  # prefixes say where a job ran, too
            self.conditions.look(printable(raw[:LOOKED_AT]), number, rank, places, raw)
        if new:
            self._calm = 0

    def _fact(self, index: int, raw: str, number: int) -> None:
        if self._facts[index] < MOST_OF_A_WORD:
            self._facts[index] += 1
            text, rank = unprefixed(NUMBER.sub("?", raw))
            self.seen.feed(text, rank, number)

    @property
    def calm(self) -> bool:
        """Return whether further progress shows nothing new: no error came before it, or enough progress after it."""
        return self._calm >= SURVIVED

    def is_progress(self, data: bytes, start: int, end: int) -> bool:
        end = min(end, start + LOOKED_AT)
        return bool(self._progress.search(data, start, end)) and not self._no_progress.match(data, start, end)

    def step(self, updates: int = 1) -> None:
        """Count one line of progress; a bar that was drawn anew in it counts each time, up to what shows survival."""
        updates = min(updates, SURVIVED)
        self._calm += updates
        self.conditions.progress += updates

    def _suspect(self, raw: bytes, number: int) -> None:
        self._unjudged.append((number, raw))
        first = len(self.suspects) < SUSPECTS or number - self._watched > BURST
        if first:  # the lines of progress after it are counted, but not after each one of many: that would take time
            self._calm, self._watched = 0, number
        progress = self.conditions.progress if first or self._calm == 0 else -SURVIVED
        if len(self.tracebacks.chained) < MOST_CHAINS and CHAIN.search(raw):
            self.tracebacks.chained.add(number)
        if self.tracebacks.wanted and any(raised in raw for raised in RAISES):
            text, rank = unprefixed(last_drawn(raw))
            if not self._harmless.search(text) and self.tracebacks.alone(text, number, rank, self.conditions.progress):
                self._calm = 0
        if len(self.suspects) < SUSPECTS and (not self.suspects or self.suspects[-1][0] != number):
            self._newest = self.suspects
            self.suspects.append((number, raw, progress))
        elif not self.last_suspects or self.last_suspects[-1][0] != number:
            self._newest = self.last_suspects
            self.last_suspects.append((number, raw, progress))

    def _read_below(self, lines: Iterator[tuple[int, int, bytes]]) -> None:
        """Look for the words of the last heading in the lines below it."""
        for _, _, line in lines:
            if not self._below:
                return
            self._words_below(unprefixed(line[:LOOKED_AT].decode(errors="replace"))[0])

    def _words_below(self, text: str) -> None:
        """Add a line to the heading above it, the last suspicious line; pass over one without a letter."""
        self._below -= 1
        if not any(map(str.isalpha, text)):
            return
        self._below, words = 0, text.strip().encode(errors="replace")
        if not self._silent.search(text) and not self.is_progress(words, 0, len(words)):
            number, raw, progress = self._newest[-1]
            self._newest[-1] = (number, raw.rstrip() + b" " + words, progress)
            if self.tracebacks.goes_on(number):
                self.tracebacks.add(text.strip())

    def suspicious(self, most: int) -> list[tuple[int, str]]:
        """Return the lines that look most like a reason: of the first and the last ones, each shape once."""
        found = dict[str, tuple[int, str]]()
        for number, raw, _ in [*self.suspects, *self.last_suspects]:
            text = unprefixed(last_drawn(raw))[0].strip()
            if text and not text.startswith("##") and not self._harmless.search(text):
                found.setdefault(shape(text), (number, masked(text)[:MOST_TEXT]))
        rows = list(found.values())
        return rows if len(rows) <= most else [*rows[:1], *rows[1 - most :]]


def _last_of(data: bytes, end: int) -> bytes:
    """Return the line that ends there."""
    return data[max(data.rfind(b"\n", 0, end) + 1, end - LOOKED_AT) : end]


def _binary(head: bytes) -> bool:
    """Return whether a log is binary. A log that was truncated while a program wrote it has zero bytes, too."""
    rest = head.replace(b"\0", b"")
    return len(rest) < len(head) and len(CONTROLS.findall(rest)) * MOST_CONTROLS > len(rest)


@contextmanager
def without_collection() -> Iterator[None]:
    """Pause the garbage collector: of millions of short tuples without a cycle it would look for one all the time."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


NUMBER_SHAPE = re.compile(r"[\d\W]+")


def shape(text: str) -> str:
    """Return what a line has in common with others that differ from it in numbers."""
    return NUMBER_SHAPE.sub("", text)


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
