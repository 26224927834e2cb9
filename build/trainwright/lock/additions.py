"""Validate the packages that a requirements file adds to an image, and the lock that was resolved from it. Pure."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version
from pydantic import Field

from trainwright.core.errors import ConfigError, IncompatibleError, LockError
from trainwright.core.toml import Model, line_of, load
from trainwright.lock.lockfile import digest, entries_digest, twins
from trainwright.lock.requirements import Asked, Line
from trainwright.lock.wheels import is_wheel, marker_environment
from trainwright.matrix.matrix import Recipe
from trainwright.matrix.model import IN_BASE, Base, Lock, PythonFile

FILE = "dockerfiles/additions.toml"
NAME = r"[a-z0-9]([a-z0-9.-]{0,30}[a-z0-9])?"  # it is part of a tag


class Compilable(Model):
    """The rules for compiling a source distribution against the image's own torch and CUDA."""

    environment: dict[str, str] = Field(default={})
    build_requirements: list[str] | None = None  # None: those of the package's pyproject.toml
    gigabytes_per_job: int = 2  # of memory
    imports: str = ""  # the module whose import shows, without a GPU, that all libraries are there
    device_code: bool = False  # the wheel must hold machine code for each GPU of the image
    evidence: str = ""


class Refused(Model):
    """A package that an image holds at most once."""

    why: str  # what a second copy would do
    component: str = ""  # the pin that marks an image that holds it, whichever package or source it comes from


class Ready(Model):
    """A requirements file of this repository, locked against one image."""

    image: str
    requirements: str  # path below the root
    blocked: str = ""  # why it cannot be compiled against that image
    evidence: str = ""
    instead: str = ""  # what a user does who wanted it


class Additions(Model):
    """The content of additions.toml."""

    refused: dict[str, Refused]  # glob of a package's name to why an image with such a package cannot get a second one
    packages: dict[str, Compilable]
    recipes: dict[str, Ready] = Field(default={})
    lacking: dict[str, str] = Field(default={})  # library to why an image without CUDA lacks it

    def blocked(self, recipe: Recipe) -> list[str]:
        """Return why a requirements file of this repository cannot be compiled against this image; [] if it can."""
        return [row.blocked for row in self._blocked(recipe).values()]

    def refuse_blocked(self, recipe: Recipe) -> None:
        """Raise LockError for a requirements file of this repository that cannot be compiled against this image."""
        for name, row in self._blocked(recipe).items():
            raise LockError(
                f"{row.requirements} is blocked on {row.image}: {row.blocked}",
                where=f"[recipes.{name}] of {FILE}, where trainwright's maintainers blocked it",
                why=row.evidence,
                fix=row.instead,
            )

    def _blocked(self, recipe: Recipe) -> dict[str, Ready]:
        asked = (recipe.variant.parent, Path(recipe.variant.requirements).resolve())
        rows = {name: row for name, row in self.recipes.items() if row.blocked}
        return {
            name: row for name, row in rows.items() if (row.image, (recipe.root / row.requirements).resolve()) == asked
        }

    def ready(self, images: Collection[str]) -> list[dict[str, str]]:
        """Return a row for each requirements file of this repository that goes on top of one of these images."""
        return [
            {
                "on top": name,
                "of": row.image,
                "state": "blocked" if row.blocked else "locked",
                "how": row.blocked or f"--with {row.requirements} --name {name}",
            }
            for name, row in sorted(self.recipes.items())
            if row.image in images
        ]


def settings(root: Path) -> Additions:
    return load(root / FILE, Additions)


def on_top(parent: Recipe, requirements: str, name: str = "") -> Recipe:
    """Return the image that a requirements file makes of another one.

    Raises ConfigError if `name` does not match NAME.
    """
    name = name_of(requirements, name)
    own = {"id": f"{parent.id}-with-{name}", "parent": parent.id, "requirements": requirements}
    return replace(parent, variant=parent.variant.model_copy(update={**own, "default": False, "tested": False}))


