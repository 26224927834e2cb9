"""Compare the speed of two images by several runs of each in one allocation: Hodges and Lehmann's shift.

Per collective, message size and column, it takes all differences between a run of B and a run of A, of logarithms of
busbw. Their median is the loss; its bounds follow from the exact distribution of Mann and Whitney's U, which assumes
only that the noise is the same for both. Small messages are shown and decide nothing.
"""

import math
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import groupby
from statistics import median
from typing import Literal

from trainwright.core.toml import Model
from trainwright.gate.floors import Comparison

State = Literal["regression", "no difference", "not established", "small message"]
Key = tuple[str, int, str]  # collective, bytes, column
MOST_IN_A_ROW = 2  # runs of one image in a row; with more, a drift of the cluster looks like a difference


class Run(Model):
    """One log of one image."""

    file: str
    image: Literal["A", "B"]
    started: str = ""  # UTC, from the log
    busbw: dict[Key, float]  # GB/s


class Spread(Model):
    """Statistics of the busbw of one image over its runs."""

    runs: int
    median: float  # GB/s
    deviation: float  # median absolute deviation


class Difference(Model):
    """One collective, size and column."""

    collective: str
    size: int  # bytes
    side: str
    a: Spread
    b: Spread
    change: float | None  # of B against A, as a fraction; below 0 B is slower; None: one of them lacks this row
    low: float | None  # bounds of the change, each at the level of error; None: too few runs for a bound
    high: float | None
    state: State
    why: str = ""


class Compared(Model):
    """The verdict over all differences."""

    verdict: Literal["regression", "no difference", "not established"]
    why: str
    order: str  # ABBA...; "" if the logs do not state when they started
    differences: list[Difference]


def abba(runs: int) -> list[str]:
    """Return the order for running two images `runs` times each, so that a drift of the cluster affects both alike."""
    return ["ABBA"[number % 4] for number in range(2 * runs)]


def interleaved(order: str) -> bool:
    return all(len(list(group)) <= MOST_IN_A_ROW for _, group in groupby(order))


def order_of(runs: Sequence[Run]) -> str:
    """Return the images in the order of their starts, or "" if a start is unknown or two are equal."""
    times = [run.started for run in runs]
    if not all(times) or len(set(times)) < len(times):
        return ""
    return "".join(run.image for run in sorted(runs, key=lambda run: run.started))


def compare(runs: Sequence[Run], large: Mapping[str, int], rule: Comparison) -> Compared:
    """Compare the runs; `large` is the size in bytes from which the messages of a collective decide."""
    keys = sorted({key for run in runs for key in run.busbw})
    judged = [key for key in keys if key[1] >= large[key[0]]]
    found = [_difference(runs, key, len(judged) if key in judged else 0, rule) for key in keys]
    states = [one.state for one in found]
    bad = next((one for one in found if one.state == "regression"), None)
    open_ = next((one for one in found if one.state == "not established"), None)
    order = order_of(runs)
    known = f"order {order}" if order else "the order is not known"
    if bad:
        worst, most = min(
            ((one, one.change or 0.0) for one in found if one.state == "regression"), key=lambda it: it[1]
        )
        count = states.count("regression")
        why = f"B is {-most:.1%} slower: {worst.collective}, {worst.size} bytes, {worst.side}; {count} such rows"
        return Compared(verdict="regression", why=why, order=order, differences=found)
    if open_ or not judged:
        why = f"{open_.collective}: {open_.why}" if open_ else "no large message was measured"
        return Compared(verdict="not established", why=why, order=order, differences=found)
    why = f"a loss of {rule.difference:.0%} is excluded in each of {len(judged)} rows; {known}"
    return Compared(verdict="no difference", why=why, order=order, differences=found)


def _difference(runs: Sequence[Run], key: Key, judged: int, rule: Comparison) -> Difference:
    """Compare one row. `judged` is the number of rows that decide, including this one; 0 if it does not decide."""
    of = [run for run in runs if any(name == key[0] for name, _, _ in run.busbw)]
    a, b = ([run.busbw[key] for run in of if run.image == image and key in run.busbw] for image in "AB")
    order = order_of(of)
    change, low, high = shift(a, b, rule.level, rule.level / max(judged, 1)) if a and b else (None, None, None)
    state, why = _state(a, b, len(of), order, (change, low, high), rule)
    return Difference(
        collective=key[0],
        size=key[1],
        side=key[2],
        a=_spread(a),
        b=_spread(b),
        change=change,
        low=low,
        high=high,
        state=state if judged else "small message",
        why=why if judged else "",
    )


def _state(
    a: list[float],
    b: list[float],
    runs: int,
    order: str,
    bounds: tuple[float | None, float | None, float | None],
    rule: Comparison,
) -> tuple[State, str]:
    change, low, high = bounds
    if len(a) + len(b) < runs:
        return "not established", f"{len(a) + len(b)} of {runs} runs have this size"
    if min(len(a), len(b)) < rule.least_runs:
        return "not established", f"{len(a)} runs of A and {len(b)} of B; {rule.least_runs} of each are needed"
    if order and not interleaved(order):
        return "not established", f"ran {order}: not interleaved, so a drift looks like a difference"
    if high is not None and high < 0 and change is not None and change <= -rule.ignored:
        return "regression", ""
    if low is not None and low > -rule.difference:
        return "no difference", ""
    if low is None or high is None:
        return "not established", f"too few runs for so many rows: {len(a)} of A, {len(b)} of B"
    return "not established", f"the change is between {low:+.1%} and {high:+.1%}: more runs make it narrower"


def _spread(values: list[float]) -> Spread:
    middle = median(values) if values else 0.0
    deviation = median(abs(value - middle) for value in values) if values else 0.0
    return Spread(runs=len(values), median=middle, deviation=deviation)


def shift(
    a: Sequence[float], b: Sequence[float], level_low: float, level_high: float
) -> tuple[float, float | None, float | None]:
    """Return the change from A to B as a fraction, and its bounds; the levels state how rarely it exceeds them."""
    before, after = [math.log(x) for x in a], [math.log(y) for y in b]
    differences = sorted(y - x for x in before for y in after)
    least, most = rank(len(a), len(b), level_low), rank(len(a), len(b), level_high)
    return (
        math.expm1(median(differences)),
        math.expm1(differences[least - 1]) if least else None,
        math.expm1(differences[-most]) if most else None,
    )


@cache
def rank(n: int, m: int, level: float) -> int:
    """Return which sorted difference is a bound: the largest k with P(U < k) not above the level; 0 for none."""
    counts, total, below = ways(n, m), math.comb(n + m, n), 0
    for k, count in enumerate(counts, 1):
        below += count
        if below / total > level:
            return k - 1
    return 0


def ways(n: int, m: int) -> list[int]:
    """Return for each U, from 0 on, the number of orders of n and m values: the coefficients of Gauss's binomial."""
    counts = [1] + [0] * (n * m)
    for i in range(1, n + 1):
        for u in range(n * m, m + i - 1, -1):
            counts[u] -= counts[u - m - i]
        for u in range(i, n * m + 1):
            counts[u] += counts[u - i]
    return counts
