"""Extract a log's evidence for the judge of nccl-tests: its world size with the sources, and its nodes.

Arithmetic: NVIDIA/nccl-tests `doc/PERFORMANCE.md`.
"""

import math
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Literal

from pydantic import Field

from trainwright.core.toml import Model
from trainwright.diagnose.causes import Cause
from trainwright.diagnose.nccl_debug import Seen
from trainwright.gate import floors as floor_rows
from trainwright.gate.baseline import Baseline
from trainwright.gate.floors import Floor, Floors
from trainwright.gate.nccl_tests import BYTES, Header, Row, Table
from trainwright.matrix.instances import Instance

State = Literal["pass", "fail", "not established", "not applicable"]
SPLIT = (
    "all_gather",
    "reduce_scatter",
    "alltoall",
    "alltoallv",
    "gather",
    "scatter",
)  # busbw/algbw is (n-1)/n, size is the total of all ranks
ONE = ("broadcast", "reduce", "sendrecv")  # busbw/algbw is 1 for every n
MANY_RANKS = 1 << 24  # an interval with a larger bound carries no information


class Declared(Model):
    """The user's declaration of a run; None and "" for values not given."""

    world_size: int | None = None
    nodes: int | None = None
    instance: str = ""
    nics: int | None = None  # EFA interfaces of a node, if fewer than the instance type has
    exit_code: int | None = None
    collective: str = ""
    pins: dict[str, str] = Field(default={})


@dataclass
class Log:
    """The facts kept from a log."""

    tables: list[Table]
    header: Header | None  # of a table that is missing
    seen: Seen
    causes: list[tuple[Cause, str]]
    lines: int
    cut: bool = False  # whether the last line is truncated
    started: str = ""  # UTC, if the gate script logged it

    @property
    def silent(self) -> bool:
        """Return whether the log has no line of NCCL or nccl-tests."""
        return not (self.tables or self.header or self.causes or self.seen.nccl or self.seen.errors)


# --- ranks -----------------------------------------------------------------------------------------------------------


def collective_of(table: Table, declared: str) -> str:
    """Return a table's collective: from its header, the declaration or the form of its rows; "" if unknown."""
    if table.header.collective:
        return table.header.collective
    if declared:
        return declared
    row = next((row for row in table.rows if row.count), None)
    if row is None:
        return ""
    whole = row.size == row.count * BYTES[row.type]
    reduces = row.redop not in ("none", "")
    if whole and row.root < 0:
        return "all_reduce" if reduces else "sendrecv"
    if whole:
        return "reduce" if reduces else "broadcast"
    return "reduce_scatter" if reduces else "all_gather"


@dataclass
class Ranks:
    """The range of world sizes that a table's numbers allow."""

    low: int | None
    high: int | None
    applicable: bool = True

    @property
    def contradiction(self) -> bool:
        return self.low is not None and self.high is not None and self.low > self.high

    def allow(self, count: int) -> bool:
        return (self.low is None or self.low <= count) and (self.high is None or count <= self.high)

    def __str__(self) -> str:
        if self.low == self.high:
            return str(self.low)
        return f"{self.low} to {'any number' if self.high is None else self.high}"


def solve(table: Table, collective: str) -> Ranks:
    """Return the rank counts that agree with busbw/algbw of every row, within the rounding of printed values."""
    if collective in ONE:
        same = all(
            side.busbw.low <= side.algbw.high and side.algbw.low <= side.busbw.high
            for row in table.rows
            for side in row.sides
        )
        return Ranks(None, None, applicable=False) if same else Ranks(1, 0)
    if not collective:
        return Ranks(None, None, applicable=False)
    doubled = collective not in SPLIT
    low, high = 0.0, math.inf  # bounds of the factor (n-1)/n
    for row in table.rows:
        for side in row.sides:
            if side.algbw.low <= 0:
                continue
            scale = 2.0 if doubled else 1.0
            low = max(low, side.busbw.low / side.algbw.high / scale)
            high = min(high, side.busbw.high / side.algbw.low / scale)
    least = 1 / (1 - low) if low < 1 else math.inf
    most = 1 / (1 - high) if high < 1 else math.inf
    if least > MANY_RANKS:
        return Ranks(1, 0)  # faster than any world size allows
    split = shares(table)
    first, last = max(1, math.ceil(least - 1e-6)), None if most > MANY_RANKS else math.floor(most + 1e-6)
    if not doubled and split:
        if not Ranks(first, last).allow(split):
            return Ranks(1, 0)
        return Ranks(split, split)
    return Ranks(first, last)


