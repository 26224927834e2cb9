"""Test our client against ECR: a token that expires during a push, tags that move, and immutable tags."""

import hashlib
import json
from pathlib import Path
from typing import Any

import layouts
import pytest
from aws.conftest import REGIONS
from aws.emulator import Emulator
from faults import shorten
from putting import put_manifest

from trainwright.core.errors import RegistryError
from trainwright.registry import auth, ecr, ecr_repositories, settings
from trainwright.registry import client as registries

ROOT = Path(__file__).parents[2]
HERE = REGIONS[0]
NAME = "trainwright/pytorch"
ID = "pytorch-2.15-cpu-py313-sagemaker"
PIECE = 100_000  # bytes of an upload
KEY, RELEASE, ALIAS = f"{ID}-0123456789ab", f"{ID}-2026.11.0", f"{ID}-latest"


@pytest.fixture
def repository(amazon: Emulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return a repository of an account. Pieces are small; the store is empty, because a push sweeps all of it."""
    shorten(tmp_path / "here", chunk_bytes=PIECE)
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("TRAINWRIGHT_STORE", str(tmp_path / "store"))
    ecr_repositories.ensure(HERE, [NAME], settings.publication(ROOT).repository, create=True, change=False)
    auth.authenticate(ecr.host(HERE), ecr.credentials(HERE))
    amazon.calls.clear()
    return f"{ecr.host(HERE)}/{NAME}"


def layout(folder: Path, content: bytes = b"layer") -> layouts.Layout:
    """Make a layout with several blobs, one of which needs several requests."""
    return layouts.make(folder, [content, b"x" * (5 * PIECE // 2)], {"Labels": {"of": content.decode()}})


def push(made: layouts.Layout, repository: str) -> None:
    registries.push(made.folder, repository, made.digest)
    registries.verify(repository, made.digest, made.manifest)


def test_pushed_by_digest_verified_and_then_tagged(amazon: Emulator, repository: str, tmp_path: Path) -> None:
    made = layout(tmp_path / "one")
    push(made, repository)
    assert ecr.lookup(HERE, NAME, [KEY]) == {KEY: ""}
    registries.tag(repository, made.digest, KEY)
    registries.tag(repository, made.digest, KEY)  # is there already
    assert ecr.lookup(HERE, NAME, [KEY]) == {KEY: made.digest}
    assert registries.resolve(repository, KEY) == made.digest
    assert registries.tags(repository) == [KEY]
    assert amazon.calls.count(("ecr", "GetAuthorizationToken")) <= 2  # one to read with, one to write with


@pytest.mark.parametrize("status", [403, 401])
def test_a_token_that_expires_in_the_middle_of_a_push(
    status: int, amazon: Emulator, repository: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As 12 hours would end it: after every twelfth request, whichever that is. ECR says 403 to it."""
    amazon.expired_status = status
    plain, count = amazon.data, 0

    def data(request: Any, region: str) -> Any:
        nonlocal count
        count += 1
        if count % 12 == 0:
            amazon.expire_tokens()
        return plain(request, region)

    monkeypatch.setattr(amazon, "data", data)
    made = layout(tmp_path / "one", f"layer {status}".encode())
    push(made, repository)
    registries.tag(repository, made.digest, KEY)
    assert count > 24
    assert amazon.calls.count(("ecr", "GetAuthorizationToken")) > 2
    assert ecr.lookup(HERE, NAME, [KEY]) == {KEY: made.digest}


def test_a_refusal_that_is_no_expired_token_is_not_tried_again(
    amazon: Emulator, repository: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from aws.emulator import error

    said = error(403, "DENIED", "User: me is not authorized to perform: ecr:BatchGetImage on resource: x")
    registries.resolve(repository, KEY)  # with a token, from here on
    amazon.calls.clear()
    monkeypatch.setattr(amazon, "data", lambda *_: said)
    with pytest.raises(RegistryError) as raised:
        registries.resolve(repository, KEY)
    assert "ecr:BatchGetImage" in raised.value.why
    assert amazon.calls == []


def test_a_token_that_has_expired_when_it_is_asked_whether_a_blob_is_there(
    amazon: Emulator, repository: str, tmp_path: Path
) -> None:
    """A HEAD is refused without a word."""
    made = layout(tmp_path / "one")
    push(made, repository)
    amazon.expire_tokens()
    amazon.requests.clear()
    push(made, repository)
    assert amazon.requests[0][0] == "HEAD"


def test_tags_of_keys_and_releases_stay_though_somebody_pushes_over_them(
    amazon: Emulator, repository: str, tmp_path: Path
) -> None:
    """By the registry itself, not by our asking first."""
    one, two = layout(tmp_path / "one"), layout(tmp_path / "two", b"other")
    for made in (one, two):
        push(made, repository)
    registries.move(repository, one.digest, ALIAS)
    for name in (KEY, RELEASE):
        registries.tag(repository, one.digest, name)
        with pytest.raises(RegistryError) as raised:
            put_manifest(repository, manifest(two), str(two.manifest["mediaType"]), name)
        assert "immutable" in raised.value.why
        with pytest.raises(RegistryError, match="never moves"):
            registries.tag(repository, two.digest, name)
    registries.move(repository, two.digest, ALIAS)
    wanted = {KEY: one.digest, RELEASE: one.digest, ALIAS: two.digest}
    assert ecr.lookup(HERE, NAME, wanted) == wanted


def manifest(made: layouts.Layout) -> bytes:
    return (made.folder / "blobs" / made.digest.replace(":", "/")).read_bytes()


def test_a_repository_that_was_never_created(amazon: Emulator, repository: str, tmp_path: Path) -> None:
    made = layout(tmp_path / "one")
    with pytest.raises(RegistryError) as raised:
        registries.push(made.folder, f"{repository}-not", made.digest)
    assert "does not exist in the registry" in raised.value.why
    assert registries.resolve(f"{repository}-not", KEY) == ""


def test_what_cosign_writes_may_be_written_again(amazon: Emulator, repository: str, tmp_path: Path) -> None:
    one, two = layout(tmp_path / "one"), layout(tmp_path / "two", b"other")
    name = f"sha256-{hashlib.sha256(b'image').hexdigest()}.sig"
    for made in (one, two):
        push(made, repository)
        put_manifest(repository, manifest(made), str(made.manifest["mediaType"]), name)
    assert registries.resolve(repository, name) == two.digest
    assert json.loads(manifest(two)) == registries.manifest(repository, two.digest)
