"""Compare what the ranks recorded: where their collectives differ, and which ranks did not call the last one."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from trainwright.diagnose.job.recorder import Dump, Entry

UNEVEN = {
    "gather",
    "scatter",
    "all_to_all",
    "alltoall",
    "alltoall_base",
    "allgather_into_tensor_coalesced",
    "send",
    "recv",
}


@dataclass
class Difference:
    """The first collective of a group that the ranks do not agree on."""

    ranks: list[int]  # those that differ from most
    seq: int
    kind: str  # how it differs
    told: str
    few: bool  # whether they are fewer than the others, so that it is they who are wrong


def signature(entry: Entry) -> str:
    return entry.op if entry.op in UNEVEN else entry.words


def difference(dumps: Iterable[Dump], whole: bool) -> Difference | None:
    """Return the first difference in time. Only dumps of all ranks (`whole`) show what stands out in all calls."""
    dumps = list(dumps)
    outliers = set(_outliers(dumps)) if whole else set[int]()
    found = _one_more(dumps, outliers)
    for group in sorted({name for dump in dumps for name in dump.groups}):
        rows = {dump.rank: {one.seq: one for one in dump.groups[group]} for dump in dumps if group in dump.groups}
        for seq in sorted({seq for row in rows.values() for seq in row}):
            here = {rank: row[seq] for rank, row in rows.items() if seq in row}
            signatures = Counter(signature(one) for one in here.values())
            if len(signatures) > 1:
                most, count = signatures.most_common(1)[0]
                odd = sorted(rank for rank, one in here.items() if signature(one) != most)
                few, rest = len(odd) < count, sorted(here.keys() - set(odd))
                if not few and outliers in ({*odd}, {*rest}):
                    most = signature(here[odd[0]]) if outliers == {*rest} else most
                    odd, few = sorted(outliers), True
                first = min(one.created for one in here.values())
                found.append((first, _told(rows, odd, seq, most, few)))
                break
    found = found or _other_order(dumps, outliers)
    return min(found, key=lambda one: one[0])[1] if found else None


def _outliers(dumps: Sequence[Dump]) -> list[int]:
    """Return the ranks that call another collective than most, in the order of all their calls in whatever group.

    Groups of few ranks do not show which one is wrong. Where all ranks make alike groups, they call these in one order,
    so the other groups show it. Empty if the ranks do not do alike things: those of a pipeline differ from the start.
    """
    starts = dict[int, int]()  # the recorder keeps the last calls only
    for dump in dumps:
        own = dict[int, int]()
        for entry in dump.entries:
            own[entry.role] = min(entry.seq, own.get(entry.role, entry.seq))
        for role, seq in own.items():
            starts[role] = max(seq, starts.get(role, seq))
    orders = {
        dump.rank: [
            (entry.role, signature(entry))
            for entry in sorted(dump.entries, key=lambda one: one.number)
            if entry.seq >= starts[entry.role]
        ]
        for dump in dumps
    }
    longest = max(map(len, orders.values()), default=0)
    for at in range(longest):
        here = {rank: order[at] for rank, order in orders.items() if at < len(order)}
        (most, count), *others = Counter(here.values()).most_common(2)
        if others:
            alike = len(set(here.values())) == 2 and count * 2 > len(here) and count > 1 and at * 2 > longest
            return sorted(rank for rank, one in here.items() if one != most) if alike else []
    return []


def _one_more(dumps: Sequence[Dump], outliers: set[int]) -> list[tuple[float, Difference]]:
    """Return the groups in which some ranks called one collective more, and the others called something else instead.

    Its members that called fewer are no proof alone: they may come yet. The order of all calls shows who is wrong.
    """
    found = list[tuple[float, Difference]]()
    for group in sorted({name for dump in dumps for name in dump.groups}):
        rows = {dump.rank: dump.groups[group] for dump in dumps if group in dump.groups}
        ends = {rank: max(entries, key=lambda one: one.seq) for rank, entries in rows.items()}
        seq = max(one.seq for one in ends.values())
        ahead = {rank for rank, one in ends.items() if one.seq == seq}
        behind = ends.keys() - ahead
        if not behind or outliers not in (ahead, behind) or all(ends[rank].completed for rank in ahead):
            continue
        one, ranks = ends[min(ahead)], sorted(outliers)
        kind = "called once more" if outliers == ahead else "left out"
        told = f"collective {seq} of a group: {_ranks(sorted(ahead))} called {one.words}, "
        told += f"{_ranks(sorted(behind))} went on without it"
        found.append((one.created, Difference(ranks, seq, kind, told, few=True)))
    return found


def _ends(dumps: Sequence[Dump]) -> dict[str, dict[int, int]]:
    """Return the last collective of each rank in each group."""
    found = dict[str, dict[int, int]]()
    for dump in dumps:
        for group, entries in dump.groups.items():
            found.setdefault(group, {})[dump.rank] = max(one.seq for one in entries)
    return found


def _other_order(dumps: Sequence[Dump], outliers: set[int]) -> list[tuple[float, Difference]]:
    """Return a difference if ranks that stand out wait, although the calls of each group agree."""
    waiting = [entry for dump in dumps if dump.rank in outliers for entry in dump.entries if not entry.completed]
    if not waiting or any(len(set(ends.values())) > 1 for ends in _ends(dumps).values()):
        return []
    one = min(waiting, key=lambda entry: entry.number)
    told = f"{_ranks(sorted(outliers))} called collectives of several groups in another order than all others"
    return [(one.created, Difference(sorted(outliers), one.seq, "another order", told, few=True))]


def _told(rows: dict[int, dict[int, Entry]], odd: list[int], seq: int, most: str, few: bool) -> Difference:
    rank = odd[0]
    mine = rows[rank][seq]
    usual = next(one for other, row in rows.items() if seq in row and signature(one := row[seq]) == most)
    others = [row for other, row in rows.items() if other not in odd]

    def of_most(number: int) -> str:
        called = Counter(signature(row[number]) for row in others if number in row)
        return called.most_common(1)[0][0] if called else ""

    before = rows[rank].get(seq - 1)
    after = rows[rank].get(seq + 1)
    if mine.op == usual.op and mine.sizes != usual.sizes and signature(mine) != of_most(seq + 1):
        kind = "another size"
    elif after and signature(after) == most:
        kind = "another order"
    elif before and signature(before) == signature(mine) and of_most(seq - 1) == signature(mine):
        kind = "called twice"
    else:
        kind = "left out, or in another order"
    told = f"collective {seq}: {_ranks(odd)} called {mine.words}, the others {usual.words}"
    return Difference(odd, seq, kind, told, few)


@dataclass
class Last:
    """How far the ranks got in the largest group."""

    seq: int  # the last collective that any rank called
    called: set[int]
    behind: dict[int, int]  # rank: its last one
    words: str


def last(dumps: Iterable[Dump]) -> Last | None:
    """Return which ranks called the last collective, and which did not."""
    dumps = [dump for dump in dumps if dump.groups]
    sizes = Counter(name for dump in dumps for name in dump.groups)
    if not sizes:
        return None
    group = max(sizes, key=lambda name: (sizes[name], -len(name)))
    ends = {dump.rank: max(dump.groups[group], key=lambda one: one.seq) for dump in dumps if group in dump.groups}
    seq = max(one.seq for one in ends.values())
    called = {rank for rank, one in ends.items() if one.seq == seq}
    words = next(one.words for one in ends.values() if one.seq == seq)
    return Last(seq, called, {rank: one.seq for rank, one in ends.items() if one.seq < seq}, words)


def _ranks(numbers: list[int]) -> str:
    shown = ", ".join(map(str, numbers[:6])) + (f" and {len(numbers) - 6} more" if len(numbers) > 6 else "")
    return ("rank " if len(numbers) == 1 else "ranks ") + shown
