"""Provide real logs of nccl-tests, and the judge's verdicts on them."""

import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from trainwright.gate import read
from trainwright.gate.case import Declared
from trainwright.gate.judge import Verdict

ROOT = Path(__file__).parents[1]
LOGS = ROOT / "tests/unit/nccl-tests"
EXPECTED: dict[str, Any] = tomllib.loads((LOGS / "expected.toml").read_text())
GOOD = sorted(name for name, said in EXPECTED.items() if said["verdict"] == "pass")


def judged(path: Path, **declared: Any) -> Verdict:
    (found,) = read.verdicts(ROOT, [str(path)], Declared(**declared))
    return found


def log(name: str) -> Path:
    (path,) = LOGS.glob(f"{name}*.txt")
    return path


def state(found: Verdict, check: str) -> str:
    return next(row.state for row in found.checks if row.name == check)


def planted(folder: Path, text: str, mutation: Callable[[str], str]) -> Path:
    (folder / "log.txt").write_text(mutation(text))
    return folder / "log.txt"


def complete() -> str:
    """Return log 07 as today's plugin would write it: with the number of NICs and the EFA devices' counters."""
    today = "Selected provider is efa, fabric is efa (found 4 nics)"
    text = log("07").read_text().partition("## --- verbatim")[2].replace("Selected Provider is efa", today)
    return text + "".join(f"efa-counters before h{n} 0\nefa-counters after h{n} 900000000000\n" for n in (0, 1))
