"""Intent into locks: resolve what is stale or missing, fetch it once, write it down."""

from collections.abc import Callable
from pathlib import Path

from trainwright import facts, indexes, inputs, lock, packages, render, store
from trainwright.errors import LockError
from trainwright.fetching import must, own_index, resolve_packages
from trainwright.files import write
from trainwright.matrix import Intent, provider_of
from trainwright.model import Group, Lock, PythonFile, Source, Variant
from trainwright.progress import Progress, Say


def lock_packages(intent: Intent, base: str, tools: bool, below: packages.Stanzas, say: Say) -> tuple[Path, str]:
    """Resolve a base's packages, or with `tools` what compile stages have beyond it (`below`).

    Returns the lock's path and new text; writes nothing.
    """
    names = lock.build_packages(intent, base) if tools else lock.distribution_packages(intent, base)
    path = inputs.packages_path(intent, base, tools)
    say(f"{path.stem}: resolving {len(names)} packages and what they need")
    date, stanzas = resolve_packages(intent, base, tools, below)
    header = {"Intent": lock.packages_digest(intent, base, names), "Date": date}
    return path, packages.dump(header, stanzas)


def lock_python(intent: Intent, variant: Variant, say: Say, progress: Progress) -> tuple[Path, str]:
    """Resolve a variant's Python packages and sources; every wheel is fetched, so that size and existence are facts.

    One solution for the image, its twin and its compile stages; a solution of fewer requirements, held to these
    versions, then says which package belongs to which of them.
    """
    base, components = intent.components.bases[variant.base], intent.components
    index = own_index(intent, variant)
    twins = lock.twins(intent, variant)
    image = next(twin for twin in twins if not twin.devel)
    wanted, tools = lock.requirements(intent, image), lock.build_requirements(intent, image)
    every = [*wanted.values(), *tools, *(text for twin in twins for text in lock.requirements(intent, twin).values())]
    every = list(dict.fromkeys(every))
    say(f"{variant.lock}: resolving {len(every)} Python requirements")
    solved = indexes.resolve(every, variant.python, base, index)
    held = [f"{offer.name}=={offer.version}" for offer in solved]

    def needed(requirements: list[str]) -> set[str]:
        if not requirements:
            return set()
        return {offer.name for offer in indexes.resolve(requirements, variant.python, base, index, constraints=held)}

    core = [text for pin, text in wanted.items() if components.components[pin].position != "toolkit"]
    framework, runtime, compiled = needed(core), needed(list(wanted.values())), needed(tools)
    groups: dict[str, Group] = {
        offer.name: "framework" if offer.name in framework else "toolkit" if offer.name in runtime else "devel"
        for offer in solved
    }
    offers: list[tuple[Group, indexes.Offer]] = [(groups[offer.name], offer) for offer in solved]
    for group, tool in (("tools", components.tools.python_tools), ("sdist-build", components.tools.sdist_build)):
        found = indexes.resolve([f"{name}=={version}" for name, version in tool.items()], variant.python, base, index)
        offers += [(group, offer) for offer in found]  # type: ignore[misc]  # mypy widens the literals
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
            compile=group in ("framework", "toolkit", "devel") and offer.name in compiled,
            licence=indexes.licence(store.path_of(offer.sha256), offer.file),
            needs=indexes.needs(store.path_of(offer.sha256), offer.file, variant.python, base),
        )
        for group, offer in offers
    ]
    text = lock.dump(
        Lock(
            intent=lock.intent_digest(intent, variant),
            entries=lock.entries_digest(entries),
            python=entries,
            sources=[lock_source(intent, image, pin) for pin in image.pins if is_source(intent, image, pin)],
        )
    )
    return inputs.lock_path(intent, variant), text


def is_source(intent: Intent, variant: Variant, pin: str) -> bool:
    return provider_of(intent, variant, pin).kind in ("source", "file")


def lock_source(intent: Intent, variant: Variant, name: str) -> Source:
    """What a component is made from: the facts of its release. What they lack is missing from the lock, and blocks."""
    pin, component = variant.pins[name], intent.components.components[name]
    provider, release = provider_of(intent, variant, name), lock.release_of(intent, variant, name)
    return Source(
        name=name,
        version=pin.version,
        url=(provider.git or provider.url).format(version=pin.version),
        tag=provider.tag.format(version=pin.version),
        commit=release.commit,
        sha256=release.sha256,
        size=release.size,
        licence=component.licence,
        checksums=release.checksums,
    )


def lock_all(
    intent: Intent, variants: list[Variant], update: bool, say: Say, progress: Progress
) -> list[dict[str, str]]:
    """Write the locks that are stale or missing; with `update` resolve the others anew, too."""
    for variant in variants:
        render.check(intent, variant)  # nothing is resolved for what could not be built
        facts.admit(intent, variant, None, {}, {})
    rows = []
    for base in sorted({variant.base for variant in variants}):
        stale = update or not is_current(inputs.current_distribution, intent, base)
        rows.append(_written(base, *lock_packages(intent, base, False, {}, say)) if stale else _kept(base))
    for base in sorted({variant.base for variant in variants if lock.compiles(intent, variant)}):
        stale = update or not is_current(inputs.current_distribution, intent, base, True)
        name = inputs.packages_path(intent, base, True).stem
        below = inputs.read_distribution(intent, base).locked
        rows.append(_written(name, *lock_packages(intent, base, True, below, say)) if stale else _kept(name))
    for variant in {variant.lock: variant for variant in variants}.values():
        stale = update or not is_current(inputs.load, intent, variant)
        rows.append(
            _written(variant.lock, *lock_python(intent, variant, say, progress)) if stale else _kept(variant.lock)
        )
    return rows


def check_locks(intent: Intent, variants: list[Variant]) -> list[dict[str, str]]:
    """No network: raises LockError for the first lock that is stale or lacks something."""
    return [{"lock": inputs.load(intent, variant).variant.id, "state": "current"} for variant in variants]


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
