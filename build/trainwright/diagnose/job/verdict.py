"""Decide for a job which rank failed first and why, from what is known of each rank."""

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from trainwright.core.progress import counted, few
from trainwright.diagnose.answer import answer
from trainwright.diagnose.causes import Cause
from trainwright.diagnose.job import collectives
from trainwright.diagnose.job.ranks import SHOWN, UNNAMED, Event, Job, Rank, fewest_steps, named

FIRST, FOLLOWED, SILENT, MISSING, LATE, DIFFERS, FINE = (
    "first", "followed", "silent", "never arrived", "late", "differs", "fine",
)  # fmt: skip
KILLED, STOPPED, ABORTED, INTERRUPTED = -9, -15, -6, -2
ABORTS = re.compile(rf"{ABORTED}\)|return code = {ABORTED}\b|exit code {128 - ABORTED}\b")  # torchrun, DeepSpeed, srun
ALIKE = 3  # ranks with one call under one number, which are of one group, though no line names it


@dataclass
class Verdict:
    """The answer for a job."""

    cause: str
    what: str
    fix: str = ""
    evidence: list[str] = field(default_factory=list)
    ranks: list[int] = field(default_factory=list)  # that failed first
    host: str = ""
    state: str = FIRST  # of these ranks


Rule = Callable[[Job], Verdict | None]


def judged(job: Job) -> Verdict:
    """Return the first rule's answer; what is known best comes first."""
    verdict = next((found for rule in RULES if (found := rule(job))), None)
    behind = [] if verdict else fewest_steps(job)
    verdict = verdict or _open(job, behind)
    for rank in job.ranks.values():
        late = verdict.cause == "unknown" and rank in behind
        rank.state = LATE if late else _state(rank, verdict)
    return verdict


def _found(job: Job, cause: str, ranks: list[int], evidence: list[str], state: str) -> Verdict:
    row = _row_of(job, cause, evidence)
    host = _host(job, ranks)
    where = f"{named(ranks)}{f' on {host}' if host else ''}: "
    return Verdict(cause, where + row.what, row.fix, [one for one in evidence if one], ranks, host, state)


def _row_of(job: Job, cause: str, evidence: list[str]) -> Cause:
    """Return the row of a cause that the evidence meets, else the first of that cause."""
    rows = [row for row in job.rows if row.id == cause and row.lines]
    met = (row for row in rows if any(re.search(row.lines[0], told) for told in evidence))
    return next(met, job.causes[cause])


def _host(job: Job, ranks: list[int]) -> str:
    hosts = {job.ranks[number].host for number in ranks if number in job.ranks}
    return next(iter(hosts)) if len(hosts) == 1 else ""


def at(event: Event) -> str:
    return f"{event.file}:{event.line}: {event.evidence}"


# --- rules -----------------------------------------------------------------------------------------------------------


def _different(told: str) -> Verdict:
    what = f"these are logs of different jobs: {told}"
    return Verdict("unknown", what, "give the logs of one job at a time", state="")


def two_names(job: Job) -> Verdict | None:
    """Recognise logs of different jobs by what Slurm or SageMaker calls the job."""
    names, first = dict[tuple[str, str], set[str]](), dict[str, str]()
    for stream in job.streams:
        for said in stream.said:
            for kind, name in said.values.items() if said.kind == "job" else ():
                names.setdefault((kind, stream.file), set()).add(name)
    for (kind, file), own in names.items():
        other = first.setdefault(kind, file)
        if own.isdisjoint(names[kind, other]):
            told = f"{kind} names it {min(names[kind, other])} in {other}, and {min(own)} in {file}"
            return _different(told)
    return None


def two_jobs(job: Job) -> Verdict | None:
    """Recognise logs of different jobs: one rank on two hosts, or of two numbers of ranks."""
    seen = dict[int, tuple[str, str, int]]()
    for stream in job.streams:
        worlds = [int(said.values["world"]) for said in stream.said if said.kind == "world" and "rank" in said.values]
        if stream.rank is None or not worlds:
            continue
        host, file, world = seen.setdefault(stream.rank, (stream.host, stream.file, worlds[0]))
        if file != stream.file and (world != worlds[0] or (host and stream.host and host != stream.host)):
            return _different(
                f"rank {stream.rank} is one of {world} in {file}, and one of {worlds[0]} in {stream.file}"
            )
    return None


