"""Check that the engine's image is the one that its tag names in the registry now."""

from collections.abc import Iterator

from trainwright.graft.found import Found
from trainwright.graft.wanted import Trap, Wanted, refused


def check(found: Found, wanted: Wanted) -> Iterator[Trap]:
    if found.moved:
        why = f"the registry has {found.moved} under this tag now, so it is not clear which one is meant"
        fix = f"docker pull {found.reference}, or name the older one: {found.pinned}"
        yield refused("moved tag", found.pinned, why, fix)
