"""Check what could make a graft fail or fall back to TCP, one file per subject; a new subject is a new file here."""

from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path

from trainwright.graft.found import Found
from trainwright.graft.wanted import Trap, Wanted

Check = Callable[[Found, Wanted], Iterator[Trap]]

CHECKS: dict[str, Check] = {
    path.stem: import_module(f"trainwright.graft.traps.{path.stem}").check
    for path in sorted(Path(__file__).parent.glob("[a-z]*.py"))
}


def traps(found: Found, wanted: Wanted) -> list[Trap]:
    """Return every trap of an image, refusals first."""
    told = [trap for check in CHECKS.values() for trap in check(found, wanted)]
    return sorted(told, key=lambda trap: trap.state != "refused")
