"""Test the zstd twins that `push` publishes beside images: steps, tags, signature, and registries that take none."""

import gzip
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import layouts
import pytest
from layouts import Layout
from registries import Handler, Registry, digest_of, serving

from trainwright.core.errors import RegistryError
from trainwright.docker import zstd_twin
from trainwright.image import inputs, tags
from trainwright.image.inputs import Inputs
from trainwright.matrix.matrix import load_intent
from trainwright.publish import attest, twins
from trainwright.publish.push import Twins, forecast, push
from trainwright.registry import client, retry
from trainwright.registry.settings import Place, publication

ID, PATH = "pytorch-2.13-cpu-py311-ec2", "trainwright/pytorch"


@pytest.fixture
def held() -> Iterator[Registry]:
    with serving() as found:
        yield found


@pytest.fixture
def found(tree: Path) -> Inputs:
    return inputs.load(load_intent(tree).recipe(ID))


@pytest.fixture
def place(held: Registry) -> Place:
    return Place(host=held.address, path=PATH)


@pytest.fixture
def image(held: Registry, place: Place, found: Inputs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Layout:
    """Publish an image of two layers under its key; the store has none of its layers."""
    monkeypatch.setenv("TRAINWRIGHT_STORE", str(tmp_path / "store"))
    monkeypatch.delenv("TRAINWRIGHT_SIGNING_KEY", raising=False)
    labels = {tags.ID_LABEL: ID, tags.KEY_LABEL: found.key}
    made = layouts.make(
        tmp_path / "image", [gzip.compress(b"a" * 5000), gzip.compress(b"b" * 5000)], {"Labels": labels}
    )
    client.push(made.folder, place.repository, made.digest)
    client.tag(place.repository, made.digest, found.tag)
    held.asked.clear()
    return made


@pytest.fixture
def made(found: Inputs, place: Place, image: Layout) -> str:
    """Publish its twin; return the twin's digest."""
    done = push(found, {place: image.digest}, "", print, twinned=Twins([place], True))
    assert (done.action, done.why.endswith("with its zstd twin")) == ("twinned", True)
    return client.resolve(place.repository, tags.twin_tag(found.tag))


def lacking(found: Inputs, place: Place, digest: str, asked: bool | None = True) -> list[Place]:
    return twins.lacking([found], {ID: {place: digest}}, asked)[ID]


def test_pushed_by_digest_verified_and_tagged_last(
    held: Registry, found: Inputs, place: Place, image: Layout, made: str
) -> None:
    manifest = client.image(place.repository, made)
    assert zstd_twin.differences(manifest, image.manifest) == ""
    assert client.resolve(place.repository, found.tag) == image.digest
    puts = [request for request in held.asked if request.startswith("PUT /v2/trainwright/pytorch/manifests/")]
    assert [request.rpartition("/")[2] for request in puts] == [made, f"{found.tag}-zstd"]
    read_back = [f"GET /v2/{PATH}/blobs/{layer['digest']}" for layer in manifest["layers"]]
    assert set(read_back) <= set(held.asked[: held.asked.index(puts[1])])
    config = image.manifest["config"]["digest"]
    assert f"POST /v2/{PATH}/blobs/uploads/?digest={config}" not in held.asked


def test_what_is_published_is_not_asked_for_again(
    held: Registry, found: Inputs, place: Place, image: Layout, made: str
) -> None:
    held.asked.clear()
    assert lacking(found, place, image.digest) == []
    assert held.asked == []
    record = found.recipe.root / "out" / ID / "twin.json"
    assert json.loads(record.read_text()) == {"image": image.digest, "twins": {place.repository: made}}
    record.write_text("{")  # a damaged record is none: the registry is asked
    assert lacking(found, place, image.digest) == []
    assert held.count(f"GET .*/manifests/{found.tag}-zstd")
    assert lacking(found, place, "sha256:" + "0" * 64, asked=False) == []


def test_an_image_that_is_not_published_lacks_its_twin(found: Inputs, place: Place) -> None:
    assert lacking(found, place, "") == [place]


@pytest.mark.parametrize(
    ("host", "asked", "twin"),
    [
        ("registry.example", None, True),
        ("127.0.0.1:5000", None, False),
        ("localhost:5000", None, False),
        ("127.0.0.1:5000", True, True),
        ("registry.example", False, False),
    ],
)
def test_where_a_twin_is_made(host: str, asked: bool | None, twin: bool, found: Inputs) -> None:
    policy, place = publication(found.recipe.root).twin, Place(host=host, path=PATH)
    assert twins.wanted(policy, [place], asked) == [place] * twin
    assert twins.wanted(policy.model_copy(update={"on_loopback": True}), [place], asked) == [place] * (
        asked is not False
    )
    assert twins.wanted(policy.model_copy(update={"zstd_twin": False}), [place], asked) == [place] * bool(asked)


def test_a_dry_run_lists_it_and_writes_nothing(held: Registry, found: Inputs, place: Place, image: Layout) -> None:
    told = forecast(found, {place: image.digest}, "", twinned=Twins([place]))
    assert told.done.action == "would twin"
    assert [step.partition(":")[0].partition(" (")[0] for step in told.done.steps] == [
        "zstd twin",
        f"tag {found.tag}-zstd in 127.0.0.1",
    ]
    assert held.asked == []
    assert forecast(found, {place: image.digest}, "").done.action == "skip"


def test_a_release_of_a_push_tags_both(
    found: Inputs, place: Place, image: Layout, made: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainwright.publish.refusals.gated", lambda *_: twins_gate())
    steps = forecast(found, {place: image.digest}, "1.0").done.steps
    assert f"tag 1.0-zstd in {place.host}: immutable" in steps
    push(found, {place: image.digest}, "1.0", print)
    assert client.resolve(place.repository, "1.0") == image.digest
    assert client.resolve(place.repository, "1.0-zstd") == made


def twins_gate() -> Any:
    from trainwright.matrix.records import Check

    return Check(state="not run")


@pytest.mark.parametrize("status", [400, 405, 415, 422])
def test_a_registry_that_takes_no_twin(
    status: int, held: Registry, found: Inputs, place: Place, image: Layout, capsys: pytest.CaptureFixture[str]
) -> None:
    """Asked for, it is one error; by default, a note. The image stays published, and no tag is left behind."""

    def refuse(handler: Handler) -> None:
        handler.refuse(status, "MANIFEST_INVALID")

    held.act(r"PUT .*/manifests/sha256", refuse, times=9)
    with pytest.raises(RegistryError, match="does not take the zstd twin") as error:
        push(found, {place: image.digest}, "", print, twinned=Twins([place], True))
    assert error.value.exit_code == 8
    assert "MANIFEST_INVALID" in error.value.why
    assert "--no-twin" in error.value.fix
    done = push(found, {place: image.digest}, "", print, twinned=Twins([place]))
    assert "no zstd twin, because the registry takes none" in done.why
    assert "note: no zstd twin: " in capsys.readouterr().out
    assert client.tags(place.repository) == [found.tag]
    assert client.resolve(place.repository, found.tag) == image.digest


def test_a_registry_that_is_forbidden_or_down_is_no_reason_for_a_note(
    held: Registry, found: Inputs, place: Place, image: Layout
) -> None:
    held.fail(r"PUT .*/manifests/sha256", 403, 9, "DENIED: no")
    with pytest.raises(RegistryError, match=r"push to .* failed"):
        push(found, {place: image.digest}, "", print, twinned=Twins([place]))


def test_a_twin_whose_configuration_differs_is_one_error(
    held: Registry, found: Inputs, place: Place, image: Layout, made: str, tmp_path: Path
) -> None:
    """Also if it was there before: neither taken for the image's twin nor overwritten."""
    manifest = client.image(place.repository, made)
    other = b'{"architecture":"amd64"}'
    held.blobs[PATH, digest_of(other)] = other
    manifest["config"] |= {"digest": digest_of(other), "size": len(other)}
    content = json.dumps(manifest).encode()
    held.manifests[PATH, digest_of(content)] = content, zstd_twin.KINDS.manifest
    held.tags[PATH, f"{found.tag}-zstd"] = digest_of(content)
    (found.recipe.root / "out" / ID / "twin.json").unlink()
    for act in (
        lambda: lacking(found, place, image.digest),
        lambda: push(found, {place: image.digest}, "", print, twinned=Twins([place])),
    ):
        with pytest.raises(RegistryError, match=f"{found.tag}-zstd is not the zstd twin of {image.digest}") as error:
            act()
        assert f"its configuration is {digest_of(other)}, that of the image is" in error.value.why
    assert client.resolve(place.repository, f"{found.tag}-zstd") == digest_of(content)


def test_an_image_that_the_registry_damaged_gets_none(
    held: Registry, found: Inputs, place: Place, image: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is read again as often as [transfer] says, because a proxy may have damaged it; here without the pauses."""
    limits = retry.transfer()
    monkeypatch.setattr(retry, "transfer", lambda: limits.model_copy(update={"wait_seconds": 0.001}))
    layer = image.manifest["layers"][0]
    held.blobs[PATH, layer["digest"]] = b"x" * layer["size"]
    with pytest.raises(RegistryError, match="holds a corrupt layer"):
        push(found, {place: image.digest}, "", print, twinned=Twins([place]))
    assert client.tags(place.repository) == [found.tag]


def test_it_is_signed_by_itself_before_its_tag(
    held: Registry, found: Inputs, place: Place, image: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[tuple[str, str]] = []
    monkeypatch.setattr(attest, "sign_twin", lambda _, repository, digest, __: order.append((repository, digest)))
    tag: Callable[..., None] = client.tag

    def noted(*words: str) -> None:
        order.append(("tag", words[1]))
        tag(*words)

    monkeypatch.setattr(client, "tag", noted)
    push(found, {place: image.digest}, "", print, twinned=Twins([place]))
    twin = client.resolve(place.repository, f"{found.tag}-zstd")
    assert order == [(place.repository, twin), ("tag", twin)]
    assert twin != image.digest


def test_the_names_of_twins() -> None:
    for tag, twin in (
        (f"{ID}-0123456789ab", f"{ID}-0123456789ab-zstd"),
        (f"{ID}-2026.11.0", f"{ID}-2026.11.0-zstd"),
        (f"{ID}-latest", f"{ID}-zstd-latest"),
        ("1.0", "1.0-zstd"),
    ):
        assert (tags.twin_tag(tag), tags.without_twin(twin), tags.without_twin(tag)) == (twin, tag, tag)
        assert (tags.is_twin(twin), tags.is_twin(tag)) == (True, False)
        assert tags.is_immutable(twin) == tags.is_immutable(tag)
        rest = twin.removeprefix(f"{ID}-")
        assert tags.is_ending(rest) == (tag != "1.0")
