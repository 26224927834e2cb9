"""Split logs into the streams of their ranks and hosts, by the labels that launchers put before each line."""

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import count, repeat
from operator import itemgetter

from trainwright.diagnose.job.file_names import of_file
from trainwright.diagnose.job.said import Said, Words
from trainwright.diagnose.log_lines import Moment, moment, opened
from trainwright.diagnose.reader import COLOURS, Block, Hit, Reader, automaton, without_collection
from trainwright.diagnose.writers import POD_LABEL, SERVICE_LABEL

TAIL = 400  # lines before one without a time in which its time is looked for
FIRST_STAMPS = 1 << 16  # bytes of a block in which the first times of new writers are looked for
ENDS = ("exit", "table-code")  # kinds of lines whose time counts
BEGINS = ("closed", "waited")  # kinds of which the first line's time counts
LONGEST_LABEL = 600  # bytes
SAMPLE = 400  # lines that decide which labels a log has
MOST_STREAMS = 20_000
MOST_SAID = 5_000  # of a stream
MARKS = {"pod": b"] ", "column": b"| ", "task": b": ", "mpi": b">:", "local": b"]:"}  # what ends a label of each kind
SPACED = (b">:", b"]:")  # after which a space may belong to the label
LABELS = {  # words of further labels, and the kind of label that they are part of anyway
    b"[rank": "", b"[Rank ": "", b"[default": "local", b"[trainer": "local", b"<std": "mpi"
}  # fmt: skip
POD, COLUMN = re.compile(POD_LABEL.encode()), re.compile(SERVICE_LABEL.encode())
TASK = re.compile(rb" {0,6}(\d{1,6}): ")  # srun --label
MPI = re.compile(
    rb"\[(?:[\w.-]+@)?\d{1,10},(?:mpirank:)?(\d{1,6})(?:,([\w.-]{1,253}))?\]\s?<std\w{3}>:\s?"
)  # mpirun --tag-output
RANK = re.compile(rb"(?:\[rank(\d{1,6})\]:|\[Rank (\d{1,6})\]) ?")  # PyTorch
LOCAL = re.compile(rb"\[(?:default|trainer)(\d{1,6})\]: ?")  # torchrun --tee


@dataclass(frozen=True)
class Key:
    """Who wrote a line, as far as its labels say it; None for what they leave open."""

    host: str = ""
    task: int | None = None
    local: int | None = None
    rank: int | None = None


@dataclass(eq=False)
class Stream:
    """The lines of one writer. Their numbers are those of the file."""

    file: str
    key: Key
    reader: Reader
    rank: int | None = None
    host: str = ""
    said: list[Said] = field(default_factory=list)
    kinds: set[str] = field(default_factory=set)  # of what it says
    step: Said | None = None  # the last one
    began: Moment | None = None  # the time of its first stamped line
    stamps: dict[int, Moment] = field(default_factory=dict)  # of lines without one of their own, shortly before them
    last: str = ""  # its last line
    last_when: Moment | None = None

    def ends(self, number: int, line: bytes) -> None:
        """Note a line as the last one so far."""
        if number > self.reader.lines and line.strip():
            self.reader.lines, self.last = number, line[:1000].decode(errors="replace")
            self.last_when = moment(self.last) or self.last_when

    def when(self, number: int) -> Moment | None:
        """Return the time of a line that says something, or of the last stamped line shortly before it."""
        return self.stamps.get(number)


class _Block(Block):
    """Whole lines of a log with labels; a line begins behind its labels."""

    def __init__(self, data: bytes, before: int) -> None:
        super().__init__(data, before)
        self.texts = dict[int, int]()  # where the text of a line begins, for lines that hold a word
        self.hits = dict[Stream, tuple[list[Hit], list[Hit]]]()  # of the reader, and of what ranks say of each other

    def line(self, at: int, to: int) -> tuple[int, int]:
        start, end = super().line(at, to)
        return self.texts.get(start, start), end


