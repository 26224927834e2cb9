"""Check that the licences of the image allow what is asked."""

from collections.abc import Iterator

from trainwright.graft.found import Found
from trainwright.graft.wanted import Trap, Wanted, refused


def check(found: Found, wanted: Wanted) -> Iterator[Trap]:
    for reason in wanted.forbidden:
        fix = "push to a place that the licence allows; see dockerfiles/licences.toml"
        yield refused("licence", found.pinned, reason, fix)
