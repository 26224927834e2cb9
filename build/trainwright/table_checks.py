"""Check the tables of nccl-tests: complete, consistent, of the declared ranks, and without wrong values."""

import math
from collections.abc import Iterator
from fractions import Fraction
from itertools import islice, pairwise

from trainwright.nccl_tests import BYTES, Header, Row, Side, Table
from trainwright.witnesses import Case, Result, complete, exact, header_ranks, shares

ROUNDING = 0.005  # of algbw: allowed deviation from size/time beyond rounding, as a fraction
# Versions before 2.13 print the greatest error in place of a count; these are their limits (src/common.cu@v2.0.0).
OLD_ERRORS = {"half": 1e-2, "bfloat16": 1e-1, "float": 1e-5, "double": 1e-12}


def exit_code(case: Case) -> Result:
    said = {code: f"line {line}" for code, line in case.log.seen.exits.items()}
    if case.declared.exit_code is not None:
        said[case.declared.exit_code] = "--exit-code"
    bad = {code: where for code, where in said.items() if code}
    if bad:
        return "fail", "; ".join(f"{code} ({where})" for code, where in bad.items())
    return ("pass", "0") if said else ("not applicable", "nobody said one")


def errors(case: Case) -> Result:
    """Check that no test, rank or job reports that it ended in an error."""
    if line := case.log.seen.interrupted:
        return "fail", f"line {line}: the gate was interrupted"
    if error := case.log.seen.errors:
        return "fail", f"line {error[0]}: {error[1]}"
    return "pass", "none"


def completion(case: Case) -> Result:
    if not case.log.tables:
        begun = "a test was announced, and no table followed" if case.log.header else "there is no table"
        return "not established", begun
    for table in case.log.tables:
        if table.damaged:
            return "not established", f"line {table.damaged[0]} is cut, or mixed with other text"
        if not table.rows:
            return "not established", f"the table of line {table.line} has no rows"
        if table.header.started and not table.concluded:
            return "not established", f"the table of line {table.line}: 'Collective test concluded' is missing"
    if case.log.cut:
        return "not established", f"the last line, {case.log.lines}, has no end: its number may be cut"
    if case.log.header and (case.log.header.started or case.log.header.most or case.log.header.ranks):
        return "not established", "one more test was announced, and no table followed"
    if open_ := case.log.seen.begun - case.log.seen.ended:
        return "not established", f"{', '.join(open_)}: begun, and no word of its end"
    count = len(case.log.tables)
    return "pass", f"{count} table{'s' if count > 1 else ''}"


def footer(case: Case) -> Result:
    if not case.log.tables:
        return "not established", "there is no table"
    for table in case.log.tables:
        if table.refused:
            return "fail", f"the table of line {table.line}: nccl-tests itself says FAILED"
    for table in case.log.tables:
        missing = [
            name
            for name, there in (
                ("'Out of bounds values'", table.out_of_bounds is not None),
                ("'Avg bus bandwidth'", table.average is not None),
            )
            if not there
        ]
        if missing:
            return "not established", f"the table of line {table.line} has no {' and no '.join(missing)}"
    return "pass", "both lines"


def average(case: Case) -> Result:
    with_one = [table for table in case.log.tables if table.average and table.rows]
    for table in with_one:
        assert table.average
        values = [side.busbw for row in table.rows for side in row.sides]
        mean, half = sum(v.value for v in values) / len(values), sum(v.half for v in values) / len(values)
        if not abs(mean - table.average.value) <= half + table.average.half:
            text = f"the table of line {table.line}: {table.average.value:g} is printed, its rows give {mean:.4f}"
            whole = _sizes_of(table)[0] == "pass" and _bound(table.header)
            return ("fail" if whole else "not established"), text + ("" if whole else "; rows may be missing")
    if not with_one:
        return "not applicable", "none is printed"
    return "pass", ", ".join(f"{table.average.value:g}" for table in with_one if table.average)


def wrong_values(case: Case) -> Result:
    unchecked = False
    for table in case.log.tables:
        for row in table.rows:
            for side in row.sides:
                limit = OLD_ERRORS.get(row.type, 0.0) if table.errors else 0.0
                if side.wrong is not None and not side.wrong <= limit:
                    words = "an error of" if table.errors else "wrong values:"
                    return "fail", f"line {row.line}: {words} {side.wrong:g} at {row.size} bytes"
            unchecked = unchecked or all(side.wrong is None for side in row.sides)
        if table.out_of_bounds:
            return "fail", f"the table of line {table.line}: {table.out_of_bounds} out of bounds"
    if not any(table.rows for table in case.log.tables):
        return "not established", "there are no rows"
    if unchecked or not all(table.header.validated for table in case.log.tables):
        return "not established", "the values were not checked (-c 0)"
    return "pass", "none"


def _bound(header: Header) -> bool:
    """Return whether the parameters are those of the table below them."""
    return 0 < header.most >= header.least and not header.elided


def sizes(case: Case) -> Result:
    results = [_sizes_of(table) for table in case.log.tables if table.rows]
    for state in ("fail", "not established"):
        for result in results:
            if result[0] == state:
                return result
    return ("pass", "; ".join(text for _, text in results)) if results else ("not established", "there are no rows")