class Splitter:
    """Split one log: one search for words in all its lines, then a look at who wrote those that hold some."""

    def __init__(self, file: str, reader: Reader, words: Words) -> None:
        self.file, self._reader, self._words = file, reader, words
        self.streams: dict[Key, Stream] = {}
        self._labels: frozenset[str] | None = None
        self._mark = b""  # what ends the label that most lines have
        self._of_label: dict[bytes, Stream] = {}
        self._number = 0

    def read(self, blocks: Iterable[bytes]) -> list[Stream]:
        with without_collection():
            for block in blocks:
                data = COLOURS.sub(b"", block) if b"\x1b" in block else block
                if self._labels is None:
                    self._begin(data)
                self._read(_Block(data, self._number))
        return list(self.streams.values())

    def _begin(self, data: bytes) -> None:
        self._labels = labels(data.split(b"\n", SAMPLE)[:SAMPLE])
        kind = next((name for name in MARKS if name in self._labels), "")
        self._mark = MARKS.get(kind, b"")
        reader, said = self._reader.words, self._words.words
        further = [word for word in LABELS if not kind or kind != LABELS[word]]
        self._said, self._label = len(reader), len(reader) + len(said)
        self._search = automaton((*reader, *said, *further))

    def _read(self, block: _Block) -> None:
        before = len(self.streams)
        self._assign(block)
        self._ends(block)
        self._number = block.last
        if len(self.streams) > before:
            self._first_stamps(block)
        opens, word = self._reader.opens, itemgetter(0)
        opened = {one for one, (hits, _) in block.hits.items() if not opens.isdisjoint(map(word, hits))}
        opened |= {one for one in self.streams.values() if one.reader.tracebacks.open}
        own = self._own_lines(block, opened)
        for stream in [*block.hits, *(opened - block.hits.keys())]:
            self._take(stream, block, own.get(stream, []))

    def _assign(self, block: _Block) -> None:
        """Give each word that was found to the writer of its line."""
        data, mark, known, all_hits = block.data, self._mark, self._of_label, block.hits
        end, text, skip, first_said = -1, 0, len(mark), self._said
        hits, said = list[Hit](), list[Hit]()
        for hit in self._search.find_matches_as_indexes(data, overlapping=True):
            index, at, to = hit
            if at >= end:
                start = data.rfind(b"\n", 0, at) + 1
                end = data.find(b"\n", to)
                end = len(data) if end < 0 else end
                cut = data.find(mark, start, min(end, start + LONGEST_LABEL)) if mark else -1
                stream = known.get(data[start:cut]) if cut >= 0 else None
                if stream is None:
                    stream, text = self._route(data, start, end)
                else:
                    text = cut + skip + (data[cut + skip : cut + skip + 1] == b" " and mark in SPACED)
                block.texts[start] = text
                hits, said = all_hits.setdefault(stream, ([], []))
            if index >= self._label:
                if at - start < LONGEST_LABEL:
                    stream, text = self._route(data, start, end)
                    block.texts[start] = text
                    hits, said = all_hits.setdefault(stream, ([], []))
                    stream.ends(block.number(start), data[text:end])
            elif at >= text:
                (hits if index < first_said else said).append(hit)

    def _route(self, data: bytes, start: int, end: int) -> tuple[Stream, int]:
        """Return who wrote a line, and where its text begins."""
        line = data[start : min(end, start + 2 * LONGEST_LABEL)]
        key, rest = keyed(line, self._labels or frozenset())
        stream = self._stream(key)
        label, found, _ = line.partition(self._mark) if self._mark else (b"", b"", b"")
        if found and key != Key() and keyed(label + found + b"x", self._labels or frozenset())[0] == key:
            self._of_label[label] = stream
        return stream, start + len(line) - len(rest)

    def _ends(self, block: _Block) -> None:
        """Find all writers of a block, also of lines without a word, and the last line of each."""
        before = block.number(0) - 1
        lines = block.data.split(b"\n")
        if not lines[-1]:
            lines.pop()
        if self._mark:
            labels = map(itemgetter(0), map(bytes.partition, lines, repeat(self._mark)))
            last = dict(zip(labels, count()))  # a later one replaces an earlier one
        else:
            names, near = self._labels or frozenset(), range(len(lines) - 1, max(-1, len(lines) - TAIL), -1)
            mine = next((n for n in near if lines[n] and keyed(lines[n], names)[0] == Key()), None)
            last = {} if mine is None else {b"": mine}
        for label, number in last.items():
            line = lines[number]
            if stream := self._of_label.get(label):
                stream.ends(before + number + 1, line[len(label) + len(self._mark) :])
            elif line:
                stream, text = self._route(line, 0, len(line))
                stream.ends(before + number + 1, line[text:])

    def _first_stamps(self, block: _Block) -> None:
        """Look for the first times of writers that are new."""
        for start, _, line in Block(block.data, 0).lines_from(0):
            stream, text = self._route(block.data, start, start + len(line))
            if stream.began is None:
                stream.began = moment(line[text - start :][:120].decode(errors="replace"))
            if start > FIRST_STAMPS:
                break

    def _own_lines(self, block: _Block, streams: set[Stream]) -> dict[Stream, list[tuple[int, int, bytes]]]:
        """Return the lines of some writers: those in which a traceback goes on."""
        found = dict[Stream, list[tuple[int, int, bytes]]]()
        for start, number, line in Block(block.data, block.number(0) - 1).lines_from(0) if streams else ():
            label, mark, rest = line.partition(self._mark) if self._mark else (b"", b"", line)
            stream, text = self._of_label.get(label), start + len(line) - len(rest)
            if stream is None or rest[:1] == b"[" or (mark in SPACED and rest[:1] == b" "):
                stream, text = self._route(block.data, start, start + len(line))
            if stream in streams:
                found.setdefault(stream, []).append((text, number, line[text - start :]))
        return found

    def _take(self, stream: Stream, block: _Block, own: list[tuple[int, int, bytes]]) -> None:
        """Look at what a writer's lines of a block say."""

        def following(position: int) -> Iterator[tuple[int, int, bytes]]:
            return iter(own[bisect_left(own, (position, 0, b"")) :])

        def above(position: int) -> bytes:
            at = bisect_left(own, (position, 0, b""))
            return own[at - 1][2] if at else b""

        (hits, spoken), met = block.hits.get(stream, ([], [])), set(stream.reader.conditions.met)
        raised, ended = len(stream.reader.tracebacks.first), set[int]()
        for said in self._words.found(block, spoken, self._said):
            if said.kind == "step":
                stream.step = said
            elif len(stream.said) < MOST_SAID:
                stream.said.append(said)
                if said.kind in ENDS or (said.kind in BEGINS and said.kind not in stream.kinds):
                    ended.add(said.number)
                stream.kinds.add(said.kind)
        stream.reader.take(block, hits, following, above)
        ended |= {one.number for name, one in stream.reader.conditions.met.items() if name not in met and not one.when}
        ended |= {one.number for one in stream.reader.tracebacks.first[raised:] if not one.when}
        if stream.began or stream.last_when:
            stream.stamps |= self._stamps(stream, block, ended)

    def _stamps(self, stream: Stream, block: _Block, numbers: set[int]) -> dict[int, Moment]:
        """Return the times of lines, or of the last stamped line of the same writer shortly before each."""
        found = dict[int, Moment]()
        first = block.number(0)
        lines = block.data.split(b"\n") if numbers else []
        for number in numbers:
            for at in range(number - first, max(-1, number - first - TAIL), -1):
                line = lines[at] if at < len(lines) else b""
                when = moment(line[: 120 + LONGEST_LABEL].decode(errors="replace"))
                if when and self._route(line, 0, len(line))[0] is stream:
                    found[number] = when
                    break
        return found

    def _stream(self, key: Key) -> Stream:
        if key not in self.streams and len(self.streams) >= MOST_STREAMS:
            key = Key()
        if key not in self.streams:
            self.streams[key] = Stream(self.file, key, self._reader.fresh())
        return self.streams[key]


