"""Upload blobs to a registry in pieces, and resume an upload, also after this process was killed.

What was sent is recorded (`registry/notes`) until it has been read back.
"""

import hashlib
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import httpx

from trainwright.core.errors import EnvironmentProblem, RegistryError
from trainwright.registry import http
from trainwright.registry.notes import Note, known_in, noting
from trainwright.registry.retry import AGAIN, Broken, Refused, stopped, transfer, tried

OCTETS = "application/octet-stream"
# Error codes of registries for an upload whose bytes do not match its digest, or come at the wrong offset.
BYTES = re.compile(r"DIGEST|BLOB_UPLOAD|RANGE|SIZE", re.IGNORECASE)

_whole: set[str] = set()  # hosts that accept a blob in one piece only


class Lost(Broken):
    """The registry has forgotten an upload, or has other bytes than were sent: only a new upload helps."""


@dataclass(frozen=True)
class Blob:
    digest: str
    size: int  # bytes
    read: Callable[[int, int], Iterator[bytes]]  # offset, number of bytes
    where: str  # for people


@dataclass(frozen=True)
class Upload:
    """An upload that the registry has begun."""

    location: httpx.URL
    offset: int  # bytes that the registry has
    least: int = 0  # least bytes of a piece, except the last one


def of_file(path: Path, digest: str, size: int) -> Blob:
    """Return the blob of a file. Raises EnvironmentProblem if the file is missing or not of this size."""
    try:
        found = path.stat().st_size
    except OSError as error:
        raise _damaged(path, str(error.strerror)) from None
    if found != size:
        raise _damaged(path, f"expected {size} bytes, found {found}")

    def read(start: int, count: int) -> Iterator[bytes]:
        try:
            with path.open("rb") as file:
                file.seek(start)
                while count and (piece := file.read(min(http.CHUNK, count))):
                    count -= len(piece)
                    yield piece
                    if stopped():
                        return
        except OSError as error:
            raise _damaged(path, str(error.strerror)) from None

    return Blob(digest, size, read, str(path))


def _damaged(path: Path, why: str) -> EnvironmentProblem:
    return EnvironmentProblem("the saved image is incomplete", where=str(path), why=why, fix="df -h, and push again")


def held_size(repository: str, digest: str, what: str) -> int | None:
    """Return the bytes of a blob in the registry; None if the registry does not have it. Raises RegistryError."""
    answer = http.ask("HEAD", repository, f"blobs/{digest}", what=what, accept=(200, 404))
    return int(answer.headers.get("Content-Length", -1)) if answer.status_code == httpx.codes.OK else None


def send(repository: str, blob: Blob, what: str) -> None:
    """Upload a blob to a repository unless it is there. Raises RegistryError, EnvironmentProblem."""
    if held_size(repository, blob.digest, what) == blob.size:
        return
    with noting(repository, blob.digest) as note:

        def attempt() -> None:
            try:
                _send(repository, blob, note, what)
            except Lost:
                note.write()
                raise

        tried(attempt, on=Lost)


def _send(repository: str, blob: Blob, note: Note, what: str) -> None:
    """Upload a blob completely, from the start or from where an earlier upload stands. Raises Lost."""
    host, piece = http.split(repository)[0], transfer().chunk_bytes
    whole = blob.size <= piece or host in _whole
    upload = (None if whole else _known(repository, note, what)) or _begin(repository, blob, note, what)
    if upload is None:  # mounted from another repository
        return None
    piece = max(piece, upload.least)
    if whole or blob.size <= piece:
        return _close(repository, blob, upload, what, whole=True)
    try:
        while upload.offset < blob.size:
            upload = _append(repository, blob, upload, piece, what)
            note.write(str(upload.location), upload.offset)
    except Refused as error:
        if error.status not in (400, 405, 411, 415, 501):
            raise
        _whole.add(host)
        raise _lost(error) from None
    return _close(repository, blob, upload, what, whole=False)


def _known(repository: str, note: Note, what: str) -> Upload | None:
    """Return the upload that this process or an earlier one began; None if there is none that the registry still knows.

    Because Amazon ECR cannot report the offset of an upload (it answers 404), the recorded offset is used; if that is
    wrong, ECR refuses the next piece or the digest.
    """
    location, offset = note.read()
    try:
        known = Upload(httpx.URL(location), offset)
        return tried(lambda: _standing(repository, known, what), but=(Lost,)) if location else None
    except Lost:
        return known if offset else None
    except (Refused, httpx.InvalidURL):
        return None


def _begin(repository: str, blob: Blob, note: Note, what: str) -> Upload | None:
    """Begin an upload; return None if the registry mounted the blob from another repository."""
    host, name = http.split(repository)
    place, other = "blobs/uploads/", known_in(host, blob.digest)
    if other and other != name:
        place += f"?mount={blob.digest}&from={other}"
    answer = http.ask("POST", repository, place, what=what, accept=(201, 202))
    if answer.status_code == httpx.codes.CREATED:
        note.forget()
        return None
    if "Location" not in answer.headers:
        raise RegistryError(
            what, where=str(answer.url), why="it began an upload, but did not name its address", fix=AGAIN
        )
    upload = _answered(answer)
    note.write(str(upload.location), upload.offset)
    return upload


