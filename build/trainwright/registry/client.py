"""Read and write images in a registry: push by digest, verify what it holds, and only then tag.

Every `repository` is `host[:port]/path`. On loopback it is plain http, elsewhere TLS with the CAs of `certificates`.
All functions are safe to call from several threads, and raise RegistryError if the registry refuses, does not answer
after `[transfer]` of publish.toml, or holds wrong content.
"""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import httpx

from trainwright.core.errors import EnvironmentProblem, RegistryError
from trainwright.docker.oci_layout import DOCKERS, MANIFEST, Kinds, describe
from trainwright.image import tags as image_tags
from trainwright.registry import documents, http, notes, uploads
from trainwright.registry.retry import AGAIN, Refused, Wrong, end_if_stopped, side_by_side, tried

MOST_PAGES, MOST_TAGS = 1000, 1_000_000  # Amazon ECR keeps 100,000 images in a repository, and lists 1,000 per page
# The words of ECR, Harbor, Quay and others for an immutable tag.
IMMUTABLE = re.compile(r"immutable|TAG_INVALID|tag invalid|ImageTagAlreadyExists|ImageAlreadyExists", re.IGNORECASE)


def answers(registry: str) -> bool:
    """Return whether a server of the registry protocol listens there; for loopback only, without retries."""
    try:
        # verify=False, because reading this machine's certificates takes longer than the request.
        answer = httpx.get(f"http://{registry}/v2/", timeout=2, trust_env=False, verify=False)
        return answer.status_code in (200, 401)
    except (httpx.HTTPError, httpx.InvalidURL):
        return False


# --- reading ---------------------------------------------------------------------------------------------------------


def resolve(repository: str, tag: str) -> str:
    """Resolve a tag to the digest of its manifest; "" if the repository or the tag does not exist."""
    found = _document(repository, tag, f"{repository} cannot be read")
    return _digest(found[0]) if found else ""


def resolve_all(repository: str, tags: Sequence[str]) -> dict[str, str]:
    """Call resolve() for many tags in parallel."""
    return dict(zip(tags, side_by_side(lambda tag: resolve(repository, tag), tags), strict=True))


def manifest(repository: str, digest: str) -> dict[str, Any]:
    """Return a manifest that the registry holds: of an image, an index, an artifact.

    Raises RegistryError if its bytes do not have that digest, or it is not a manifest.
    """
    found = _json(_held(repository, digest)[0], f"{repository}@{digest}")
    if why := documents.no_manifest(found):
        raise RegistryError(f"{repository}@{digest} is not a manifest", why=why)
    return found


def image(repository: str, digest: str) -> dict[str, Any]:
    """Return the manifest of an image of one platform. Raises RegistryError for any other."""
    found = manifest(repository, digest)
    if "config" not in found:
        why = "its manifest names no configuration: it may be an index"
        raise RegistryError(f"{repository}@{digest} is not an image", why=why)
    return found


def config(repository: str, digest: str) -> dict[str, Any]:
    """Return an image's configuration: labels, history. Raises RegistryError if it is not one."""
    described = image(repository, digest)["config"]
    found = _json(blob(repository, described["digest"], described["size"]), f"{repository}@{digest}")
    if why := documents.no_configuration(found):
        raise RegistryError(f"{repository}@{digest} is not an image", why=why)
    return found


def blob(repository: str, digest: str, size: int) -> bytes:
    """Return a blob that fits into memory, verified by digest and size."""
    if size > http.ANSWER_BYTES:
        raise RegistryError(f"{digest} is too large to be read", where=repository, why=f"{size} bytes")
    found: list[bytes] = []
    _read_back(repository, digest, size, found)
    return b"".join(found)


