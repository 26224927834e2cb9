"""Read which paths a wheel installs, and with which bytes: from its RECORD and its entry points."""

import csv
import hashlib
import re
import zipfile
import zlib
from base64 import urlsafe_b64encode
from collections.abc import Iterable, Iterator
from configparser import ConfigParser, Error
from pathlib import Path

from trainwright.core import store
from trainwright.core.errors import LockError
from trainwright.lock import overlaps
from trainwright.lock.wheels import is_wheel
from trainwright.matrix.matrix import Recipe
from trainwright.matrix.model import Lock, Overlap, PythonFile

RECORD_BYTES = 32 << 20  # the longest of the matrix, TensorFlow's, has 3 MB
SITE = "site-packages"
VENV = "/opt/venv/"  # of an image
# The folders of NAME.data/ in a wheel, and where they go below the virtual environment.
PLACES = {"purelib": f"{SITE}/", "platlib": f"{SITE}/", "scripts": "bin/", "data": ""}
_OWN_SITE = re.compile(r"^lib/python[\d.]+/site-packages/")  # a path of `data` that is a path of `purelib`


def claims(path: Path, entry: PythonFile) -> dict[str, str]:
    """Map each path that a wheel installs below the virtual environment to a digest of its bytes.

    A script made from an entry point has the entry point as its digest. Raises LockError for an unreadable wheel.
    """
    try:
        with zipfile.ZipFile(path) as wheel:
            said = {row[0]: row[1] for row in csv.reader(_text(wheel, "RECORD").splitlines()) if len(row) > 1}
            found = {}
            for name in (name for name in wheel.namelist() if not name.endswith("/")):
                stated = said.get(name, "")
                found[_place(name, entry.name)] = stated if stated.startswith("sha256=") else _hashed(wheel, name)
            return found | {f"bin/{name}": f"entry point {target}" for name, target in _scripts(wheel)}
    except (ValueError, OSError, RuntimeError, EOFError, zipfile.BadZipFile, zlib.error, csv.Error) as error:
        why = str(error) or type(error).__name__
        raise LockError(f"{entry.file} is not a readable Python package", why=why[:300]) from None


def _place(name: str, package: str) -> str:
    folder, _, rest = name.partition("/")
    if not folder.endswith(".data"):
        return f"{SITE}/{name}"
    kind, _, inner = rest.partition("/")
    place = PLACES.get(kind, f"{kind}/{package}/") + inner  # of the rest, `headers`, each package has its own folder
    return _OWN_SITE.sub(f"{SITE}/", place)


def _hashed(wheel: zipfile.ZipFile, name: str) -> str:
    found = hashlib.sha256()
    with wheel.open(name) as member:
        while part := member.read(store.CHUNK):
            found.update(part)
    return _as_recorded(found.digest())


def _as_recorded(digest: bytes) -> str:
    """Write a sha256 as RECORD does."""
    return "sha256=" + urlsafe_b64encode(digest).rstrip(b"=").decode()


def _text(wheel: zipfile.ZipFile, file: str) -> str:
    """Return a file of NAME.dist-info; "" if the wheel has none."""
    name = next((n for n in wheel.namelist() if n.count("/") == 1 and n.endswith(f".dist-info/{file}")), "")
    if not name:
        return ""
    with wheel.open(name) as member:
        content = member.read(RECORD_BYTES + 1)
    if len(content) > RECORD_BYTES:
        raise ValueError(f"its {file} has more than {RECORD_BYTES} bytes")
    return content.decode()


def _scripts(wheel: zipfile.ZipFile) -> Iterator[tuple[str, str]]:
    parser = ConfigParser(delimiters=("=",), strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    try:
        parser.read_string(_text(wheel, "entry_points.txt"))
    except Error as error:
        raise ValueError(f"its entry points cannot be read: {error}") from None
    for section in ("console_scripts", "gui_scripts"):
        if parser.has_section(section):
            yield from ((name, "".join(target.partition("[")[0].split())) for name, target in parser.items(section))


def found(entries: Iterable[PythonFile]) -> tuple[list[Overlap], list[str]]:
    """Return the overlaps of an environment's wheels, and the names of those that the store lacks.

    What a source distribution becomes is known only once it is compiled.
    """
    wheels = [entry for entry in entries if is_wheel(entry) and entry.group in overlaps.STEPS]
    held = {entry.name: claims(store.path_of(entry.sha256), entry) for entry in wheels if store.has(entry.sha256)}
    return overlaps.compare(held), [entry.name for entry in wheels if entry.name not in held]


def check(recipe: Recipe, lock: Lock) -> None:
    """Check the wheels in the store again, before a build uses a lock: an older one may name none of its overlaps.

    Raises IncompatibleError, and LockError if only the lock has to be written again.
    """
    present, _ = found(recipe.installed(lock).values())
    overlaps.check(recipe.id, recipe.variant.lock_file, lock.python, present, recipe.intent.compat.winners)
    known = {row.wheels for row in lock.overlaps}
    if lacking := next((row for row in present if row.wheels not in known), None):
        raise LockError(
            f"the lock of {recipe.id} does not say that {' and '.join(lacking.wheels)} claim {lacking.such_as}",
            where=recipe.variant.lock_file,
            why="the image must install the winner after the other one, and takes the order from the lock",
            fix=f"rm {recipe.variant.lock_file}; trainwright lock {recipe.words}",
        )


def of_compiled(files: dict[str, dict[str, tuple[str, str]]], entries: Iterable[PythonFile]) -> Iterator[str]:
    """Yield a sentence for each file that a compiled component and a wheel of the store claim with different bytes.

    `files` map component to path to sha256 as built and as found. A list of compiled files exists only after their
    build, so an image is checked when it is probed. A wheel that the store lacks was compared where the image was
    built.
    """
    listed = [
        (name, _OWN_SITE.sub(f"{SITE}/", path.removeprefix(VENV)), built)
        for name, paths in sorted(files.items())
        for path, (built, _) in sorted(paths.items())
        if path.startswith(VENV)
    ]
    if not listed:
        return
    for entry in entries:
        if is_wheel(entry) and entry.group in overlaps.STEPS and store.has(entry.sha256):
            held = claims(store.path_of(entry.sha256), entry)
            for name, path, built in listed:
                wanted = _as_recorded(bytes.fromhex(built))
                if held.get(path, wanted) != wanted:
                    yield f"component {name} and the wheel {entry.file} claim {path} with different bytes"
