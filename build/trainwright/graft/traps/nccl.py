"""Check that one NCCL serves the framework, and that the network plugin takes it."""

from collections.abc import Iterator
from pathlib import PurePosixPath

from trainwright.graft.found import Found
from trainwright.graft.wanted import Trap, Wanted, handled, refused
from trainwright.matrix.compat import violations

PACKAGES = ("/site-packages/", "/dist-packages/")  # the second: of Debian's and Ubuntu's own Python


def check(found: Found, wanted: Wanted) -> Iterator[Trap]:
    copies, mapped, python = found.nccls, found.mapped, found.python
    if python is None:
        return
    told = ", ".join(f"{path} {version or 'without a version'}" for path, version in copies.items())
    own = [path for path in copies if path.startswith(f"{python.prefix}/") and any(one in path for one in PACKAGES)]
    if len(mapped) > 1:
        why = "functions of both are mixed in a process"
        other = next((path for path in mapped if path not in own), mapped[-1])
        fix = f"remove {other}, or its folder from LD_LIBRARY_PATH and LD_PRELOAD"
        yield refused("two NCCL in one process", ", ".join(mapped), why, fix)
    elif mapped and own and mapped[0] not in own:
        why = f"the framework maps {mapped[0]} instead of its own {own[0]}"
        fix = f"remove {mapped[0]}, or its folder from LD_LIBRARY_PATH and LD_PRELOAD"
        yield refused("another NCCL wins", told, why, fix)
    elif len(copies) > 1 and not mapped:
        why = "it is not established which one a process maps"
        yield refused("several NCCL", told, why, f"remove all but one: rm {list(copies)[-1]}")
    elif wanted.fabric != "none" and (found_first := _found_by_name(found, mapped)):
        why = f"programs find it by its name, and the framework maps {mapped[0]}"
        fix = f"remove {found_first}, or its folder from LD_LIBRARY_PATH and ld.so.conf"
        yield refused("another NCCL wins", told, why, fix)
    elif len(copies) > 1:
        why = f"the framework maps {mapped[0]}"
        fix = "both are recorded, and trainwright-check compares them before each job"
        yield handled("several NCCL", told, why, fix)
    if wanted.fabric != "none" and found.accelerator != "cpu" and not found.nccl:
        why = "the network plugin must be made for the NCCL that the framework maps"
        fix = "use --fabric none, or name an image whose framework loads a shared libnccl"
        yield refused("NCCL unknown", told or "none", why, fix)
    elif wanted.fabric != "none" and found.nccl and wanted.plugin:
        for broken in violations(wanted.compat, {"aws-ofi-nccl": wanted.plugin, "nccl": found.nccl}):
            if broken.severity == "refuse":
                rule = wanted.compat.rules[broken.row - 1].rule if broken.row <= len(wanted.compat.rules) else ""
                why = f"aws-ofi-nccl {wanted.plugin}: {rule or 'a rule of compat.toml is broken'}"
                fix = "use --fabric none, or an image with a newer NCCL: trainwright list"
                yield refused("NCCL and the plugin", found.nccl, why, fix)
                return


def _found_by_name(found: Found, mapped: list[str]) -> str:
    """Return a copy that the framework does not map and a program finds by its name; "" without one."""
    folders = found.config.environment.get("LD_LIBRARY_PATH", "").split(":")
    for path in found.nccls:
        named = found.inside is not None and bool(found.inside.libraries[path].names)
        if mapped and path not in mapped and (named or str(PurePosixPath(path).parent) in folders):
            return path
    return ""
