"""Compare a finished image with its lock; scripts/probe.py collects the facts in the image, this module judges."""

from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any

from packaging.utils import canonicalize_name

from trainwright.core.errors import BuildError
from trainwright.core.progress import few
from trainwright.core.toml import Model
from trainwright.matrix.matrix import Recipe
from trainwright.matrix.model import Lock, Package
from trainwright.matrix.providers import is_compiled


class Findings(Model):
    """The output of scripts/probe.py."""

    versions: dict[str, str]  # component to the version that it reports
    libnccl: dict[str, str]  # every NCCL on disk to the version that it reports; "" if it reports none
    mapped: dict[str, list[str]]  # component (a Python process that loads it) or program to the NCCL it maps
    files: dict[str, dict[str, tuple[str, str]]]  # component to path to sha256 as built and as found; "": gone
    python_packages: dict[str, str]
    packages: dict[str, str]


def questions(recipe: Recipe, pins: Iterable[str]) -> dict[str, Any]:
    """Return the questions for scripts/probe.py about an image's components."""
    return {
        name: recipe.component(name).probe.model_dump(include={"command", "code", "pattern"}, exclude_defaults=True)
        for name in sorted(pins)
    }


def upstream_version(version: str) -> str:
    """Return the upstream part of a Debian version: that of `1:9.2p1-2+deb12u7` is 9.2p1, as the program reports."""
    without_epoch = version.partition(":")[2] or version
    return without_epoch.rpartition("-")[0] or without_epoch


def shown(pattern: str, version: str) -> str:
    """Format a version as a component shows it: `{major}.{minor}` of 13.2.2 is 13.2, `{release}` of 10.0p1 is 10.0."""
    parts = dict(zip(("major", "minor", "micro"), version.split("."), strict=False))
    parts["release"] = version[: len(version) - len(version.lstrip("0123456789."))]
    return pattern.format(version=version, **parts)


def expected_versions(recipe: Recipe, pins: Mapping[str, str]) -> dict[str, str]:
    """Return the version that each component's program or module should report."""
    expected = {}
    for name, version in pins.items():
        said = upstream_version(version) if recipe.provider(name).kind == "distro" else version
        expected[name] = shown(recipe.component(name).probe.shows, said)
    return expected


def version_differences(recipe: Recipe, pins: Mapping[str, str], found: Mapping[str, str]) -> list[str]:
    """Return the components that report another version than their pin."""
    wanted = expected_versions(recipe, pins)
    said = {}
    for name in wanted.keys() & found.keys():
        # A wheel of the public index is built for one accelerator, which only the module reports.
        public, _, local = found[name].partition("+")
        own = local == recipe.variant.accelerator and "+" not in wanted[name]
        said[name] = public if own else found[name]
    return list(_differences("component", wanted, said))


def _differences(what: str, wanted: Mapping[str, str], found: Mapping[str, str]) -> Iterable[str]:
    for name in sorted(wanted.keys() | found.keys()):
        if name not in wanted:
            yield f"{what} {name} {found[name]} is in the image and not in the lock"
        elif name not in found:
            yield f"{what} {name} {wanted[name]} is in the lock and not in the image"
        elif wanted[name] != found[name]:
            yield f"{what} {name}: the lock says {wanted[name]}, the image holds {found[name]}"


