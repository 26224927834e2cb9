"""Run programs from locked Debian packages on a Linux host of any C library: docker-registry, cosign.

Each program is a folder below dockerfiles/ with a packages.toml: the program's package, and the loader and C library
that it was built for. Nothing of the host is used, and nothing is installed.
"""

import platform
import sys
from email.utils import parsedate_to_datetime
from hashlib import sha256
from pathlib import Path

from trainwright.core import store
from trainwright.core.errors import EnvironmentProblem
from trainwright.core.toml import Model, load
from trainwright.matrix.matrix import load_intent
from trainwright.matrix.model import MACHINES, Package
from trainwright.resolve import apt

PACKAGES = "packages.toml"
ARCHITECTURES = {machine: name for name, machine in MACHINES.items()}


class Piece(Package):
    """A package and the files taken from it; a map from each name in the folder to its path in the package."""

    take: dict[str, str]


class Pieces(Model):
    base: str
    date: str
    packages: dict[str, list[Piece]]  # by architecture, as Debian calls it


def words(root: Path, files: Path, program: str) -> list[str | Path]:
    """Return the words that run a program here; it is unpacked into the store once.

    Raises what unpack() raises, and EnvironmentProblem if this is not Linux or another user owns the unpacked program.
    """
    if sys.platform != "linux":
        raise EnvironmentProblem(
            f"{program} is not on this machine", why=f"the locked one is for Linux, this machine is {sys.platform}"
        )
    place = _place(files)
    with store.told():
        why = store.own(place)
    if why:
        fix = "export TRAINWRIGHT_STORE=<a folder of your own>"
        raise EnvironmentProblem(f"{program} in the store belongs to another user", where=str(place), why=why, fix=fix)
    if not held(files):
        architecture = ARCHITECTURES.get(platform.machine(), platform.machine())
        with store.scratch() as folder:
            unpack(root, files, folder / "made", architecture)
            try:
                (folder / "made").rename(place)
            except OSError:  # another process was quicker
                if not held(files):
                    raise
    return command(place, program)


def held(files: Path) -> bool:
    """Return whether a program is unpacked here already."""
    place = _place(files)
    return place.is_dir() and any(place.iterdir())


def _place(files: Path) -> Path:
    try:
        locked = sha256((files / PACKAGES).read_bytes()).hexdigest()
    except OSError as error:
        raise EnvironmentProblem(
            f"the locked {files.name} requires a checkout of trainwright", where=str(files), why=str(error)
        ) from None
    return store.root() / "programs" / f"{locked}-{platform.machine()}"


def command(folder: Path, program: str) -> list[str | Path]:
    """Return the words that run an unpacked program."""
    return [folder / "loader", "--library-path", folder, folder / program]


def unpack(root: Path, files: Path, folder: Path, architecture: str = "amd64") -> None:
    """Unpack a program from its locked packages, fetched if needed, into a folder.

    Raises BuildError for a wrong checksum, EnvironmentProblem if the packages cannot be fetched or none are locked for
    the architecture.
    """
    from debian.debfile import DebFile  # lazily, because only a first start needs it

    held = load(files / PACKAGES, Pieces)
    if architecture not in held.packages:
        raise EnvironmentProblem(
            f"{files.name} is not locked for {architecture}",
            where=str(files / PACKAGES),
            why=f"it has packages for {', '.join(held.packages)}",
        )
    pieces = held.packages[architecture]
    if missing := [piece for piece in pieces if not store.has(piece.sha256)]:
        base = load_intent(root).components.bases[held.base]
        epoch = int(parsedate_to_datetime(held.date).timestamp())
        lost = store.fetch(apt.wanted(base, list(missing), epoch))
        if lost:
            raise EnvironmentProblem(f"the packages of {files.name} cannot be fetched", why="; ".join(lost.values()))
    folder.mkdir(mode=0o755, parents=True, exist_ok=True)
    for piece in pieces:
        package = folder / ".deb"
        store.place(piece.sha256, package, piece.name)
        data = DebFile(str(package)).data
        for name, path in piece.take.items():
            (folder / name).write_bytes(data.get_content(path) or b"")
            (folder / name).chmod(0o755)
        package.unlink()