def tags(repository: str) -> list[str]:
    """Return all tags, in the registry's order; [] if the repository does not exist."""
    what, place = f"the tags of {repository} cannot be listed", http.url_of(repository, "tags/list?n=1000")
    found, seen, why = (
        dict[str, None](),
        set[str](),
        f"an answer is not a list, or there are more than {MOST_PAGES} pages",
    )
    for _ in range(MOST_PAGES):
        answer = http.ask("GET", repository, place, what=what, accept=(200, 404))
        if answer.status_code == httpx.codes.NOT_FOUND:
            return []
        page = _json(answer.content, str(place)).get("tags") or []
        if not isinstance(page, list) or len(found) > MOST_TAGS:
            break
        known = len(found)
        found |= dict.fromkeys(map(str, page))
        if "next" not in answer.links:
            return list(found)
        seen.add(str(place))
        place = http.joined(answer.url, answer.links["next"]["url"])
        if str(place) in seen or (page and len(found) == known):
            why = "its pages form a loop: a page with a next link has no new tags"
            break
    raise RegistryError(what, where=str(place), why=why, fix=AGAIN)


def _document(repository: str, reference: str, what: str) -> tuple[bytes, str] | None:
    """Return the bytes and the media type behind a tag or a digest; None if it does not exist.

    The bytes are verified against the digest that was asked for or that the registry names, if any.
    """

    def attempt() -> tuple[bytes, str] | None:
        answer = http.ask(
            *("GET", repository, f"manifests/{reference}"),
            what=what,
            headers={"Accept": ", ".join(http.MANIFESTS)},
            accept=(200, 404),
            again=False,
        )
        if answer.status_code == httpx.codes.NOT_FOUND:
            return None
        meant = reference if ":" in reference else answer.headers.get("Docker-Content-Digest", "")
        if meant and (found := _digest(answer.content)) != meant:
            raise Wrong(
                f"{repository} holds another manifest than {reference}",
                where=f"{repository}:{reference}",
                why=f"expected {meant}, found {found}",
                fix="push again; if it fails again, the registry or a proxy in front of it corrupts data",
            )
        return answer.content, answer.headers.get("Content-Type", "").split(";")[0]

    return tried(attempt)


def _held(repository: str, digest: str) -> tuple[bytes, str]:
    found = _document(repository, digest, f"{digest} cannot be read back")
    if found is None:
        raise Refused(
            f"{digest} cannot be read back", where=repository, why="registry answered 404: not found", fix="push again"
        )
    return found


def _digest(content: bytes) -> str:
    return "sha256:" + hashlib.sha256(content).hexdigest()


def _json(content: bytes, where: str) -> dict[str, Any]:
    try:
        return documents.parsed(content)
    except ValueError as error:
        raise Refused("the registry's answer is not a JSON object", where=where, why=str(error)) from None


class _Into:
    """A file that has those methods of a list of bytes that are called here."""

    def __init__(self, file: IO[bytes]) -> None:
        self.append, self._file = file.write, file

    def clear(self) -> None:
        self._file.seek(0)
        self._file.truncate()


def _read_back(repository: str, digest: str, size: int | None, keep: list[bytes] | _Into | None) -> None:
    """Read a blob and hash it; a broken connection is resumed at the break. `keep` takes the bytes.

    Raises RegistryError if it is lost, or has another digest or size at every attempt.
    """
    hasher, count = hashlib.sha256(), 0

    def attempt() -> None:
        nonlocal hasher, count
        headers = {"Range": f"bytes={count}-"} if count else {}
        what = f"{digest} cannot be read back from {repository}"
        with http.opened(
            "GET", repository, f"blobs/{digest}", what=what, headers=headers, accept=(200, 206, 404, 416)
        ) as answer:
            if answer.status_code == httpx.codes.NOT_FOUND:
                raise _lost(repository, digest)
            if answer.status_code != httpx.codes.PARTIAL_CONTENT or not count:
                hasher, count = hashlib.sha256(), 0
                if keep is not None:
                    keep.clear()
            for piece in answer.iter_raw() if answer.status_code != 416 else ():
                end_if_stopped()
                hasher.update(piece)
                count += len(piece)
                if keep is not None:
                    keep.append(piece)
                if size is not None and count > size:
                    break
        found, held = f"sha256:{hasher.hexdigest()}", count
        if found != digest or (size is not None and held != size):
            hasher, count = hashlib.sha256(), 0
            raise Wrong(
                f"{repository} holds a corrupt layer; the image was not tagged",
                where=f"{repository}@{digest}",
                why=f"expected {size or 'all'} bytes of {digest}, found {held} bytes of {found}",
                fix="push again; if it fails again, delete that blob: the registry or a proxy corrupts data",
            )

    tried(attempt)


