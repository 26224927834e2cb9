"""Check a log of nccl-tests: its tables (complete, correct) and its network (EFA, NICs, GPUDirect, NCCL, speed)."""

import math
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from itertools import islice, pairwise

from trainwright.diagnose.nccl_debug import LIBFABRIC, SOCKETS
from trainwright.gate import floors
from trainwright.gate.case import ONE, Case, Result, complete, exact, header_ranks, shares
from trainwright.gate.nccl_tests import BYTES, Header, Row, Side, Table

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
    return ("pass", "0") if said else ("not applicable", "no exit code is known")


def errors(case: Case) -> Result:
    """Check that no test, rank or job reports that it ended in an error."""
    if line := case.log.seen.interrupted:
        return "fail", f"line {line}: the gate was interrupted"
    if error := case.log.seen.errors:
        return "fail", f"line {error[0]}: {error[1]}"
    return "pass", "none"


def completion(case: Case) -> Result:
    if not case.log.tables:
        begun = "a test started, but its table is missing" if case.log.header else "the log has no table"
        return "not established", begun
    for table in case.log.tables:
        if table.damaged:
            return (
                "not established",
                f"{_damaged(table)}; if NCCL wrote there, NCCL_DEBUG_SUBSYS=INIT,NET,ENV keeps it from that",
            )
        if not table.rows:
            return "not established", f"the table at line {table.line} has no rows"
        if table.header.started and not table.concluded:
            return "not established", f"the table at line {table.line}: 'Collective test concluded' is missing"
    if case.log.cut:
        return "not established", f"the last line, {case.log.lines}, has no newline: its number may be truncated"
    if case.log.header and (case.log.header.started or case.log.header.most or case.log.header.ranks):
        return "not established", "one more test started, but its table is missing"
    if open_ := case.log.seen.begun - case.log.seen.ended:
        return "not established", f"{', '.join(open_)}: started, but the log does not show its end"
    count = len(case.log.tables)
    return "pass", f"{count} table{'s' if count > 1 else ''}"


def footer(case: Case) -> Result:
    if not case.log.tables:
        return "not established", "the log has no table"
    for table in case.log.tables:
        if table.refused:
            return "fail", f"the table at line {table.line}: nccl-tests reports FAILED"
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
            return "not established", f"the table at line {table.line} has no {' and no '.join(missing)}"
    return "pass", "both lines"


def average(case: Case) -> Result:
    with_one = [table for table in case.log.tables if table.average and table.rows]
    for table in with_one:
        assert table.average
        values = [side.busbw for row in table.rows for side in row.sides]
        mean, half = sum(v.value for v in values) / len(values), sum(v.half for v in values) / len(values)
        if not abs(mean - table.average.value) <= half + table.average.half:
            text = (
                f"the table at line {table.line}: average {table.average.value:g} is printed, its rows give {mean:.4f}"
            )
            whole = _sizes_of(table)[0] == "pass" and _bound(table.header)
            return ("fail" if whole else "not established"), text + ("" if whole else "; rows may be missing")
    if not with_one:
        return "not applicable", "no average is printed"
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
            return "fail", f"the table at line {table.line}: {table.out_of_bounds} out of bounds"
    if not any(table.rows for table in case.log.tables):
        return "not established", "the log has no result rows"
    if unchecked or not all(table.header.validated for table in case.log.tables):
        return "not established", "the values were not checked (-c 0)"
    return "pass", "none"


def _bound(header: Header) -> bool:
    """Return whether the parameters are those of the table below them."""
    return 0 < header.most >= header.least and not header.elided


def _damaged(table: Table) -> str:
    return f"line {table.damaged[0]} is cut, or mixed with other text"


def sizes(case: Case) -> Result:
    results = [_sizes_of(table) for table in case.log.tables if table.rows]
    for state in ("fail", "not established"):
        for result in results:
            if result[0] == state:
                return result
    return (
        ("pass", "; ".join(text for _, text in results))
        if results
        else ("not established", "the log has no result rows")
    )


