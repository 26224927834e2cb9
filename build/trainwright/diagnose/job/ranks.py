"""What is known of each rank of a job: its host, the first thing that went wrong there, what it recorded."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise

from trainwright.core.errors import masked
from trainwright.core.progress import few
from trainwright.diagnose.answer import answer, found, raised_around, sentence
from trainwright.diagnose.causes import Cause, Finding
from trainwright.diagnose.job.ras import Ras
from trainwright.diagnose.job.recorder import Dump
from trainwright.diagnose.job.streams import BEGINS, Stream
from trainwright.diagnose.log_lines import Moment
from trainwright.diagnose.statements import STATED

SIGNALS = {
    "Killed": -9,
    "Out Of Memory": -9,
    "Aborted": -6,
    "Segmentation fault": -11,
    "Bus error": -7,
    "Terminated": -15,
}
MOST_RANKS = 100_000
SHOWN = 8  # ranks that a sentence names
UNNAMED = "unnamed"  # a group of NCCL that no line names
Communicator = tuple[int, int, Stream]  # how many ranks it has, the number of one of them in it, who says so
DEFAULT = ("", "0")  # what PyTorch's lines call the group of all ranks


@dataclass
class Event:
    """Something that went wrong, and where it stands."""

    cause: str
    what: str
    fix: str
    evidence: str
    file: str
    line: int
    when: Moment | None = None
    where: str = ""  # the script's own frame, of a traceback
    host: str = ""


@dataclass
class Rank:
    """One rank."""

    number: int
    host: str = ""
    file: str = ""
    world: int = 0  # what it was told
    first: Event | None = None  # what went wrong in it
    noticed: Event | None = None  # what it noticed of others
    noticed_kinds: set[str] = field(default_factory=set)  # closed, waited, meeting, aborts
    waits_for: int | None = None
    waited: float = 0.0  # seconds
    code: int | None = None
    code_event: Event | None = None
    dump: Dump | None = None
    heard: bool = False  # a line is labelled as its own
    step: int | None = None
    last: str = ""
    first_when: Moment | None = None
    last_when: Moment | None = None
    passed: bool = False
    raised: bool = False  # its log ends with an exception, if only with one that passes on what others did
    state: str = ""  # how it ended, decided in the end

    @property
    def failed(self) -> bool:
        return bool(self.first or self.noticed)

    @property
    def name(self) -> str:
        return f"rank {self.number}" + (f" ({self.host})" if self.host else "")


@dataclass
class Job:
    """All that is known."""

    ranks: dict[int, Rank]
    world: int  # number of ranks, 0 if unknown
    hosts: dict[str, list[Stream]]
    rest: list[Event]  # of lines that no rank's label has
    streams: list[Stream]
    ras: list[Ras]
    causes: dict[str, Cause]
    rows: list[Cause]  # of them, several may have one id
    consequences: set[str]  # ids of causes that tell what a rank noticed of another one
    calls: list[tuple[int, str]] = field(default_factory=list)  # rank, fingerprint
    works: dict[str, dict[int, tuple[int, int, str]]] = field(default_factory=dict)
    # group, rank: the last work that it called, and that ended; what says it
    timed: dict[tuple[str, int], dict[int, tuple[str, str]]] = field(default_factory=dict)
    # group and number of a collective that did not end in time, rank: the call, what says it
    grouped: bool = False  # a rank has another number in the group that it waits in, so that there are several
    named: Counter[int] = field(default_factory=Counter)  # ranks that others waited for by name
    lacking: dict[int, str] = field(default_factory=dict)  # rank: tensors of Horovod that it had not handed over
    begun: dict[str, dict[str, float]] = field(default_factory=dict)  # closed or waited: kind of stamp, the first time
    notes: list[str] = field(default_factory=list)
    counted: bool = False  # something says how many ranks there are

    def rank(self, number: int) -> Rank:
        if number not in self.ranks and len(self.ranks) < MOST_RANKS:
            self.ranks[number] = Rank(number)
        return self.ranks.get(number) or Rank(number)


def named(numbers: list[int]) -> str:
    """Format rank numbers: rank 3; ranks 0-2, 5."""
    spans, rest = list[str](), sorted(numbers)
    while rest:
        end = next((n for n in range(1, len(rest)) if rest[n] != rest[0] + n), len(rest))
        spans.append(str(rest[0]) if end == 1 else f"{rest[0]}-{rest[end - 1]}" if end > 2 else f"{rest[0]}, {rest[1]}")
        rest = rest[end:]
    return ("rank " if len(numbers) == 1 else "ranks ") + few(spans, SHOWN, ", ")


def known(
    streams: Iterable[Stream],
    dumps: Iterable[Dump],
    answers: Iterable[Ras],
    causes: Iterable[Cause],
    consequences: set[str],
) -> Job:
    """Put together what streams, dumps and RAS say of each rank."""
    rows = list(causes)
    first = {cause.id: cause for cause in reversed(rows)}
    job = Job({}, 0, {}, [], list(streams), list(answers), first, rows, consequences)
    job.hosts = {host: [one for one in job.streams if one.host == host] for host in {one.host for one in job.streams}}
    worlds, comms = Counter[int](), list[Communicator]()
    for stream in job.streams:
        if stream.rank is not None:
            _of_rank(job, stream, consequences)
        else:
            job.rest += _events(stream, consequences)[0:1]
        _said(job, stream, worlds, comms)
    _of_communicators(job, comms, worlds)
    for number in job.lacking:
        job.rank(number)
    for dump in dumps:
        rank = job.rank(dump.rank)
        rank.dump, rank.heard = dump, True
        worlds[dump.world] += dump.world > 0
    for one in job.ras:
        worlds[one.ranks] += one.ranks > 0
    for rank in job.ranks.values():
        if "aborts" in rank.noticed_kinds and rank.first and rank.first.cause == "crash":
            rank.first = None  # PyTorch's watchdog ended it because of what it had noticed
    job.counted = bool(worlds)
    job.world = worlds.most_common(1)[0][0] if worlds else max(job.ranks, default=-1) + 1
    for number in range(min(job.world, MOST_RANKS)):
        job.rank(number)
    _hosts(job)
    return job


def _of_rank(job: Job, stream: Stream, consequences: set[str]) -> None:
    assert stream.rank is not None
    rank = job.rank(stream.rank)
    rank.heard, rank.host = True, rank.host or stream.host
    rank.file = rank.file or stream.file
    for event in _events(stream, consequences):
        if event.cause in consequences:
            rank.noticed = rank.noticed or event
        else:
            rank.first = rank.first or event
    rank.first_when = rank.first_when or stream.began
    if stream.last:
        rank.last, rank.last_when = stream.last, stream.last_when
    rank.passed = rank.passed or answer(stream.reader).state == "none"
    last, progress = stream.reader.tracebacks.found[-1:], stream.reader.conditions.progress
    rank.raised = rank.raised or any(not one.handled and one.progress == progress for one in last)
    rank.step = int(stream.step.values["step"]) if stream.step else rank.step
    for said in stream.said:
        if said.kind in ("closed", "waited", "meeting", "aborts"):
            rank.noticed_kinds.add(said.kind)
            rank.waited = rank.waited or int(said.values.get("ms", 0)) / 1000
        elif said.kind == "waits-for":
            rank.waits_for = int(said.values["rank"])


def _events(stream: Stream, consequences: set[str]) -> list[Event]:
    """Return what went wrong in a stream: the first cause of its own, and the first that it noticed of others."""
    one = answer(stream.reader)
    if one.state != "cause" or one.finding is None:
        return []
    rows = found(stream.reader)
    own = [row for row in rows if row.cause.id not in consequences and not (row.survived and not row.cause.slows)]
    if own and STATED in own[0].cause.follows and one.finding.cause.id == STATED:
        own = [one.finding]  # what the rank said shortly before, which no row knows
    others = [row for row in rows if row.cause.id in consequences]
    return [_event(stream, row, one.place) for row in (*own[:1], *others[:1])]


def _event(stream: Stream, row: Finding, place: str) -> Event:
    text = row.evidence[0][1]
    within = raised_around(stream.reader, row)
    when = row.when or stream.when(row.number)
    fix = row.cause.fixes.get(place, row.cause.fix)
    what, where = sentence(stream.reader, row), within.where if within else ""
    return Event(row.cause.id, what, fix, masked(text), stream.file, row.number, when, where, stream.host)


def _of_communicators(job: Job, comms: list[Communicator], worlds: Counter[int]) -> None:
    """Note the ranks of NCCL's largest communicator, if it may be that of all ranks: others are of groups."""
    largest = max((size for size, _, _ in comms), default=0)
    if not largest or max(worlds, default=0) > largest:
        return
    worlds[largest] += not worlds
    for size, number, stream in comms:
        if size == largest:
            _heard(job, number, stream)