def differing_collectives(job: Job) -> Verdict | None:
    """Name the ranks whose recorded collectives differ from those of most."""
    dumps = [rank.dump for rank in job.ranks.values() if rank.dump]
    one = collectives.difference(dumps, whole=len(dumps) == len(job.ranks))
    if one is None or any(job.ranks[number].first for number in one.ranks):
        return None
    ranks = one.ranks if one.few else []
    evidence = [f"flight recorder: {one.told} ({one.kind})", *_frames(job, one.ranks)]
    if ranks:
        return _found(job, "collective-mismatch", ranks, evidence, DIFFERS)
    row = job.causes["collective-mismatch"]
    return Verdict("collective-mismatch", f"{row.what}; as many call one as the other", row.fix, evidence)


def fingerprints(job: Job) -> Verdict | None:
    """Name the ranks that PyTorch's own comparison (TORCH_DISTRIBUTED_DEBUG=DETAIL) shows to differ."""
    calls = dict(job.calls)
    if not calls:
        return None
    pairs = Counter(rank for rank, _ in set(job.calls))
    usual, count = Counter(calls.values()).most_common(1)[0]
    odd = [rank for rank, call in calls.items() if call != usual]
    if count == len(calls) - count:  # two ranks: the one that others are compared with is named by all of them
        odd = [rank for rank, number in pairs.most_common(1) if number > 1] or odd[:0]
    evidence = [f"rank {rank} calls {calls[rank]}, others {usual}" for rank in odd[:2]]
    return _found(job, "collective-mismatch", odd, evidence, DIFFERS) if odd else None


def other_size(job: Job) -> Verdict | None:
    """Name the rank that Gloo ended because a peer sent data of another size.

    That rank leaves no dump. If all others have one, their calls agree (else differing_collectives answers), so it is
    the one that differs.
    """
    ranks = job.ranks.values()
    ended = [(one, one.noticed) for one in ranks if one.noticed and one.noticed.cause == "collective-mismatch"]
    if len(ended) != 1 or any(one.first for one in ranks):
        return None
    [(rank, event)] = ended
    if not rank.dump and all(one.dump for one in ranks if one is not rank):
        return _found(job, event.cause, [rank.number], [at(event)], DIFFERS)
    row = job.causes[event.cause]
    return Verdict(event.cause, f"{row.what}; {rank.name} or a peer of it", row.fix, [at(event)])


def own_cause(job: Job) -> Verdict | None:
    """Take the first thing that went wrong in a rank itself, and not in its talk with others."""
    failed = [(rank.first, rank.number) for rank in job.ranks.values() if rank.first]
    if not failed:
        return None
    failed = [one for one in failed if not _follows(job, one[0], failed)] or failed
    event, _ = min(failed, key=_order(job, [event for event, _ in failed]))
    ranks = sorted(number for other, number in failed if other.cause == event.cause and same(other, event))
    first = next(number for other, number in failed if other is event)
    # The same failure on most ranks is one of the job, and the first of them is as good as any.
    ranks = [first] if len(ranks) < len(job.ranks) else ranks
    return _of_event(job, event, ranks)


def _follows(job: Job, event: Event, failed: list[tuple[Event, int]]) -> bool:
    """Return whether a rank's failure is of a kind that follows from the failure of another rank."""
    others = {other.cause for other, _ in failed} - {event.cause}
    row = job.causes.get(event.cause)
    return bool(row and others.intersection(row.follows))


def _of_event(job: Job, event: Event, ranks: list[int]) -> Verdict:
    host = _host(job, ranks)
    where = f"{named(ranks)}{f' on {host}' if host else ''} failed first: " if ranks else ""
    if not ranks and len(job.hosts) > 1 and (host := event.host):
        where = f"{host} failed first: "
    return Verdict(event.cause, where + event.what, event.fix, [at(event)], ranks, host)


def same(one: Event, other: Event) -> bool:
    """Return whether two ranks failed at one place with one kind of error."""
    return one.where == other.where and one.evidence.partition(":")[0] == other.evidence.partition(":")[0]


