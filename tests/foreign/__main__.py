"""Make foreign images, graft upon each, and print the table: `make test-foreign`, or ONLY='<names>'.

With a folder in KEEP, distributions, registry and made images stay there for the next call.
"""

import json
import os
import shutil
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from engines import registry_in
from foreign import bases, context, grafts, images

PORT = 5071


def main(names: list[str]) -> int:
    known = images.images()
    wanted = names or [name for name, one in known.items() if not one.wheels]
    fabric = os.environ.get("FABRIC", "none")
    with ExitStack() as stack:
        folder = Path(os.environ.get("KEEP") or stack.enter_context(tempfile.TemporaryDirectory()))
        held, own = distributions(folder / "bases", {images.base(known, name) for name in wanted}), folder / "own"
        if not own.exists():
            context.make(own)
            context.wheels(own / "wheels")
        for lock in {known[name].wheels for name in wanted} - {""}:
            if not (own / lock).exists():
                context.wheels(own / lock, lock)
        if bases.OLD in {images.base(known, name) for name in wanted} and not (own / bases.OLD).exists():
            bases.old_packages(own / bases.OLD)
        (folder / "registry").mkdir(exist_ok=True)
        registry = stack.enter_context(registry_in(folder / "registry", PORT))
        tree = grafts.checkout(Path(stack.enter_context(tempfile.TemporaryDirectory())) / "tree")
        outcomes = []
        for name in wanted:
            try:
                [(_, reference)] = images.make([name], held, own, registry)
                outcomes.append(grafts.graft(tree, registry, known[name], reference, fabric))
            except RuntimeError as error:  # of its build: the others come all the same
                outcomes.append(grafts.Outcome(name, known[name].anatomy, "", "", "not made", wrong=[str(error)]))
            show(outcomes[-1])
            rows = [one.as_dict() for one in outcomes]
            (folder / f"table-{fabric}.json").write_text(json.dumps(rows, indent=1) + "\n")
    wrong = [one.image for one in outcomes if one.wrong]
    print(f"{len(outcomes) - len(wrong)} of {len(outcomes)} as declared" + f", not {', '.join(wrong)}" * bool(wrong))
    return bool(wrong)


def distributions(tree: Path, wanted: set[str]) -> dict[str, str]:
    """Return the names of the bases in the engine; build them unless a former call has built them all."""
    needed = (wanted | {"bookworm"}) & bases.BASES.keys()
    known = bases.names(tree).keys()
    if needed - known:
        needed |= known & bases.BASES.keys()
        shutil.rmtree(tree, ignore_errors=True)
        bases.plant(tree, sorted(needed))
        bases.build(tree)
    return bases.names(tree)


def show(one: grafts.Outcome) -> None:
    right = "right" if not one.wrong else "WRONG: " + "; ".join(one.wrong)
    cost = f"{one.seconds} s, {one.added_bytes} bytes" if one.added_bytes else f"{one.seconds} s"
    print(f"{one.image}: {one.became} ({cost}; pull {one.pull_seconds} s); {one.found}; {right}", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