def _lost(repository: str, digest: str) -> RegistryError:
    what = f"{repository} has lost a layer; the image was not tagged"
    return RegistryError(what, where=f"{repository}@{digest}", why="registry answered 404: not found", fix="push again")


# --- images as folders -----------------------------------------------------------------------------------------------


def manifest_of(layout: Path) -> tuple[str, dict[str, Any]]:
    """Return digest and content of the one manifest of an OCI layout."""
    descriptor = json.loads((layout / "index.json").read_text())["manifests"][0]
    digest = str(descriptor["digest"])
    return digest, json.loads((layout / "blobs" / digest.replace(":", "/")).read_text())


def blob_of(layout: Path, digest: str) -> Path:
    """Return the path of a blob in an OCI layout."""
    return layout / "blobs" / digest.replace(":", "/")


def pull(repository: str, digest: str, layout: Path) -> None:
    """Write an image that the registry holds as an OCI layout into a new folder. Raises RegistryError."""
    found = image(repository, digest)
    if why := documents.other_layers(config(repository, digest), len(found["layers"])):
        raise RegistryError(f"{repository}@{digest} is not an image", why=why)
    content, kind = _held(repository, digest)
    (layout / "blobs/sha256").mkdir(parents=True)
    for row in _blobs(found):
        bring(repository, row, layout)
    describe(layout, content, kind)


def bring(repository: str, row: Mapping[str, Any], layout: Path) -> None:
    """Write a blob that the registry holds into an OCI layout, verified. Raises RegistryError."""
    with blob_of(layout, str(row["digest"])).open("wb") as file:
        _read_back(repository, str(row["digest"]), int(row["size"]), _Into(file))


def size_of(manifest: dict[str, Any]) -> int:
    """Return the compressed bytes of config and layers."""
    return int(manifest["config"]["size"]) + sum(int(layer["size"]) for layer in manifest["layers"])


