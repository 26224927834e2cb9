"""Write files atomically, and lock a folder for one writer at a time."""

import fcntl
import io
import os
import re
import shlex
import shutil
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from trainwright.core.errors import EnvironmentProblem, without_password

PIECE = 1 << 20  # bytes
WHO_BYTES = 4096  # read from the lock file, which describes its holder
# The temporary names that write() gives the files of a checkout.
PARTIAL = re.compile(r"\.(.+\.(toml|packages|json)|Dockerfile|key)\.[a-z0-9_]{8}")
YOUNG = 86400  # seconds: a folder is locked just after it is created, NFS may hide a lock, and clocks differ


def write(path: Path, content: str | bytes) -> None:
    """Replace a file by its new content atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
        Path(name).chmod(0o644)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def write_named(path: Path, content: str | bytes) -> None:
    """Call write() for a file that a person named on the command line. Raises EnvironmentProblem."""
    try:
        write(path, content)
    except OSError as error:
        why = str(error.strerror or error)
        raise EnvironmentProblem(
            f"{path} cannot be written", where=str(path), why=why, fix="name another file"
        ) from None


def tidy(folder: Path) -> None:
    """Remove temporary files of a killed write(). The caller must hold the lock of the folder: see only_one()."""
    for left in folder.glob(".*"):
        if PARTIAL.fullmatch(left.name) and left.is_file():
            left.unlink(missing_ok=True)


def unpack(archive: tarfile.TarFile, folder: Path) -> None:
    """Unpack the files, folders and links that stay inside `folder`; leave out all else.

    Because the filters of tarfile came with Python 3.11.4, and Debian 12 has 3.11.2, members are filtered here, and
    tarfile's filter is used in addition where it exists.
    """
    members = (member for member in archive if _stays(member))  # lazily, because an archive may be a stream
    if hasattr(tarfile, "data_filter"):
        archive.extractall(folder, members, filter="data")
    else:
        archive.extractall(folder, members)


def packed(folder: Path) -> Iterator[bytes]:
    """Yield a tar archive of the files below a folder, piece by piece; links are followed."""
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        entry = tarfile.TarInfo(str(path.relative_to(folder)))
        entry.size = path.stat().st_size
        yield entry.tobuf()
        with path.open("rb") as file:
            while piece := file.read(PIECE):
                yield piece
        yield bytes(-entry.size % tarfile.BLOCKSIZE)
    yield bytes(2 * tarfile.BLOCKSIZE)


class Pieces(io.RawIOBase):
    """A file-like object whose content comes in pieces, readable once."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self.pieces, self.rest = iter(pieces), b""

    def readable(self) -> bool:
        return True

    def readinto(self, target: Any) -> int:
        self.rest = self.rest or next(self.pieces, b"")
        size = min(len(target), len(self.rest))
        target[:size], self.rest = self.rest[:size], self.rest[size:]
        return size


def _stays(member: tarfile.TarInfo) -> bool:
    """Return whether a member, and the target of its link, lies below the folder that it is unpacked into."""
    base = os.path.dirname(member.name) if member.issym() else ""  # noqa: PTH120  # a name in an archive, not a file
    names = [member.name, *([os.path.join(base, member.linkname)] if member.issym() or member.islnk() else [])]  # noqa: PTH118
    kind = member.isfile() or member.isdir() or member.issym() or member.islnk()
    return kind and not any(os.path.normpath(name).split("/")[0] in ("", "..") for name in names)


@contextmanager
def scratch(parent: Path, prefix: str) -> Iterator[Path]:
    """Yield a new folder and remove it afterwards; remove those that killed processes left with the same prefix."""
    _sweep(parent, prefix)
    with tempfile.TemporaryDirectory(prefix=prefix, dir=parent) as made:
        lock = os.open(made, os.O_RDONLY)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield Path(made)
        finally:
            os.close(lock)


def _sweep(parent: Path, prefix: str) -> None:
    for left in parent.glob(f"{prefix}*"):
        with suppress(OSError):  # it is in use, or was just removed
            lock = os.open(left, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if time.time() - os.fstat(lock).st_mtime > YOUNG:
                    shutil.rmtree(left)
            finally:
                os.close(lock)


@contextmanager
def only_one(folder: Path, say: Callable[[str], None], wait: bool = True) -> Iterator[None]:
    """Lock `folder` for one process; wait for the process that holds the lock, and report which one it is.

    Raises EnvironmentProblem if the folder cannot be written, or if `wait` is false and the lock is held.
    """
    lock = folder / ".lock"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(lock, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        what, why, place = f"{folder} cannot be written", str(error.strerror), shlex.quote(str(folder))
        raise EnvironmentProblem(what, where=str(lock), why=why, fix=f"ls -ld {place}; df -h {place}") from None
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            who = os.read(handle, WHO_BYTES).decode(errors="replace").strip() or "an unknown process"
            what = f"another trainwright process is working in {folder}"
            if not wait:
                fix = "run the same command again later, or without --no-wait, which waits"
                raise EnvironmentProblem(what, where=str(lock), why=who, fix=fix) from None
            say(f"{what}: {who}; waiting for it (with --no-wait, this would be an error)")
            fcntl.flock(handle, fcntl.LOCK_EX)
        since = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        who = f"process {os.getpid()} since {since}: trainwright {shlex.join(sys.argv[1:])}"
        with suppress(OSError):  # on a full disk, waiting processes do not learn who holds the lock
            os.ftruncate(handle, 0)
            os.pwrite(handle, f"{without_password(who)[: WHO_BYTES // 4]}\n".encode(), 0)
        yield
    finally:
        os.close(handle)
