"""Compute the charts of a log, as numbers without drawing: busbw over message size, with floors and ceiling."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median

from trainwright.gate import floors as floor_rows
from trainwright.gate.case import Case, solve
from trainwright.gate.nccl_tests import Table

Curve = tuple[tuple[int, float], ...]  # bytes, GB/s
UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
SIDES = ("out of place", "in place")
ROOM = 1.02  # keeps a ceiling off the edge of the picture
TICKS = 5  # approximate number on the vertical axis
MOST_SIZES = 9  # most labels on the horizontal axis


@dataclass(frozen=True)
class Level:
    """A reference line that does not come from the log: a ceiling, or a floor that applies from a size on."""

    name: str
    busbw: float  # GB/s
    start: int = 0  # bytes
    why: str = ""


@dataclass(frozen=True)
class Panel:
    """The chart of one table of a log."""

    title: str
    about: str
    sides: tuple[Curve, Curve]  # out of place, in place
    ceiling: Level | None
    floors: tuple[Level, ...]
    baseline: tuple[Curve, Curve] = ((), ())
    baseline_name: str = ""
    absent: str = ""  # reason for a missing ceiling or floor

    @property
    def sizes(self) -> list[int]:
        curves = (*self.sides, *self.baseline)
        return sorted({size for curve in curves for size, _ in curve} | {level.start for level in self.floors})

    @property
    def highest(self) -> float:
        values = [value for curve in (*self.sides, *self.baseline) for _, value in curve]
        values += [level.busbw for level in (self.ceiling, *self.floors) if level]
        return max(values, default=0.0) or 1.0


def panels(case: Case) -> list[Panel]:
    """Return one panel for each table that has rows."""
    return [_panel(case, table) for table in case.log.tables if any(row.size for row in table.rows)]


def _panel(case: Case, table: Table) -> Panel:
    collective = case.collective(table)
    asked = case.floors_of(table)
    floors = tuple(
        Level("floor", top * floor.fraction, floor.size, f"{floor.fraction:.0%} of {top:g} GB/s")
        for floor, top in asked
    )
    ceiling, known = _ceiling(case), case.baseline
    points = known.points_of(collective, case.algorithm) if known else []
    absent = "" if ceiling and floors else "no floor is known for this run" if ceiling else "no ceiling is known"
    return Panel(
        title=collective or "unknown collective",
        about=", ".join(_about(case, table)),
        sides=(_curve(table, 0), _curve(table, 1)),
        ceiling=ceiling,
        floors=floors,
        baseline=(
            tuple((point.size, point.out_of_place) for point in points),
            tuple((point.size, point.in_place) for point in points),
        ),
        baseline_name=known.name if known and points else "",
        absent="no instance type is declared: ceiling and floor are unknown" if case.instance is None else absent,
    )


def _about(case: Case, table: Table) -> Iterable[str]:
    if case.declared.instance and case.nodes:
        yield f"{case.nodes} x {case.declared.instance}"
    ranks = solve(table, case.collective(table))
    if ranks.low is not None and not ranks.contradiction:
        yield f"{ranks} ranks, computed from busbw/algbw"
    yield f"table at line {table.line}"


def _ceiling(case: Case) -> Level | None:
    """Return the ceiling: of the network for several nodes, of NVLink for one; None if it is unknown."""
    if case.instance is None or case.several is None or not (case.several or case.instance.nvlink):
        return None
    kind = "net" if case.several else "nvlink"
    busbw = floor_rows.ceiling(kind, case.instance, case.floors)
    why = "all network cards of a node" if kind == "net" else "NVLink of one GPU, one way"
    return Level("ceiling", busbw, why=why) if busbw else None


def _curve(table: Table, side: int) -> Curve:
    """Return the median of each size, because a table may repeat its sizes."""
    found: dict[int, list[float]] = {}
    for row in table.rows:
        if row.size:
            found.setdefault(row.size, []).append(row.sides[side].busbw.value)
    return tuple((size, median(values)) for size, values in sorted(found.items()))


# --- axes ------------------------------------------------------------------------------------------------------------


def size_text(size: int) -> str:
    """Format bytes in powers of two, as short as possible with four significant digits."""
    power = min((size.bit_length() - 1) // 10, len(UNITS) - 1) if size else 0
    return f"{size / 1024**power:.4g} {UNITS[power]}"


def size_ticks(sizes: list[int]) -> list[int]:
    """Return powers of two over the range of sizes, few enough to be readable."""
    if not sizes or sizes[-1] < 1:
        return []
    first, last = math.ceil(math.log2(max(sizes[0], 1))), math.floor(math.log2(sizes[-1]))
    if last < first:
        return [sizes[0]]
    step = next(step for step in (1, 2, 5, 10, 20, 50) if (last - first) // step < MOST_SIZES)
    start = first + -first % step if last - first >= step else first
    return [2**power for power in range(start, last + 1, step)]


def busbw_ticks(highest: float) -> list[float]:
    """Return round numbers from 0 to the first one above the highest value."""
    highest *= ROOM
    magnitude = 10 ** math.floor(math.log10(highest / TICKS))
    step = next(step for n in (1, 2, 2.5, 5, 10) if (step := n * magnitude) * TICKS >= highest)
    return [round(number * step, 10) for number in range(math.ceil(highest / step - 1e-9) + 1)]