def labels(lines: list[bytes]) -> frozenset[str]:
    """Return which labels most lines of a log have; plain text looks like some of them now and then."""
    lines = [line for line in lines if line.strip()]
    kinds = {"task": TASK, "column": COLUMN, "pod": POD, "mpi": MPI, "local": LOCAL}
    return frozenset(
        name for name, label in kinds.items() if sum(bool(label.match(line)) for line in lines) > 0.6 * len(lines)
    )


def keyed(line: bytes, names: frozenset[str]) -> tuple[Key, bytes]:
    """Return who wrote a line, and the line without the labels that say so; what else stands before it stays."""
    host, task, local, rank = "", None, None, None
    if (found := POD.match(line)) or ("column" in names and (found := COLUMN.match(line))):
        host, line = found[1].decode(errors="replace"), line[found.end() :]
    if "task" in names and (found := TASK.match(line)):
        task, line = int(found[1]), line[found.end() :]
    if b"<std" in line[:300] and (found := MPI.match(line)):
        rank, line = int(found[1]), line[found.end() :]
        host = found[2].decode(errors="replace") if found[2] else host
    if line.startswith((b"[default", b"[trainer")) and (found := LOCAL.match(line)):
        local, line = int(found[1]), line[found.end() :]
    if line.startswith((b"[rank", b"[Rank ")) and (found := RANK.match(line)):
        rank, line = int(found[1] or found[2]), line[found.end() :]
    return Key(host, task, local, rank), line


def resolved(streams: Iterable[Stream], ranks: dict[str, int], hosts: dict[str, str]) -> Iterator[Stream]:
    """Give each stream its rank and host."""
    every = list(streams)
    tasks = {one.key.task for one in every if one.key.task is not None}
    differs = any(None not in (one.key.task, one.key.rank) and one.key.task != one.key.rank for one in every)
    of_local = dict[tuple[str, str, int], set[int]]()
    for one in every:
        if one.key.local is not None and one.key.rank is not None:
            of_local.setdefault((one.file, one.key.host, one.key.local), set()).add(one.key.rank)
    own = dict[str, set[int]]()
    for one in every:
        if one.key.rank is not None:
            own.setdefault(one.file, set()).add(one.key.rank)
    for one in every:
        key, (host, rank) = one.key, of_file(one.file)
        one.host = key.host or hosts.get(one.file, host)
        if key.rank is not None:
            one.rank = key.rank
        elif key.local is not None:
            known = of_local.get((one.file, key.host, key.local), set())
            one.rank = next(iter(known)) if len(known) == 1 else None
        elif key.task is not None and not differs:
            one.rank = key.task
        elif key.task is None and not tasks:
            named = ranks.get(one.file, rank)
            one.rank = named if named in own.get(one.file, {named}) else None  # a label says it better than the name
        if key.task is not None and differs and not one.host:
            one.host = f"task {key.task}"
        yield one


def labelled(file: str) -> str:
    """Return what the labels of a log's first lines name: "hosts" or tasks, only "ranks", or "". Raises ConfigError."""
    with opened(file) as stream:
        lines = COLOURS.sub(b"", stream.read(1 << 20)).split(b"\n")
    found = labels(lines[:SAMPLE])
    keys = {keyed(line, found)[0] for line in lines[:20_000]} - {Key()}
    if len(keys) < 2:
        return ""
    return "hosts" if any(key.host or key.task is not None for key in keys) else "ranks"
