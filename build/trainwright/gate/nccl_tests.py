"""Parse the output of nccl-tests, of every version since 2019: its text, and the JSON of -J.

A log is read line by line in constant memory: only its tables (with footers) and its header lines are kept. Grammar:
nccl-tests src/common.cu and src/util.cu up to 2.20.0; logs of tests/unit/nccl-tests/.
"""

import math
import re
from dataclasses import dataclass, field
from typing import Any

BYTES = {
    **dict.fromkeys(("int8", "uint8", "char", "f8e4m3", "f8e5m2", "fp8_e4m3", "fp8_e5m2"), 1),
    **dict.fromkeys(("half", "bfloat16"), 2),
    **dict.fromkeys(("int32", "uint32", "float", "int"), 4),
    **dict.fromkeys(("int64", "uint64", "double"), 8),
}
ROW = re.compile(rf"(\d+)\s+(\d+(?:\.\d+)?(?:e\+?\d\d?)?)\s+({'|'.join(BYTES)})\s+(\S.*)")
BEGUN = re.compile(r"\d+\s+\d\S*\s+[a-z]")  # a row that ROW does not match, or the beginning of a row
COLUMNS = re.compile(r"#\s+size\s+count\s+type\s+(.*\bbusbw\b.*)")
VERSION = re.compile(r"#\s*nccl-tests version (\S{1,100}).{0,200}?nccl-headers=(\d+) nccl-library=(\d+)")
STARTING = re.compile(r"#\s*Collective test (starting|concluded): (\w+)")
PARAMETERS = re.compile(
    r"#\s*nThread (\d+) nGpus (\d+) minBytes (\d+) maxBytes (\d+) step: (\d+)\((factor|bytes)\)"
    r"(?:.*\bvalidation: (\d))?"
)
RANK = re.compile(r"#\s*Rank\s+(\d+)\s+(?:Group\s+(\d+)\s+)?Pid\s+(\d+) on\s+(\S+) device\s+(\d+) \[(\S+)\]")
# Footers match without their "#", because some launchers, and cuts at the front of a line, remove it.
OUT_OF_BOUNDS = re.compile(r"#?\s*Out of bounds values\s*: (\d+) (OK|FAILED)")
AVERAGE = re.compile(r"#?\s*Avg bus bandwidth\s*: (\d+(?:\.\d*)?(?:e[+-]?\d\d?)?)\s{0,20}(OK|FAILED)?\s{0,20}$")
# A refusal matches behind any prefix, and with its last word cut, so that no prefix hides wrong values.
REFUSED = re.compile(r"Out of bounds values\s*: 0*(?P<wrong>[1-9]\d*)|(?:values|bandwidth)\s*: \S+ FAILED")
FOOTERS = ("Out of bounds values", "Avg bus bandwidth")
REDUCED = re.compile(r"#\s*Reducing maxBytes to (\d+)")
ELIDED = ("...", "…", "[...]")
NAMES = (
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "alltoall",
    "alltoallv",
    "broadcast",
    "reduce",
    "sendrecv",
    "gather",
    "scatter",
)
SAME = {"#wrong": "wrong", "error": "wrong", "cputime": "time"}
OLD_FIELDS, FIELDS = 8, 9  # after type and redop: the older format has no root


@dataclass(frozen=True)
class Printed:
    """A number, and its possible rounding error."""

    value: float
    half: float  # half a unit of its last digit

    @property
    def low(self) -> float:
        return max(0.0, self.value - self.half)

    @property
    def high(self) -> float:
        return self.value + self.half


def printed(text: str) -> Printed:
    """Parse a printed number. Raises ValueError if it is not finite."""
    mantissa, _, exponent = text.partition("e")
    digits, value = len(mantissa.partition(".")[2]), float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is not finite")
    return Printed(value, 0.5 * 10.0 ** (int(exponent or 0) - digits) * (1 + 1e-9))


@dataclass(frozen=True)
class Side:
    """The results of a row, out of place or in place."""

    time: Printed  # microseconds
    algbw: Printed  # GB/s
    busbw: Printed  # GB/s
    wrong: float | None  # number of wrong values; before version 2.13 the greatest error; None: not checked


@dataclass(frozen=True)
class Row:
    size: int  # bytes
    count: float  # elements
    type: str
    redop: str  # "none" or "": none
    root: int
    sides: tuple[Side, Side]
    line: int


