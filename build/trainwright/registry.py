"""A registry: push by digest with oras, verify what it holds, and only then tag."""

import hashlib
import json
import re
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from tenacity import retry, retry_if_exception, stop_after_attempt, wait_exponential_jitter

from trainwright import trains
from trainwright.errors import RegistryError
from trainwright.process import run

# What a repeated try may mend. oras 1.2 panics when the registry answers the end of an upload with a 5xx.
TRANSIENT = re.compile(r"\b(429|500|502|503|504)\b|connection reset|\bEOF\b|timeout|goroutine")


def is_loopback(registry: str) -> bool:
    """Whether `host[:port][/...]` is this machine, where plain http is safe and docker accepts it."""
    host = registry.split("/")[0].rpartition(":")[0] or registry.split("/")[0]
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def _plain(repository: str) -> list[str]:
    """oras speaks https unless told otherwise."""
    return ["--plain-http"] if is_loopback(repository) else []


def _worth_retrying(error: BaseException) -> bool:
    return isinstance(error, RegistryError) and bool(TRANSIENT.search(error.why))


@retry(
    retry=retry_if_exception(_worth_retrying),
    stop=stop_after_attempt(4),
    wait=wait_exponential_jitter(multiplier=0.5, max=8),
    reraise=True,
)
def _oras(*words: str | Path, repository: str, what: str) -> str:
    fix = "run the same command again: what the registry holds already is not sent twice"
    try:
        return run(["oras", *words, *_plain(repository)], error=RegistryError, what=what, fix=fix)
    except RegistryError as error:
        if "goroutine" in error.why:
            error.why = "the registry broke off an upload, at which oras crashes (goroutine trace left out)"
        raise


def answers(registry: str) -> bool:
    """Whether something that speaks the registry protocol listens there; for a loopback one only, without retries."""
    import httpx

    try:
        return httpx.get(f"http://{registry}/v2/", timeout=2).status_code in (200, 401)
    except (httpx.HTTPError, httpx.InvalidURL):
        return False


def resolve(repository: str, tag: str) -> str:
    """The digest behind a tag; "" where the repository or the tag is not there. Raises RegistryError."""
    try:
        return _oras(
            "resolve", f"{repository}:{tag}", repository=repository, what=f"{repository} cannot be read"
        ).strip()
    except RegistryError as error:
        if ": not found" in error.why:
            return ""
        raise


def manifest(repository: str, digest: str) -> dict[str, Any]:
    """A manifest that the registry holds. Raises RegistryError where its bytes do not have that digest."""
    held = _oras(
        "manifest",
        "fetch",
        f"{repository}@{digest}",
        repository=repository,
        what=f"{digest} cannot be read back",
    )
    found = "sha256:" + hashlib.sha256(held.encode()).hexdigest()
    if found != digest:
        raise RegistryError(
            f"{repository} holds another manifest than the one that was pushed",
            why=f"pushed {digest}, read back {found}; it was not tagged",
            fix="push again; if it stays so, the registry or a proxy before it corrupts data",
        )
    content: dict[str, Any] = json.loads(held)
    return content


def config(repository: str, digest: str) -> dict[str, Any]:
    """An image's configuration: labels, history. Raises RegistryError."""
    held = _oras(
        *("manifest", "fetch-config", f"{repository}@{digest}"),
        repository=repository,
        what=f"{repository}@{digest} cannot be read",
    )
    content: dict[str, Any] = json.loads(held)
    return content


def manifest_of(layout: Path) -> tuple[str, dict[str, Any]]:
    """Digest and content of the one manifest of an OCI layout."""
    descriptor = json.loads((layout / "index.json").read_text())["manifests"][0]
    digest = str(descriptor["digest"])
    return digest, json.loads((layout / "blobs" / digest.replace(":", "/")).read_text())


def size_of(manifest: dict[str, Any]) -> int:
    """Compressed bytes: config and layers."""
    return int(manifest["config"]["size"]) + sum(int(layer["size"]) for layer in manifest["layers"])


def push(layout: Path, repository: str, digest: str) -> None:
    """Send blobs and manifest under the digest alone: nothing points at them yet. Raises RegistryError."""
    _oras(
        "cp",
        "--from-oci-layout",
        f"{layout}@{digest}",
        *(["--to-plain-http"] if _plain(repository) else []),
        "--no-tty",
        f"{repository}@{digest}",
        repository="",
        what=f"the push to {repository} failed",
    )


def verify(repository: str, digest: str, pushed: dict[str, Any]) -> None:
    """Ask the registry for what it holds: the manifest under its digest, and every blob by its size.

    Raises RegistryError where it holds something else.
    """
    manifest(repository, digest)
    for blob in [pushed["config"], *pushed["layers"]]:
        descriptor = json.loads(
            _oras(
                *("blob", "fetch", "--descriptor", f"{repository}@{blob['digest']}"),
                repository=repository,
                what=f"{repository} has lost a layer: it was not tagged",
            )
        )
        if descriptor["size"] != blob["size"]:
            raise RegistryError(
                f"{repository} holds a truncated layer; it was not tagged",
                why=f"{blob['digest']}: {blob['size']} bytes pushed, {descriptor['size']} held",
                fix="push again",
            )


def tag(repository: str, digest: str, name: str) -> None:
    """The last step: a name for what was verified. Raises RegistryError, also when the name means another image."""
    held = resolve(repository, name)
    if held and held != digest:
        raise RegistryError(
            f"the tag {name} already names another image, and a released tag never moves",
            where=f"{repository}:{name}",
            why=f"it names {held}, this image is {digest}",
            fix="choose another name",
        )
    if not held:
        _oras("tag", f"{repository}@{digest}", name, repository=repository, what=f"{name} could not be tagged")


def move(repository: str, digest: str, alias: str) -> None:
    """Point an alias at another image. Raises RegistryError for the name of a key or a release: those never move."""
    if trains.is_fixed(alias):
        raise RegistryError(
            f"{alias} is the tag of a key or of a release, and never moves",
            where=f"{repository}:{alias}",
            fix="move the bare id of the image",
        )
    _oras("tag", f"{repository}@{digest}", alias, repository=repository, what=f"{alias} could not be moved")
    if (held := resolve(repository, alias)) != digest:
        raise RegistryError(
            f"{alias} was moved and names another image", where=f"{repository}:{alias}", why=f"{held}, not {digest}"
        )
