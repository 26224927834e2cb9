"""Check for an rdma-core of the image, whose libraries libfabric loads by their names."""

from collections.abc import Iterator
from pathlib import PurePosixPath

from trainwright.graft.found import Found
from trainwright.graft.wanted import Trap, Wanted, handled, refused

PLACES = ("/usr/lib", "/usr/lib64", "/lib", "/lib64")  # where a package of a distribution puts it


def check(found: Found, wanted: Wanted) -> Iterator[Trap]:
    held = found.inside.libraries if found.inside else {}
    paths = [path for path, one in held.items() if one.component == "rdma-core"]
    strange = [path for path in paths if not _of_a_package(path)]
    if strange and wanted.fabric != "none":
        why = "libfabric's provider for EFA would load it instead of the rdma-core that it was made with"
        yield refused("rdma-core", ", ".join(strange), why, "remove it from the image, or use --fabric none")
    elif paths:
        why = "the image brings its own rdma-core"
        fix = "the package manager replaces its package" if wanted.fabric != "none" else "it stays"
        yield handled("rdma-core", ", ".join(paths), why, fix)


def _of_a_package(path: str) -> bool:
    folder = PurePosixPath(path).parent
    return str(folder) in PLACES or (str(folder.parent) in PLACES and folder.name.endswith("-linux-gnu"))
