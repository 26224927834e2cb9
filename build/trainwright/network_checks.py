"""Check how the ranks communicated: over EFA with all NICs, with GPUDirect, with one NCCL, and fast enough."""

from collections import Counter

from trainwright import floors
from trainwright.nccl_info import LIBFABRIC, SOCKETS
from trainwright.witnesses import ONE, Case, Result, complete


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
        return "not established", f"{seen.evidence(f'network {fallen}')}; how many nodes there are, nothing says"
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
        return "fail", "GPUs of one node talk over the network: " + ", ".join(sorted(over_net))
    if case.instance.nvlink and "SHM" in kinds:
        return "fail", f"GPUs with NVLink talk over the host's memory: {seen.evidence('channel SHM')}".rstrip(": ")
    if not kinds:
        return "not established", "the log does not say how the GPUs talk: NCCL_DEBUG=INFO"
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
        return "not established", "no rank says its provider: NCCL_DEBUG=INFO"
    tests = Counter(process.test for process in by_efa)
    fewest = min(tests[number] for number in range(max(len(case.log.tables), 1)))
    if not ranks or fewest < ranks:
        return "not established", f"{fewest} of {ranks or 'unknown'} processes say that their provider is efa"
    hosts = {process.host for process in by_efa} - {""}
    if hosts and case.nodes and len(hosts) < case.nodes:
        return "not established", f"{len(hosts)} of {case.nodes} hosts say that their provider is efa"
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
        return "fail", f"not the same number on all ranks: {words}"
    if case.instance is None or case.several is False or not case.instance.efa:
        return "not applicable", f"{next(iter(found))} on each" if found else "no instance of several nodes is declared"
    if not found:
        return "not established", "no rank says how many it found (aws-ofi-nccl 1.5 and newer do)"
    (count,), has, declared = found, case.instance.efa, case.declared.nics
    said = f"; {declared} are declared" if declared else ""
    if count != (declared or has) or count > has:
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
    return "not established", "the log shows no channel over the network: NCCL_DEBUG=INFO"


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
        return "not established", f"the log does not say its NCCL; {pin} is pinned"
    if pin and pin not in said.values():
        return "fail", f"{next(iter(said.values()))}, and {pin} is pinned"
    return ("pass", next(iter(said.values()))) if said else ("not applicable", "the log does not say its NCCL")


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
            return "fail", f"{name} {', '.join(sorted(versions - {pin}))}, and {pin} is pinned"
        if pin and not versions:
            return "not established", f"the log does not say its {name}; {pin} is pinned"
        if pin:
            texts.append(f"{name} {pin}")
    return ("pass", ", ".join(texts)) if texts else ("not applicable", "neither nccl-tests nor aws-ofi-nccl are pinned")


def efa_counters(case: Case) -> Result:
    """Check that the EFA devices of each host counted at least as many sent bytes as the largest message has."""
    counted = case.log.seen.counters
    if not counted:
        return "not applicable", "nobody read them"
    if case.several is False:
        return "not applicable", "one node"
    if case.nodes and len(counted) < case.nodes:
        return "not established", f"{len(counted)} of {case.nodes} hosts were read"
    # In a broadcast, a reduce or a sendrecv, one side may send next to nothing.
    all_send = [table for table in case.log.tables if case.collective(table) not in ONE]
    largest = max((row.size for table in all_send for row in table.rows), default=0)
    if not largest:
        return "not applicable", "no collective in which every host sends"
    for host, read in sorted(counted.items()):
        if "before" not in read or "after" not in read:
            return "not established", f"{host}: read only {' and '.join(read)}"
        sent = read["after"] - read["before"]
        if sent < largest:
            return "fail", f"{host} sent {sent} bytes over EFA, and a message alone has {largest}"
    return "pass", f"{len(counted)} hosts sent over EFA"


def ceiling(case: Case) -> Result:
    """Fail a busbw that exceeds the hardware's ceiling, because it cannot come from that hardware."""
    if case.instance is None or case.nodes is None:
        return "not applicable", "no instance, or no number of nodes, is declared"
    top = floors.ceiling("net" if case.nodes > 1 else "nvlink", case.instance, case.floors)
    sides = [(side.busbw, row) for table in case.log.tables for row in table.rows for side in row.sides]
    if top is None or not sides or all(ranks.high == 1 for ranks in case.ranks):
        return "not applicable", "how fast it can be, no source says" if sides else "there are no rows"
    fastest, row = max(sides, key=lambda pair: pair[0].value)
    text = f"{fastest.value:g} GB/s at {row.size} bytes, of {top:g}"
    if fastest.value > top and case.nodes > 1:
        text += "; a tree sends less than busbw counts"
    if fastest.low > top * case.floors.too_good:
        return "fail", f"line {row.line}: {text}: this is no log of {case.nodes} x {case.declared.instance}"
    return "pass", text


def floor(case: Case) -> Result:
    if case.instance is None:
        return "not applicable", "no instance is declared"
    if case.nodes is None:
        return "not established", "how many nodes there are, nothing says: --nodes"
    if case.declared.world_size and case.declared.world_size != case.nodes * max(case.instance.count, 1):
        return (
            "not established",
            f"ungraded: floors are of whole instances, and {case.declared.world_size} ranks are not",
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
    """Check that busbw at the large sizes is no lower than the baseline, within the tolerance."""
    known = case.baseline
    assert known
    if (case.declared.instance, case.nodes) != (known.instance, known.nodes):
        said = f"{case.nodes or 'unknown'} x {case.declared.instance or 'unknown'}"
        return "not established", f"{known.name} is of {known.nodes} x {known.instance}, the log of {said}"
    texts, tolerance = list[str](), known.tolerance or case.floors.tolerance
    for table in case.log.tables:
        collective = case.collective(table)
        for point in known.points_of(collective, case.algorithm, case.large(table)):
            rows = [row for row in table.rows if row.size == point.size]
            if not rows:
                return "not established", f"{collective}: {known.name} has {point.size} bytes, the log has not"
            for row in rows:
                for side, then in zip(row.sides, (point.out_of_place, point.in_place), strict=True):
                    change = side.busbw.value / then - 1
                    text = f"{collective}: {side.busbw.value:g} GB/s at {row.size} bytes, {change:+.1%} of {then:g}"
                    if side.busbw.high < then * (1 - tolerance):
                        return "fail", f"line {row.line}: {text}; {tolerance:.0%} are allowed"
                    texts.append(text)
    missing = sorted(
        {case.collective(table) or "?" for table in case.log.tables} - {p.collective for p in known.points}
    )
    if missing or not texts:
        return "not established", f"{known.name} has no large messages of {', '.join(missing) or 'these collectives'}"
    return "pass", f"{len(texts)} values, each within {tolerance:.0%} of {known.name}"
