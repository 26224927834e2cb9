"""Find the images that hold a version of a component, a Python package or a package of the distribution."""

import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from types import MappingProxyType
from typing import NamedTuple

from packaging.utils import canonicalize_name

from trainwright.core import versions
from trainwright.core.errors import ConfigError, did_you_mean
from trainwright.core.toml import Model
from trainwright.lock.facts import versions_of
from trainwright.matrix.matrix import Recipe
from trainwright.matrix.model import Lock, Package


class Held(Model):
    """One component or package in an image."""

    id: str
    what: str  # component, Python package, distribution package
    name: str
    version: str


class Query(NamedTuple):
    """A parsed query; `exactly` is set if the prefix is not a plain number, such as 2.6.0amzn1.0."""

    name: str
    range: str
    exactly: str = ""

    def fits(self, held: Held) -> bool:
        if canonicalize_name(held.name) != canonicalize_name(self.name):
            return False
        try:
            if self.exactly:
                return versions.parse(held.version) == versions.parse(self.exactly)
            return versions.within(held.version, self.range)
        except ValueError:  # the package's version is not a valid version number
            return False


def query(text: str, option: str = "--has") -> Query:
    """Parse `nccl`, `nccl=2.30` (2.30 and every version below that prefix), or `nccl>=2.29`. Raises ConfigError."""
    match = re.fullmatch(r"([A-Za-z0-9][A-Za-z0-9._+-]*)\s*(.*)", text.strip())
    name, rest = (match[1], match[2]) if match else ("", text)
    try:
        if not name:
            raise ValueError("it does not start with a name")
        if re.match(r"=[^=]", rest):
            prefix = rest[1:].strip().removesuffix(".*")
            versions.parse(prefix)
            plain = re.fullmatch(r"\d+(\.\d+)*", prefix)
            return Query(name, f"=={prefix}.*") if plain else Query(name, ">=0", exactly=prefix)
        versions.specifiers(rest or ">=0")
    except ValueError as error:
        raise ConfigError(
            f"{option} {text!r} is not a valid query", why=str(error), fix="trainwright find --has nccl=2.30"
        ) from None
    return Query(name, rest or ">=0")


def holdings(recipe: Recipe, locked: Lock | None, packages: Mapping[str, Package]) -> list[Held]:
    """Return everything in one image that has a name and a version."""
    components = versions_of(recipe, locked, packages)
    found = [Held(id=recipe.id, what="component", name=name, version=components[name]) for name in components]
    for entry in recipe.installed(locked).values():
        found.append(Held(id=recipe.id, what="Python package", name=entry.name, version=entry.version))
    for package in packages.values():
        found.append(Held(id=recipe.id, what="distribution package", name=package.name, version=package.version))
    return found


def find(
    queries: Iterable[Query],
    images: Mapping[str, list[Held]],
    components: Iterable[str],
    ready: Mapping[str, str] = MappingProxyType({}),
) -> tuple[list[Held], str]:
    """Return the matches in images that match every query; if no image does, also which versions exist.

    Raises ConfigError for a name that no image holds; `ready` has the recipes for --with: name, and how.
    """
    queries, everything = list(queries), [held for image in images.values() for held in image]
    known = {canonicalize_name(held.name) for held in everything} | {*components}
    for asked in queries:
        if canonicalize_name(asked.name) not in known:
            near = get_close_matches(canonicalize_name(asked.name), sorted(known), n=3)
            if file := ready.get(canonicalize_name(asked.name)):
                fix = f"trainwright build {file}; trainwright list says whether it is blocked"
                raise ConfigError(f"no image holds {asked.name}", why="a recipe puts it on top of one", fix=fix)
            raise ConfigError(
                f"no image holds anything named {asked.name!r}",
                why=did_you_mean(asked.name, {*components, *near}),
                fix=f"trainwright find --has {near[0]}" if near else "trainwright list",
            )
    rows: list[Held] = []
    for image in images.values():
        hits = [[held for held in image if asked.fits(held)] for asked in queries]
        if all(hits):
            rows += _once(held for part in hits for held in part)
    return rows, "" if rows else "; ".join(_exists(asked, everything) for asked in queries)


def _once(hits: Iterable[Held]) -> list[Held]:
    """Merge a component and the Python package of the same name and version into one row."""
    found: dict[tuple[str, str], Held] = {}
    for held in hits:
        found.setdefault((canonicalize_name(held.name), held.version), held)
    return list(found.values())


def _exists(asked: Query, everything: list[Held]) -> str:
    """Return a sentence that lists which versions of a name the locks have, oldest first."""
    any_version = Query(asked.name, ">=0")
    there = sorted({held.version for held in everything if any_version.fits(held)}, key=versions.parse)
    if not there:
        return f"no lock states a version of {asked.name}"
    return f"{asked.name} exists as {', '.join(there)}"
