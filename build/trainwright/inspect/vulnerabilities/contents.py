"""List what an image holds, by the names that advisories use: from its SBOM, or from its lock before it is built."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs, unquote

from packaging.utils import canonicalize_name

from trainwright.build import state
from trainwright.core import toml
from trainwright.image import inputs, probe
from trainwright.inspect.vulnerabilities.model import PYPI, NotCovered, Package
from trainwright.inspect.vulnerabilities.settings import FILE, Settings
from trainwright.lock.facts import versions_of
from trainwright.matrix.matrix import Recipe
from trainwright.publish import sbom as sboms

PURL = re.compile(r"pkg:(?P<kind>[^/]+)/(?P<path>[^@?#]*)(?:@(?P<version>[^?#]*))?(?:\?(?P<more>[^#]*))?.*")
REBUILD = re.compile(r"\+b\d+$")  # a binary package that Debian built again from the same source
NO_ADVISORIES = ("source", "file", "bundled", "base")  # kinds of provider that install no package of an ecosystem
COMPILED = "compiled, or from an installer or the base image, under no name that advisories use"
NO_LOCK = "its lock is missing or stale: trainwright lock"
NO_VERSION = "the lock does not say the source package's version, an SBOM does"
NO_SOURCE = "packages of the base image, whose source packages the lock does not say"


class Contents(NamedTuple):
    """What is in one image, and what no advisory can be found for."""

    id: str
    source: str  # SBOM, lock or "" for neither
    packages: dict[Package, list[str]]  # to the installed packages that are made of it
    not_covered: list[NotCovered]


def of_recipe(recipe: Recipe, said: Settings) -> Contents:
    """Return the contents of an image: by the SBOM in out/<id>/ if it is of the present inputs, else by the locks."""
    folder = state.out_folder(recipe)
    bill = folder / "sbom.json"
    if bill.exists() and _is_present(recipe, folder):
        name = f"out/{recipe.id}/sbom.json"
        text = toml.read(bill, name, fix=f"rm {name}; trainwright build {recipe.id} writes it again")
        return of_sbom(recipe.id, toml.parse_json(text, name, f"rm {name}"), recipe, said)
    return of_lock(recipe, said)


def _is_present(recipe: Recipe, folder: Path) -> bool:
    image = state.read_image(folder)
    return bool(image and not inputs.awaited(recipe) and inputs.load(recipe).key == image.key)


def of_lock(recipe: Recipe, said: Settings) -> Contents:
    """Return the contents by the locks, where the source package's version is that of its binary packages."""
    locked, held, _ = inputs.known(recipe)
    found, missing = dict[Package, list[str]](), _without_package(recipe)
    if locked is None:
        missing.append(NotCovered(what="Python packages", why=NO_LOCK, ecosystem=True))
    for entry in recipe.installed(locked).values():
        found.setdefault(Package(PYPI, str(canonicalize_name(entry.name)), entry.version), []).append(entry.name)
    ecosystem = said.suites.get(recipe.base.distribution, {}).get(recipe.base.suite, "")
    if recipe.base.manager == "dnf" or not ecosystem:
        what = f"packages of {recipe.base.distribution} {recipe.base.suite}"
        missing.append(NotCovered(what=what, why=f"{FILE} has no ecosystem for them", ecosystem=True))
    elif not held:
        missing.append(NotCovered(what=f"packages of {ecosystem}", why=NO_LOCK, ecosystem=True))
    else:
        _distribution(found, missing, ecosystem, held.values(), said)
    return Contents(recipe.id, "lock" if locked or held else "", found, missing)


def _distribution(
    found: dict[Package, list[str]], missing: list[NotCovered], ecosystem: str, held: Iterable[Any], said: Settings
) -> None:
    """Add a distribution's source packages; a lock has them as folders: pool/main/g/glibc/libc6_2.41_amd64.deb."""
    sources, unknown = dict[str, dict[str, list[str]]](), set[str]()
    for package in held:
        if not package.sha256 or "/" not in package.filename:
            missing.append(NotCovered(what=package.name, why=NO_SOURCE))
            continue
        source = package.filename.split("/")[-2]
        if package.name in said.numbered_otherwise.binaries or source in said.numbered_otherwise.sources:
            unknown.add(source)
            continue
        sources.setdefault(source, {}).setdefault(REBUILD.sub("", package.version), []).append(package.name)
    for source, versions in sources.items():
        for version, names in versions.items():
            found[Package(ecosystem, source, version)] = sorted(names)
    missing += [NotCovered(what=source, why=NO_VERSION) for source in sorted(unknown - sources.keys())]


def of_sbom(name: str, sbom: Mapping[str, Any], recipe: Recipe | None, said: Settings) -> Contents:
    """Return the contents by a CycloneDX SBOM; `recipe` says what its components install, None if it is not known."""
    found, others = dict[Package, list[str]](), dict[str, list[str]]()
    components = [one for one in sbom.get("components") or [] if isinstance(one, dict)]
    debs = sboms.packages({"components": components}, "deb")
    ours = probe.installed_by_pins(recipe, debs) if recipe else {}
    for one in components:
        if not (purl := PURL.fullmatch(str(one.get("purl", "")))):
            continue
        kind, own = purl["kind"], unquote(purl["path"].rpartition("/")[2])
        version = unquote(purl["version"] or "")
        more = {key: values[-1] for key, values in parse_qs((purl["more"] or "").replace("+", "%2B")).items()}
        if kind == "pypi":
            found.setdefault(Package(PYPI, str(canonicalize_name(own)), version), []).append(own)
        elif kind == "deb" and own in ours:
            others.setdefault("installed by a component, not from the distribution", []).append(own)
        elif kind == "deb" and (ecosystem := _ecosystem(more.get("distro", ""), said)):
            source, _, number = more.get("upstream", "").partition("@")
            package = Package(ecosystem, source or own, number or version)
            found.setdefault(package, []).append(own)
        else:
            others.setdefault(f"{kind} packages are not looked up", []).append(own)
    missing = _without_package(recipe)
    missing += [NotCovered(what=one, why=what) for what, names in sorted(others.items()) for one in sorted(set(names))]
    return Contents(name, "SBOM", {one: sorted(set(names)) for one, names in found.items()}, missing)


def _ecosystem(distro: str, said: Settings) -> str:
    """Return OSV's ecosystem of a purl's `distro`, such as debian-12 or ubuntu-24.04, or ""."""
    name, _, release = distro.partition("-")
    wanted = f"{name.capitalize()}:{release}"
    return wanted if wanted in said.suites.get(name, {}).values() else ""


def _without_package(recipe: Recipe | None) -> list[NotCovered]:
    """Return the components that are compiled, or come from an installer: advisories name no package of theirs."""
    if recipe is None:
        return [NotCovered(what="what is compiled", why="this checkout does not know the image")]
    locked, packages, _ = inputs.known(recipe)
    versions = versions_of(recipe, locked, packages)
    return [
        NotCovered(what=f"{name} {versions.get(name, recipe.pins[name].version)}".strip(), why=COMPILED)
        for name in recipe.pins
        if recipe.provider(name).kind in NO_ADVISORIES
    ]
