"""Blobs on their way to a registry: in pieces, from where it stands, also after this process was killed.

What was sent is written down in the store until somebody has read it back: `<store>/uploads`, a file a blob.
"""

import hashlib
import json
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import httpx
from filelock import FileLock, Timeout

from trainwright import registry_http as http
from trainwright import store
from trainwright.errors import EnvironmentProblem, RegistryError
from trainwright.files import write
from trainwright.registry_http import AGAIN, Broken, Refused

OCTETS = "application/octet-stream"
_whole: set[str] = set()  # hosts that take a blob in one piece only


class Lost(Broken):
    """The registry has forgotten an upload, or holds other bytes than were sent: only a new one helps."""


@dataclass(frozen=True)
class Blob:
    digest: str
    size: int  # bytes
    read: Callable[[int, int], Iterator[bytes]]  # from where, how many bytes
    where: str  # for people


@dataclass(frozen=True)
class Upload:
    """One that the registry has begun."""

    location: httpx.URL
    offset: int  # bytes that it has
    least: int = 0  # bytes of a piece that it takes, but for the last one


def of_bytes(content: bytes) -> Blob:
    def read(start: int, count: int) -> Iterator[bytes]:
        yield content[start : start + count]

    return Blob("sha256:" + hashlib.sha256(content).hexdigest(), len(content), read, "memory")


def of_file(path: Path, digest: str, size: int) -> Blob:
    """Raises EnvironmentProblem for a file that is not there, or not of this size."""
    try:
        found = path.stat().st_size
    except OSError as error:
        raise _damaged(path, str(error.strerror)) from None
    if found != size:
        raise _damaged(path, f"{size} bytes expected, {found} found")

    def read(start: int, count: int) -> Iterator[bytes]:
        try:
            with path.open("rb") as file:
                file.seek(start)
                while count and (piece := file.read(min(http.CHUNK, count))):
                    count -= len(piece)
                    yield piece
                    if http.stopped():
                        return
        except OSError as error:
            raise _damaged(path, str(error.strerror)) from None

    return Blob(digest, size, read, str(path))


def _damaged(path: Path, why: str) -> EnvironmentProblem:
    return EnvironmentProblem("the saved image is not whole", where=str(path), why=why, fix="df -h, and push again")


def held_size(repository: str, digest: str, what: str) -> int | None:
    """Bytes of a blob, as the registry says; None where it has none. Raises RegistryError."""
    answer = http.ask("HEAD", repository, f"blobs/{digest}", what=what, accept=(200, 404))
    return int(answer.headers.get("Content-Length", -1)) if answer.status_code == httpx.codes.OK else None


def send(repository: str, blob: Blob, what: str) -> None:
    """Bring a blob into a repository unless it is there. Raises RegistryError, EnvironmentProblem."""
    if held_size(repository, blob.digest, what) == blob.size:
        return
    with _noting(repository, blob.digest) as note:

        def attempt() -> None:
            try:
                _send(repository, blob, note, what)
            except Lost:
                note.write("")
                raise

        http.tried(attempt, on=Lost)


def _send(repository: str, blob: Blob, note: "Note", what: str) -> None:
    """One upload from its beginning, or from where an earlier one stands, to its end. Raises Lost."""
    host, piece = http.split(repository)[0], http.transfer().chunk_bytes
    whole = blob.size <= piece or host in _whole
    upload = (None if whole else _known(repository, note, what)) or _begin(repository, blob, note, what)
    if upload is None:  # it was there already, in another repository
        return None
    piece = max(piece, upload.least)
    if whole or blob.size <= piece:
        return _close(repository, blob, upload, what, whole=True)
    try:
        while upload.offset < blob.size:
            upload = _append(repository, blob, upload, piece, what)
            note.write(str(upload.location))
    except Refused as error:
        if error.status not in (400, 405, 411, 415, 501) or upload.offset:
            raise
        _whole.add(host)
        raise Lost(what, where=error.where, why=error.why, fix=AGAIN) from None
    return _close(repository, blob, upload, what, whole=False)


def _known(repository: str, note: "Note", what: str) -> Upload | None:
    """The upload that this process, or one before it, had begun; None where it, or the registry, knows of none."""
    if not (location := note.read()):
        return None
    try:
        return http.tried(lambda: _standing(repository, Upload(httpx.URL(location), 0), what), but=(Lost,))
    except (Lost, Refused, httpx.InvalidURL):
        return None


def _begin(repository: str, blob: Blob, note: "Note", what: str) -> Upload | None:
    """A new upload; None where the registry took the blob from another repository of its own."""
    host, name = http.split(repository)
    place, other = "blobs/uploads/", known_in(host, blob.digest)
    if other and other != name:
        place += f"?mount={blob.digest}&from={other}"
    answer = http.ask("POST", repository, place, what=what, accept=(201, 202))
    if answer.status_code == httpx.codes.CREATED:
        note.forget()
        return None
    if "Location" not in answer.headers:
        raise RegistryError(what, where=str(answer.url), why="it begins an upload, and does not say where", fix=AGAIN)
    upload = _answered(answer, 0)
    note.write(str(upload.location))
    return upload


def _answered(answer: httpx.Response, expected: int) -> Upload:
    """Where an upload stands. A registry behind a proxy may believe that it speaks plain http: our scheme holds."""
    url = answer.url.join(answer.headers.get("Location", ""))
    if url.netloc == answer.url.netloc:
        url = url.copy_with(scheme=answer.url.scheme)
    ends = re.fullmatch(r"(?:bytes=)?0-(\d+)", answer.headers.get("Range", ""))
    offset = int(ends[1]) + 1 if ends and ends[1] != "0" else 0 if ends else expected
    least = answer.headers.get("OCI-Chunk-Min-Length", "0")
    return Upload(url, offset, int(least) if least.isdigit() else 0)