def name_of(requirements: str, name: str = "", fix: str = "") -> str:
    """Return what a requirements file adds to an image's id: `name`, or the file's own name in the form of an id.

    `fix` is what helps if it does not match NAME. Raises ConfigError.
    """
    name = name or re.sub(r"[^a-z0-9]+", "-", Path(requirements).stem.lower()).strip("-")
    if not re.fullmatch(NAME, name):
        raise ConfigError(
            f"{name!r} cannot be part of an image's name",
            why=f"it does not match {NAME}",
            fix=fix or f"--with {requirements} --name team",
        )
    return name


def parent_of(recipe: Recipe) -> Recipe:
    return recipe.intent.recipe(recipe.variant.parent)


def lock_path(recipe: Recipe) -> Path:
    """Return the lock's path: beside the requirements file, for the team's review, and another one for each image."""
    path = Path(recipe.variant.requirements)
    return path.with_name(f"{path.stem}.{recipe.variant.lock}.lock.toml")


def held(recipe: Recipe, lock: Lock) -> list[PythonFile]:
    """Return the Python packages of the image below; their versions never change."""
    return [entry for entry in recipe.installed(lock).values() if entry.group != "added"]


def applies(line: Line, python: str, base: Base) -> bool:
    """Return whether the line's marker is true in the image."""
    marker = Requirement(line.text).marker
    return marker is None or marker.evaluate(marker_environment(python, base))


def to_compile(known: Additions, asked: Asked) -> dict[str, Compilable]:
    """Return the packages to compile against the image's torch: those of additions.toml and of marked lines."""
    found = dict(known.packages)
    for line in asked.lines:
        if line.compile:
            row = found.get(line.name, Compilable())
            found[line.name] = row.model_copy(update={"environment": row.environment | line.environment})
    return found


def lines_of(asked: Asked) -> list[list[object]]:
    """Return what a lock depends on of a file: its lines, without places and comments."""
    lines: list[object] = [[line.text, sorted(line.hashes), line.compile] for line in asked.lines]
    return [lines, [line.text for line in asked.constraints]]


def intent_digest(recipe: Recipe, lock: Lock, asked: Asked, known: Additions) -> str:
    """Return the digest of what a lock is resolved from: the file's lines, and the versions in the image below."""
    base = recipe.base
    rows = {name: row.build_requirements for name, row in known.packages.items()}
    image = [f"{entry.name}=={entry.version}" for entry in sorted(held(recipe, lock), key=lambda entry: entry.name)]
    place = [recipe.variant.python, base.glibc, base.architecture]
    tools = recipe.tools.sdist_build
    return digest([*lines_of(asked), rows, image, place, tools])


def check_line(line: Line, version: str, what: str, elsewhere: str = "") -> None:
    """Check that the image's own version satisfies the line.

    `what` says which image has that version and why it counts, `elsewhere` how to get an image that has another one.
    Raises IncompatibleError if not, because the image wins.
    """
    requirement = Requirement(line.text)
    if not requirement.specifier.contains(Version(version), prereleases=True):
        raise IncompatibleError(
            f"{line.text} would change {line.name} {version}",
            where=line.where,
            why=f"{what} {line.name} {version}; added packages must not change it",
            fix=f"write {line.name}{_any_extras(requirement)} without a version there; or "
            + (elsewhere or f"use an image that has it: trainwright find --has '{line.name}{requirement.specifier}'"),
        )


def _any_extras(requirement: Requirement) -> str:
    return f"[{','.join(sorted(requirement.extras))}]" if requirement.extras else ""


def harms(known: Additions, recipe: Recipe, lock: Lock) -> dict[str, str]:
    """Map globs of package names to why they are refused: the image already holds a component of that kind.

    If the image's base brings the framework, the image's content is not listed, so all globs apply.
    """
    names = [entry.name for entry in held(recipe, lock)]
    unknown = any(
        pin.provider == IN_BASE and recipe.component(name).position == "framework" for name, pin in recipe.pins.items()
    )
    return {
        glob: row.why
        for glob, row in known.refused.items()
        if unknown or row.component in recipe.pins or any(fnmatchcase(name, glob) for name in names)
    }


