"""Keep notes on registries in the store: started uploads, unverified blobs, and which repository holds a blob."""

import hashlib
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from trainwright.core import store
from trainwright.core.files import YOUNG, write
from trainwright.registry.http import split
from trainwright.registry.retry import transfer


class Note:
    """The note of one sent blob: the state of its upload. It exists until the blob was verified."""

    def __init__(self, path: Path | None, repository: str, digest: str) -> None:
        self.path, self.repository, self.digest = path, repository, digest

    def read(self) -> tuple[str, int]:
        """Return the upload's address and how many bytes the registry has taken; ("", 0) if no upload was begun."""
        try:
            held = json.loads(self.path.read_text()) if self.path else {}
            return (
                (str(held["location"]), int(held["offset"])) if held.get("repository") == self.repository else ("", 0)
            )
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return "", 0

    def write(self, location: str = "", offset: int = 0) -> None:
        if self.path:
            said = {"repository": self.repository, "digest": self.digest, "location": location, "offset": offset}
            with store.told():
                write(self.path, json.dumps(said) + "\n")

    def forget(self) -> None:
        if self.path:
            self.path.unlink(missing_ok=True)


def _path(repository: str, digest: str) -> Path:
    return store.root() / "uploads" / f"{_short(repository)}-{digest.replace(':', '-')}.json"


def _short(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@contextmanager
def noting(repository: str, digest: str) -> Iterator[Note]:
    """Yield the blob's note. Another process that sends the same blob now has the note; ours then keeps nothing."""
    from filelock import FileLock, Timeout

    path = _path(repository, digest)
    with store.told():
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)  # an upload's address may suffice to continue it
    lock = FileLock(path.with_suffix(".lock"))
    with store.told(), suppress(Timeout):  # which is an OSError
        lock.acquire(timeout=0)
    try:
        yield Note(path if lock.is_locked else None, repository, digest)
    finally:
        if lock.is_locked:
            path.with_suffix(".lock").unlink(missing_ok=True)
            lock.release()


def is_unverified(repository: str, digest: str) -> bool:
    """Return whether a blob was sent, by this process or an earlier one, and not verified since."""
    return _path(repository, digest).exists()


def verified(repository: str, digest: str) -> None:
    """Remove the note of a verified blob, and remember its repository, from which others can mount it."""
    host, name = split(repository)
    with store.told():
        _path(repository, digest).unlink(missing_ok=True)
        write(_place(host, digest), name)


def known_in(host: str, digest: str) -> str:
    """Return a repository of that registry that had the blob; "" if none is known."""
    try:
        return _place(host, digest).read_text()
    except OSError:
        return ""


def _place(host: str, digest: str) -> Path:
    return store.root() / "mounts" / _short(host) / digest.replace(":", "-")


def sweep() -> None:
    """Remove notes older than [transfer] allows (unfinished pushes, unused registries) and killed processes' files.

    Temporary files are searched everywhere in the store but in sha256/. Those dated in the future are removed too,
    because they were written before the clock was set back.
    """
    now, remember = time.time(), transfer().remember_days * 86400
    for folder in (place for place in store.root().glob("[!.]*") if place.is_dir() and place.name != "sha256"):
        notes = folder.name in ("uploads", "mounts")
        # Elsewhere only temporary files are looked at: the store has tens of thousands of others.
        for path in (path for path in folder.rglob("*" if notes else ".*") if path.is_file()):
            with suppress(OSError):  # another process has just removed it
                age = now - path.stat().st_mtime
                old = abs(age) > YOUNG if path.name.startswith(".") else age > remember
                if old:
                    path.unlink(missing_ok=True)