def shares(table: Table) -> int | None:
    """Return size/(count x bytes of the type): 1, or the ranks that share a message; None if the rows disagree."""
    found = {Fraction(row.size, int(row.count) * BYTES[row.type]) for row in table.rows if row.count and exact(row)}
    one = found.pop() if len(found) == 1 else None
    return int(one) if one is not None and one.denominator == 1 else None


def exact(row: Row) -> bool:
    """Return whether the count was printed in full, and not as 1.04858e+06."""
    return row.count == int(row.count) and (row.count < 1e6 or row.count * BYTES[row.type] <= row.size)


# --- one log, and what was declared of it ----------------------------------------------------------------------------


@dataclass
class Case:
    """One log and its declaration, as every check receives them."""

    log: Log
    declared: Declared
    instance: Instance | None
    floors: Floors
    baseline: Baseline | None = None
    ranks: list[Ranks] = field(default_factory=list)

    def collective(self, table: Table) -> str:
        return collective_of(table, self.declared.collective)

    @property
    def algorithm(self) -> str:
        return self.log.seen.variables.get("NCCL_ALGO", "any").lower()

    def floors_of(self, table: Table) -> list[tuple[Floor, float]]:
        """Return a table's busbw floors, each with its ceiling in GB/s; empty if instance type or nodes are unknown."""
        if self.instance is None or self.nodes is None:
            return []
        name = self.declared.instance
        found = floor_rows.rows(self.floors, name, self.nodes, self.collective(table), self.algorithm)
        tops = [(floor, floor_rows.ceiling(floor.ceiling, self.instance, self.floors)) for floor in found]
        return [(floor, top) for floor, top in tops if top is not None]

    def large(self, table: Table) -> int:
        """Return the size in bytes from which a table's messages measure the network's speed."""
        return min((floor.size for floor, _ in self.floors_of(table)), default=self.floors.large)

    @property
    def world(self) -> dict[str, int]:
        """Map each source that states a world size to its number."""
        found, seen = dict[str, int](), self.log.seen
        if self.declared.world_size:
            found["--world-size"] = self.declared.world_size
        elif self.declared.nodes and self.instance and self.instance.count:
            found["--nodes and --instance"] = self.declared.nodes * self.instance.count
        if len(seen.ranks) == 1:
            found["NCCL's nranks"] = next(iter(seen.ranks))
        return found

    @property
    def nodes(self) -> int | None:
        """Return the number of nodes: declared, else from NCCL, the named hosts or the world size; None if unknown."""
        if self.declared.nodes:
            return self.declared.nodes
        if self.log.seen.nodes:
            return max(self.log.seen.nodes)
        hosts = set[str]().union(*(table.header.hosts for table in self.log.tables))
        if hosts and all(complete(table.header) for table in self.log.tables if table.header.hosts):
            return len(hosts)
        if len(hosts | self.log.seen.hosts) > 1:
            return len(hosts | self.log.seen.hosts)
        if self.world and self.instance and self.instance.count:
            return -(-min(self.world.values()) // self.instance.count)
        return None

    @property
    def several(self) -> bool | None:
        """Return whether more than one node takes part; None if unknown."""
        return None if self.nodes is None else self.nodes > 1


def complete(header: Header) -> bool:
    return len(header.ranks) == max(header.ranks, default=-1) + 1


def header_ranks(header: Header) -> int | None:
    """Return a communicator's rank count; None if the header does not show equal groups of a split world."""
    groups = set(header.ranks.values())
    if len(groups) == 1:
        return max(header.ranks) + 1
    sizes = {list(header.ranks.values()).count(group) for group in groups}
    return sizes.pop() if complete(header) and len(sizes) == 1 else None


Result = tuple[State, str]
