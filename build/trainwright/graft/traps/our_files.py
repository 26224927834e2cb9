"""Check the places that a graft writes to: nothing of ours is there yet, and folders are folders."""

from collections.abc import Iterator

from trainwright.graft.found import Found
from trainwright.graft.wanted import Trap, Wanted, handled, refused
from trainwright.image.tags import ID_LABEL

OWN = "/opt/trainwright"


def check(found: Found, wanted: Wanted) -> Iterator[Trap]:
    paths = found.inside.paths if found.inside else {}
    named = found.config.labels.get(ID_LABEL, "")
    if named or paths.get(OWN):
        why = "it holds the launcher, the preflight and a declaration already"
        fix = f"trainwright derive {found.pinned} --into DIR"
        yield refused("image of trainwright", named or OWN, why, fix)
    for path in ("/opt", "/etc", "/usr/local", "/usr/local/bin"):
        if paths.get(path) in ("link", "file"):
            why = "the graft writes below it, and a copy cannot follow a link of the image"
            yield refused("no folder", f"{path} is a {paths[path]}", why, f"make {path} a folder in the image")
    if paths.get("/etc/pip.conf"):
        why = "the image has pip's settings already"
        yield handled("pip.conf", "/etc/pip.conf", why, "it stays; the graft's constraints are set by PIP_CONSTRAINT")