def _order(job: Job, events: list[Event]) -> Callable[[tuple[Event, int]], tuple[float, int, int]]:
    """Return how to order events: in one file by place, else by time, else by how far the rank got."""
    one_file = len({event.file for event in events}) == 1
    timed = len({event.when[0] for event in events if event.when}) == 1 and all(event.when for event in events)

    def order(row: tuple[Event, int]) -> tuple[float, int, int]:
        event, number = row
        dump = job.ranks[number].dump if number in job.ranks else None
        got = max((one.seq for one in dump.entries), default=0) if dump else 1 << 40
        at = float(event.line) if one_file else event.when[1] if timed and event.when else float(got)
        return at, got, number

    return order


def ended_by_signal(job: Job) -> Verdict | None:
    """Take what a launcher says of a rank that ended by a signal; SIGTERM is what launchers send to the others.

    After a time-out NCCL's watchdog aborts its own rank. That SIGABRT is a consequence: the time-out is the cause.
    So is the SIGKILL of a task that does not end when its job is cancelled.
    """
    by_itself = (ABORTED,) if _timed_out(job) else ()
    cancelled = [event for event in job.rest if event.cause == "cancelled"]
    struck = [
        (rank.code_event, rank.number)
        for rank in job.ranks.values()
        if rank.code_event
        and rank.code is not None
        and rank.code < 0
        and rank.code not in (STOPPED, INTERRUPTED, *by_itself)
        and not (rank.code == ABORTED and "aborts" in rank.noticed_kinds)
        and not (rank.code == KILLED and any(_behind(rank.code_event, one) for one in cancelled))
    ]
    killed = [one for one in struck if job.ranks[one[1]].code == KILLED]
    if not struck:
        return None
    if (
        len(killed) > 1
        and not any(job.ranks[number].failed for _, number in killed)
        and _whole_hosts(job, {n for _, n in killed})
    ):
        return _found(job, "host-silent", sorted(n for _, n in killed), [at(killed[0][0])], FIRST)
    event, number = min(struck, key=_order(job, [event for event, _ in struck]))
    cause = event.cause or ("killed" if job.ranks[number].code == KILLED else "crash")
    return _found(job, cause, [number], [at(event)], FIRST)


def _behind(event: Event, other: Event) -> bool:
    return event.file == other.file and event.line > other.line


def _timed_out(job: Job) -> bool:
    noticed = [*job.rest, *(rank.noticed for rank in job.ranks.values() if rank.noticed)]
    return any(event.cause == "timeout" for event in noticed)


def elsewhere(job: Job) -> Verdict | None:
    """Take a cause of a line that has no rank's label: of a launcher, or from before the ranks have names."""
    events = [event for event in job.rest if event.cause not in job.consequences]
    if _timed_out(job) or any("aborts" in stream.kinds for stream in job.streams):
        events = [event for event in events if event.cause != "crash" or not ABORTS.search(event.evidence)]
    if not events:
        return None
    order = _order(job, events)
    event = min(events, key=lambda one: (order((one, -1)), one.line))
    quiet = [rank.number for rank in job.ranks.values() if not rank.failed and rank.file in ("", event.file)]
    ranks = [0] if event.cause == "port-in-use" else quiet if len(quiet) == 1 else []
    return _of_event(job, event, ranks)


def ended_unseen(job: Job) -> Verdict | None:
    """Take the first rank that ended with an exit code and whose own output is not there, where others only noticed."""
    unseen = [
        (rank.code_event, rank.number)
        for rank in job.ranks.values()
        if rank.code_event and rank.code and rank.code > 0 and not rank.failed and not rank.dump
    ]
    if not unseen or not any(rank.noticed for rank in job.ranks.values()):
        return None
    event, number = min(unseen, key=_order(job, [event for event, _ in unseen]))
    where = f"{named([number])}{f' on {host}' if (host := _host(job, [number])) else ''}"
    what = f"{where} ended with exit code {job.ranks[number].code}, and what it said of it is not in these logs"
    return Verdict("exit-code", what, "give the log of that rank, with standard error", [at(event)], [number], host)


