"""Define the lock, which holds exact facts, and check whether it still matches the intent. Pure: text in, text out."""

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, lru_cache

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from trainwright.core.errors import ConfigError, LockError, StaleLock
from trainwright.matrix.matrix import Intent, Recipe, once_per_intent
from trainwright.matrix.model import Base, Lock, Overlap, Package, Pin, PythonFile, Release, Source
from trainwright.matrix.providers import bundled, for_accelerator

RELOCK = "trainwright lock {id}"
DIGEST = re.compile(r"@sha256:[0-9a-f]{64}$")
NOT_ESTABLISHED = "not established"  # replaces the version of a component that a known release bundles


def digest(value: object) -> str:
    """Return the sha256 (hex) of a value's canonical JSON."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def requirements(recipe: Recipe) -> dict[str, str]:
    """Map each component to the Python requirement of its pin, with the extras that other components ask for."""
    found = {}
    for name in recipe.pins:
        if text := recipe.requirement(name):
            asked = [part for other in recipe.pins for part in recipe.provider(other).extras.get(name, [])]
            found[name] = _with_extras(text, asked) if asked else text
    return found


def _with_extras(text: str, extras: list[str]) -> str:
    wanted = Requirement(text)
    wanted.extras |= set(extras)
    return str(wanted)


def build_requirements(recipe: Recipe) -> list[str]:
    """Return the requirements that compile stages and the devel twin install beside the image's own.

    The list is empty if no image of the lock has compilers, because none would install them.
    """
    if not any(twin.has_compilers for twin in twins(recipe)):
        return []
    said = [
        for_accelerator(text, recipe.variant.accelerator).format(
            version=pin.version, accelerator=recipe.variant.accelerator
        )
        for name, pin in recipe.pins.items()
        for text in recipe.provider(name).build_requirements
    ]
    return [text for text in said if text]


def twins(recipe: Recipe) -> list[Recipe]:
    """Return the images that share a lock: the one without compilers, and its twin with them."""
    return list(_twins(recipe.intent, recipe.variant.lock))


@once_per_intent
def _twins(intent: Intent, name: str) -> list[Recipe]:
    found = (recipe for recipe in intent.recipes if recipe.variant.lock == name)
    return sorted(found, key=lambda recipe: recipe.variant.devel)


def distribution_packages(intent: Intent, base: str) -> list[str]:
    """Return the packages that a base's lock holds: its own, and those that any image on it needs for a component.

    All images on a base have the same packages, so that they share its layer.
    """
    return list(_distribution_packages(intent, base))


@once_per_intent
def _distribution_packages(intent: Intent, base: str) -> tuple[str, ...]:
    found = set(intent.components.bases[base].packages)
    for recipe, pin in _pins_on(intent, base):
        found.update(recipe.packages(recipe.provider(pin).packages))
    return tuple(sorted(found))


def build_packages(intent: Intent, base: str) -> list[str]:
    """Return the packages that compile stages add to the base; no finished image has them."""
    return list(_build_packages(intent, base))


@once_per_intent
def _build_packages(intent: Intent, base: str) -> tuple[str, ...]:
    found = set[str]()
    for recipe, pin in _pins_on(intent, base):
        found.update(recipe.packages(recipe.provider(pin).build_packages))
    return tuple(sorted(found))


def _pins_on(intent: Intent, base: str) -> Iterator[tuple[Recipe, str]]:
    return ((recipe, pin) for recipe in intent.recipes if recipe.variant.base == base for pin in recipe.pins)


def intent_digest(recipe: Recipe) -> str:
    """Return the digest of what a lock was resolved from; the lock is stale as soon as it changes."""
    return _intent_digest(recipe.intent, recipe.variant.lock, recipe.variant.base)


@once_per_intent
def _intent_digest(intent: Intent, name: str, base_name: str) -> str:
    facts = []
    for twin in (recipe.variant for recipe in _twins(intent, name)):
        chosen = {name: _resolved(intent, name, pin, twin.accelerator) for name, pin in twin.pins.items()}
        facts.append([twin.accelerator, twin.python, chosen])
    tools = [intent.components.tools.python_tools, intent.components.tools.sdist_build]
    base = intent.components.bases[base_name]
    machine = [base.architecture] if base.architecture != "amd64" else []  # older locks omit amd64
    return digest([facts, tools, base.glibc, *machine])


@once_per_intent
def _resolved(intent: Intent, name: str, pin: Pin, accelerator: str) -> list[object]:
    """Return the facts of a component that determine its lock; how it is installed does not."""
    component = intent.components.components[name]
    provider = component.provider(pin.provider).model_copy(update={"packages": [], "build_packages": []})
    release = component.releases.get(pin.version, Release())
    unsaid = [field for field in ("in_base", "extras", "own") if not getattr(provider, field)]
    facts = provider.model_dump(mode="json", exclude={"installs", "refuses", "compile", *unsaid})
    chosen = {  # the values of other accelerators have no effect here
        "requirement": for_accelerator(provider.requirement, accelerator),
        "index": provider.index.get(accelerator, ""),
        "build_requirements": [for_accelerator(text, accelerator) for text in provider.build_requirements],
        "replaces": for_accelerator(provider.replaces, accelerator),
    }
    return [pin.model_dump(), [facts | chosen, release.commit, release.sha256]]


def release_of(recipe: Recipe, name: str) -> Release:
    """Return the known facts of the pinned version; an empty Release if none are declared."""
    return recipe.component(name).releases.get(recipe.pins[name].version, Release())


def packages_digest(intent: Intent, base: str, names: list[str], below: str = "") -> str:
    """Return the intent digest of packages on a base. `below` is the manifest digest of the packages below them."""
    return digest([base_facts(intent.components.bases[base]), names, *([below] if below else [])])


def base_facts(base: Base) -> dict[str, object]:
    other = {"snapshots", "glibc", "packages", "family", "environment", "evidence", "awaits", "left_out", "kept"}
    facts = base.model_dump(mode="json", exclude=other)
    usual = {"sections": ["main"], "manager": "apt"}  # older locks omit these defaults
    return {name: value for name, value in facts.items() if usual.get(name) != value}


def dump(lock: Lock) -> str:
    """Return a lock as TOML: sorted, one table per file, without index addresses (they differ between hosts)."""
    import tomlkit  # imported lazily: most commands only read locks

    document = tomlkit.document()
    document.add(tomlkit.comment("Written by `trainwright lock`; a person reads it, nobody edits it."))
    document["intent"] = lock.intent
    document["entries"] = lock.entries
    if not lock.python:
        document["python"] = []
    head = tomlkit.dumps(document)
    files = [_table(entry.model_dump_json()) for entry in sorted(lock.python, key=lambda one: (one.group, one.name))]
    document = tomlkit.document()
    if lock.sources:
        sources = tomlkit.aot()
        for source in sorted(lock.sources, key=lambda source: source.name):
            table = tomlkit.table()
            table.update(source.model_dump(mode="json", exclude_defaults=True))
            sources.append(table)
        document["sources"] = sources
    if lock.compiled:
        document["compiled"] = [entry.model_dump() for entry in sorted(lock.compiled, key=lambda entry: entry.name)]
    if lock.brought:
        document["brought"] = dict(sorted(lock.brought.items()))
    if lock.overlaps:
        document["overlaps"] = [entry.model_dump() for entry in lock.overlaps]
    return "\n".join(filter(None, [head, *files, tomlkit.dumps(document)]))


@lru_cache(maxsize=8192)
def _table(entry: str) -> str:
    """Return a Python file, given as JSON, as TOML: many locks have the same ones, and tomlkit is slow."""
    import tomlkit

    table = tomlkit.table()
    table.update(json.loads(entry))
    return "[[python]]\n" + tomlkit.dumps(table)


def entries_digest(files: Iterable[PythonFile], overlaps: Iterable[Overlap] = ()) -> str:
    """Return a digest over every field of files and overlaps, so that a removed or edited entry is detected."""
    words = [entry.model_dump(mode="json", exclude_defaults=True) for entry in files]
    words.sort(key=lambda entry: (entry["group"], entry["name"]))
    return digest(words + [entry.model_dump(mode="json") for entry in overlaps])


def python_name(recipe: Recipe, name: str) -> str:
    """Return the Python package of a pinned component, or "" if it has none."""
    return name_of(recipe.requirement(name))


@cache
def name_of(text: str) -> str:
    """Return the normalized name of a Python requirement, or "" for an empty one."""
    return canonicalize_name(Requirement(text).name) if text else ""


def check(recipe: Recipe, lock: Lock, packages: Iterable[Package]) -> None:
    """Check that the lock matches the intent and has everything that the image needs. Raises LockError."""
    where = recipe.variant.lock_file
    if lock.intent != intent_digest(recipe):
        raise StaleLock(
            f"the lock of {recipe.id} is stale",
            where=where,
            why="what it was resolved from has changed since: matrix.toml, bases.toml, tools.toml or layers/*.toml",
            fix=RELOCK.format(id=recipe.id),
        )
    # Tools and build requirements of source distributions never reach the image, so they do not satisfy any other need.
    installed = recipe.installed(lock)
    groups = {group: {e.name for e in lock.python if e.group == group} for group in ("tools", "sdist-build")}
    whole = {entry.name for entry in lock.python if entry.group not in groups}
    sources = {source.name: source for source in lock.sources}
    present = {package.name for package in packages}

    def missing(what: str, why: str) -> LockError:
        return LockError(f"{what} is missing from the lock", where=where, why=why, fix=RELOCK.format(id=recipe.id))

    for name, pin in recipe.pins.items():
        provider = recipe.provider(name)
        if package := python_name(recipe, name):
            entry = installed.get(package)
            if entry is None:
                raise missing(f"pin {name}", f"{recipe.id} pins {name} = {pin.version}")
            if Version(Version(entry.version).public) != Version(pin.version):
                raise missing(f"pin {name} {pin.version}", f"the lock holds {entry.version}")
        if provider.kind in ("source", "file"):
            _check_source(recipe, name, sources.pop(name, None), missing)
        for package in recipe.packages(provider.packages):
            if package not in present:
                raise missing(f"package {package}", f"component {name} takes it from the distribution")
    for package in distribution_packages(recipe.intent, recipe.variant.base):
        if package not in present:
            raise missing(f"package {package}", f"base {recipe.variant.base} requires it")
    for group, tools in (
        ("tools", recipe.tools.python_tools),
        ("sdist-build", recipe.tools.sdist_build),
    ):
        for tool in tools:
            if canonicalize_name(tool) not in groups[group]:
                raise missing(f"build tool {tool}", "the build cannot install Python packages without it")
    for entry in lock.python:
        for need in entry.needs:
            if need not in groups.get(entry.group, whole):
                raise missing(f"Python package {need}", f"{entry.name} {entry.version} requires it")
    if sources:
        raise LockError(
            f"the lock contains a source that is not pinned: {min(sources)}",
            where=where,
            why=f"{recipe.id} is not built from it: the lock was edited",
            fix=RELOCK.format(id=recipe.id),
        )
    if entries_digest(lock.python, lock.overlaps) != lock.entries:
        raise LockError(
            f"the lock of {recipe.id} was changed by hand",
            where=where,
            why="its files are not the ones that `trainwright lock` wrote: one was removed or edited",
            fix=RELOCK.format(id=recipe.id),
        )


def _check_source(recipe: Recipe, name: str, source: Source | None, missing: Callable[[str, str], LockError]) -> None:
    """Check that a locked source is the one in its component's release, because only the release has evidence."""
    pin, release = recipe.pins[name], release_of(recipe, name)
    if source is None or source.version != pin.version:
        raise missing(f"source {name} {pin.version}", f"{recipe.id} is built from it")
    if (source.commit, source.sha256) != (release.commit, release.sha256):
        raise missing(
            f"source {name} {pin.version}",
            f"the lock has {source.commit or source.sha256 or 'nothing'}, dockerfiles/layers/{name}.toml "
            f"{release.commit or release.sha256 or 'nothing'}",
        )