def _sizes_of(table: Table) -> Result:
    """Check that every row's size is consistent, and that no row is missing."""
    split = shares(table)
    for row in table.rows:
        if exact(row) and row.count and row.size % (row.count * BYTES[row.type]):
            return "fail", f"line {row.line}: {row.size} bytes are not {row.count:g} times {row.type}"
    if split is None and any(row.count and exact(row) for row in table.rows):
        return "fail", f"the table at line {table.line}: size and count of its rows disagree"
    if table.damaged:
        return "not established", _damaged(table)
    if table.elided:
        return "not established", f"the table at line {table.line}: rows were left out ('...')"
    if table.header.reduced:
        return "not established", f"the sweep was shortened to {table.header.reduced} bytes: too little memory"
    sizes = [row.size for row in table.rows]
    text = f"{len(sizes)} from {sizes[0]} to {sizes[-1]} bytes"
    if not _bound(table.header):
        gap = _gap(sizes)
        return (
            ("not established", f"the table at line {table.line}: a size is missing {gap}") if gap else ("pass", text)
        )
    wanted = list(islice(_wanted(table.header), len(sizes) + 1))  # a step in bytes may make billions
    for number, size in enumerate(sizes):
        nominal = wanted[number % len(wanted)]
        slack = 16 * split if split and split > 1 else BYTES[table.rows[number].type]
        if not nominal - slack < size <= nominal:
            return "not established", f"line {table.rows[number].line}: found {size} bytes, expected {nominal}"
    if len(sizes) % len(wanted):
        return (
            "not established",
            f"the table at line {table.line}: {len(sizes)} rows, expected a multiple of {len(wanted)}",
        )
    return "pass", text


def _wanted(header: Header) -> Iterator[int]:
    """Yield the message sizes that -b, -e, and -f or -i ask for."""
    size = header.least
    while size <= header.most:
        yield size
        following = size * header.step if header.factor else size + header.step
        if following <= size:
            return
        size = following


def _gap(sizes: list[int]) -> str:
    """Return the place where the sizes of a sweep are uneven, or "". Zeros and repeated cycles count as even."""
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


ALONE = (
    "nccl-tests was built without MPI, or its tasks were not connected "
    "(under srun, PMIx in containers requires a hook of enroot: docs/gate.md)"
)
NVLINK_BETWEEN = "hosts of this type share NVLink, which is faster than EFA, so EFA may carry nothing"


def rank_count(case: Case) -> Result:
    """Check that numbers, header lines, NCCL's messages and declared values name one number of ranks."""
    texts, established = list[str](), True
    firsts = sum(1 for table in case.log.tables if 0 in table.header.ranks)
    several = len({table.header.collective for table in case.log.tables}) < firsts
    for table, ranks in zip(case.log.tables, case.ranks, strict=True):
        where = f"the table at line {table.line}"
        asked = case.declared.collective
        if asked and table.header.collective and asked != table.header.collective:
            return "fail", f"{where} is of {table.header.collective}, but {asked} is declared"
        if ranks.contradiction:
            return "fail", f"{where}: its busbw and algbw match no number of ranks"
        said = dict(case.world)
        if table.header.ranks and (count := header_ranks(table.header)):
            if not table.header.elided:
                said["its header"] = count
            elif ranks.applicable and ranks.high is not None and ranks.high < count:
                return "fail", f"{where}: its numbers imply {ranks} ranks, but its header names rank {count - 1}"
        for who, count in said.items():
            if ranks.applicable and not ranks.allow(count):
                return "fail", f"{where}: its numbers imply {ranks} ranks, but {who} says {count}"
        hosts = table.header.hosts if complete(table.header) else set()
        nodes = case.declared.nodes
        if nodes and hosts and len(hosts) != nodes:
            return "fail", f"{where}: {nodes} nodes are declared, but its header names {', '.join(sorted(hosts))}"
        if nodes and case.log.seen.nodes and case.log.seen.nodes != {nodes}:
            return (
                "fail",
                f"{nodes} nodes are declared, but NCCL says {', '.join(map(str, sorted(case.log.seen.nodes)))}",
            )
        if len(set(said.values())) > 1:
            return "fail", f"{where}: " + ", ".join(f"{who} says {count}" for who, count in said.items())
        alone = not ranks.applicable and set(said.values()) == {1}  # its numbers are the same for every number of ranks
        if alone or (ranks.low, ranks.high) == (1, 1):
            if several or (len(case.log.tables) > 1 and not firsts):
                return "fail", f"{where}: several tables of one rank each: {ALONE}"
            established = established and case.declared.world_size == 1
            texts.append("1 rank: nothing was communicated")
        elif ranks.applicable:
            texts.append(f"{ranks}, computed from busbw/algbw" + (f"; same: {' and '.join(said)}" if said else ""))
        elif said:
            texts.append(f"{next(iter(said.values()))}; busbw equals algbw for every number of ranks")
    if not texts:
        return (
            "not applicable",
            "busbw equals algbw for every number of ranks" if case.log.tables else "the log has no table",
        )
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
    return ("pass", f"{count} values") if count else ("not established", "the log has no result rows")


