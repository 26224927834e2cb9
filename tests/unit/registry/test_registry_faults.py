"""Test faults of a registry: which answers are rejected, which requests are retried, and the errors."""

import json
from collections.abc import Callable
from pathlib import Path
from threading import Event
from types import SimpleNamespace

import pytest
from putting import put_manifest
from registries import MANIFEST, Handler, Registry, digest_of
from unit.registry.conftest import BIG, OTHER, notes, push

from trainwright.core.errors import EnvironmentProblem, RegistryError
from trainwright.registry import client, http, retry


def test_a_lost_layer(held: Registry, place: str, layout: Path) -> None:
    digest, manifest = client.manifest_of(layout)
    client.push(layout, place, digest)
    for sent in (True, False):
        kept = dict(held.blobs)
        del held.blobs["a", manifest["layers"][0]["digest"]]
        with pytest.raises(RegistryError, match="has lost a layer"):
            client.verify(place, digest, manifest)
        held.blobs = kept
        if sent:
            client.verify(place, digest, manifest)


def test_a_corrupt_layer_is_found_also_by_the_next_push(held: Registry, place: str, big: Path, tmp_path: Path) -> None:
    digest, manifest = client.manifest_of(big)
    client.push(big, place, digest)
    layer = manifest["layers"][0]["digest"]
    held.blobs["a", layer] = BIG[:-1] + b"x"  # of the right size
    for _ in range(2):
        with pytest.raises(RegistryError, match="corrupt layer"):
            client.verify(place, digest, manifest)
        client.push(big, place, digest)  # it is there: nothing is sent
    assert len(notes(tmp_path)) == 1
    held.blobs["a", layer] = BIG
    client.verify(place, digest, manifest)
    assert notes(tmp_path) == []


def test_a_truncated_layer(held: Registry, place: str, big: Path) -> None:
    digest = push(big, place)
    manifest = client.manifest_of(big)[1]
    held.blobs["a", manifest["layers"][0]["digest"]] = BIG[:-1]
    with pytest.raises(RegistryError, match="truncated layer"):
        client.verify(place, digest, manifest)


def test_another_manifest_than_the_digest_says(held: Registry, place: str, layout: Path) -> None:
    digest, manifest = client.manifest_of(layout)
    client.push(layout, place, digest)
    content, kind = held.manifests["a", digest]
    held.manifests["a", digest] = content.replace(b"schemaVersion", b"schemaversion"), kind
    with pytest.raises(RegistryError, match="holds another manifest") as raised:
        client.verify(place, digest, manifest)
    assert digest in raised.value.why


def test_a_lie_about_what_a_tag_names(held: Registry, place: str, layout: Path) -> None:
    digest = push(layout, place)
    client.tag(place, digest, "v1")
    content, kind = held.manifests["a", digest]

    def lies(handler: Handler) -> None:
        handler.answer(200, content, {"Content-Type": kind, "Docker-Content-Digest": OTHER})

    held.act("GET .*/manifests/v1", lies)
    assert client.resolve(place, "v1") == digest  # one lie is a fault of the line
    held.act("GET .*/manifests/v1", lies, times=99)
    with pytest.raises(RegistryError, match="holds another manifest"):
        client.resolve(place, "v1")


def test_a_blob_that_is_lost_before_the_manifest_comes_is_sent_again(held: Registry, place: str, layout: Path) -> None:
    layer = client.manifest_of(layout)[1]["layers"][0]["digest"]

    def loses(handler: Handler) -> None:
        del held.blobs["a", layer]
        handler.route()

    held.act("PUT .*/manifests/sha256", loses)
    push(layout, place)
    assert ("a", layer) in held.blobs


@pytest.mark.parametrize(
    ("change", "part"),
    [
        (lambda m: m | {"mediaType": "application/vnd.oci.image.manifest.v1+json"}, "manifest"),
        (lambda m: m | {"config": m["config"] | {"mediaType": "application/vnd.oci.image.config.v1+json"}}, "config"),
        (lambda m: m | {"layers": [m["layers"][0] | {"mediaType": "application/vnd.oci.image.layer.v1.tar"}]}, "layer"),
    ],
)
def test_only_a_plain_image_is_verified(
    held: Registry, place: str, layout: Path, change: Callable[[dict[str, object]], dict[str, object]], part: str
) -> None:
    push(layout, place)
    content = json.dumps(change(client.manifest_of(layout)[1])).encode()
    digest = put_manifest(place, content, MANIFEST, digest_of(content))
    with pytest.raises(RegistryError, match="not a plain image of one platform") as raised:
        client.verify(place, digest, json.loads(content))
    assert part in raised.value.why


def test_an_index_is_no_image(held: Registry, place: str, layout: Path) -> None:
    push(layout, place)
    kind = "application/vnd.oci.image.index.v1+json"
    content = json.dumps({"schemaVersion": 2, "mediaType": kind, "manifests": []}).encode()
    digest = put_manifest(place, content, kind, "v1")
    with pytest.raises(RegistryError, match="not a plain image"):
        client.verify(place, digest, json.loads(content))
    with pytest.raises(RegistryError, match="is not an image"):
        client.config(place, digest)


