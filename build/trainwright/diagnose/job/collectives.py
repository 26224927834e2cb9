"""Compare what the ranks recorded: where their collectives differ, and which ranks did not call the last one."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from trainwright.diagnose.job.ranks import named
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
    dumps, found = list(dumps), list[tuple[float, Difference]]()
    apart = _apart(dumps) if whole else None
    outliers = {*apart.ranks} if apart else set[int]()
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
    return min(found, key=lambda one: one[0])[1] if found else apart


def _apart(dumps: Sequence[Dump]) -> Difference | None:
    """Return the ranks that call something else than most, in the order of all their calls in whatever group.

    A group of two does not show which one is wrong. Where all ranks make alike groups, they call these in one order, so
    the other ranks show it. None if the ranks do not do alike things: those of a pipeline differ from the start, and
    much ended after that; or if the ranks that stand out wait for nothing.
    """
    starts = dict[int, int]()  # the recorder keeps the last calls only
    for dump in dumps:
        own = dict[int, int]()
        for entry in dump.entries:
            own[entry.role] = min(entry.seq, own.get(entry.role, entry.seq))
        for role, seq in own.items():
            starts[role] = max(seq, starts.get(role, seq))
    orders = {
        dump.rank: sorted((one for one in dump.entries if one.seq >= starts[one.role]), key=lambda one: one.number)
        for dump in dumps
    }
    for at in range(max(map(len, orders.values()), default=0)):
        here = {rank: (order[at].role, signature(order[at])) for rank, order in orders.items() if at < len(order)}
        counts = Counter(here.values())
        if len(counts) == 1:
            continue
        most, count = counts.most_common(1)[0]
        ranks = sorted(rank for rank, one in here.items() if one != most)
        ended = max(sum(one.completed for one in order[at:]) for order in orders.values())
        waits = any(not one.completed for rank in ranks for one in orders[rank])
        if len(counts) > 2 or count * 2 <= len(here) or count < 2 or ended >= at or not waits:
            return None
        (role, mine), (usual_role, usual) = here[ranks[0]], most
        told = f"call {at + 1} of those that all ranks recorded: "
        told += f"{named(ranks)} called {mine} in group {role} of its own, "
        told += f"all others {usual} in group {usual_role} of theirs"
        return Difference(ranks, at, "another order of calls, or one too many or too few", told, few=True)
    return None


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
    told = f"collective {seq}: {named(odd)} called {mine.words}, the others {usual.words}"
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
