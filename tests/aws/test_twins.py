"""Test zstd twins in Amazon ECR: OCI manifests, immutable tags, an alias that moves, and deletion with the image."""

import gzip
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import layouts
import pytest
from aws.conftest import REGIONS
from aws.emulator import Emulator
from layouts import Layout
from tiny import ROOT

from trainwright.build import state
from trainwright.core.errors import RegistryError
from trainwright.docker import zstd_twin
from trainwright.image import inputs, tags
from trainwright.image.inputs import Inputs
from trainwright.matrix.matrix import Intent, load_intent
from trainwright.publish import prune, twins
from trainwright.publish.push import Twins, push
from trainwright.registry import auth, aws, client, ecr
from trainwright.registry.settings import Place

HERE = REGIONS[0]
ID, NAME = "base-1.0-cpu-py313-sagemaker", "trainwright/base"


@pytest.fixture
def intent() -> Intent:
    return load_intent(ROOT)


@pytest.fixture
def place(amazon: Emulator, intent: Intent) -> Place:
    """Return a repository with the settings of publish.toml."""
    recipe = intent.recipe(ID)
    state.settle(intent, [recipe], state.places(recipe, "ecr", HERE), create=True, change=False)
    auth.authenticate(ecr.host(HERE), ecr.credentials(HERE))
    return Place(host=ecr.host(HERE), path=NAME, region=HERE)


def published(place: Place, folder: Path, key: str) -> Layout:
    labels = {tags.ID_LABEL: ID, tags.KEY_LABEL: key}
    made = layouts.make(folder, [gzip.compress(b"common" * 100), gzip.compress(key.encode())], {"Labels": labels})
    client.push(made.folder, place.repository, made.digest)
    client.tag(place.repository, made.digest, tags.key_tag(ID, key))
    return made


def twin_of(place: Place, image: Layout, folder: Path) -> str:
    """Put the image's twin under the twin's tag of its key, as `push` does; return its digest."""

    def layer(row: Any) -> Path:
        return image.folder / "blobs" / str(row["digest"]).replace(":", "/")

    made = zstd_twin.make(image.manifest, layer(image.manifest["config"]).read_bytes(), layer, folder, 3, 1)
    client.push(folder, place.repository, made.digest)
    key = json.loads(layer(image.manifest["config"]).read_bytes())["config"]["Labels"][tags.KEY_LABEL]
    client.tag(place.repository, made.digest, tags.twin_tag(tags.key_tag(ID, key)))
    return made.digest


@pytest.fixture
def found(intent: Intent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Inputs:
    monkeypatch.setenv("TRAINWRIGHT_STORE", str(tmp_path / "store"))
    monkeypatch.setattr(twins, "out_folder", lambda recipe: tmp_path / "out" / recipe.id)
    return inputs.load(intent.recipe(ID))


def test_a_push_publishes_it_by_default(amazon: Emulator, place: Place, found: Inputs, tmp_path: Path) -> None:
    image = published(place, tmp_path / "image", found.key)
    held = {ID: {place: image.digest}}
    amazon.calls.clear()
    assert twins.lacking([found], held, None) == {ID: [place]}
    assert amazon.calls.count(("ecr", "BatchGetImage")) == 1  # one for all images of the repository
    done = push(found, held[ID], "", print, twinned=Twins([place]))
    assert done.why.endswith("with its zstd twin")
    twin = ecr.lookup(HERE, NAME, [f"{found.tag}-zstd"])[f"{found.tag}-zstd"]
    assert zstd_twin.differences(client.image(place.repository, twin), image.manifest) == ""
    assert {image.digest: image.tags for image in ecr.listing(HERE, NAME)} == {
        image.digest: [found.tag],
        twin: [f"{found.tag}-zstd"],
    }
    amazon.calls.clear()
    assert twins.lacking([found], held, None) == {ID: []}
    assert amazon.calls == []


def test_its_tags_never_move_and_its_alias_does(place: Place, found: Inputs, tmp_path: Path) -> None:
    pairs = []
    for key in ("1" * 64, "2" * 64):
        image = published(place, tmp_path / key[0], key)
        pairs.append((image.digest, twin_of(place, image, tmp_path / f"{key[0]}-twin")))
    for tag in (tags.twin_tag(tags.key_tag(ID, "1" * 64)), tags.twin_tag(tags.release_tag(ID, "2026.11.0"))):
        client.tag(place.repository, pairs[0][1], tag)
        with pytest.raises(RegistryError, match="already names another image"):
            client.tag(place.repository, pairs[1][1], tag)
        with pytest.raises(RegistryError, match="never moves"):
            client.move(place.repository, pairs[1][1], tag)
        kept = aws.client("ecr", HERE).batch_get_image(repositoryName=NAME, imageIds=[{"imageTag": tag}])
        assert kept["images"][0]["imageId"]["imageDigest"] == pairs[0][1]
    alias = tags.twin_tag(tags.alias(ID))
    for _, twin in pairs:
        client.move(place.repository, twin, alias)
        assert client.resolve(place.repository, alias) == twin


def test_it_is_deleted_with_its_image_in_one_call(
    amazon: Emulator, place: Place, intent: Intent, found: Inputs, tmp_path: Path
) -> None:
    image, young = (published(place, tmp_path / key[0], key) for key in ("1" * 64, "2" * 64))
    gone, kept = (twin_of(place, one, one.folder.with_suffix(".twin")) for one in (image, young))
    old = datetime.now(UTC) - timedelta(days=31)
    rows = [
        {"imageDigest": digest, "imageTags": [tag], "imagePushedAt": (old + timedelta(days=days)).timestamp()}
        for digest, key, days, end in (
            (image.digest, "1", 0, ""),
            (gone, "1", 0, "-zstd"),
            (young.digest, "2", 0, ""),
            (kept, "2", 20, "-zstd"),  # the twin came later, and keeps its image
        )
        for tag in [f"{ID}-{key * 12}{end}"]
    ]
    amazon.say("DescribeImages", {"imageDetails": rows}, times=2)
    done = prune.prune(intent, [place], True, set(), print)
    assert {row.digest: row.state for row in done.rows} == {
        image.digest: "deleted",
        gone: "deleted",
        young.digest: "kept",
        kept: "kept",
    }
    assert amazon.calls.count(("ecr", "BatchDeleteImage")) == 1
    held = client.resolve_all(place.repository, [f"{ID}-{key * 12}{end}" for key in "12" for end in ("", "-zstd")])
    assert [bool(digest) for digest in held.values()] == [False, False, True, True]
