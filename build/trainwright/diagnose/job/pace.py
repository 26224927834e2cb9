"""Find late ranks of a job: by the times in the last part of its logs, and by when its collectives were called."""

from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

from trainwright.core.errors import ConfigError
from trainwright.diagnose import log_lines
from trainwright.diagnose.anchors import literals
from trainwright.diagnose.job.ranks import Job, named
from trainwright.diagnose.job.recorder import Dump
from trainwright.diagnose.job.verdict import LATE, Verdict
from trainwright.diagnose.log_lines import LOOKED_AT, unprefixed
from trainwright.diagnose.stragglers import Late, Paces, Settings, of_arrivals, seconds

CAUSE = "straggler"
TAIL = 1 << 22  # bytes of a log's end


def slow(job: Job, settings: Settings) -> tuple[Verdict | None, str]:
    """Return the verdict on a rank that is late, and else a sentence if all ranks became slower."""
    paces = Paces(settings)
    words = [one.encode() for time in settings.times for one in literals(time.line)]
    for file in dict.fromkeys(stream.file for stream in job.streams):
        ranks = {stream.rank for stream in job.streams if stream.file == file and stream.rank is not None}
        _read(file, ranks, paces, words)
    found = paces.late()
    if found and found[0].rank is not None:
        return _verdict(job, [one for one in found if one.rank is not None], told_times(found[0])), ""
    dumps = [rank.dump for rank in job.ranks.values() if rank.dump and rank.dump.groups]
    if one := of_dumps(dumps, settings):
        late, when = one
        return _verdict(job, [late], told_arrivals(late, when)), ""
    return None, told_all(found[0]) if found else ""


def _read(file: str, ranks: set[int], paces: Paces, words: list[bytes]) -> None:
    """Read the end of a log, in which each line has the rank of its label, or the only one of its file."""
    only = next(iter(ranks)) if len(ranks) == 1 else None
    try:
        with log_lines.opened(file) as stream:
            size = Path(file).stat().st_size
            if size > TAIL and stream.peek(2)[:2] not in (b"\x1f\x8b", b"\x28\xb5"):  # type: ignore[attr-defined]
                stream.seek(size - TAIL)
            data = stream.read()[-TAIL:]
    except (ConfigError, OSError, AttributeError):
        return  # standard input, which was read
    for line in data.replace(b"\r", b"\n").split(b"\n"):
        if any(word in line for word in words):
            text, label = unprefixed(line[:LOOKED_AT].decode(errors="replace"))
            said = int(label) if label.isdecimal() else None
            if only is not None or said is None or said in ranks:  # a label of torchrun counts the ranks of a host
                paces.feed(text, only if only is not None else said)


def of_dumps(dumps: list[Dump], settings: Settings) -> tuple[Late, float] | None:
    """Return who comes last to the collectives of the largest group, and the time of the first such one."""
    sizes = Counter(name for dump in dumps for name in dump.groups)
    if not sizes:
        return None
    group = max(sizes, key=lambda name: (sizes[name], -len(name)))
    arrived = {
        dump.rank: {one.seq: one.created for one in dump.groups[group]} for dump in dumps if group in dump.groups
    }
    found = of_arrivals(arrived, settings.late)
    if found is None or found.rank is None:
        return None
    return found, min(one[found.since] for one in arrived.values() if found.since in one)


def _verdict(job: Job, late: list[Late], evidence: str) -> Verdict:
    ranks = sorted(one.rank for one in late if one.rank is not None)
    row = job.causes[CAUSE]
    hosts = {job.ranks[number].host for number in ranks if number in job.ranks}
    host = next(iter(hosts)) if len(hosts) == 1 else ""
    where = f"{named(ranks)}{f' on {host}' if host else ''}: "
    return Verdict(CAUSE, where + row.what, row.fix, [evidence], ranks, host, LATE)


def told_times(one: Late) -> str:
    since = "since the first step that is known" if one.first else f"since step {one.since}"
    return f"rank {one.rank} takes {seconds(one.by)} longer than the others, which take {seconds(one.usual)}, {since}"


def told_arrivals(one: Late, when: float) -> str:
    at = datetime.fromtimestamp(when, UTC).isoformat(timespec="milliseconds")
    since = "since the first one that is recorded" if one.first else f"since collective {one.since}"
    return (
        f"flight recorder: rank {one.rank} comes last to the collectives in which others wait, {seconds(one.by)} after "
        f"them, {since} ({at}; clocks of hosts that differ look like that, too)"
    )


def told_all(one: Late) -> str:
    return (
        f"all ranks take {seconds(one.by)} more for a step than {seconds(one.usual)} before, since step {one.since};"
        " they wait for each other, so that these times do not show which rank is late; dumps of the flight recorder do"
    )
