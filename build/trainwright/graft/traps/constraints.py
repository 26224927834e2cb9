"""Check for constraints of the image's own, which pip takes instead of those of the graft."""

from collections.abc import Iterator

from trainwright.graft.found import Found
from trainwright.graft.wanted import Trap, Wanted, handled

VARIABLE = "PIP_CONSTRAINT"


def check(found: Found, wanted: Wanted) -> Iterator[Trap]:
    own = found.config.environment.get(VARIABLE)
    if own is not None:
        why = "pip takes it instead of the constraints that the graft adds"
        fix = "it stays; trainwright-check still finds a framework that a job replaced"
        yield handled("constraints", f"{VARIABLE}={own}", why, fix)
