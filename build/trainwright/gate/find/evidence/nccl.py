"""Read what NCCL itself found of its paths: lines `NCCL DIAG`, which it prints from 2.31 on (NCCL_RUN_DIAGNOSTICS)."""

import re
from collections.abc import Sequence

from trainwright.core.versions import at_least
from trainwright.gate.find.evidence import Heard
from trainwright.gate.find.model import Sign

NAME, ONCE, SHELL = "nccl", False, ""
TITLE = "NCCL's diagnostics"
SINCE = "2.31"
VERSION = re.compile(r"NCCL version (\d+\.\d+(?:\.\d+)?)")
LINE = re.compile(r"NCCL DIAG \[(OK|INFO)\]\s+([\w ]+?): (.*)")
# Of the lines [INFO] those that say that a path failed; others say what could not be tested.
PARTIAL = re.compile(r"only (\d+)/(\d+)\b.*passed")
OUTLIER = re.compile(r"rank \d+ \(([^)]+)\): ([\d.]+) .*off median ([\d.]+)")
BROKEN = re.compile(r"\b(?:mismatch|corrupt|failed|timed out)", re.IGNORECASE)


def signs(heard: Heard) -> list[Sign]:
    """Return what NCCL says of the hosts of a run. A line that names no host is of any of them."""
    rows = [found for line in heard.log if (found := LINE.search(line))]
    if not rows:
        why = _absent(heard.log)
        return [Sign(source=NAME, host=host, state="not there", what=why) for host in heard.hosts]
    bad: dict[str, list[str]] = {host: [] for host in heard.hosts}
    for row in rows:
        if row[1] == "INFO" and (of := _speaks(row[3], heard.hosts)) is not None:
            for host in of or heard.hosts:
                bad[host].append(f"{row[2]}: {row[3][:160]}")
    return [
        Sign(source=NAME, host=host, state="bad", what="; ".join(told[:2]), own=len(heard.hosts) == 1)
        if (told := bad[host])
        else Sign(source=NAME, host=host, state="fine", what=f"{rows[0][2]}: {rows[0][3][:160]}")
        for host in heard.hosts
    ]


def _speaks(text: str, hosts: list[str]) -> list[str] | None:
    """Return the hosts against which a line speaks, [] for any of them; None if it speaks against none."""
    if found := OUTLIER.search(text):
        if float(found[2]) >= float(found[3]):
            return None  # faster than the others
        return [host for host in hosts if host.rpartition("@")[2].partition(".")[0] == found[1].partition(".")[0]]
    return [] if PARTIAL.search(text) or BROKEN.search(text) else None


def _absent(log: Sequence[str]) -> str:
    versions = [found[1] for line in log if (found := VERSION.search(line))]
    if not versions:
        return "no line NCCL DIAG, and none says which NCCL it is"
    if not at_least(versions[0], SINCE):
        return f"NCCL {versions[0]} has no diagnostics; {SINCE} has"
    return f"NCCL {versions[0]} printed none"
