"""Check the image's environment: what chooses a transport, wins over the loader, is secret, or hard to write."""

from collections.abc import Iterator
from pathlib import PurePosixPath

from trainwright.core.errors import masked
from trainwright.graft.found import Found, shown
from trainwright.graft.wanted import Trap, Wanted, handled, refused

PRELOAD, SEARCHED = "LD_PRELOAD", "LD_LIBRARY_PATH"


def check(found: Found, wanted: Wanted) -> Iterator[Trap]:
    environment = found.config.environment
    yield from _transports(found, wanted)
    folders = [folder for folder in environment.get(SEARCHED, "").split(":") if folder]
    held = found.inside.libraries if found.inside else {}
    winners = [
        path for path, one in held.items() if one.component != "nccl" and str(PurePosixPath(path).parent) in folders
    ]
    if winners and wanted.fabric != "none":
        why = f"{SEARCHED} makes processes load it instead of what a fabric brings"
        yield refused(SEARCHED, ", ".join(winners), why, f"remove its folder from {SEARCHED}, or use --fabric none")
    elif folders:
        yield handled(
            SEARCHED, ":".join(folders), "the loader searches it first", "it stays; what it finds is recorded"
        )
    for name, value in environment.items():
        line = f"{name}={value}"
        if masked(line) != line:
            yield handled("secret", name, "the image holds what looks like a secret", "it stays and is not shown")
        if "\n" in value or '"' in value:
            yield handled(
                "quotes or newlines", name, "a Dockerfile cannot repeat it", "it is inherited, not written again"
            )


def _transports(found: Found, wanted: Wanted) -> Iterator[Trap]:
    for name, row in wanted.settings.variables.items():
        value = found.config.environment.get(name)
        if value is None or (wanted.fabric != "none" and value == row.efa):
            continue
        line = f"{name}={shown(name, value)}"
        if wanted.fabric == "none":
            yield handled("transport preset", line, row.why, "it stays, because this graft brings no fabric")
        elif row.efa:
            yield handled("transport preset", line, row.why, f"the graft sets {name}={row.efa}")
        else:
            yield refused(
                "transport preset", line, row.why, f"remove {name} from the image's ENV, or use --fabric none"
            )