def wrong_world(job: Job) -> Verdict | None:
    """Name a rank that was told another number of ranks, or one that others wait for and that does not exist."""
    told = Counter(rank.world for rank in job.ranks.values() if rank.world)
    waiting = Counter(rank.waits_for for rank in job.ranks.values() if rank.waits_for is not None)
    for stream in job.streams:
        if stream.rank is None:
            waiting.update({int(said.values["rank"]) for said in stream.said if said.kind == "waits-for"})
    if len(told) > 1:
        usual = told.most_common(1)[0][0]
        odd = [rank.number for rank in job.ranks.values() if rank.world and rank.world != usual]
        evidence = [
            f"rank {number} was told {job.ranks[number].world} ranks, most others {usual}" for number in odd[:3]
        ]
        return _found(job, "world-size", odd, evidence, DIFFERS)
    joined = [said for stream in job.streams for said in stream.said if "arrived" in said.values]
    for said in joined:
        arrived, world = int(said.values["arrived"]), int(said.values["world"])
        absent = [rank.number for rank in job.ranks.values() if not rank.heard and rank.number < world]
        if len(absent) == world - arrived + 1 and world == job.world:
            absent = [number for number in absent if number]  # rank 0 has the store, and says this itself
        absent.sort()
        if absent and len(absent) == world - arrived:
            return _found(job, "rank-missing", absent, [said.text], MISSING)
    # A rank that is there is waited for within a group: that does not say who is missing.
    unheard = [row for row in waiting.most_common() if not (row[0] in job.ranks and job.ranks[row[0]].heard)]
    if not unheard:
        return None
    wanted, number = unheard[0]
    evidence = [f"{number} rank{'s' * (number > 1)} waited for the address of rank {wanted}"]
    sayers = [rank.number for rank in job.ranks.values() if rank.waits_for == wanted]
    others = [rank for rank in job.ranks.values() if rank.heard and rank.number not in sayers]
    # All ranks wait for one that is missing; one that waits alone has a wrong idea of their number.
    if len(sayers) == 1 and others and not any("meeting" in rank.noticed_kinds for rank in others):
        return _found(job, "world-size", sayers, evidence, DIFFERS)
    return _found(job, "rank-missing", [wanted], evidence, MISSING)


def barrier(job: Job) -> Verdict | None:
    """Name the ranks that did not pass PyTorch's monitored barrier."""
    ranks = sorted(number for number in job.named if number in job.ranks)
    if not ranks or len(ranks) > len(job.ranks) / 2:
        return None
    silent = [number for number in ranks if not job.ranks[number].failed]
    hosts = _whole_hosts(job, set(ranks)) and len({rank.host for rank in job.ranks.values()}) > 1
    cause = "host-silent" if hosts else "rank-silent" if silent == ranks else "rank-late"
    return _found(job, cause, ranks, [f"monitored barrier: {named(ranks)} did not pass it"], SILENT)


def stalled_in_horovod(job: Job) -> Verdict | None:
    """Name the ranks that handed Horovod other tensors than most did, or none."""
    noticed = [*(rank.noticed for rank in job.ranks.values()), *job.rest]
    if not job.lacking or not any(event and event.cause == "horovod-missing" for event in noticed):
        return None
    groups = dict[str, list[int]]()
    for rank in sorted(job.ranks):
        groups.setdefault(job.lacking.get(rank, ""), []).append(rank)
    ahead = groups.pop("", [])  # these lack nothing: they wait for the others
    evidence = [f"Horovod: {named(ranks)} had not handed over {tensors}" for tensors, ranks in groups.items()]
    unheard = not all(rank.heard for rank in job.ranks.values())  # more ranks may lack nothing
    if 2 * len(ahead) > len(job.ranks) or (ahead and unheard):
        return _found(job, "horovod-missing", sorted(job.lacking), evidence, SILENT)
    few, *others = sorted([*groups.values(), *([ahead] if ahead else [])], key=len)
    if not others or len(few) == len(others[0]) or (len(groups) == 1 and few != ahead):
        return None
    found = _found(job, "collective-mismatch", few, evidence[:2], DIFFERS)
    return replace(found, fix=job.causes["horovod-missing"].fix)


def of_ras(job: Job) -> Verdict | None:
    """Take what NCCL's RAS says: processes that are gone, ranks that called fewer operations."""
    gone = [(one, ras.file) for ras in job.ras for one in ras.gone]
    if gone:
        hosts = sorted({one.host for one, _ in gone if one.host})
        ranks = sorted({rank.number for rank in job.ranks.values() if rank.host in hosts})
        row = job.causes["rank-silent"]
        ranks = ranks if len(ranks) == len(gone) else []
        if all(ras.numbered for ras in job.ras) and all(one.rank is not None for one, _ in gone):
            ranks = sorted({one.rank for one, _ in gone if one.rank is not None})
        where = ", ".join([named(ranks)] * bool(ranks) + [few(hosts, SHOWN, ", ")] * bool(hosts)) or "a process"
        evidence = [f"{file}: {one.text}" for one, file in gone[:2]]
        return Verdict("rank-silent", f"{where}: {row.what}", row.fix, evidence, ranks, "".join(hosts[:1]), SILENT)
    for ras in job.ras:
        late = ras.behind if 0 < len(ras.behind) < max(ras.ranks, 2 * len(ras.behind) + 1) / 2 else []
        if late:
            ranks = sorted({one.rank for one in late if one.rank is not None})
            return _found(job, "rank-late", ranks, [f"{ras.file}: {late[0].text}"], LATE)
    return None


