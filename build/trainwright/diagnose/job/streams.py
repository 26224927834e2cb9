"""Split logs into the streams of their ranks and hosts, by the labels that launchers put before each line."""

import re
from array import array
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from trainwright.diagnose.job.said import Said, Words
from trainwright.diagnose.log_lines import Moment, moment, opened
from trainwright.diagnose.reader import COLOURS, Reader

FLUSHED = 1 << 16  # bytes of a stream that are read at once
FLUSHED_LINES = 2000
TAIL = 400  # last lines of a stream that are kept
SAMPLE = 400  # lines that decide which labels a log has
MOST_STREAMS = 20_000
MOST_SAID = 5_000  # of a stream
MARKS = {"pod": b"] ", "column": b"| ", "task": b": "}
POD = re.compile(rb"\[pod/([^/\]\s]{1,253})/[^\]\s]{1,253}\] ")  # kubectl logs --prefix
COLUMN = re.compile(rb"([\w.-]{1,253}) +\| ")  # docker compose, SageMaker's local mode, `trainwright run`
TASK = re.compile(rb" {0,6}(\d{1,6}): ")  # srun --label
MPI = re.compile(
    rb"\[(?:[\w.-]+@)?\d{1,10},(?:mpirank:)?(\d{1,6})(?:,([\w.-]{1,253}))?\]\s?<std\w{3}>:\s?"
)  # mpirun --tag-output
RANK = re.compile(rb"(?:\[rank(\d{1,6})\]:|\[Rank (\d{1,6})\]) ?")  # PyTorch
LOCAL = re.compile(rb"\[(?:default|trainer)(\d{1,6})\]: ?")  # torchrun --tee
FILE_RANK = re.compile(
    r"(?:^|[/_.-])(?:rank|task|proc|r)?[_.-]?(\d{1,6})(?:\.(?:log|out|err|txt|stdout|stderr|gz|zst))*$"
)
FILE_RANK_NAMED = re.compile(r"(?:^|[/_.-])(?:rank|task|global_rank)[_.=-]?(\d{1,6})(?![\d])")
FILE_HOST = re.compile(
    r"(?:^|/)((?:node|host|algo|worker|master|pod|ip)[\w]*-[\w.-]*?)(?:\.(?:log|out|err|txt|gz|zst))*$"
)


@dataclass(frozen=True)
class Key:
    """Who wrote a line, as far as its labels say it; None for what they leave open."""

    host: str = ""
    task: int | None = None
    local: int | None = None
    rank: int | None = None


@dataclass
class Stream:
    """The lines of one writer."""

    file: str
    key: Key
    reader: Reader
    words: Words
    rank: int | None = None
    host: str = ""
    numbers: "array[int]" = field(default_factory=lambda: array("Q"))  # of its lines in the file
    waiting: list[bytes] = field(default_factory=list)  # lines that are not read yet
    said: list[Said] = field(default_factory=list)
    step: Said | None = None  # the last one
    began: Moment | None = None  # the time of its first stamped line
    tail: deque[tuple[int, bytes]] = field(default_factory=lambda: deque(maxlen=TAIL))

    def flush(self) -> None:
        """Read the lines that wait."""
        if self.waiting:
            self._read(b"\n".join(self.waiting) + b"\n")
            self.waiting.clear()

    def _read(self, data: bytes) -> None:
        before = self.reader.lines
        if self.began is None:
            stamps = (moment(line[:120].decode(errors="replace")) for line in data[:FLUSHED].split(b"\n")[:SAMPLE])
            self.began = next((one for one in stamps if one), None)
        for said in self.words.found(data, before):
            if said.kind == "step":
                self.step = said
            elif len(self.said) < MOST_SAID:
                self.said.append(said)
        self.reader.block(data)
        last = data[-FLUSHED:].split(b"\n")[-TAIL - 1 :]
        first = before + data.count(b"\n") - (len(last) - 1) + 1
        self.tail.extend((first + n, line[:1000]) for n, line in enumerate(last) if line)

    def line(self, number: int) -> int:
        """Return the number in the file of the stream's line."""
        return self.numbers[number - 1] if 0 < number <= len(self.numbers) else number

    def when(self, number: int) -> Moment | None:
        """Return the time of a line, or of the last stamped line shortly before it."""
        for one, line in reversed(self.tail):
            if one <= number and (found := moment(line[:120].decode(errors="replace"))):
                return found
        return None

    @property
    def last(self) -> str:
        return self.tail[-1][1].decode(errors="replace") if self.tail else ""


