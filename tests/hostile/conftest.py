"""Parties that attack, a file each, each attack a test. A table at the end counts them, and says what they cost."""

from collections import Counter
from collections.abc import Iterator
from resource import RUSAGE_SELF, getrusage

import pytest
from unit.conftest import _bare_machine, authority, bare_network, cli, intent, lasting, memory, site, tree, wheel, whole

__all__ = [
    "_bare_machine",
    "authority",
    "bare_network",
    "cli",
    "intent",
    "lasting",
    "memory",
    "site",
    "tree",
    "wheel",
    "whole",
]
FOLDER = "tests/hostile/test_"
ELSEWHERE = {"tests/unit/launcher/test_strangers.py": "stranger on the network"}  # beside the code that they attack


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Note how much more memory than ever before the process took, in KiB (macOS: bytes)."""
    before = getrusage(RUSAGE_SELF).ru_maxrss
    try:
        yield
    finally:
        item.user_properties.append(("grown", getrusage(RUSAGE_SELF).ru_maxrss - before))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    tried, survived, not_run = Counter[str](), Counter[str](), 0
    longest, most = dict[str, float](), dict[str, int]()
    for outcome in ("passed", "failed", "skipped", "error"):
        for report in terminalreporter.stats.get(outcome, []):
            party = report.nodeid.partition(FOLDER)[2].partition(".py")[0].replace("_", " ")
            if party := party or ELSEWHERE.get(report.nodeid.partition("::")[0], ""):
                tried[party] += outcome != "skipped"
                survived[party] += outcome == "passed"
                not_run += outcome == "skipped"
                longest[party] = max(longest.get(party, 0.0), getattr(report, "duration", 0.0))
                grown = [int(value) for name, value in report.user_properties if name == "grown"]
                most[party] = max(most.get(party, 0), *grown, 0)
    if tried:
        terminalreporter.section("attacks")
        rows = [*sorted(tried), ""]
        for party in rows:
            ours = (tried[party], survived[party]) if party else (tried.total(), survived.total())
            words = f"{party or 'all of them':<24} tried {ours[0]:>4}  survived {ours[1]:>4}"
            seconds, kib = (longest[party], most[party]) if party else (max(longest.values()), max(most.values()))
            terminalreporter.write_line(f"{words}  longest {seconds:>5.1f} s  most memory {kib >> 10:>4} MiB")
        if not_run:
            terminalreporter.write_line(f"not run: {not_run}")