def _sizes_of(table: Table) -> Result:
    """Check that every row's size is consistent, and that no row is missing."""
    split = shares(table)
    for row in table.rows:
        if exact(row) and row.count and row.size % (row.count * BYTES[row.type]):
            return "fail", f"line {row.line}: {row.size} bytes are not {row.count:g} times {row.type}"
    if split is None and any(row.count and exact(row) for row in table.rows):
        return "fail", f"the table of line {table.line}: size and count of its rows do not go together"
    if table.elided:
        return "not established", f"the table of line {table.line}: rows were left out ('...')"
    if table.header.reduced:
        return "not established", f"the sweep was shortened to {table.header.reduced} bytes: too little memory"
    sizes = [row.size for row in table.rows]
    text = f"{len(sizes)} from {sizes[0]} to {sizes[-1]} bytes"
    if not _bound(table.header):
        gap = _gap(sizes)
        return (
            ("not established", f"the table of line {table.line}: a size is missing {gap}") if gap else ("pass", text)
        )
    wanted = list(islice(_wanted(table.header), len(sizes) + 1))  # a step in bytes may make billions
    for number, size in enumerate(sizes):
        nominal = wanted[number % len(wanted)]
        slack = 16 * split if split and split > 1 else BYTES[table.rows[number].type]
        if not nominal - slack < size <= nominal:
            return "not established", f"line {table.rows[number].line}: {size} bytes, where {nominal} is due"
    if len(sizes) % len(wanted):
        return "not established", f"the table of line {table.line}: {len(sizes)} rows of {len(wanted)}"
    return "pass", text


def _wanted(header: Header) -> Iterator[int]:
    """Yield the sweep of -b, -e, -f or -i."""
    size = header.least
    while size <= header.most:
        yield size
        following = size * header.step if header.factor else size + header.step
        if following <= size:
            return
        size = following


def _gap(sizes: list[int]) -> str:
    """Return where a sweep without parameters is uneven, "" for nowhere. Zeros, and repeated cycles, are even."""
    some = [size for size in sizes if size]
    cycle = next((n for n in range(1, len(some)) if some[n] <= some[n - 1]), len(some))
    first = some[:cycle]
    if len(some) % cycle or some != first * (len(some) // cycle):
        return "in one of its cycles"
    ratios = {Fraction(after, before) for before, after in pairwise(first)}
    steps = {after - before for before, after in pairwise(first)}
    if len(ratios) <= 1 or len(steps) <= 1:
        return ""
    least = min(ratios)
    at = next(n for n in range(1, len(first)) if Fraction(first[n], first[n - 1]) != least)
    return f"between {first[at - 1]} and {first[at]} bytes"


def rank_count(case: Case) -> Result:
    """Check that numbers, header lines, NCCL's messages and declared values name one number of ranks."""
    texts, established = list[str](), True
    firsts = sum(1 for table in case.log.tables if 0 in table.header.ranks)
    several = len({table.header.collective for table in case.log.tables}) < firsts
    for table, ranks in zip(case.log.tables, case.ranks, strict=True):
        where = f"the table of line {table.line}"
        asked = case.declared.collective
        if asked and table.header.collective and asked != table.header.collective:
            return "fail", f"{where} is of {table.header.collective}, and {asked} is declared"
        if ranks.contradiction:
            return "fail", f"{where}: no number of ranks gives its busbw and algbw"
        said = dict(case.world)
        if table.header.ranks and (count := header_ranks(table.header)):
            if not table.header.elided:
                said["its header"] = count
            elif ranks.applicable and ranks.high is not None and ranks.high < count:
                return "fail", f"{where}: its numbers are of {ranks} ranks, its header names rank {count - 1}"
        for who, count in said.items():
            if ranks.applicable and not ranks.allow(count):
                return "fail", f"{where}: its numbers are of {ranks} ranks, {who} says {count}"
        hosts = table.header.hosts if complete(table.header) else set()
        nodes = case.declared.nodes
        if nodes and hosts and len(hosts) != nodes:
            return "fail", f"{where}: {nodes} nodes are declared, its header names {', '.join(sorted(hosts))}"
        if nodes and case.log.seen.nodes and case.log.seen.nodes != {nodes}:
            return "fail", f"{nodes} nodes are declared, NCCL says {', '.join(map(str, sorted(case.log.seen.nodes)))}"
        if len(set(said.values())) > 1:
            return "fail", f"{where}: " + ", ".join(f"{who} says {count}" for who, count in said.items())
        if (ranks.low, ranks.high) == (1, 1):
            if several or (len(case.log.tables) > 1 and not firsts):
                return "fail", f"{where}: one rank alone, several times: nccl-tests were built without MPI"
            established = established and case.declared.world_size == 1
            texts.append("1 rank: nothing was communicated")
        elif ranks.applicable:
            texts.append(f"{ranks} by its numbers" + (f", {' and '.join(said)} agree" if said else ""))
        elif said:
            texts.append(f"{next(iter(said.values()))}; busbw is algbw for every number of ranks")
    if not texts:
        return "not applicable", "busbw is algbw for every number of ranks" if case.log.tables else "there is no table"
    return ("pass" if established else "not established"), "; ".join(texts)


def algbw(case: Case) -> Result:
    """Check that algbw is size over time, in both columns of every row."""
    count = 0
    for table in case.log.tables:
        for row in table.rows:
            for side in row.sides:
                if not _is_size_over_time(row, side):
                    time, algbw = side.time.value, side.algbw.value
                    text = f"line {row.line}: {row.size} bytes in {time:g} us are not {algbw:g} GB/s"
                    return "fail", text
                count += 1
    return ("pass", f"{count} times") if count else ("not established", "there are no rows")


def _is_size_over_time(row: Row, side: Side) -> bool:
    if side.time.high <= 0:
        return side.algbw.value == 0 or row.size == 0
    least = row.size / side.time.high / 1e3
    most = row.size / side.time.low / 1e3 if side.time.low > 0 else math.inf
    return least * (1 - ROUNDING) - side.algbw.half <= side.algbw.value <= most * (1 + ROUNDING) + side.algbw.half
