"""Resolve the packages of a team's requirements file for the Python of an image of others, and say what they are."""

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from packaging.requirements import Requirement
from packaging.version import InvalidVersion, Version

from trainwright.core.errors import BuildError, ConfigError, IncompatibleError
from trainwright.core.progress import Progress, Say
from trainwright.graft.found import Found, Python
from trainwright.graft.wanted import File
from trainwright.inspect.explain import Explained
from trainwright.lock.lockfile import entries_digest
from trainwright.matrix.matrix import Recipe
from trainwright.matrix.model import Lock, PythonFile
from trainwright.resolve import with_packages
from trainwright.resolve.conflicts import Below


def of_the_image(python: Python) -> list[PythonFile]:
    """Return what the image's own Python holds, as entries of a lock: they stay, and none of their files is known.

    A version that pip cannot compare, such as one of conda's, is left out: no requirement can be checked against it.
    """
    return [
        PythonFile(name=name, version=version, file="", sha256="", size=0, group="base")
        for name, version in sorted(python.packages.items())
        if _comparable(version)
    ]


def _comparable(version: str) -> bool:
    try:
        Version(version)
    except InvalidVersion:
        return False
    return True


def onto(recipe: Recipe, found: Found, lock: Lock, file: File, say: Say, progress: Progress) -> Lock:
    """Return a graft's lock with the packages of a requirements file in the group `added`, from wheels alone.

    They are resolved as for an image of the matrix, and keep every package of the image and of the graft. Raises what
    with_packages.solved() raises.
    """
    python = found.python
    assert python is not None  # because the plan refuses an image without Python
    check(found, python, file)
    whole = lock.model_copy(update={"python": [*of_the_image(python), *lock.python]})
    place = f"out/{recipe.id}/graft.lock.toml"
    below = Below(name=found.reference, recipe=recipe, lock=whole, lock_file=place, made_by_others=True)
    more = with_packages.solved_upon(recipe, below, file.asked, say, progress)
    must_be_new(found, python, more.python, file)
    entries, overlaps = [*lock.python, *more.python], [*lock.overlaps, *more.overlaps]
    made = {"python": entries, "overlaps": overlaps, "entries": entries_digest(entries, overlaps)}
    return lock.model_copy(update=made)


def check(found: Found, python: Python, file: File) -> None:
    """Raise ConfigError for extras of a package that no public index has in this version, such as torch 2.13.0+cpu.

    What such an extra requires is in no index, and the image only says names and versions.
    """
    for line in file.asked.lines:
        version = python.packages.get(line.name, "")
        if "+" in version and (extras := Requirement(line.text).extras):
            raise ConfigError(
                f"what {line.name}[{','.join(sorted(extras))}] requires is not known",
                where=line.where,
                why=f"{found.reference} holds {line.name} {version}, which the public index does not have",
                fix="write the packages that this extra stands for in lines of their own",
            )


def must_be_new(found: Found, python: Python, entries: Iterable[PythonFile], file: File) -> None:
    """Raise IncompatibleError if a package to add is in the image in a version that pip cannot compare."""
    for entry in entries:
        if entry.name in python.packages:
            raise IncompatibleError(
                f"{entry.name} {entry.version} would replace {entry.name} {python.packages[entry.name]}",
                where=file.path,
                why=f"pip cannot compare the version that {found.reference} holds with another",
                fix=f"install {entry.name} with pip in the image, or leave out what requires it",
            )


@contextmanager
def refused(found: Found, file: File | None) -> Iterator[None]:
    """Turn the error of a build that dockerfiles/graft/refuse_overlaps.py ended into an IncompatibleError."""
    try:
        yield
    except BuildError as error:
        said = re.search(r"refuse_overlaps: (.+)", error.why)
        if not said or file is None:
            raise
        raise IncompatibleError(
            f"{file.path} would replace files of {found.reference}",
            where=file.path,
            why=f"{said[1]}: other packages of the image have them",
            fix="leave such packages out of the file, or remove the other ones from the image",
        ) from None


def named(recipe: Recipe, lock: Lock) -> list[str]:
    """Return the packages of the requirements file, each with its version."""
    return [f"{entry.name} {entry.version}" for entry in entries_of(recipe, lock)]


def entries_of(recipe: Recipe, lock: Lock) -> list[PythonFile]:
    return [entry for _, entry in sorted(recipe.installed(lock).items()) if entry.group == "added"]


def explained(recipe: Recipe, lock: Lock, file: File) -> list[Explained]:
    """Return a row for each package that a requirements file adds: the line that asks for it, or what requires it."""
    lines, held, rows = {line.name: line for line in file.asked.lines}, entries_of(recipe, lock), []
    for entry in held:
        line = lines.get(entry.name)
        users = [other.name for other in held if entry.name in other.needs]
        rows.append(
            Explained(
                component=entry.name,
                version=entry.version,
                provider="wheel",
                declared=line.text if line else f"required by {', '.join(users) or 'another wheel'}",
                where=line.where if line else "",
                resolved=entry.file,
                digest=f"sha256:{entry.sha256}",
                licence=entry.licence,
                rules=[],
            )
        )
    return rows
