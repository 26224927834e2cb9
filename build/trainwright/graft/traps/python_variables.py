"""Check the variables that lead Python to other modules than those that were found."""

from collections.abc import Iterator

from trainwright.graft.found import Found, shown
from trainwright.graft.wanted import Trap, Wanted, handled, refused


def check(found: Found, wanted: Wanted) -> Iterator[Trap]:
    environment = found.config.environment
    if path := environment.get("PYTHONPATH"):
        why = "Python searches it before the packages that were found"
        fix = "it stays: launcher and preflight start without it, ranks with it"
        yield handled("PYTHONPATH", shown("PYTHONPATH", path), why, fix)
    if home := environment.get("PYTHONHOME"):
        why = "it gives every Python of the image the standard library of one of them"
        yield refused("PYTHONHOME", shown("PYTHONHOME", home), why, "remove it from the image's ENV")
