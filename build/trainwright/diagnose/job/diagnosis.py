"""Diagnose a job: read what its ranks left behind, decide, and tell."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trainwright.core.errors import masked
from trainwright.core.progress import counted
from trainwright.diagnose import stragglers
from trainwright.diagnose.causes import Cause
from trainwright.diagnose.job import pace, said
from trainwright.diagnose.job.collect import Left, streams
from trainwright.diagnose.job.ranks import Job, Rank, known, named
from trainwright.diagnose.job.streams import Key
from trainwright.diagnose.job.verdict import FOLLOWED, SILENT, Verdict, judged, same
from trainwright.diagnose.reader import Reader

MOST_STRANGERS = 4  # logs of unknown ranks that are named
CALENDAR = "iso"  # the kind of time stamps that have a year


def of_job(
    left: Left, root: Path, causes: Sequence[Cause], reader: Reader, names: dict[str, str]
) -> dict[str, Any] | None:
    """Return the diagnosis of a job; None if the logs do not say which ranks or hosts wrote them."""
    words = said.load_settings(root)
    found = streams(left.logs, left.empty, reader, said.Words(words))
    if any(stream.reader.tables for stream in found):
        return None  # of nccl-tests: the judge's
    job = known(found, left.dumps, left.ras, causes, set(words.consequences))
    job.notes = left.notes
    ranks = sum(rank.heard or rank.code is not None for rank in job.ranks.values())
    told = any(rank.code is not None for rank in job.ranks.values())  # by a launcher
    labelled = left.folder and any(stream.key != Key() for stream in found)  # of a job whose other ranks said nothing
    if ranks < 2 and len(job.hosts) < 2 and not (left.ras or labelled or told):
        return None
    verdict = judged(job)
    if verdict.cause in ("none", "unknown"):
        late, note = pace.slow(job, stragglers.load_settings(root))
        verdict = late or verdict
        job.notes += [note] if note else []
        for number in late.ranks if late else ():
            job.ranks[number].state = late.state if late else ""
    if verdict.cause == "unknown" and len(left.logs) == 1 and not (verdict.state or verdict.evidence or left.dumps):
        return None
    return _row(job, verdict, left, names)


def _row(job: Job, verdict: Verdict, left: Left, names: dict[str, str]) -> dict[str, Any]:
    parts = [f"{len(left.logs)} log{'s' * (len(left.logs) != 1)}"] if left.logs else []
    parts += [f"{len(left.dumps)} recorder dumps"] * bool(left.dumps) + ["output of RAS"] * bool(left.ras)
    count = counted(job.world, "rank") if job.world else "a job"
    return {
        "log": f"{count}: {', '.join(parts)}",
        "cause": verdict.cause,
        "what": _renamed(verdict.what, names),
        "evidence": masked("\n".join(_renamed(text, names) for text in verdict.evidence)),
        "then": "\n".join(_renamed(text, names) for text in _then(job, verdict)),
        "fix": verdict.fix,
        "job": {
            "world": job.world,
            "failed_first": verdict.ranks,
            "host": verdict.host,
            "ranks": [_of_rank(job.ranks[number], names) for number in sorted(job.ranks)],
            "notes": [_renamed(note, names) for note in job.notes],
        },
    }


def _renamed(text: str, names: dict[str, str]) -> str:
    for name, shown in names.items():
        text = text.replace(name, shown)
    return text


def _then(job: Job, verdict: Verdict) -> list[str]:
    """Return what became of the other ranks, and which files were not read."""
    rest = [rank for rank in job.ranks.values() if rank.number not in verdict.ranks]
    if verdict.cause in ("none", "unknown"):
        return job.notes
    told = list[str]()
    causes = [job.ranks[number].first for number in verdict.ranks if number in job.ranks]
    own = [rank for rank in rest if rank.first and rank.first.cause == verdict.cause]
    alike = [rank.number for rank in own if rank.first and any(one and same(one, rank.first) for one in causes)]
    apart = [rank.number for rank in own if rank.number not in alike]
    followed = [rank.number for rank in rest if rank.state == FOLLOWED and rank not in own]
    if apart and verdict.ranks:
        told.append(f"{named(apart)} failed, too, with another error of this kind")
    if alike and verdict.ranks:
        told.append(f"{named(alike)} failed for the same reason")
    if followed and verdict.ranks:
        told.append(f"{named(followed)} only followed")
    if quiet := [rank.number for rank in rest if rank.state == SILENT]:
        told.append(f"{named(quiet)} said nothing of it")
    return told + job.notes + ([] if verdict.ranks else _strangers(job))


def _strangers(job: Job) -> list[str]:
    """Return a note for each log of an unknown rank that shows no failure: the failed rank may have written it."""
    known = {rank.file for rank in job.ranks.values()} | {event.file for event in job.rest}
    found = {one.file: one.last.strip()[:200] for one in job.streams if one.rank is None and one.file not in known}
    told = [
        f"{file}: no line says which rank wrote it, and none shows a failure; its last line: {masked(last)}"
        for file, last in found.items()
    ]
    return told[:MOST_STRANGERS] + [f"and {len(told) - MOST_STRANGERS} more such logs"] * (len(told) > MOST_STRANGERS)


def _of_rank(rank: Rank, names: dict[str, str]) -> dict[str, Any]:
    event = rank.first or rank.noticed
    times = [rank.first_when, event.when if event else None, rank.last_when]
    first, when, last = (one[1] if one and one[0] == CALENDAR else None for one in times)
    entries = rank.dump.entries if rank.dump else []
    return {
        "rank": rank.number,
        "host": rank.host,
        "state": rank.state,
        "cause": event.cause if event else "",
        "log": names.get(rank.file, rank.file),
        "line": event.line if event else None,
        "evidence": event.evidence if event else "",
        "first_time": first,
        "time": when,
        "last_time": last,
        "waited": rank.waited,
        "step": rank.step,
        "exit_code": rank.code,
        "collectives": [[one.seq, one.op, round(one.created, 6), one.completed] for one in entries[-200:]],
    }
