"""Intent into locks: resolve what is stale or missing, fetch it once, write it down."""

from collections.abc import Callable
from pathlib import Path

from packaging.utils import canonicalize_name

from trainwright import distribution, indexes, inputs, lock, packages, render, store
from trainwright.errors import LockError
from trainwright.fetching import base_status, must, own_index
from trainwright.files import write
from trainwright.matrix import Intent
from trainwright.model import Group, Lock, PythonFile, Variant
from trainwright.progress import Progress, Say


def lock_packages(intent: Intent, base: str, say: Say) -> tuple[Path, str]:
    """Resolve a base's packages. Returns the lock's path and new text; writes nothing."""
    definition, include = intent.components.bases[base], lock.distribution_packages(intent, base)
    say(f"{base}: resolving {len(include)} packages and what they need")
    date, stanzas = distribution.resolve(definition, include, base_status(definition))
    header = {"Intent": lock.packages_digest(intent, base), "Date": date}
    return inputs.packages_path(intent, base), packages.dump(header, stanzas)


def lock_python(intent: Intent, variant: Variant, say: Say, progress: Progress) -> tuple[Path, str]:
    """Resolve a variant's Python packages; every file is fetched, so that size and existence are facts."""
    base, components = intent.components.bases[variant.base], intent.components
    wanted = lock.requirements(intent, variant)
    say(f"{variant.id}: resolving {len(wanted)} Python requirements")
    offers: list[tuple[Group, indexes.Offer]] = []
    groups: list[tuple[Group, list[str]]] = [
        ("toolkit", list(wanted.values())),
        ("tools", [f"{name}=={version}" for name, version in components.python_tools.items()]),
        ("sdist-build", [f"{name}=={version}" for name, version in components.sdist_build.items()]),
    ]
    for group, requirements in groups:
        found = indexes.resolve(requirements, variant.python, base, own_index(intent, variant))
        offers += [(group, offer) for offer in found]
    files = [store.Wanted(name=offer.file, sha256=offer.sha256, size=0, urls=[offer.url]) for _, offer in offers]
    must(store.fetch(files, progress, **indexes.trust()), "cannot be had")
    entries = [
        PythonFile(
            name=offer.name,
            version=offer.version,
            file=offer.file,
            sha256=offer.sha256,
            size=store.path_of(offer.sha256).stat().st_size,
            group=group,
            needs=indexes.needs(store.path_of(offer.sha256), offer.file, variant.python, base),
        )
        for group, offer in offers
    ]
    core = wanted.keys() - intent.matrix.targets[variant.target].pins.keys()
    lowest = closure({canonicalize_name(pin) for pin in core}, entries)
    entries = [
        entry.model_copy(update={"group": "framework"}) if entry.group == "toolkit" and entry.name in lowest else entry
        for entry in entries
    ]
    text = lock.dump(
        Lock(intent=lock.intent_digest(intent, variant), entries=lock.entries_digest(entries), python=entries)
    )
    return inputs.lock_path(intent, variant), text


def lock_all(
    intent: Intent, variants: list[Variant], update: bool, say: Say, progress: Progress
) -> list[dict[str, str]]:
    """Write the locks that are stale or missing; with `update` resolve the others anew, too."""
    for variant in variants:
        render.check(intent, variant)  # nothing is resolved for what could not be built
    rows = []
    for base in sorted({variant.base for variant in variants}):
        stale = update or not is_current(packages_current, intent, base)
        rows.append(_written(base, *lock_packages(intent, base, say)) if stale else _kept(base))
    for variant in variants:
        stale = update or not is_current(inputs.load, intent, variant)
        rows.append(_written(variant.id, *lock_python(intent, variant, say, progress)) if stale else _kept(variant.id))
    return rows


def check_locks(intent: Intent, variants: list[Variant]) -> list[dict[str, str]]:
    """No network: raises LockError for the first lock that is stale or lacks something."""
    return [{"lock": inputs.load(intent, variant).variant.id, "state": "current"} for variant in variants]


def packages_current(intent: Intent, base: str) -> None:
    if inputs.read_distribution(intent, base).intent != lock.packages_digest(intent, base):
        raise LockError("stale")


def is_current(read: Callable[..., object], *words: object) -> bool:
    try:
        read(*words)
    except LockError:
        return False
    return True


def _written(name: str, path: Path, text: str) -> dict[str, str]:
    same = path.exists() and path.read_text() == text
    write(path, text)
    return {"lock": name, "state": "unchanged" if same else "written"}


def _kept(name: str) -> dict[str, str]:
    return {"lock": name, "state": "current"}


def closure(names: set[str], entries: list[PythonFile]) -> set[str]:
    """These packages and all that they lead to: what the framework's layer holds, the target's layer comes above."""
    needs = {entry.name: entry.needs for entry in entries if entry.group == "toolkit"}
    found, todo = set[str](), set(names)
    while todo:
        found |= todo
        todo = {need for name in todo for need in needs.get(name, [])} - found
    return found