def _blobs(manifest: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return config and layers, each once, the largest first, because it takes longest."""
    found = {row["digest"]: row for row in [manifest["config"], *manifest["layers"]]}
    return sorted(found.values(), key=lambda row: -int(row["size"]))


# --- writing ---------------------------------------------------------------------------------------------------------


def push(layout: Path, repository: str, digest: str) -> None:
    """Send blobs and manifest under the digest alone: nothing points at them yet.

    Blobs that the registry holds, here or in another repository that we know of, are not sent; a broken upload resumes
    at the registry's offset if the registry reports it. Raises EnvironmentProblem if the image on this disk is
    incomplete, and for a full disk.
    """
    what = f"the push to {repository} failed"
    place = blob_of(layout, digest)
    try:
        content = place.read_bytes()
        rows = _blobs(json.loads(content))
        kind = str(json.loads(content).get("mediaType") or MANIFEST)
    except (OSError, ValueError, KeyError) as error:
        raise EnvironmentProblem("the saved image is incomplete", where=str(place), why=str(error)) from None
    if _digest(content) != digest:
        why = f"expected {digest}, found {_digest(content)}"
        raise EnvironmentProblem(
            "the saved image is incomplete", where=str(place), why=why, fix="df -h, and push again"
        )

    def send(row: Mapping[str, Any]) -> None:
        path = blob_of(layout, str(row["digest"]))
        uploads.send(repository, uploads.of_file(path, str(row["digest"]), int(row["size"])), what)

    side_by_side(send, rows)
    try:
        _put(repository, content, kind, digest, what)
    except Refused as error:  # the registry had a blob before and has lost it
        if "MANIFEST_BLOB_UNKNOWN" not in error.codes and "BLOB_UNKNOWN" not in error.codes:
            raise
        side_by_side(send, rows)
        _put(repository, content, kind, digest, what)


def _put(repository: str, content: bytes, media_type: str, reference: str, what: str) -> None:
    http.ask(
        *("PUT", repository, f"manifests/{reference}"),
        what=what,
        headers={"Content-Type": media_type},
        body=content,
        accept=(200, 201, 202),
    )


def verify(repository: str, digest: str, pushed: dict[str, Any], kinds: Kinds = DOCKERS) -> None:
    """Verify what the registry holds: the manifest by its digest, sent blobs byte for byte, other blobs by size.

    A sent blob is noted as unverified until it was verified, also after a kill. Raises RegistryError if the content
    differs, and if it is not a plain image of one platform with these media types, by default those that SageMaker
    pulls.
    """
    held = manifest(repository, digest)
    if held != pushed:
        why = "the digest matches, but the content differs from the pushed manifest"
        raise RegistryError(f"{repository} holds another manifest than the one that was pushed", why=why)
    _refuse_other_kinds(repository, digest, held, kinds)

    def check(row: Mapping[str, Any]) -> None:
        if notes.is_unverified(repository, str(row["digest"])):
            _read_back(repository, str(row["digest"]), int(row["size"]), None)
        else:
            found = uploads.held_size(repository, str(row["digest"]), f"{repository} cannot be verified")
            if found is None:
                raise _lost(repository, str(row["digest"]))
            if found != row["size"]:
                raise RegistryError(
                    f"{repository} holds a truncated layer; the image was not tagged",
                    why=f"{row['digest']}: {row['size']} bytes pushed, {found} held",
                    fix="push again",
                )
        notes.verified(repository, str(row["digest"]))

    side_by_side(check, _blobs(held))
    notes.sweep()  # last, because after a clock jump it would remove this push's notes, and the blobs would not be read


def _refuse_other_kinds(repository: str, digest: str, held: Mapping[str, Any], kinds: Kinds) -> None:
    if wrong := documents.other_kinds(held, kinds):
        raise RegistryError(
            f"{repository}@{digest} is not a plain image of one platform, as SageMaker requires; it was not tagged",
            why=wrong[0],
            fix="build it again with trainwright build: other tools may add attestations or OCI media types",
        )


def tag(repository: str, digest: str, name: str) -> None:
    """Tag a verified digest, as the last step. Raises RegistryError, also if the name means another image.

    The name is resolved, put, and resolved again. If the registry has immutable tags, exactly one of two simultaneous
    publishers wins, and the other one learns here which did. Otherwise both may find the name free, and the second one
    overwrites the first one, which may have just reported success: this is not detected.
    """
    held = resolve(repository, name)
    if held == digest:
        return
    if held:
        raise _taken(repository, digest, name, held)
    content, kind = _held(repository, digest)
    refused = None
    try:
        _put(repository, content, kind, name, f"{name} could not be tagged")
    except Refused as error:
        if error.status not in (400, 403, 409) or not IMMUTABLE.search(error.codes):
            raise
        refused = error
    held = resolve(repository, name)
    if held and held != digest:
        raise _taken(repository, digest, name, held)
    if not held:
        why = (
            f"{refused.why}; the tag does not exist"
            if refused
            else "the registry accepted the tag, but it does not exist"
        )
        raise RegistryError(f"{name} could not be tagged", where=f"{repository}:{name}", why=why, fix=AGAIN)


def _taken(repository: str, digest: str, name: str, held: str) -> RegistryError:
    return RegistryError(
        f"the tag {name} already names another image, and an immutable tag never moves",
        where=f"{repository}:{name}",
        why=f"it names {held}, this image is {digest}",
        fix="choose another name",
    )


def move(repository: str, digest: str, alias: str) -> None:
    """Point an alias at another image.

    Raises RegistryError if it is the name of a key or a release, which never move.
    """
    if image_tags.is_immutable(alias):
        raise RegistryError(
            f"{alias} is the tag of a key or of a release, and never moves",
            where=f"{repository}:{alias}",
            fix="move the alias of the image, <id>-latest",
        )
    content, kind = _held(repository, digest)
    _put(repository, content, kind, alias, f"{alias} could not be moved")
    if (held := resolve(repository, alias)) != digest:
        raise RegistryError(
            f"{alias} was moved, but names another image",
            where=f"{repository}:{alias}",
            why=f"expected {digest}, found {held}",
        )


def delete(repository: str, digest: str) -> None:
    """Delete a manifest and every tag that names it; a missing one is not an error."""
    what = f"{repository}@{digest} could not be deleted"
    http.ask("DELETE", repository, f"manifests/{digest}", what=what, accept=(200, 202, 204, 404))