def _standing(repository: str, upload: Upload, what: str) -> Upload:
    """What the registry says that it has. Raises Lost where it knows nothing of it; Broken. One attempt."""
    try:
        answer = http.ask("GET", repository, upload.location, what=what, accept=(204, 200), again=False)
    except Refused as error:
        if error.status in (400, 404, 410, 416):
            raise Lost(what, where=error.where, why=error.why, fix=AGAIN) from None
        raise
    return _answered(answer, 0)


def _append(repository: str, blob: Blob, upload: Upload, piece: int, what: str) -> Upload:
    """One piece more. After a failure the registry is asked where it stands: nothing is assumed."""
    begun, doubtful = upload, False

    def attempt() -> Upload:
        nonlocal upload, doubtful
        if doubtful:
            upload = _standing(repository, upload, what)
            if upload.offset > begun.offset:
                return upload
        doubtful = True
        start = upload.offset
        count = min(piece, blob.size - start)
        headers = {
            "Content-Type": OCTETS,
            "Content-Length": str(count),
            "Content-Range": f"{start}-{start + count - 1}",
        }
        try:
            answer = http.ask(
                *("PATCH", repository, upload.location),
                what=what,
                headers=headers,
                body=lambda: blob.read(start, count),
                accept=(202, 201, 204),
                again=False,
            )
        except Refused as error:
            if error.status in (404, 410, 416):
                raise Broken(what, where=error.where, why=error.why, fix=AGAIN) from None
            raise
        return _answered(answer, start + count)

    after = http.tried(attempt, but=(Lost,))
    if not 0 <= after.offset <= blob.size:
        raise Lost(what, why=f"the registry says that it has {after.offset} bytes of {blob.size}", fix=AGAIN)
    return after


def _close(repository: str, blob: Blob, upload: Upload, what: str, whole: bool) -> None:
    """The end of an upload, with all of the blob where it is sent in one piece. Raises Lost."""
    doubtful = False
    headers = {"Content-Type": OCTETS, "Content-Length": str(blob.size if whole else 0)}

    def attempt() -> None:
        nonlocal doubtful
        if doubtful:
            answer = http.ask("HEAD", repository, f"blobs/{blob.digest}", what=what, accept=(200, 404), again=False)
            if answer.status_code == httpx.codes.OK:
                return
            if whole or _standing(repository, upload, what).offset != blob.size:
                raise Lost(what, where=blob.where, why="the registry broke off the upload", fix=AGAIN)
        doubtful = True
        try:
            http.ask(
                *("PUT", repository, upload.location.copy_merge_params({"digest": blob.digest})),
                what=what,
                headers=headers,
                body=(lambda: blob.read(0, blob.size)) if whole else b"",
                accept=(201, 202, 204),
                again=False,
            )
        except Refused as error:
            if error.status not in (400, 404, 410, 416):
                raise
            _check(blob)
            raise Lost(what, where=error.where, why=error.why, fix=AGAIN) from None

    http.tried(attempt, but=(Lost,))


def _check(blob: Blob) -> None:
    """Raises EnvironmentProblem where it is our own bytes that are not what they are said to be."""
    hasher = hashlib.sha256()
    for piece in blob.read(0, blob.size):
        hasher.update(piece)
    if (found := f"sha256:{hasher.hexdigest()}") != blob.digest and not http.stopped():
        raise _damaged(Path(blob.where), f"{blob.digest} expected, {found} found")


# --- what the store remembers ----------------------------------------------------------------------------------------


class Note:
    """What is known of one blob that was sent: where its upload stands. It is there until the blob was verified."""

    def __init__(self, path: Path | None, repository: str, digest: str) -> None:
        self.path, self.repository, self.digest = path, repository, digest

    def read(self) -> str:
        """The address of the upload; "" for none."""
        try:
            held = json.loads(self.path.read_text()) if self.path else {}
            return str(held["location"]) if held.get("repository") == self.repository else ""
        except (OSError, ValueError, KeyError, AttributeError):
            return ""

    def write(self, location: str) -> None:
        if self.path:
            said = {"repository": self.repository, "digest": self.digest, "location": location}
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
def _noting(repository: str, digest: str) -> Iterator[Note]:
    """The blob's note. Where another process sends the same blob just now, that one has it, and we have none."""
    path = _path(repository, digest)
    with store.told():
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)  # an upload's address may be enough to go on with it
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
    """Whether a blob was sent, by this process or one before it, and nobody has read it back since."""
    return _path(repository, digest).exists()


def verified(repository: str, digest: str) -> None:
    """A blob is what it must be: nothing of it is to be remembered, but where others may take it from."""
    host, name = http.split(repository)
    with store.told():
        _path(repository, digest).unlink(missing_ok=True)
        write(_place(host, digest), name)


def known_in(host: str, digest: str) -> str:
    """A repository of that registry that had a blob; "" for none that we know of."""
    try:
        return _place(host, digest).read_text()
    except OSError:
        return ""


def _place(host: str, digest: str) -> Path:
    return store.root() / "mounts" / _short(host) / digest.replace(":", "-")


def sweep() -> None:
    """Forget what is older than [transfer] says: pushes that nobody ever ended, registries of another day."""
    oldest = time.time() - http.transfer().remember_days * 86400
    for folder in ("uploads", "mounts"):
        for path in (store.root() / folder).rglob("*"):
            if path.is_file() and path.stat().st_mtime < oldest:
                path.unlink(missing_ok=True)