def _heard(job: Job, number: int, stream: Stream) -> Rank:
    rank = job.rank(number)
    rank.heard, rank.host, rank.file = True, rank.host or stream.host, rank.file or stream.file
    return rank


def _said(job: Job, stream: Stream, worlds: Counter[int], comms: list[Communicator]) -> None:
    """Note what a stream says of other ranks, and of those that have no label."""
    block, waited_for = dict[str, str](), dict[str, dict[str, str]]()  # the latter by the rank's number in its group
    for said in stream.said:
        values = said.values
        if said.kind in BEGINS and (when := stream.when(said.number)):
            times = job.begun.setdefault(said.kind, {})
            times[when[0]] = min(when[1], times.get(when[0], when[1]))
        if said.kind == "world":
            worlds[int(values["world"])] += 1
            if "rank" in values and int(values["rank"]) < int(values["world"]):
                _heard(job, int(values["rank"]), stream).world = int(values["world"])
        elif said.kind == "comm":
            comms.append((int(values["world"]), int(values["rank"]), stream))
        elif said.kind == "exit":
            how = values["how"]
            rank = job.rank(int(values["rank"]))
            code = SIGNALS.get(how, -int(how.split()[-1]) if "signal" in how else 1)
            _ended(rank, code, stream, said.number, said.text, values.get("host", ""))
            if how == "Out Of Memory" and rank.code_event:
                rank.code_event.cause = "out-of-memory"
        elif said.kind == "work-call":
            waited_for[values.get("rank", "")] = values
            job.grouped |= stream.rank is not None and values.get("rank") != str(stream.rank)
            if stream.rank is not None and f"[Rank {stream.rank}]" in said.text:  # until PyTorch 2.3: it names no group
                place = f"{stream.file}:{said.number}: {masked(said.text)}"
                rows = job.timed.setdefault((UNNAMED, int(values["seq"])), {})
                rows.setdefault(stream.rank, (values["call"], place))
        elif said.kind in ("root", "table"):
            block = {"kind": said.kind, **values}
        elif said.kind.startswith("table-"):
            block.update(values)
            if said.kind == "table-code" and "rank" in block:
                rank, text = job.rank(int(block["rank"])), f"torchrun: rank {block['rank']}: exitcode {values['code']}"
                _ended(rank, int(values["code"]), stream, said.number, text, block.get("host", ""))
                if block.get("kind") != "root":
                    rank.code_event = None  # another one of this host failed before it
        elif said.kind == "work":
            group = values.get("guid", values.get("group", ""))
            if stream.rank is None and group not in DEFAULT:
                continue  # the line says which rank of the group it is, and not which of the job
            number = int(values["rank"]) if stream.rank is None else stream.rank
            place = f"{stream.file}:{said.number}: {masked(said.text)}"
            work = int(values["enqueued"]), int(values["completed"]), place
            job.works.setdefault(group, {}).setdefault(number, work)  # the first line: how it was when one failed
            call = waited_for.get(values["rank"], waited_for.get("", {}))
            if "seq" in values and values["seq"] == call.get("seq"):
                job.timed.setdefault((group, int(values["seq"])), {})[number] = call["call"], place
            job.rank(number).heard = True
        elif said.kind == "calls":
            job.calls += [(int(values["rank"]), values["call"]), (int(values["other"]), values["instead"])]
        elif said.kind == "named":
            for one in values.get("rank", values.get("ranks", "")).split(","):
                if one.strip().isdigit():
                    job.named[int(one)] += 1
        elif said.kind == "stall":
            job.lacking.clear()  # the last report counts
        elif said.kind == "lacks":
            job.lacking.setdefault(int(values["rank"]), values["tensors"])
        elif said.kind == "meeting" and "world" in values:
            worlds[int(values["world"])] += 1