def _is_size_over_time(row: Row, side: Side) -> bool:
    if side.time.high <= 0:
        return side.algbw.value == 0 or row.size == 0
    least = row.size / side.time.high / 1e3
    most = row.size / side.time.low / 1e3 if side.time.low > 0 else math.inf
    return least * (1 - ROUNDING) - side.algbw.half <= side.algbw.value <= most * (1 + ROUNDING) + side.algbw.half


def transport(case: Case) -> Result:
    seen = case.log.seen
    over_net = {kind.partition("/")[2] for kind in seen.channels if kind.startswith("NET")}
    sockets = [name for name in SOCKETS if name in over_net]
    if sockets:  # in use, and not only available: wrong on one node as well
        return "fail", seen.evidence(f"channel NET/{sockets[0]}")
    wrong = next((name for name in sorted(seen.providers) if not name.startswith("efa")), "")
    if wrong and case.several is not False:
        return "fail", seen.evidence(f"provider {wrong}")
    fallen = next((name for name in SOCKETS if name in seen.networks), "")
    if fallen and case.several:
        return "fail", seen.evidence(f"network {fallen}")
    if fallen and case.several is None and not _local(case):
        return "not established", f"{seen.evidence(f'network {fallen}')}; the number of nodes is unknown"
    if case.instance is None:
        words = ", ".join(sorted(seen.networks | {name for name in over_net if name}))
        return ("pass", words) if seen.networks or seen.channels else ("not applicable", "no instance is declared")
    if case.several is False:
        return _one_node(case, over_net)
    if not case.instance.efa:
        return "fail", f"{case.declared.instance} has no EFA"
    return _efa(case)


def _local(case: Case) -> bool:
    """Return whether all channels are within a node."""
    return bool(case.log.seen.channels) and not any(kind.startswith("NET") for kind in case.log.seen.channels)


def _one_node(case: Case, over_net: set[str]) -> Result:
    assert case.instance
    seen, kinds = case.log.seen, {kind.partition("/")[0] for kind in case.log.seen.channels}
    if over_net or "NET" in kinds:
        return "fail", "GPUs of one node communicate over the network: " + ", ".join(sorted(over_net))
    if case.instance.nvlink and "SHM" in kinds:
        return "fail", f"GPUs with NVLink communicate through host memory: {seen.evidence('channel SHM')}".rstrip(": ")
    if not kinds:
        return "not established", "the log does not show how the GPUs communicate: set NCCL_DEBUG=INFO"
    return "pass", ", ".join(f"{kind}: {count}" for kind, count in sorted(seen.channels.items()))


def _efa(case: Case) -> Result:
    """Check that every rank used EFA."""
    seen, ranks = case.log.seen, _processes(case)
    by_efa = [
        process
        for process in seen.processes.values()
        if any(name.startswith("efa") for name in process.providers)
        and (not process.networks or process.networks <= set(LIBFABRIC))
    ]
    others = [name for name in sorted(seen.networks) if name not in LIBFABRIC]
    if others:
        return "fail", seen.evidence(f"network {others[0]}")
    if not by_efa:
        return "not established", "no rank logs its provider: set NCCL_DEBUG=INFO"
    tests = Counter(process.test for process in by_efa)
    fewest = min(tests[number] for number in range(max(len(case.log.tables), 1)))
    if not ranks or fewest < ranks:
        return "not established", f"{fewest} of {ranks or 'unknown'} processes report the provider efa"
    hosts = {process.host for process in by_efa} - {""}
    if hosts and case.nodes and len(hosts) < case.nodes:
        return "not established", f"{len(hosts)} of {case.nodes} hosts report the provider efa"
    return "pass", f"efa on {fewest} ranks"


def _processes(case: Case) -> int:
    """Return the number of processes: one per rank, unless a header shows several ranks in one (-g 8)."""
    ranks = max(case.world.values(), default=0)
    headers = [table.header for table in case.log.tables if table.header.ranks and complete(table.header)]
    return min([len(header.processes) for header in headers] + [ranks] * bool(ranks), default=0)


