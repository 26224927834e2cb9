"""Test the client against a registry in this process: push, read, tag and delete."""

import re
import subprocess
import sys
import time
from pathlib import Path
from threading import Event

import pytest
from putting import put_blob
from registries import MANIFEST, Handler, Registry, digest_of, image
from unit.registry.conftest import BIG, OTHER, notes, push

from trainwright.core.errors import RegistryError
from trainwright.registry import client, retry


def test_push_verify_tag(held: Registry, place: str, layout: Path, tmp_path: Path) -> None:
    digest = push(layout, place)
    assert held.tags == {}  # pushed by digest: no tag points at it yet
    client.tag(place, digest, "v1")
    assert client.resolve(place, "v1") == digest
    assert client.config(place, digest)["os"] == "linux"
    assert notes(tmp_path) == []


def test_what_is_there_is_neither_sent_nor_read(held: Registry, place: str, layout: Path) -> None:
    push(layout, place)
    held.asked.clear()
    push(layout, place)
    assert held.count("(POST|PATCH|PUT) .*/blobs/") == 0
    assert held.count("GET .*/blobs/") == 0


def test_a_big_blob_goes_in_pieces(held: Registry, place: str, big: Path) -> None:
    push(big, place)
    assert held.sent.count(1000) == 5
    assert max(held.sent) == 1000


def test_a_registry_that_takes_no_pieces(held: Registry, place: str, big: Path) -> None:
    held.chunked = False
    push(big, place)
    assert len(BIG) in held.sent


def test_a_blob_of_another_repository_is_mounted(held: Registry, place: str, big: Path) -> None:
    digest = push(big, place)
    held.sent.clear()
    push(big, f"{held.address}/b")
    assert held.sent == []
    held.mounts = False
    push(big, f"{held.address}/c")
    assert sum(held.sent) > len(BIG)
    assert client.manifest(f"{held.address}/c", digest)


def test_a_tag_never_moves(held: Registry, place: str, layout: Path, big: Path) -> None:
    digest, other = push(layout, place), push(big, place)
    client.tag(place, digest, "v1")
    held.asked.clear()
    client.tag(place, digest, "v1")
    with pytest.raises(RegistryError, match="an immutable tag never moves") as raised:
        client.tag(place, other, "v1")
    assert raised.value.exit_code == 8
    assert digest in raised.value.why
    assert held.count("PUT") == 0


@pytest.mark.parametrize("immutable", [True, False])
def test_two_publishers_of_one_tag(held: Registry, place: str, layout: Path, big: Path, immutable: bool) -> None:
    """Both find the name free; the registry decides, and whoever lost is told who won."""
    held.immutable = immutable
    mine, theirs = push(layout, place), push(big, place)

    def overtaken(handler: Handler) -> None:
        held.tags["a", "v1"] = theirs
        handler.route()
        if not immutable:
            held.tags["a", "v1"] = theirs

    held.act("PUT .*/manifests/v1", overtaken)
    with pytest.raises(RegistryError, match="already names another image") as raised:
        client.tag(place, mine, "v1")
    assert theirs in raised.value.why
    assert held.tags["a", "v1"] == theirs


def test_two_publishers_of_the_same_image(held: Registry, place: str, layout: Path) -> None:
    """A registry that refuses what is there already, as ECR does, even where it is the same."""
    digest = push(layout, place)

    def overtaken(handler: Handler) -> None:
        held.tags["a", "v1"] = digest
        handler.refuse(400, "ImageTagAlreadyExists")

    held.act("PUT .*/manifests/v1", overtaken)
    client.tag(place, digest, "v1")
    held.fail("PUT .*/manifests/v2", 409, text="TAG_INVALID: immutable")
    with pytest.raises(RegistryError, match="v2 could not be tagged"):
        client.tag(place, digest, "v2")


def test_a_tag_that_the_registry_loses(held: Registry, place: str, layout: Path) -> None:
    digest = push(layout, place)
    held.fail("PUT .*/manifests/v1", 201)
    with pytest.raises(RegistryError, match="could not be tagged") as raised:
        client.tag(place, digest, "v1")
    assert "it does not exist" in raised.value.why


def test_aliases_move_and_names_of_keys_do_not(held: Registry, place: str, layout: Path, big: Path) -> None:
    first, second = push(layout, place), push(big, place)
    alias = "tiny-1.0-cpu-py311-ec2"
    for digest in (first, second):
        client.move(place, digest, alias)
        assert client.resolve(place, alias) == digest
    with pytest.raises(RegistryError, match="never moves"):
        client.move(place, first, f"{alias}-2026.11.0")
    held.fail(f"PUT .*/manifests/{alias}", 201)
    with pytest.raises(RegistryError, match="was moved, but names another image"):
        client.move(place, first, alias)