@dataclass
class Header:
    """The header lines before a table."""

    collective: str = ""
    version: str = ""
    headers: int = 0  # NCCL's version, as compiled against
    library: int = 0  # NCCL's version, as loaded
    started: bool = False
    least: int = 0  # bytes; 0 if no parameters are known
    most: int = 0
    step: int = 0
    factor: bool = True  # else step is in bytes
    validated: bool = True
    ranks: dict[int, int] = field(default_factory=dict)  # rank to its group
    hosts: set[str] = field(default_factory=set)
    processes: set[tuple[str, int]] = field(default_factory=set)  # host and pid: one may have several ranks
    reduced: int = 0  # bytes: the sweep was shortened to this
    elided: bool = False  # lines before the table were left out of the copied log


@dataclass
class Table:
    header: Header
    line: int
    columns: tuple[str, ...] = ()
    rows: list[Row] = field(default_factory=list)
    damaged: list[int] = field(default_factory=list)  # lines that begin like rows
    elided: bool = False
    out_of_bounds: int | None = None
    refused: bool = False  # nccl-tests printed FAILED
    average: Printed | None = None
    concluded: bool = False

    @property
    def errors(self) -> bool:
        """Return whether `wrong` is an error rather than a count, as in versions before 2.13."""
        return "error" in self.columns

    @property
    def ended(self) -> bool:
        return self.average is not None or self.concluded


class Reader:
    """A parser that is fed every line; `tables` then holds the result."""

    def __init__(self) -> None:
        self.tables: list[Table] = []
        self.over = 0  # tables that have their average: NCCL's later messages belong to the next test
        self._headers: dict[str, Header] = {}  # by rank, because without MPI each process prints the whole header
        self._open: dict[str, Table] = {}

    @property
    def header(self) -> Header | None:
        """Return the header that no table has followed yet, if any."""
        return next(iter(self._headers.values()), None)

    def feed(self, text: str, rank: str, number: int) -> None:
        """Parse one line without its prefix."""
        text = text.strip()
        if text in ELIDED:
            self._elided(rank)
        elif any(footer in text for footer in FOOTERS):
            self._footer(text, rank, number)
        elif text.startswith("#"):
            self._comment(text, rank, number)
        elif text[:1].isdigit():
            self._row(text, rank, number)

    def _elided(self, rank: str) -> None:
        for key in {rank, ""}:  # because an ellipsis has no prefix
            table = self._open.get(key) or (next(iter(self._open.values()), None) if not rank else None)
            if table and not table.ended:
                table.elided = True
            elif key in self._headers or not rank:
                for header in self._headers.values():
                    header.elided = True

    def _header(self, rank: str) -> Header:
        """Return the header of the next table. A header line after an ended table belongs to another one."""
        return self._headers.setdefault(rank, Header())

    def _comment(self, text: str, rank: str, number: int) -> None:
        table = self._open.get(rank)
        if found := COLUMNS.match(text):
            if table is None or table.rows or table.ended:
                table = self._open[rank] = Table(self._headers.pop(rank, Header()), number)
                self.tables.append(table)
            table.columns = tuple(found[1].split())
        elif found := STARTING.match(text):
            if found[1] == "concluded":
                if table:
                    table.concluded = True
            else:
                header = self._header(rank)
                header.started, header.collective = True, collective(found[2])
        elif found := VERSION.match(text):
            header = self._header(rank)
            header.version, header.headers, header.library = found[1], int(found[2]), int(found[3])
        elif found := PARAMETERS.match(text):
            header = self._header(rank)
            header.least, header.most, header.step = int(found[3]), int(found[4]), int(found[5])
            header.factor, header.validated, header.elided = found[6] == "factor", found[7] != "0", False
        elif found := RANK.match(text):
            header = self._header(rank)
            header.ranks[int(found[1])] = int(found[2] or 0)
            header.hosts.add(found[4])
            header.processes.add((found[4], int(found[3])))
        elif found := REDUCED.match(text):
            self._header(rank).reduced = int(found[1])

    def _footer(self, text: str, rank: str, number: int) -> None:
        table = self._open.get(rank)
        if found := AVERAGE.match(text):
            table = self._must_be_open(rank, number, table is not None and table.average is not None)
            table.average, table.refused = printed(found[1]), table.refused or found[2] == "FAILED"
            self.over += 1
        elif found := OUT_OF_BOUNDS.match(text):
            table = self._must_be_open(rank, number, table is not None and table.out_of_bounds is not None)
            table.out_of_bounds = int(found[1])
            table.refused = table.refused or found[2] == "FAILED" or table.out_of_bounds > 0
        elif found := REFUSED.search(text):
            table = self._must_be_open(rank, number, has=False)
            table.out_of_bounds, table.refused = int(found["wrong"] or 0) or table.out_of_bounds, True

    def _must_be_open(self, rank: str, number: int, has: bool) -> Table:
        """Return the table of a footer: the open one; a new empty one if none is open or it has this footer already."""
        table = self._open.get(rank)
        if table is None or has:
            table = self._open[rank] = Table(self._headers.pop(rank, Header()), number)
            self.tables.append(table)
        return table

    def _row(self, text: str, rank: str, number: int) -> None:
        if not BEGUN.match(text):
            return
        table = self._open.get(rank)
        if table is None or table.ended:
            if not ROW.match(text):
                return
            table = self._open[rank] = Table(self._headers.pop(rank, Header()), number)
            self.tables.append(table)
        row = parsed(text, table.columns, number)
        if row:
            table.rows.append(row)
        else:
            table.damaged.append(number)