def nccl_differences(wanted: str | None, frameworks: Iterable[str], tested: bool, found: Findings) -> Iterator[str]:
    """Yield each violation of: one libnccl file, of the pinned version, which every process maps.

    `wanted` is the pin (None: no NCCL), `frameworks` the components that must map it, `tested` whether the image has
    nccl-tests, at least one program of which must map it as well.
    """
    copies = found.libnccl
    if len(copies) > 1:
        told = (f"{path} ({version or 'no version'}; {_users(path, found)})" for path, version in copies.items())
        yield f"more than one libnccl: {', '.join(told)}"
    for path, version in copies.items():
        if wanted is None:
            yield f"{path} ({version or 'no version'}; {_users(path, found)}) is in the image, NCCL is not in the lock"
        elif version != wanted:
            yield f"{path} reports NCCL {version or 'without a version'}, the lock says {wanted}; {_users(path, found)}"
    for who, paths in sorted(found.mapped.items()):
        if foreign := [path for path in paths if path not in copies]:
            yield f"{who} maps {', '.join(foreign)}, which is not a libnccl of the image"
        if len(paths) > 1:
            yield f"{who} maps more than one libnccl: {', '.join(paths)}"
    if wanted is not None:
        if not copies:
            yield f"libnccl {wanted} is in the lock and not in the image"
        for name in frameworks:
            if not found.mapped.get(name):
                yield f"a process that loads {name} does not map libnccl, and the lock says {wanted}"
        started = {who: paths for who, paths in found.mapped.items() if who.startswith("/")}
        if tested and not started:
            yield f"no program of nccl-tests could be started to check that it maps libnccl {wanted}"
        for who in sorted(started):
            if not started[who]:
                yield f"{who} refers to libnccl but maps none"


def _users(path: str, found: Findings) -> str:
    """Return a phrase with the processes that map this copy."""
    users = sorted(who for who, paths in found.mapped.items() if path in paths)
    return f"mapped by {', '.join(users)}" if users else "not mapped by any process"


def file_differences(compiled: Iterable[str], found: Findings) -> Iterator[str]:
    """Yield each compiled file that is missing, changed since the build, or claimed by two components."""
    owners: dict[str, str] = {}
    for name in sorted(compiled):
        if not found.files.get(name):
            yield f"component {name} was compiled and lists no files"
    for name, files in sorted(found.files.items()):
        for path, (built, there) in sorted(files.items()):
            if path in owners:
                yield f"two components claim {path}: {owners[path]} and {name}"
            owners.setdefault(path, name)
            if not there:
                yield f"component {name}: {path} is in its list of files and not in the image"
            elif built != there:
                yield f"component {name}: {path} is not the file that was built: {built}, in the image {there}"


def installed_by_pins(recipe: Recipe, found: Mapping[str, str]) -> dict[str, str]:
    """Return the packages found in the image that its pins install from a source other than apt's archives.

    They are part of a locked file, so its sha256 covers them; `image.json` records which they were.
    """
    globs = [glob for pin in recipe.pins for glob in recipe.provider(pin).installs]
    for name, pin in recipe.pins.items():
        flags = [flag for flag in recipe.component(name).flags if flag.applies(pin.version, recipe.base.family)]
        globs += [glob for flag in flags for glob in flag.installs]
    return {name: version for name, version in found.items() if any(fnmatchcase(name, glob) for glob in globs)}


def compare(
    recipe: Recipe, pins: Mapping[str, str], lock: Lock, packages: Mapping[str, Package], found: Findings
) -> list[str]:
    """Return every difference between lock and image, one sentence each; empty means declared = shipped."""
    python = {str(canonicalize_name(entry.name)): entry.version for entry in recipe.installed(lock).values()}
    distribution = {name: package.version for name, package in packages.items()}
    distribution |= installed_by_pins(recipe, found.packages)  # missing packages of the base are excluded
    parts = {name: recipe.component(name) for name in pins}
    frameworks = [name for name, part in parts.items() if part.position == "framework" and part.probe.maps_nccl]
    compiled = [name for name in pins if is_compiled(recipe.provider(name))]
    return [
        *version_differences(recipe, pins, found.versions),
        *_differences("Python package", python, found.python_packages),
        *_differences("distribution package", distribution, found.packages),
        *nccl_differences(pins.get("nccl"), frameworks, "nccl-tests" in pins, found),
        *file_differences(compiled, found),
    ]


def refuse(recipe: Recipe, differences: list[str]) -> None:
    """Raise BuildError with the first differences, if there are any."""
    if differences:
        raise BuildError(
            f"{recipe.id} differs from its lock: {differences[0]}",
            why=few(differences),
            where=recipe.variant.lock_file,
            fix=f"trainwright lock {recipe.words}, then trainwright build {recipe.words}",
        )