def nics(case: Case) -> Result:
    found = {count: 0 for process in case.log.seen.processes.values() for count in process.nics}
    for process in case.log.seen.processes.values():
        for count in process.nics:
            found[count] += 1
    if len(found) > 1:
        words = ", ".join(f"{count} on {ranks}" for count, ranks in sorted(found.items()))
        return "fail", f"the number of NICs differs between ranks: {words}"
    if case.instance is None or case.several is False or not case.instance.efa:
        return (
            "not applicable",
            f"{next(iter(found))} on each" if found else "no instance type with several nodes is declared",
        )
    if not found:
        return "not established", "no rank logs its number of NICs (aws-ofi-nccl 1.5 and newer do)"
    (count,), declared, row = found, case.declared.nics, case.instance
    has = " or ".join(map(str, (row.efa, *row.efa_or)))
    said = f"; {declared} are declared" if declared else ""
    if count not in ([declared] if declared else [row.efa, *row.efa_or]) or count > row.most_efa:
        return "fail", f"{count} on each rank, {case.declared.instance} has {has}{said}"
    return "pass", f"{count} on each of {found[count]} ranks" + (
        f", and {case.declared.instance} has {has}{said}" if said else ""
    )


def gpudirect(case: Case) -> Result:
    seen = case.log.seen
    if case.instance is None or case.several is False or not case.instance.gpudirect:
        return "not applicable", "no instance with GPUDirect RDMA on several nodes is declared"
    if seen.staged:
        return "fail", seen.evidence("no GPUDirect")
    if seen.direct:
        return "pass", f"{seen.direct} channels"
    if case.instance.imex:
        return "not applicable", NVLINK_BETWEEN
    return "not established", "the log shows no channel over the network: set NCCL_DEBUG=INFO"


def nccl_version(case: Case) -> Result:
    """Check that the NCCL compiled against, loaded, announced and pinned is one version."""
    said = dict[str, str]()
    for table in case.log.tables:
        if table.header.library:
            if table.header.headers:  # the output of -J lacks it
                said[f"nccl-headers of line {table.line}"] = dotted(table.header.headers)
            said[f"nccl-library of line {table.line}"] = dotted(table.header.library)
    for version, line in case.log.seen.versions.items():
        said[f"line {line}"] = ".".join(map(str, version))
    pin = case.declared.pins.get("nccl", "")
    if len(set(said.values())) > 1:
        return "fail", ", ".join(f"{who}: {version}" for who, version in said.items())
    if pin and not said:
        return "not established", f"the log does not show its NCCL version; {pin} is pinned"
    if pin and pin not in said.values():
        return "fail", f"{next(iter(said.values()))}, but {pin} is pinned"
    return ("pass", next(iter(said.values()))) if said else ("not applicable", "the log does not show its NCCL version")


def dotted(code: int) -> str:
    """Convert NCCL_VERSION_CODE to NCCL's version: 22907 is 2.29.7; 2804, from before 2.9, is 2.8.4."""
    if code < 10000:
        return f"{code // 1000}.{code % 1000 // 100}.{code % 100}"
    return f"{code // 10000}.{code % 10000 // 100}.{code % 100}"


def pins(case: Case) -> Result:
    """Check the other pins that a log can show: nccl-tests and aws-ofi-nccl."""
    shown = {
        "nccl-tests": {table.header.version for table in case.log.tables} - {""},
        "aws-ofi-nccl": case.log.seen.plugins,
    }
    texts = []
    for name, versions in shown.items():
        pin = case.declared.pins.get(name)
        if pin and versions - {pin}:
            return "fail", f"{name} {', '.join(sorted(versions - {pin}))}, but {pin} is pinned"
        if pin and not versions:
            return "not established", f"the log does not show its {name} version; {pin} is pinned"
        if pin:
            texts.append(f"{name} {pin}")
    return ("pass", ", ".join(texts)) if texts else ("not applicable", "neither nccl-tests nor aws-ofi-nccl is pinned")


def efa_counters(case: Case) -> Result:
    """Check that the EFA devices of each host counted at least as many sent bytes as the largest message has."""
    counted = case.log.seen.counters
    if not counted:
        return "not applicable", "the log has no EFA counters"
    if case.several is False:
        return "not applicable", "one node"
    if case.instance and case.instance.imex:
        return "not applicable", NVLINK_BETWEEN
    if case.nodes and len(counted) < case.nodes:
        return "not established", f"{len(counted)} of {case.nodes} hosts have counters"
    # In a broadcast, a reduce or a sendrecv, one side may send next to nothing.
    all_send = [table for table in case.log.tables if case.collective(table) not in ONE]
    largest = max((row.size for table in all_send for row in table.rows), default=0)
    if not largest:
        return "not applicable", "no collective in which every host sends"
    for host, read in sorted(counted.items()):
        if "before" not in read or "after" not in read:
            return "not established", f"{host}: counters were read only {' and '.join(read)} the test"
        sent = read["after"] - read["before"]
        if sent < largest:
            return "fail", f"{host} sent {sent} bytes over EFA, but one message alone has {largest}"
    return "pass", f"{len(counted)} hosts sent over EFA"