def test_an_image_that_is_not_whole_here(held: Registry, place: str, big: Path, layout: Path) -> None:
    digest, manifest = client.manifest_of(big)
    layer = big / "blobs" / manifest["layers"][0]["digest"].replace(":", "/")
    for content in (BIG[:-1], BIG[:-1] + b"x"):
        layer.write_bytes(content)
        with pytest.raises(EnvironmentProblem, match="incomplete") as raised:
            client.push(big, place, digest)
        assert raised.value.exit_code == 10
    layer.unlink()
    with pytest.raises(EnvironmentProblem, match="incomplete"):
        client.push(big, place, digest)
    assert not held.manifests


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        *((request, 503) for request in ("HEAD", "POST", "PATCH", "PUT .*/uploads", "PUT .*/manifests", "GET")),
        *(("PATCH", status) for status in (500, 502, 504, 429, 408)),
    ],
)
def test_twice_and_then_it_works(held: Registry, place: str, big: Path, request_: str, status: int) -> None:
    held.fail(request_, status, times=2)
    digest = push(big, place)
    client.tag(place, digest, "v1")
    assert client.resolve(place, "v1") == digest


@pytest.mark.parametrize("request_", ["HEAD", "POST", "PATCH", "PUT .*/uploads", "PUT .*/manifests", "GET"])
def test_a_connection_that_breaks_off(held: Registry, place: str, big: Path, request_: str) -> None:
    held.act(request_, Handler.hang_up, times=2)
    push(big, place)
    assert held.blobs["a", digest_of(BIG)] == BIG


def test_500_for_good(held: Registry, place: str) -> None:
    held.fail("GET", 500, times=99, text="UNKNOWN: the disk is on fire")
    with pytest.raises(RegistryError) as raised:
        client.resolve(place, "v1")
    assert held.count("GET") == 4
    assert "500" in raised.value.why
    assert "the disk is on fire" in raised.value.why
    assert "same command again" in raised.value.fix


def test_retry_after_is_honoured(held: Registry, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(retry, "time", SimpleNamespace(sleep=slept.append))
    held.fail("GET", 429, Retry_After="1")
    assert client.resolve(place, "v1") == ""
    assert slept == [1]
    held.fail("GET", 503, Retry_After="Fri, 31 Dec 2100 23:59:59 GMT")
    with pytest.raises(RegistryError, match="cannot be read") as raised:
        client.resolve(place, "v1")
    assert "asks for a pause" in raised.value.why


def test_a_registry_that_hangs(held: Registry, place: str, settings: Callable[..., None]) -> None:
    settings(attempts=2, silence=0.2)
    over = Event()
    held.act("GET", lambda _: (over.wait(9), None)[1], times=99)
    with pytest.raises(RegistryError) as raised:
        client.resolve(place, "v1")
    over.set()
    assert "did not answer for 0.2 s" in raised.value.why


def test_a_registry_that_is_not_there_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(retry, "time", SimpleNamespace(sleep=slept.append))
    with pytest.raises(RegistryError) as raised:
        client.resolve("127.0.0.1:1/a", "v1")
    assert "refused" in raised.value.why
    assert not isinstance(raised.value, retry.Broken)
    assert slept == []


def test_one_that_was_there_is_asked_again(place: str, held: Registry) -> None:
    http._heard.add("127.0.0.1:1")
    with pytest.raises(retry.Broken):
        client.resolve("127.0.0.1:1/a", "v1")


@pytest.mark.parametrize(
    ("status", "text", "fix"),
    [
        (401, "UNAUTHORIZED: who are you", "docker login 127.0.0.1"),
        (403, "DENIED: requested access is denied", "access to a,"),
        (404, "NAME_UNKNOWN: repository name not known to registry", "create the repository"),
        (405, "UNSUPPORTED: no", "does not allow"),
        (413, "", "chunk_bytes"),
        (403, "DENIED: quota exceeded", "free space"),
        (507, "", "free space"),
        (500, "UNKNOWN: write: no space left on device", "free space"),
    ],
)
def test_a_refusal_says_what_to_do_and_is_not_tried_again(
    held: Registry, place: str, layout: Path, status: int, text: str, fix: str
) -> None:
    held.fail("POST", status, times=99, text=text)
    with pytest.raises(RegistryError, match=f"the push to {place} failed") as raised:
        client.push(layout, place, client.manifest_of(layout)[0])
    assert f"registry answered {status}" in raised.value.why
    assert text.partition(": ")[2] in raised.value.why
    assert fix in raised.value.fix
    assert held.count("POST") <= 2  # two blobs at the same time


def test_what_no_registry_says_is_shown_as_text(held: Registry, place: str) -> None:
    held.act("GET", lambda handler: handler.answer(418, b"<html><h1>I am a\n teapot</h1>" + b"x" * 9999))
    with pytest.raises(RegistryError) as raised:
        client.resolve(place, "v1")
    assert "registry answered 418: I am a teapot" in raised.value.why
    assert len(raised.value.why) < 300
