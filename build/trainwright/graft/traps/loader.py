"""Check the files that decide which libraries a process loads."""

import re
from collections.abc import Iterator

from trainwright.graft.found import Found
from trainwright.graft.traps.variables import PRELOAD
from trainwright.graft.wanted import Trap, Wanted, handled, refused

# Debian's and Ubuntu's libc.conf names this folder, which none of their packages makes.
USUAL = re.compile("/usr/local/lib/[a-z0-9_]+-linux-gnu")
FABRIC = ("libfabric", "aws-ofi-nccl")  # components that a fabric brings


def check(found: Found, wanted: Wanted) -> Iterator[Trap]:
    if found.inside is None:
        return
    loader = found.inside.loader
    missing = [path for path in loader.missing if not USUAL.fullmatch(path)]
    if missing:
        why = "a path of ld.so.conf does not exist"
        yield handled("ld.so.conf", ", ".join(missing), why, "it stays: the loader skips it")
    preload = [*loader.preload, *found.config.environment.get(PRELOAD, "").replace(":", " ").split()]
    if preload and wanted.fabric != "none":
        why = "a preloaded library replaces functions of what a fabric brings"
        yield refused(PRELOAD, ", ".join(preload), why, "remove it from the image, or use --fabric none")
    elif preload:
        yield handled(PRELOAD, ", ".join(preload), "every process loads it", "it stays")
    theirs = [path for path, one in found.inside.libraries.items() if one.component in FABRIC]
    if theirs and wanted.fabric != "none":
        why = "it would shadow the libfabric or plugin that a fabric brings, or be shadowed by it"
        yield refused("another fabric", ", ".join(theirs), why, "remove it from the image, or use --fabric none")
    elif theirs:
        yield handled("another fabric", ", ".join(theirs), "the image brings its own", "it stays, and is recorded")
