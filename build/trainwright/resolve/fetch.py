"""Fetch every locked file into the store; replace packages that have left the mirror, and record them as drift."""

from collections.abc import Mapping
from pathlib import Path

from trainwright.core import mirrors, store
from trainwright.core.errors import LockError
from trainwright.core.progress import Progress, Say, counted
from trainwright.docker import engine
from trainwright.image import child, inputs
from trainwright.image.inputs import Inputs
from trainwright.lock import lockfile, packages, rpms, wheel_files
from trainwright.lock.wheels import is_wheel
from trainwright.matrix.matrix import Intent, Recipe
from trainwright.matrix.model import Base, Package, PythonFile
from trainwright.resolve import apt as resolve_apt
from trainwright.resolve import apt_container, foreign, pypi, rpm, upstream


def own_index(recipe: Recipe) -> str:
    """Return the framework's wheel index for the image's accelerator, or "" if it has none."""
    indexed = (recipe.provider(pin).index.get(recipe.variant.accelerator, "") for pin in recipe.pins)
    return next(filter(None, indexed), "")


def resolve_packages(
    intent: Intent, base: str, tools: bool, below: packages.Stanzas, image: str = ""
) -> tuple[str, packages.Stanzas]:
    """Return date and packages of a base on its mirror now; with `tools`, only the compile stages' beyond `below`.

    `image` is the locked image of the base; without it, that is what its registry has now. Raises LockError if the
    mirror's tools require another version of a package that the base already holds.
    """
    definition = intent.components.bases[base]
    if definition.provider == "image":
        image = foreign.in_engine(image or foreign.pinned(definition.reference))
    date, found = (_rpms if definition.manager == "dnf" else _debs)(intent, base, tools, below, image)
    if not tools:
        return date, found
    for name in found.keys() & below.keys():
        if found[name]["Version"] != below[name]["Version"]:
            raise LockError(
                f"the compilers' packages need {name} {found[name]['Version']}",
                where=f"dockerfiles/locks/{base}.packages",
                why=f"the base is locked with {below[name]['Version']}; the mirror now has another version",
                fix="trainwright lock --update --write",
            )
    return date, {name: stanza for name, stanza in found.items() if name not in below}


def _debs(intent: Intent, base: str, tools: bool, below: packages.Stanzas, image: str) -> tuple[str, packages.Stanzas]:
    definition = intent.components.bases[base]
    apt = apt_container.inside(image) if image else apt_container.apt_of(intent, base)
    if tools:
        return resolve_apt.resolve(definition, lockfile.build_packages(intent, base), packages.status(below), apt)
    status = engine.read_file(image, "/var/lib/dpkg/status") if image else ""
    return resolve_apt.resolve(definition, lockfile.distribution_packages(intent, base), status, apt)


def _rpms(intent: Intent, base: str, tools: bool, below: packages.Stanzas, image: str) -> tuple[str, packages.Stanzas]:
    names = lockfile.build_packages(intent, base) if tools else lockfile.distribution_packages(intent, base)
    return rpms_of(intent.root, intent.components.bases[base], names, below if tools else {}, image)


def rpms_of(
    root: Path, base: Base, names: list[str], below: packages.Stanzas, image: str
) -> tuple[str, packages.Stanzas]:
    """Return date and packages of an image of the engine with these names installed, by dnf in a container of it.

    What `below` adds to the image is installed beside them in its locked versions. Raises what rpm.resolve() raises.
    """
    exact = [f"{rpms.rpm_name(row)}-{row['Version']}.{row['Architecture']}" for row in below.values() if row["SHA256"]]
    return rpm.resolve(root, base, [*exact, *names], apt_container.inside(image))


def wanted(base: Base, found: list[Package], epoch: int) -> list[store.Wanted]:
    """List where the files of locked packages may come from."""
    return rpm.wanted(found) if base.manager == "dnf" else resolve_apt.wanted(base, found, epoch)


def files_of(found: Mapping[str, Package]) -> list[Package]:
    """Return the packages that have a file; the others came with the base image."""
    return [package for package in found.values() if package.sha256]


def must(lost: dict[str, str], what: str) -> None:
    if lost:
        reason = next(iter(lost.values()))
        raise LockError(f"{counted(len(lost), 'file')} of the lock {what}", why=reason, fix="trainwright doctor")


def to_fetch(recipes: list[Recipe]) -> int:
    """Return the bytes that are not in the store yet, of files with a known size."""
    sizes: dict[str, int] = {}
    for recipe in recipes:
        found = child.load(recipe)
        sizes |= {entry.sha256: entry.size for entry in wheels_of(found)}
        sizes |= {source.sha256: source.size or 0 for source in found.lock.sources if source.sha256}
        for state in filter(None, (found.distribution, found.tools) if found.parent is None else ()):
            sizes |= {package.sha256: package.size for package in files_of(state.packages())}
    return sum(size for sha256, size in sizes.items() if not store.has(sha256))


