"""Refuse added wheels that ask for a library which an image without CUDA lacks: no resolver sees that."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from zipfile import ZipFile

from trainwright.core import store
from trainwright.core.errors import IncompatibleError
from trainwright.lock import additions
from trainwright.lock.requirements import Line
from trainwright.lock.wheels import is_wheel
from trainwright.matrix.matrix import Recipe
from trainwright.matrix.model import PythonFile
from trainwright.resolve.pypi import readable

CHUNK = 1 << 20


def check(
    recipe: Recipe, files: Iterable[PythonFile], lines: Iterable[Line], lacking: Mapping[str, str], below: str
) -> None:
    """Check the wheels that a requirements file adds to the image `below`.

    `lacking` maps a library to why that image lacks it; one that a wheel brings counts as present. Raises
    IncompatibleError, with the line of the file.
    """
    if "cuda" in recipe.pins:
        return
    wheels = [(entry, store.path_of(entry.sha256)) for entry in files if is_wheel(entry)]
    brought = {Path(name).name for entry, path in wheels for name in _members(path, entry.file)}
    wanted = [name for name in lacking if name not in brought]
    for entry, path in wheels if wanted else ():
        if found := asks_for(path, entry.file, wanted):
            member, library = found
            line = next((line for line in lines if line.name == entry.name), None)
            raise IncompatibleError(
                f"{entry.name} {entry.version} does not load in {below}",
                where=line.where if line else recipe.variant.requirements,
                why=f"{member} of {entry.file} needs {library}: {lacking[library]}",
                fix=f"leave out {line.text if line else entry.name}, take a build for CPUs, or an image with CUDA; "
                f"the libraries are in {additions.FILE}",
            )


def asks_for(path: Path, file: str, libraries: Iterable[str]) -> tuple[str, str] | None:
    """Return the first shared object of a wheel that names one of these libraries, and the library."""
    marks = {name: b"\0" + name.encode() + b"\0" for name in libraries}  # as in a table of strings of ELF
    longest = max(map(len, marks.values()))
    with readable(file), ZipFile(path) as wheel:
        for member in (name for name in wheel.namelist() if ".so" in Path(name).name):
            with wheel.open(member) as content:
                tail = b""
                while chunk := content.read(CHUNK):
                    window = tail + chunk
                    if library := next((name for name, mark in marks.items() if mark in window), ""):
                        return member, library
                    tail = window[-longest:]
    return None


def _members(path: Path, file: str) -> list[str]:
    with readable(file), ZipFile(path) as wheel:
        return wheel.namelist()