class Splitter:
    """Split one log."""

    def __init__(self, file: str, reader: Reader, words: Words) -> None:
        self.file, self._reader, self._words = file, reader, words
        self.streams: dict[Key, Stream] = {}
        self._labels: frozenset[str] | None = None
        self._mark = b""  # what ends the label that most lines have
        self._of_label: dict[bytes, Stream] = {}
        self._number = 0

    def read(self, blocks: Iterable[bytes]) -> list[Stream]:
        for block in blocks:
            data = COLOURS.sub(b"", block) if b"\x1b" in block else block
            if self._labels is None:
                self._labels = labels(data.split(b"\n", SAMPLE)[:SAMPLE])
                self._mark = next((MARKS[name] for name in MARKS if name in self._labels), b"")
            self._split(data, self._labels)
        for stream in self.streams.values():
            stream.flush()
        return list(self.streams.values())

    def _split(self, data: bytes, names: frozenset[str]) -> None:
        lines, mark, known = data.split(b"\n"), self._mark, self._of_label
        if not lines[-1]:
            lines.pop()
        number = self._number
        for line in lines:
            number += 1
            label, _, rest = line.partition(mark) if mark else (b"", b"", line)
            # Most lines have a label that is known and no further one, which would begin with a bracket.
            stream = known.get(label) if rest[:1] != b"[" else None
            if stream is None:
                key, rest = keyed(line, names)
                stream = self._stream(key)
                if key.rank is None and key.local is None and (key != Key() if mark else line[:1] != b"["):
                    known[label] = stream
            stream.waiting.append(rest)
            stream.numbers.append(number)
            if len(stream.waiting) >= FLUSHED_LINES:
                stream.flush()
        self._number = number

    def _stream(self, key: Key) -> Stream:
        if key not in self.streams and len(self.streams) >= MOST_STREAMS:
            key = Key()
        if key not in self.streams:
            self.streams[key] = Stream(self.file, key, self._reader.fresh(), self._words)
        return self.streams[key]


def labels(lines: list[bytes]) -> frozenset[str]:
    """Return which labels most lines of a log have; plain text looks like some of them now and then."""
    lines = [line for line in lines if line.strip()]
    kinds = {"task": TASK, "column": COLUMN, "pod": POD}
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


def of_file(name: str) -> tuple[str, int | None]:
    """Return the host and the rank that a log's name says."""
    parts = name.split("/")
    if len(parts) > 1 and parts[-1] in ("stdout.log", "stderr.log") and parts[-2].isdigit():
        return "", int(parts[-2])  # torchrun --log-dir
    short = "/".join(parts[-2:])
    if found := FILE_RANK_NAMED.search(short):
        return "", int(found[1])
    if found := FILE_HOST.search(name):
        return found[1], None
    return "", None


def numbered(names: list[str]) -> dict[str, int]:
    """Return the ranks of files whose names differ in one last number alone and count up from 0."""
    found = {name: int(match[1]) for name in names if (match := FILE_RANK.search(name))}
    stems = {FILE_RANK.sub("", name) for name in found}
    if len(found) == len(names) > 1 and len(stems) == 1 and len(set(found.values())) == len(found):
        return found
    return {}


def resolved(streams: Iterable[Stream], ranks: dict[str, int]) -> Iterator[Stream]:
    """Give each stream its rank and host."""
    every = list(streams)
    tasks = {one.key.task for one in every if one.key.task is not None}
    differs = any(None not in (one.key.task, one.key.rank) and one.key.task != one.key.rank for one in every)
    of_local = dict[tuple[str, str, int], set[int]]()
    for one in every:
        if one.key.local is not None and one.key.rank is not None:
            of_local.setdefault((one.file, one.key.host, one.key.local), set()).add(one.key.rank)
    for one in every:
        key, (host, rank) = one.key, of_file(one.file)
        one.host = key.host or host
        if key.rank is not None:
            one.rank = key.rank
        elif key.local is not None:
            known = of_local.get((one.file, key.host, key.local), set())
            one.rank = next(iter(known)) if len(known) == 1 else None
        elif key.task is not None and not differs:
            one.rank = key.task
        elif key.task is None and not tasks:
            one.rank = ranks.get(one.file, rank)
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