def never_arrived(job: Job) -> Verdict | None:
    """Name the ranks that no log and no dump has, where the others could not meet."""
    if any(rank.dump and rank.dump.entries for rank in job.ranks.values()):
        return None  # the first collective needs all ranks
    heard = [rank for rank in job.ranks.values() if rank.heard]
    absent = sorted(rank.number for rank in job.ranks.values() if not rank.heard)
    met = any(rank.step is not None for rank in job.ranks.values())
    if not absent or not heard or met or len(absent) > len(heard):
        return None
    if not any(
        rank.noticed and ("meeting" in rank.noticed_kinds or rank.noticed.cause == "rendezvous") for rank in heard
    ):
        return None
    return _found(job, "rank-missing", absent, [at(next(r.noticed for r in heard if r.noticed))], MISSING)


def silent(job: Job) -> Verdict | None:
    """Name the ranks that say nothing of the failure that all others noticed, and recorded nothing."""
    noticed = [(rank.noticed.cause, *rank.noticed_kinds) for rank in job.ranks.values() if rank.noticed]
    if all(one == ("nccl-connect",) for one in noticed):  # who has not connected yet is as quiet as who is lost
        return None
    dumped = sum(rank.dump is not None for rank in job.ranks.values())
    quiet = [
        rank
        for rank in job.ranks.values()
        if (rank.heard or job.counted)
        and not (rank.failed or rank.raised or rank.dump or rank.passed)
        and rank.code in (None, KILLED)
    ]
    if not quiet or len(quiet) * 2 > len(job.ranks) or (not dumped and len(quiet) * 2 == len(job.ranks)):
        return None
    ranks = sorted(rank.number for rank in quiet)
    event = next(rank.noticed for rank in job.ranks.values() if rank.noticed)
    hosts = {rank.host for rank in job.ranks.values()}
    whole = len(hosts) > 1 and "" not in hosts and _whole_hosts(job, set(ranks))
    cause = "rank-gone" if _closed_first(job) else "host-silent" if whole else "rank-silent"
    last = [
        f"last line of rank {rank.number}: {rank.file}: {rank.last.strip()[:200]}" for rank in quiet[:2] if rank.last
    ]
    evidence = [f"{named(ranks)} logged and recorded nothing of the failure; {at(event)}", *last]
    return _found(job, cause, ranks, evidence, SILENT)


def _closed_first(job: Job) -> bool:
    """Return whether connections closed before any rank had waited in vain: the process at their other end was gone.

    Ranks that waited in vain end, too, and close their connections: that comes later.
    """
    kinds = {kind for rank in job.ranks.values() for kind in rank.noticed_kinds}
    closed, waited = job.begun.get("closed", {}), job.begun.get("waited", {})
    if both := closed.keys() & waited.keys():
        return any(closed[stamp] < waited[stamp] for stamp in both)
    return "closed" in kinds and "waited" not in kinds


def _whole_hosts(job: Job, ranks: set[int]) -> bool:
    hosts = {job.ranks[number].host for number in ranks}
    return (
        "" not in hosts
        and len(ranks) > len(hosts)
        and ranks == {rank.number for rank in job.ranks.values() if rank.host in hosts}
    )