def _answered(answer: httpx.Response) -> Upload:
    """Return the state of an upload. The scheme of our request is kept.

    Because a registry behind a proxy may answer with http: URLs, its own scheme is ignored.
    """
    url = http.joined(answer.url, answer.headers.get("Location", ""))
    ends = re.fullmatch(r"(?:bytes=)?0-([0-9]{1,18})", answer.headers.get("Range", ""))
    offset = int(ends[1]) + 1 if ends and ends[1] != "0" else 0  # it also says 0-0 for one byte
    least = answer.headers.get("OCI-Chunk-Min-Length", "0")
    return Upload(url, offset, int(least) if re.fullmatch("[0-9]{1,18}", least) else 0)


def _standing(repository: str, upload: Upload, what: str) -> Upload:
    """Ask the registry for an upload's offset, in one attempt. Raises Lost if it does not know it; Broken."""
    try:
        answer = http.ask("GET", repository, upload.location, what=what, accept=(204, 200), again=False)
    except Refused as error:
        raise _lost(error) if error.status in (400, 404, 410, 416) else error from None
    return _answered(answer)


def _append(repository: str, blob: Blob, upload: Upload, piece: int, what: str) -> Upload:
    """Send one more piece; after a failure, ask the registry for the offset first. Raises Lost.

    Because ECR's Range stays that of the first piece, the offset in the answer to an accepted piece is ignored.
    """
    begun, doubtful = upload.offset, False

    def attempt() -> Upload:
        nonlocal upload, doubtful
        told = not doubtful
        if doubtful:
            with suppress(Lost):  # ECR never knows the upload; its answer to the piece decides
                upload, told = _standing(repository, upload, what), True
            if upload.offset > begun:
                return upload
        asked, doubtful = doubtful, True
        start, count = upload.offset, min(piece, blob.size - upload.offset)
        headers = {"Content-Length": str(count), "Content-Range": f"{start}-{start + count - 1}"}
        try:
            answer = http.ask(
                *("PATCH", repository, upload.location),
                what=what,
                headers={"Content-Type": OCTETS} | headers,
                body=lambda: blob.read(start, count),
                accept=(202, 201, 204),
                again=False,
            )
        except Refused as error:
            if error.status == 416 and not asked:
                raise Broken(what, where=error.where, why=error.why, fix=AGAIN) from None
            if error.status == 416 and not told:  # the registry accepted it, and the answer was lost
                return replace(upload, offset=start + count)
            raise _lost(error) if asked or error.status in (404, 410) else error from None
        return replace(_answered(answer), offset=start + count)

    after = tried(attempt, but=(Lost,))
    if after.offset > blob.size:
        raise Lost(what, why=f"the registry says that it has {after.offset} bytes of {blob.size}", fix=AGAIN)
    return after


def _lost(error: RegistryError) -> Lost:
    return Lost(error.what, where=error.where, why=error.why, fix=AGAIN)


def _close(repository: str, blob: Blob, upload: Upload, what: str, whole: bool) -> None:
    """Complete an upload, with the whole blob if it is sent in one piece. Raises Lost."""
    doubtful = False
    headers = {"Content-Type": OCTETS, "Content-Length": str(blob.size if whole else 0)}

    def attempt() -> None:
        nonlocal doubtful
        if doubtful:
            answer = http.ask("HEAD", repository, f"blobs/{blob.digest}", what=what, accept=(200, 404), again=False)
            if answer.status_code == httpx.codes.OK:
                return
            if whole:  # the result is unknown
                raise Lost(what, where=str(upload.location), why="the upload was interrupted", fix=AGAIN)
        doubtful = True
        try:
            http.ask(
                *("PUT", repository, upload.location.copy_merge_params({"digest": blob.digest})),
                what=what,
                headers=headers,
                body=(lambda: blob.read(0, blob.size)) if whole else b"",
                accept=(201, 202, 204),
                again=False,
                grace=blob.size / transfer().stored_bytes_per_second,
            )
        except Refused as error:
            if error.status not in (404, 410, 416) and not (error.status == 400 and BYTES.search(error.codes)):
                raise
            _check(blob)
            raise _lost(error) from None

    tried(attempt, but=(Lost,))


def _check(blob: Blob) -> None:
    """Verify our own bytes. Raises EnvironmentProblem if they do not match their digest."""
    hasher = hashlib.sha256()
    for piece in blob.read(0, blob.size):
        hasher.update(piece)
    if (found := f"sha256:{hasher.hexdigest()}") != blob.digest and not stopped():
        raise _damaged(Path(blob.where), f"expected {blob.digest}, found {found}")