def refused(harms: Mapping[str, str], names: Sequence[str]) -> tuple[str, str]:
    """Return the first of these packages that the image must not get on top, and why; ("", "") if there is none."""
    for name in names:
        for glob, why in harms.items():
            if fnmatchcase(name, glob):
                return name, why
    return "", ""


def compiler_of(recipe: Recipe, name: str) -> Recipe:
    """Return the image that compiles `name` against an image's torch: its devel twin; without CUDA, the image itself.

    Raises ConfigError if it has no devel twin.
    """
    parent = recipe.variant
    if parent.devel or "cuda" not in parent.pins:
        return recipe
    twin = next((other for other in twins(recipe) if other.variant.devel), None)
    if twin is None:
        where = "dockerfiles/matrix.toml"
        line = line_of((recipe.root / where).read_text(), ("frameworks", parent.framework, "rows", parent.row))
        raise ConfigError(
            f"{name} must be compiled against torch and CUDA, and {parent.id} has no twin with compilers",
            where=f"{where}:{line}",
            why="the image itself does not contain nvcc",
            fix=f"set devel = true in that row, then trainwright lock {parent.id}",
        )
    return twin


def environment(row: Compilable, architectures: Sequence[str]) -> dict[str, str]:
    """Return the environment variables of a compilation for these GPUs ("80", "90"; empty without CUDA)."""
    torch = ";".join(f"{own[:-1]}.{own[-1]}" for own in architectures)
    words = {"architectures": ";".join(architectures), "torch_architectures": torch}
    own = {name: value.format(**words) for name, value in row.environment.items()}
    return ({"TORCH_CUDA_ARCH_LIST": torch} if torch else {}) | own


def check(recipe: Recipe, image: Lock, found: Lock, asked: Asked, known: Additions) -> None:
    """Validate a lock. Raises LockError if it is for another file or another image, or lacks a package."""
    where, fix = str(lock_path(recipe)), f"trainwright lock {recipe.words}"
    if found.intent != intent_digest(recipe, image, asked, known):
        raise LockError(
            f"the lock of {recipe.id} is stale",
            where=where,
            why=f"{recipe.variant.requirements}, or what {recipe.variant.parent} holds, has changed since",
            fix=fix,
        )
    if entries_digest(found.python, found.overlaps) != found.entries:
        raise LockError(f"the lock of {recipe.id} was changed by hand", where=where, fix=fix)
    base = recipe.base
    added = {entry.name: entry for entry in found.python if entry.group == "added"}
    present = {entry.name for entry in held(recipe, image)} | added.keys()
    for line in asked.lines:
        if applies(line, recipe.variant.python, base) and line.name not in present:
            raise LockError(f"{line.text} is missing from the lock", where=where, why=line.where, fix=fix)
    for entry in added.values():
        for need in entry.needs:
            if need not in present:
                raise LockError(
                    f"Python package {need} is missing from the lock",
                    where=where,
                    why=f"{entry.name} {entry.version} requires it",
                    fix=fix,
                )
    held_compiled = {entry.name for entry in found.compiled}
    wanted = {name for name in added.keys() & to_compile(known, asked).keys() if not is_wheel(added[name])}
    if held_compiled != wanted:
        raise LockError(f"the lock of {recipe.id} lists the wrong packages as compiled", where=where, fix=fix)


def check_hashes(line: Line, entry: PythonFile) -> None:
    """Check the file's hash. Raises LockError if the line names hashes and the file's sha256 is not among them."""
    if line.hashes and str(canonicalize_name(entry.name)) == line.name and entry.sha256 not in line.hashes:
        raise LockError(
            f"{entry.file} does not match any hash in its line",
            where=line.where,
            why=f"the index offers sha256 {entry.sha256}; the line allows {', '.join(line.hashes)[:200]}",
            fix="find out who changed the file before you change the line",
        )