def ceiling(case: Case) -> Result:
    """Fail a busbw that exceeds the hardware's ceiling, because it cannot come from that hardware."""
    if case.instance is None or case.nodes is None:
        return "not applicable", "no instance type or no number of nodes is declared"
    if case.nodes > 1 and case.instance.imex:
        return "not applicable", NVLINK_BETWEEN
    top = floors.ceiling("net" if case.nodes > 1 else "nvlink", case.instance, case.floors)
    sides = [(side.busbw, row) for table in case.log.tables for row in table.rows for side in row.sides]
    if top is None or not sides or all(ranks.high == 1 for ranks in case.ranks):
        return "not applicable", "the ceiling of this hardware is unknown" if sides else "the log has no result rows"
    fastest, row = max(sides, key=lambda pair: pair[0].value)
    text = f"{fastest.value:g} GB/s at {row.size} bytes, of {top:g}"
    if fastest.value > top and case.nodes > 1:
        text += "; a tree algorithm sends less than busbw assumes"
    if fastest.low > top * case.floors.too_good:
        return "fail", f"line {row.line}: {text}: the log cannot be of {case.nodes} x {case.declared.instance}"
    return "pass", text


def floor(case: Case) -> Result:
    if case.instance is None:
        return "not applicable", "no instance is declared"
    if case.nodes is None:
        return "not established", "the number of nodes is unknown: --nodes"
    if case.declared.world_size and case.declared.world_size != case.nodes * max(case.instance.count, 1):
        return (
            "not established",
            f"ungraded: floors apply to whole instances, {case.declared.world_size} ranks do not fill them",
        )
    texts, ungraded = list[str](), set[str]()
    for table in case.log.tables:
        found = case.floors_of(table)
        if not found:
            ungraded.add(case.collective(table) or "?")
        for floor, top in found:
            least = top * floor.fraction
            sides = [(side.busbw, row) for row in table.rows if row.size >= floor.size for side in row.sides]
            if not sides:
                return "not established", f"no message of {floor.size} bytes or more was measured"
            slowest, row = min(sides, key=lambda pair: pair[0].value)
            text = (
                f"{slowest.value:g} GB/s at {row.size} bytes; the floor is {least:g}, {floor.fraction:.0%} of {top:g}"
            )
            if slowest.high < least:
                return "fail", f"line {row.line}: {text}"
            texts.append(text)
    if ungraded or not case.log.tables:
        names = ", ".join(sorted(ungraded)) or "no table"
        return "not established", f"ungraded: no floor for {names} on {case.nodes} x {case.declared.instance}"
    return "pass", "; ".join(texts)


def baseline(case: Case) -> Result:
    """Check that busbw at the large sizes reaches the baseline, within the tolerance."""
    known = case.baseline
    assert known
    if (case.declared.instance, case.nodes) != (known.instance, known.nodes):
        said = f"{case.nodes or 'unknown'} x {case.declared.instance or 'unknown'}"
        return "not established", f"{known.name} is for {known.nodes} x {known.instance}, but the log is of {said}"
    texts, tolerance = list[str](), known.tolerance or case.floors.tolerance
    for table in case.log.tables:
        collective = case.collective(table)
        for point in known.points_of(collective, case.algorithm, case.large(table)):
            rows = [row for row in table.rows if row.size == point.size]
            if not rows:
                return "not established", f"{collective}: {known.name} has {point.size} bytes, the log does not"
            for row in rows:
                for side, then in zip(row.sides, (point.out_of_place, point.in_place), strict=True):
                    change = side.busbw.value / then - 1
                    text = f"{collective}: {side.busbw.value:g} GB/s at {row.size} bytes, {change:+.1%} of {then:g}"
                    if side.busbw.high < then * (1 - tolerance):
                        return "fail", f"line {row.line}: {text}; {tolerance:.0%} is allowed"
                    texts.append(text)
    missing = sorted(
        {case.collective(table) or "?" for table in case.log.tables} - {p.collective for p in known.points}
    )
    if missing or not texts:
        return "not established", f"{known.name} has no large messages of {', '.join(missing) or 'these collectives'}"
    return "pass", f"{len(texts)} values, each within {tolerance:.0%} of {known.name}"