def _ended(rank: Rank, code: int, stream: Stream, number: int, text: str, host: str) -> None:
    if rank.code is None:
        rank.code, rank.host = code, rank.host or host
        rank.code_event = Event("", "", "", masked(text), stream.file, number, stream.when(number))


def _hosts(job: Job) -> None:
    """Give a rank without a host the one that the nearest ranks below and above it share."""
    told = sorted((rank.number, rank.host) for rank in job.ranks.values() if rank.host)
    for (low, host), (high, other) in pairwise(told):
        for number in range(low + 1, high) if host == other else ():
            job.ranks[number].host = host


def fewest_steps(job: Job) -> list[Rank]:
    """Return the ranks, fewer than half or one of two, whose last step and last line are before all others'."""
    told = [(one, one.step, one.last_when) for one in job.ranks.values() if one.step is not None and one.last_when]
    if len(told) < len(job.ranks) or len({when[0] for *_, when in told}) != 1:
        return []
    fewest = min(step for _, step, _ in told)
    behind = [(rank, when) for rank, step, when in told if step == fewest]
    others = [when for _, step, when in told if step != fewest]
    few = len(behind) < max(2, len(told) / 2) and bool(others)
    return [rank for rank, _ in behind] if few and max(when for _, when in behind) < min(others) else []