def collective(name: str) -> str:
    """Return the collective of a test's name, all_reduce for all_reduce_perf_mpi; "" if nccl-tests has no such test."""
    return next((known for known in NAMES if re.fullmatch(rf"{known}(_perf(_mpi)?)?", name)), "")


def parsed(text: str, columns: tuple[str, ...], number: int) -> Row | None:
    """Parse a row, by the names of its columns if a header gave them; None if it is cut or mixed up."""
    found = ROW.match(text)
    if not found:
        return None
    words = found[4].split()
    if columns:
        if len(words) < len(columns):
            return None
        named = [(name, word) for name, word in zip(columns, words, strict=False)]
    else:
        rest = words[1:] if words[0].isalpha() else words
        if len(rest) not in (OLD_FIELDS, FIELDS):
            return None
        names = ["redop"] * (rest is not words) + ["root"] * (len(rest) == FIELDS)
        named = list(zip([*names, *["time", "algbw", "busbw", "#wrong"] * 2], words, strict=True))
    sides: dict[str, list[str]] = {}
    for name, word in named:
        sides.setdefault(SAME.get(name, name), []).append(word)
    try:
        both = [
            Side(printed(time), printed(algbw), printed(busbw), None if wrong == "N/A" else float(wrong))
            for time, algbw, busbw, wrong in zip(
                sides["time"], sides["algbw"], sides["busbw"], sides["wrong"], strict=True
            )
        ]
        out, within = both
        root = int(sides.get("root", ["-1"])[0])
        redop = sides.get("redop", ["sum"])[0]
        return Row(int(found[1]), float(found[2]), found[3], redop, root, (out, within), number)
    except (ValueError, KeyError):
        return None


def of_json(data: dict[str, Any]) -> Table:
    """Return the table of a -J file. Raises ValueError if it is invalid."""
    try:
        config, header = data.get("config") or {}, Header()
        header.library, header.headers = int(data["nccl_version"]), 0
        header.least, header.most = int(config.get("minimum_bytes", 0)), int(config.get("maximum_bytes", 0))
        header.factor = "step_factor" in config
        header.step = int(config.get("step_factor", config.get("step_bytes", 0)))
        header.validated = bool(config.get("validation", 1))
        header.collective = collective(str((data.get("args") or [""])[0]).rpartition("/")[2])
        header.started = True
        for device in config.get("devices") or data.get("devices") or []:
            header.ranks[int(device["rank"])] = int(device["group"])
            header.hosts.add(str(device["hostname"]))
        table = Table(header, 1, concluded="end_time" in data and "average_bus_bandwidth" in data)
        table.rows = [_of_result(result) for result in data.get("results") or []]
        if bounds := data.get("out_of_bounds"):
            table.out_of_bounds = int(bounds["count"])
            table.refused = bounds["okay"] != "true"
        if average := data.get("average_bus_bandwidth"):
            table.average = _exact(average["bandwidth"])
            table.refused = table.refused or average["okay"] == "false"
        return table
    except (KeyError, TypeError, IndexError, AttributeError, OverflowError) as error:
        raise ValueError(f"it is not output of nccl-tests -J: {error!r}") from None


def _of_result(result: dict[str, Any]) -> Row:
    sides = [
        Side(
            _exact(side.get("time", side.get("cpu_time"))),
            _exact(side["alg_bw"]),
            _exact(side["bus_bw"]),
            None if side["nwrong"] is None else float(side["nwrong"]),
        )
        for side in (result["out_of_place"], result["in_place"])
    ]
    words = int(result["size"]), float(result["count"]), str(result["type"]), str(result["redop"]).strip()
    return Row(*words, int(str(result["root"])), (sides[0], sides[1]), 1)


def _exact(value: Any) -> Printed:
    """Return a number with the six decimals that %lf prints. Raises ValueError if it is not finite."""
    if not math.isfinite(number := float(value)):
        raise ValueError(f"{value} is not finite")
    return Printed(number, 0.5e-6)