def wheels_of(found: Inputs) -> list[PythonFile]:
    """List every Python file that the image or one of its stages installs, without the compilers of its twin."""
    folders = [found.wheels, *(job.wheels for job in found.compile if job.wheel is None)]
    return list({entry.sha256: entry for held in folders for entries in held.values() for entry in entries}.values())


def fetch(intent: Intent, recipes: list[Recipe], say: Say, progress: Progress) -> None:
    """Fetch and verify every locked file; replace packages that have left the mirror, and record them as drift."""
    fetch_packages(intent, recipes, say, progress)
    for recipe in recipes:
        found = child.load(recipe)
        for source in found.lock.sources:
            upstream.fetch(source, say, progress)
        missing = [entry for entry in wheels_of(found) if not store.has(entry.sha256)]
        if not missing:
            continue
        offers = offers_of(recipe, missing)
        files = []
        for entry in missing:
            offer = offers.get(entry.file)
            urls = [offer.url] if offer else []
            files.append(store.Wanted(name=entry.file, sha256=entry.sha256, size=entry.size, urls=urls))
        must(store.fetch(files, progress, **pypi.trust()), "can no longer be fetched")
        wheel_files.check(recipe, found.lock)


def fetch_packages(intent: Intent, recipes: list[Recipe], say: Say, progress: Progress) -> None:
    """Fetch the distribution's packages; only they can drift, which changes the keys."""
    mirrors.check_names(archive for base in intent.components.bases.values() for archive in base.archives)
    whole = [recipe for recipe in recipes if not recipe.variant.parent]  # an image on another one already has its base
    for base in sorted({recipe.variant.base for recipe in whole}):
        _fetch_packages(intent, base, False, say, progress)
    for base in sorted({recipe.variant.base for recipe in whole if recipe.compiles}):
        _fetch_packages(intent, base, True, say, progress)


def offers_of(recipe: Recipe, missing: list[PythonFile]) -> dict[str, pypi.Offer]:
    """Return the locked files that the indexes offer now, by name."""
    found: dict[str, pypi.Offer] = {}
    definition, index = recipe.base, own_index(recipe)
    # Two groups may hold two versions of one package, and a source distribution may be locked although there is a
    # wheel.
    for group, wheel in sorted({(entry.group, is_wheel(entry)) for entry in missing}):
        entries = [entry for entry in missing if (entry.group, is_wheel(entry)) == (group, wheel)]
        pinned = [f"{entry.name}=={entry.version}" for entry in entries]
        files = tuple(entry.file for entry in entries)
        beside = pypi.Beside(from_source=() if wheel else tuple(entry.name for entry in entries), locked=files)
        offers = pypi.resolve(pinned, recipe.variant.python, definition, index, deps=False, beside=beside)
        found |= {offer.file: offer for offer in offers}
    return found


def _fetch_packages(intent: Intent, base: str, tools: bool, say: Say, progress: Progress) -> None:
    definition = intent.components.bases[base]
    state = inputs.read_distribution(intent, base, tools)
    missing = [package for package in files_of(state.packages()) if not store.has(package.sha256)]
    if not missing:
        return
    lost = store.fetch(wanted(definition, missing, state.epoch), progress)
    if not lost:
        return
    names = [package.name for package in missing if package.sha256 in lost]
    say(f"{base}: {counted(len(names), 'locked package')} left the mirror, such as {names[0]}; using its present ones")
    # All packages are replaced, because a mix of two days may not be installable.
    below = inputs.read_distribution(intent, base).effective if tools else {}
    date, current = resolve_packages(intent, base, tools, below, state.image)
    fresh = [package for package in files_of(packages.to_packages(current)) if not store.has(package.sha256)]
    header = {"Intent": state.intent, "Date": date} | ({"Image": state.image} if state.image else {})
    must(store.fetch(wanted(definition, fresh, packages.epoch_of(header)), progress), "cannot be fetched")
    if definition.manager == "dnf":
        current = rpm.signed(intent.root, definition, current, apt_container.inside(foreign.in_engine(state.image)))
    inputs.record_drift(header, state.locked, current)
    for entry in packages.drift(state.locked, current):
        say(f"drift: {entry.package} {entry.locked or '(new)'} -> {entry.used or '(not needed any more)'}")


def fetched(recipes: list[Recipe]) -> list[dict[str, object]]:
    """Return one row per image with the files that the store now holds for it."""
    rows = []
    for recipe in recipes:
        found = child.load(recipe)
        package_files = files_of(found.distribution.packages())
        python = wheels_of(found)
        sizes = [entry.size for entry in python] + [package.size for package in package_files]
        rows.append(
            {
                "id": recipe.id,
                "python_files": len(python),
                "packages": len(found.distribution.packages()),
                "sources": len(found.lock.sources),
                "bytes": sum(sizes),
                "drift": len(found.drift),
            }
        )
    return rows