def late(job: Job) -> Verdict | None:
    """Name the ranks that did not call the last collective, or that called one more than all others."""
    dumps = [rank.dump for rank in job.ranks.values() if rank.dump]
    one = collectives.last(dumps)
    failed = any(rank.failed for rank in job.ranks.values())
    if one is None or not one.behind or (not failed and _well(job)):
        return None
    ahead = any(sum(not entry.completed for entry in dump.entries) > 1 for dump in dumps if dump.rank in one.called)
    if len(one.called) < len(one.behind) and len(one.called) * 4 <= len(dumps) and not ahead:
        ranks = sorted(one.called)
        told = f"flight recorder: {named(ranks)} called collective {one.seq} ({one.words}), which no other rank called"
        return _found(job, "collective-mismatch", ranks, [told, *_frames(job, ranks)], DIFFERS)
    lowest = min(one.behind.values())
    ranks = sorted(rank for rank, seq in one.behind.items() if seq == lowest)
    if len(ranks) * 2 > len(dumps) or any(_waits(job.ranks[number]) for number in ranks):
        return None  # these waited for others, too: in an earlier collective, whose messages did not arrive
    told = f"flight recorder: {named(ranks)} did not call collective {one.seq} ({one.words}), in which others waited"
    last_line = [job.ranks[ranks[0]].last.strip()[:200]]
    verdict = _found(job, "rank-late", ranks, [told, *(f"its last line: {text}" for text in last_line if text)], LATE)
    if failed:
        return verdict
    return replace(verdict, what=f"{named(ranks)}: when the dumps were written, the others waited in a collective")


def _waits(rank: Rank) -> bool:
    """Return whether a rank waited in the last collective that it recorded.

    NCCL's watchdog writes the dumps of all ranks at once, when the first one's time is up: a rank that comes late
    waits for the others later on, and has not begun it in its dump.
    """
    ended = bool(rank.dump and rank.dump.entries and all(one.ended for one in rank.dump.entries))
    return "waited" in rank.noticed_kinds and not ended


def behind_in_nccl(job: Job) -> Verdict | None:
    """Name the ranks that had called fewer collectives than the others when NCCL's watchdog failed.

    Calls do not wait: a rank that looks at its loss in each step has called fewer than one that runs ahead, and both
    wait for the same one.
    """
    for rows in job.works.values():
        most = max(called for called, _, _ in rows.values())
        low = min(called for called, _, _ in rows.values())
        ranks = sorted(rank for rank, (called, _, _) in rows.items() if called == low)
        waits = any(low > ended for called, ended, _ in rows.values() if called > low)
        if low < most and len(ranks) * 2 < len(rows) and not waits:
            told = f"{named(ranks)} had called {low} collectives, others up to {most}: {rows[ranks[0]][2]}"
            return _found(job, "rank-late", ranks, [told], LATE)
    return None


def other_work(job: Job) -> Verdict | None:
    """Name the ranks whose watchdog waited for another call than most, under one number of one group."""
    for (group, seq), rows in sorted(job.timed.items()):
        calls = {rank: _alike(call) for rank, (call, _) in rows.items()}
        usual, count = Counter(calls.values()).most_common(1)[0]
        odd = sorted(rank for rank, call in calls.items() if call != usual)
        if not odd or (group == UNNAMED and (job.grouped or count < ALIKE)):
            continue
        evidence = [f"collective {seq}: {named(odd)} called {rows[odd[0]][0]}, others {usual}", rows[odd[0]][1]]
        if len(odd) < count:
            return _found(job, "collective-mismatch", odd, evidence, DIFFERS)
        row = job.causes["collective-mismatch"]
        return Verdict("collective-mismatch", f"{row.what}; as many call one as the other", row.fix, evidence)
    return None


def _alike(call: str) -> str:
    """Return the part of a call that is the same on all ranks of a group: without sizes for a gather or a scatter."""
    kind = call.partition(",")[0]
    return kind if kind.removeprefix("OpType=").lower() in collectives.UNEVEN else call


def other_frame(job: Job) -> Verdict | None:
    """Name the ranks that waited at another line of the script than most."""
    frames = {rank.number: rank.noticed.where for rank in job.ranks.values() if rank.noticed and rank.noticed.where}
    counts = Counter(frames.values())
    if len(counts) < 2 or any(rank.dump for rank in job.ranks.values()):
        return None  # dumps that agree show that the ranks of the other line are only one call further
    (_, most), (_, next_most) = counts.most_common(2)
    usual = counts.most_common(1)[0][0]
    ranks = sorted(number for number, where in frames.items() if where != usual)
    if most <= next_most or len(ranks) * 2 >= len(frames) or len(ranks) > 1:
        return None
    return _found(job, "collective-mismatch", ranks, _frames(job, ranks), DIFFERS)


