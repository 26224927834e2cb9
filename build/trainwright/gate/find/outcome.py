"""Read the log of one run: its speed, or how it failed."""

import math
import re
from dataclasses import dataclass
from pathlib import Path

from trainwright.core.errors import ConfigError, masked
from trainwright.gate import diagnosis, read
from trainwright.gate.diagnosis import Known
from trainwright.gate.find.execute import TOO_LATE
from trainwright.gate.find.model import Kind

AWAY = 255  # of ssh, and of gate.sh for a host that ssh does not reach
STOPPED = re.compile(r"^gate: stopped after \d+ s", re.MULTILINE)
LAST = 4000  # characters of a log
OURS = ("gate: ", "witness ", "efa-counters ")  # lines of gate.sh, which tell no cause


@dataclass(frozen=True)
class Outcome:
    kind: Kind
    speed: float | None = None  # logarithm of busbw, the mean over sizes
    why: str = ""
    away: bool = False  # a host may have left


def outcome(known: Known, log: Path, code: int, least: int) -> Outcome:
    """Return what a log shows of messages of at least so many bytes."""
    if code == TOO_LATE or STOPPED.search(_last(log)):
        return Outcome("hang", why=_cause(known, log, "it did not end within its limit"))
    try:
        tables = read.read(str(log), known.causes).tables
    except ConfigError as error:
        return Outcome("error", why=error.what)
    rows = [row for table in tables for row in table.rows if row.size >= least]
    sides = [side for row in rows for side in row.sides]
    if any(side.wrong for side in sides) or any(table.refused for table in tables):
        return Outcome("wrong", why="nccl-tests found wrong values")
    if code or not sides:
        return Outcome("error", why=_cause(known, log, f"exit code {code}"), away=code == AWAY)
    if any(side.busbw.value <= 0 for side in sides):
        return Outcome("error", why="a busbw of zero: these ranks are not one world")
    return Outcome("ok", sum(math.log(side.busbw.value) for side in sides) / len(sides))


def _last(log: Path) -> str:
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - LAST))
        return file.read().decode(errors="replace")


def _cause(known: Known, log: Path, otherwise: str) -> str:
    """Return the cause that `diagnose` names; else the last line of the log."""
    try:
        (found,) = diagnosis.diagnosed(known.root, [str(log)], known)
    except ConfigError:
        return otherwise
    if found["cause"] not in ("unknown", "none", "timeout", "exit-code", "silent"):
        return f"{found['cause']}: {found['what']}"
    lines = [line for line in _last(log).splitlines() if line.strip() and not line.startswith(OURS)]
    return f"{otherwise}; last line: {masked(lines[-1].strip())[:200]}" if lines else otherwise
