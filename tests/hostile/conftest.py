"""Count attacks and their costs: a file for each attacker, a test for each attack. A table at the end shows them."""

import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from unit.conftest import (
    _bare_machine,
    authority,
    bare_network,
    cli,
    intent,
    lasting,
    memory,
    site,
    tmp_path,
    tree,
    wheel,
    whole,
)

__all__ = [
    "_bare_machine",
    "authority",
    "bare_network",
    "cli",
    "intent",
    "lasting",
    "memory",
    "site",
    "tmp_path",
    "tree",
    "wheel",
    "whole",
]
TRIED = ("passed", "failed", "error")
FOLDER = "tests/hostile/test_"
ELSEWHERE = {"tests/unit/launcher/test_strangers.py": "stranger on the network"}  # beside the code that they attack


STATUS, RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")  # Linux: proc(5)


def _memory(line: str) -> int:
    """Return this process's memory in KiB: VmRSS is the present value, VmHWM the peak since its reset."""
    found = re.search(rf"^{line}:\s+(\d+) kB", STATUS.read_text(), re.MULTILINE)
    assert found
    return int(found[1])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Record how much memory this process used for the test, in KiB, without the programs that it starts."""
    try:
        RESET.write_text("5")  # the peak becomes what is held now
    except OSError:
        return (yield)
    before = _memory("VmRSS")
    try:
        yield
    finally:
        item.user_properties.append(("grown", _memory("VmHWM") - before))


class Cost(NamedTuple):
    """What an attack cost: the outcome of its test, seconds and memory."""

    outcome: str
    seconds: float
    kib: int | None  # None: not measured


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print a row for each party; with --verbose also one for each of its tests."""
    costs = defaultdict[str, list[Cost]](list)
    for outcome in ("passed", "failed", "skipped", "error"):
        for report in terminalreporter.stats.get(outcome, []):
            file, _, test = report.nodeid.partition("::")
            party = file.partition(FOLDER)[2].removesuffix(".py").replace("_", " ") or ELSEWHERE.get(file, "")
            if party:
                grown = dict(report.user_properties).get("grown")
                cost = Cost(outcome, getattr(report, "duration", 0.0), grown)
                costs[party].append(cost)
                costs[f"{party}: {test.partition('[')[0].removeprefix('test_').replace('_', ' ')}"].append(cost)
    if not costs:
        return
    terminalreporter.section("attacks")
    every = {party: found for party, found in costs.items() if ":" not in party}
    shown = costs if terminalreporter.config.option.verbose > 0 else every
    width = max(24, *map(len, shown))
    together = [cost for found in every.values() for cost in found]
    for party, found in [*sorted(shown.items()), ("all of them", together)]:
        tried, survived = (sum(cost.outcome in outcomes for cost in found) for outcomes in (TRIED, ["passed"]))
        longest, kib = max(cost.seconds for cost in found), [cost.kib for cost in found if cost.kib is not None]
        most = f"{max(kib) >> 10:>4} MiB" if kib else "not measured"
        words = f"{party:<{width}} tried {tried:>4}  survived {survived:>4}"
        terminalreporter.write_line(f"{words}  longest {longest:>5.1f} s  most memory {most}")
    if not_run := sum(cost.outcome == "skipped" for cost in together):
        terminalreporter.write_line(f"not run: {not_run}")