def test_blobs_and_manifests_of_other_kinds(held: Registry, place: str, tmp_path: Path) -> None:
    digest = put_blob(place, b"an attestation")
    assert digest == digest_of(b"an attestation")
    assert client.blob(place, digest, 14) == b"an attestation"
    assert notes(tmp_path) == []
    with pytest.raises(RegistryError, match="has lost"):
        client.blob(place, OTHER, 14)


def test_tags_and_delete(held: Registry, place: str, layout: Path) -> None:
    assert client.tags(place) == []
    digest = push(layout, place)
    names = [f"v{number}" for number in range(9)]
    for name in names:
        client.tag(place, digest, name)
    held.page = 4
    assert client.tags(place) == names
    assert client.resolve_all(place, [*names, "gone"]) == dict.fromkeys(names, digest) | {"gone": ""}
    client.delete(place, digest)
    client.delete(place, digest)
    assert client.tags(place) == []
    held.fail("DELETE", 405, text="UNSUPPORTED: deletion is disabled")
    with pytest.raises(RegistryError, match="could not be deleted"):
        client.delete(place, digest)


def test_reading_goes_on_where_the_line_broke(held: Registry, place: str, big: Path) -> None:
    digest, manifest = client.manifest_of(big)
    client.push(big, place, digest)

    def breaks(handler: Handler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(BIG)))
        handler.end_headers()
        handler.wfile.write(BIG[:3000])
        handler.hang_up()

    held.act(f"GET .*{digest_of(BIG)}", breaks, times=2)
    client.verify(place, digest, manifest)
    assert sorted(held.ranges) == ["", "", "bytes=3000-", "bytes=3000-"]  # the second answer was all of it again


def test_memory_does_not_grow_with_the_blob(held: Registry, place: str, tmp_path: Path) -> None:
    """Of 64 MB, sent and read back, a process holds a few."""
    settings = tmp_path / "dockerfiles/publish.toml"
    settings.write_text(re.sub(r"chunk_bytes = \d+", "chunk_bytes = 16_000_000", settings.read_text()))
    large = image(tmp_path / "large", bytes(64_000_000))
    program = """
import resource, sys
from pathlib import Path
from trainwright.registry import client as registry
layout, place = Path(sys.argv[1]), sys.argv[2]
registry.resolve(place, "v1")
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
digest, manifest = registry.manifest_of(layout)
registry.push(layout, place, digest)
registry.verify(place, digest, manifest)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
    done = subprocess.run([sys.executable, "-c", program, large, place], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 12_000  # kB


def test_size_is_config_and_layers() -> None:
    assert client.size_of({"config": {"size": 1}, "layers": [{"size": 10}, {"size": 100}]}) == 111


def test_manifest_of_a_layout(layout: Path) -> None:
    digest, manifest = client.manifest_of(layout)
    assert digest == digest_of((layout / "blobs" / digest.replace(":", "/")).read_bytes())
    assert manifest["mediaType"] == MANIFEST


def test_answers(held: Registry) -> None:
    assert client.answers(held.address) is True
    assert client.answers("127.0.0.1:1") is False


def test_one_failure_ends_the_others(held: Registry, place: str) -> None:
    """Also those that wait for their next attempt, as the registry has asked."""

    def refuses(handler: Handler) -> None:
        time.sleep(0.3)
        handler.refuse(403, "DENIED")

    held.act("GET .*/manifests/bad", refuses)
    held.fail("GET .*/manifests/v", 503, times=99, Retry_After="2")
    with pytest.raises(RegistryError) as raised:
        client.resolve_all(place, ["bad", *(f"v{number}" for number in range(50))])
    assert "DENIED" in raised.value.why
    assert held.count("GET") < 9  # and not 51; three of them alone would be asked twelve times


@pytest.mark.parametrize("kept", [False, True])
def test_what_has_ended_asks_nothing_more(held: Registry, place: str, kept: bool) -> None:
    """Neither on a new connection nor on one that is open."""
    asking, over = Event(), Event()

    def work(number: int) -> None:
        if number:
            asking.wait(9)
            raise KeyboardInterrupt
        if kept:
            client.resolve(place, "v1")
        asking.set()
        ends = time.monotonic() + 60
        while not retry.stopped() and time.monotonic() < ends:
            time.sleep(0.01)
        if kept:
            time.sleep(0.1)
        try:
            client.resolve(place, "v2")
        finally:
            over.set()

    with pytest.raises(KeyboardInterrupt):
        retry.side_by_side(work, [0, 1])
    assert over.is_set()
    assert held.count("GET .*/v2$") == 0