def _frames(job: Job, ranks: list[int]) -> list[str]:
    """Return where in the script these ranks waited, and where the others."""
    frames = {rank.number: rank.noticed.where for rank in job.ranks.values() if rank.noticed and rank.noticed.where}
    mine = next((frames[number] for number in ranks if number in frames), "")
    others = Counter(where for number, where in frames.items() if number not in ranks)
    if not mine or not others or others.most_common(1)[0][0] == mine:
        return []
    return [f"{named(ranks)} waited at {mine}, the others at {others.most_common(1)[0][0]}"]


def network(job: Job) -> Verdict | None:
    """Name the host that alone did not notice how the others ended: nothing reached it any more."""
    hosts = dict[str, list[Rank]]()
    for rank in job.ranks.values():
        hosts.setdefault(rank.host, []).append(rank)
    if len(hosts) < 3 or "" in hosts or not all(rank.dump for rank in job.ranks.values()):
        return None  # only dumps show that no rank left out a collective, which looks the same
    apart = [
        host for host, ranks in hosts.items() if all(r.noticed and "closed" not in r.noticed_kinds for r in ranks)
    ]  # fmt: skip
    if len(apart) != 1:
        return None
    ranks = [rank.number for rank in hosts[apart[0]]]
    told = f"the ranks of {apart[0]} only waited in vain, all other hosts saw connections close"
    return _found(job, "host-silent", ranks, [told], SILENT)


def only_noticed(job: Job) -> Verdict | None:
    """Say what the ranks noticed, if nothing shows which of them is the reason."""
    noticed = [rank.noticed for rank in job.ranks.values() if rank.noticed]
    noticed += [event for event in job.rest if event.cause in job.consequences]
    if not noticed:
        return None
    order = _order(job, noticed)
    event = min(noticed, key=lambda one: order((one, -1)))
    first = f" ({event.host} wrote of it first)" if event.host and event.when and len(job.hosts) > 1 else ""
    what = f"{event.what}; nothing shows which rank: those that wrote of it noticed it alike{first}"
    if job.ranks and all(rank.dump and "waited" in rank.noticed_kinds for rank in job.ranks.values()):
        what = f"{event.what}; all of them called the same collectives, so messages between them were lost"
        return Verdict(event.cause, what, job.causes["host-silent"].fix, [at(event)])
    fix = "keep the log of every rank, and set TORCH_FR_BUFFER_SIZE=2000 before the start: "
    fix += "dumps of the flight recorder say which rank did not call a collective"
    return Verdict(event.cause, what, fix, [at(event)])


RULES: list[Rule] = [
    two_names, two_jobs, differing_collectives, fingerprints, other_size, own_cause, ended_by_signal, wrong_world,
    elsewhere, ended_unseen, barrier, stalled_in_horovod, of_ras,
    never_arrived, silent, late, other_work, behind_in_nccl, network, other_frame, only_noticed,
]  # fmt: skip


def _well(job: Job) -> bool:
    """Return whether a rank, or a log of a host, says that the job ended well."""
    hosts = (stream for stream in job.streams if stream.rank is None)
    return any(rank.passed for rank in job.ranks.values()) or any(answer(one.reader).state == "none" for one in hosts)


def _open(job: Job, behind: list[Rank]) -> Verdict:
    if _well(job):
        return Verdict("none", "no rank failed, and the job says that it ended well", state="")
    logs = counted(len({one.file for one in job.streams}), "log")
    what = f"of {logs} none shows a failure, and none says that the job ended well"
    fix = "keep the output of every rank, with standard error, to its end"
    if behind:
        steps = [rank.step for rank in job.ranks.values() if rank.step is not None]
        named_ranks = named([rank.number for rank in behind])
        what += f"; {named_ranks} logged steps up to {min(steps)}, the others up to {max(steps)} and for longer"
        fix = f"look first at {named_ranks} (py-spy dump --pid PID, dmesg), unless every rank logs other steps; {fix}"
    last = [f"last line of rank {one.number}: {one.file}: {one.last.strip()[:200]}" for one in behind[:2]]
    return Verdict("unknown", what, fix, last, state="")


def _state(rank: Rank, verdict: Verdict) -> str:
    if rank.number in verdict.ranks:
        return verdict.state
    if rank.failed or rank.raised or (rank.code or 0) < 0:  # by a signal; with an exit code it may have failed itself
        return FOLLOWED
    if verdict.cause in ("none", "unknown"):
        return FINE if rank.heard else ""
    return FINE if rank.passed else SILENT if not rank.dump else FOLLOWED
