"""The lock: exact facts, and whether they still answer the intent. Pure text in and out."""

import hashlib
import json
from collections.abc import Iterable

import tomlkit
from packaging.utils import canonicalize_name
from packaging.version import Version

from trainwright.errors import ConfigError, LockError
from trainwright.matrix import Intent
from trainwright.model import Base, Lock, Package, PythonFile, Variant

RELOCK = "trainwright lock --only {id}"


def digest(value: object) -> str:
    """sha256 (hex) of a value, over its canonical JSON."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def requirements(intent: Intent, variant: Variant) -> dict[str, str]:
    """Component to the Python requirement that its pin means."""
    found = {}
    for pin, version in variant.pins.items():
        component = intent.components.components[pin]
        if component.provider == "python":
            found[pin] = component.requirement.format(version=version, accelerator=variant.accelerator)
    return found


def distribution_packages(intent: Intent, base: str) -> list[str]:
    """What the bootstrap is asked for: the base's own, and those of every component any image on it takes.

    One base for all its images, so that they share its layer.
    """
    names = set(intent.components.bases[base].packages)
    for variant in intent.variants:
        if variant.base == base:
            for pin in variant.pins:
                names.update(intent.components.components[pin].packages)
    return sorted(names)


def intent_digest(intent: Intent, variant: Variant) -> str:
    """What a lock was resolved from; it is stale as soon as this changes."""
    used = {pin: intent.components.components[pin].model_dump(mode="json") for pin in variant.pins}
    for component in used.values():
        for words in ("licence", "summary"):  # they change no fact
            del component[words]
    facts = variant.model_dump(mode="json", exclude={"id", "default"})
    tools = [intent.components.python_tools, intent.components.sdist_build]
    return digest([facts, used, tools, intent.components.bases[variant.base].glibc])


def packages_digest(intent: Intent, base: str) -> str:
    """The same for the distribution packages of a base."""
    return digest([base_facts(intent.components.bases[base]), distribution_packages(intent, base)])


def base_facts(base: Base) -> dict[str, object]:
    return base.model_dump(mode="json", exclude={"snapshots", "glibc", "packages"})


def dump(lock: Lock) -> str:
    """A lock as TOML: sorted, one table a file, no address of any index (they differ from host to host)."""
    document = tomlkit.document()
    document.add(tomlkit.comment("Written by `trainwright lock`; a person reads it, nobody edits it."))
    document["intent"] = lock.intent
    document["entries"] = lock.entries
    tables = tomlkit.aot()
    for entry in sorted(lock.python, key=lambda entry: (entry.group, entry.name)):
        table = tomlkit.table()
        table.update(entry.model_dump(mode="json"))
        tables.append(table)
    document["python"] = tables
    return tomlkit.dumps(document)


def entries_digest(files: Iterable[PythonFile]) -> str:
    return digest(sorted([entry.group, entry.name, entry.version] for entry in files))


def check(intent: Intent, variant: Variant, lock: Lock, packages: Iterable[Package]) -> None:
    """Raises LockError when the lock answers another intent, or lacks something the image needs."""
    where = f"dockerfiles/locks/{variant.id}.toml"
    if lock.intent != intent_digest(intent, variant):
        raise LockError(
            f"the lock of {variant.id} is stale",
            where=where,
            why="matrix.toml or components.toml have changed since it was written",
            fix=RELOCK.format(id=variant.id),
        )
    # Tools and what source distributions are built with never reach the image: they do not stand in for anything.
    installed = {entry.name: entry for entry in lock.python if entry.group in ("framework", "toolkit")}
    groups = {group: {e.name for e in lock.python if e.group == group} for group in ("tools", "sdist-build")}
    present = {package.name for package in packages}

    def missing(what: str, why: str) -> LockError:
        return LockError(f"{what} is missing from the lock", where=where, why=why, fix=RELOCK.format(id=variant.id))

    for pin, version in variant.pins.items():
        component = intent.components.components[pin]
        if component.provider == "python":
            entry = installed.get(canonicalize_name(pin))
            if entry is None:
                raise missing(f"pin {pin}", f"{variant.id} pins {pin} = {version}")
            if Version(Version(entry.version).public) != Version(version):
                raise missing(f"pin {pin} {version}", f"the lock holds {entry.version}")
        for package in component.packages:
            if package not in present:
                raise missing(f"package {package}", f"component {pin} takes it from the distribution")
    for package in distribution_packages(intent, variant.base):
        if package not in present:
            raise missing(f"package {package}", f"base {variant.base} names it")
    for group, tools in (("tools", intent.components.python_tools), ("sdist-build", intent.components.sdist_build)):
        for name in tools:
            if canonicalize_name(name) not in groups[group]:
                raise missing(f"build tool {name}", "the build cannot install Python packages without it")
    for entry in lock.python:
        for need in entry.needs:
            if need not in groups.get(entry.group, installed):
                raise missing(f"Python package {need}", f"{entry.name} {entry.version} requires it")
    if entries_digest(lock.python) != lock.entries:
        raise missing(
            "an entry", "its files are not the ones that `trainwright lock` wrote: one was taken out or edited"
        )


def pin_versions(intent: Intent, variant: Variant, lock: Lock, packages: dict[str, Package]) -> dict[str, str]:
    """Component to its exact version: of the Python file, or of the first of its distribution packages."""
    locked = {entry.name: entry.version for entry in lock.python}
    versions = {}
    for pin in variant.pins:
        component = intent.components.components[pin]
        if component.provider == "python":
            versions[pin] = locked[canonicalize_name(pin)]
        elif component.packages:
            versions[pin] = packages[component.packages[0]].version
        else:
            raise ConfigError(
                f"component {pin!r} names no distribution package",
                where=f"dockerfiles/components.toml: [components.{pin}]",
                why='provider "distro" takes its version from the first of `packages`',
            )
    return versions