def pin_versions(recipe: Recipe, lock: Lock, packages: Mapping[str, Package]) -> dict[str, str]:
    """Map components to exact versions: of the Python file, the source, the bundle, or the first package."""
    locked = {entry.name: entry.version for entry in lock.python}
    versions = {}
    for name, pin in recipe.pins.items():
        provider = recipe.provider(name)
        if package := python_name(recipe, name):
            versions[name] = locked[package]
        elif provider.kind == "bundled":
            versions[name] = bundled(recipe.intent.components, recipe.variant, name) or NOT_ESTABLISHED
        elif provider.kind == "distro":
            names = recipe.packages(provider.packages)
            if not names:
                raise ConfigError(
                    f"component {name!r} does not name a distribution package",
                    where=f"dockerfiles/layers/{name}.toml: [providers.{pin.provider}]",
                    why="its version is that of the first entry in `packages`",
                )
            versions[name] = packages[names[0]].version
        elif provider.kind == "base":
            versions[name] = lock.brought.get(name) or pin.version or NOT_ESTABLISHED
        else:
            versions[name] = pin.version
    return versions


def refuse_blocked(recipe: Recipe, missing: list[str], where: str = "", fix: str = "") -> None:
    """Raise LockError for a blocked image: it can be shown, not built or published. By default `where` is its lock."""
    if missing:
        raise LockError(
            f"{recipe.id} is blocked: {'; '.join(missing)}",
            where=where or recipe.variant.lock_file,
            why="every input of an image must have a checksum, a commit or a signature",
            fix=fix or f"add what is missing to dockerfiles/, with the evidence; then trainwright lock {recipe.id}",
        )


def without_digest(recipe: Recipe) -> list[str]:
    """Return the image that compilers are copied from, in a sentence, if it is not pinned by digest.

    The digest of a base is in its lock.
    """
    name = recipe.toolkit.reference if recipe.toolkit else ""
    return [f"{name}: digest {NOT_ESTABLISHED}"] if name and not DIGEST.search(name) else []


def blocked(lock: Lock, versions: Mapping[str, str]) -> list[str]:
    """Return what the lock does not establish (a checksum, commit or version), one sentence each.

    An image with any can be shown, but not built or published."""
    missing = [
        f"{source.name} {source.version}: {'commit' if source.tag else 'sha256'} not established"
        for source in lock.sources
        if not source.commit and not source.sha256
    ]
    return missing + [f"{name}: version {NOT_ESTABLISHED}" for name in versions if versions[name] == NOT_ESTABLISHED]
