"""Test the conversion of an image to its zstd twin: the same configuration, the same layers, the same bytes again."""

import gzip
import hashlib
import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import layouts
import pytest
import zstandard
from layouts import Layout

from trainwright.core import store
from trainwright.core.errors import BuildError
from trainwright.docker import oci_layout, zstd_twin
from trainwright.docker.zstd_twin import Made

LAYERS = [bytes(range(256)) * 4000 + name for name in (b"one", b"two")]  # a megabyte: several calls of the compressor


@pytest.fixture
def image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Layout:
    monkeypatch.setenv("TRAINWRIGHT_STORE", str(tmp_path / "store"))
    packed = [gzip.compress(LAYERS[0]), gzip.compress(LAYERS[1]), gzip.compress(LAYERS[0])]  # one of them twice
    return layouts.make(tmp_path / "image", packed, {"Labels": {"a": "b"}})


def content(image: Layout, digest: str) -> Path:
    return image.folder / "blobs" / digest.replace(":", "/")


def made(image: Layout, name: str, asked: list[str] | None = None, level: int = 3, threads: int = 1) -> Made:
    def layer(row: Mapping[str, Any]) -> Path:
        if asked is not None:
            asked.append(row["digest"])
        return content(image, row["digest"])

    config = content(image, image.manifest["config"]["digest"]).read_bytes()
    return zstd_twin.make(image.manifest, config, layer, image.folder.with_name(name), level, threads)


def test_the_same_configuration_and_layers(image: Layout) -> None:
    twin = made(image, "twin")
    folder = image.folder.with_name("twin")
    found = oci_layout.read(folder)
    assert found.digest == twin.digest
    assert twin.manifest["config"]["digest"] == image.manifest["config"]["digest"]
    blob = content(Layout(folder, "", {}), twin.manifest["config"]["digest"])
    assert blob.read_bytes() == content(image, image.manifest["config"]["digest"]).read_bytes()
    for row, unpacked in zip(twin.manifest["layers"], [LAYERS[0], LAYERS[1], LAYERS[0]], strict=True):
        packed = content(Layout(folder, "", {}), row["digest"]).read_bytes()
        assert (len(packed), f"sha256:{hashlib.sha256(packed).hexdigest()}") == (row["size"], row["digest"])
        assert row["mediaType"] == "application/vnd.oci.image.layer.v1.tar+zstd"
        assert zstandard.ZstdDecompressor().stream_reader(io.BytesIO(packed)).read() == unpacked
    assert twin.manifest["mediaType"] == "application/vnd.oci.image.manifest.v1+json"
    assert zstd_twin.is_twin(twin.manifest)
    assert not zstd_twin.is_twin(image.manifest)
    assert zstd_twin.differences(twin.manifest, image.manifest) == ""


def test_what_is_kept_is_neither_read_nor_compressed_again(image: Layout) -> None:
    asked: list[str] = []
    first = made(image, "first", asked)
    assert (first.compressed, len(asked)) == (2, 2)
    again = made(image, "again", asked)
    assert (again.digest, again.compressed, len(asked)) == (first.digest, 0, 2)
    assert made(image, "other", asked, level=19).compressed == 2  # another level has other bytes


def test_the_same_bytes_with_any_number_of_threads_and_in_any_store(
    image: Layout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digests = set()
    for number in (1, 2, 3):
        monkeypatch.setenv("TRAINWRIGHT_STORE", str(tmp_path / f"store{number}"))
        digests.add(made(image, f"twin{number}", threads=number).digest)
    assert len(digests) == 1


def test_a_layer_that_the_store_lost_or_cut_off_is_compressed_again(image: Layout) -> None:
    first = made(image, "first")
    lost, cut = (store.path_of(row["digest"].removeprefix("sha256:")) for row in first.manifest["layers"][:2])
    lost.unlink()
    cut.chmod(0o644)
    cut.write_bytes(cut.read_bytes()[:-1])
    assert made(image, "again") == first._replace(compressed=2)


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (lambda packed: gzip.compress(gzip.decompress(packed) + b"x"), "it unpacks to sha256:"),
        (lambda packed: packed[:-20], "it cannot be unpacked"),
        (lambda _: b"no gzip at all", "it cannot be unpacked"),
        (lambda packed: packed[:500] + b"\xff" * 40 + packed[540:], "it "),
    ],
    ids=["other bytes", "cut off", "no gzip", "damaged"],
)
def test_a_layer_that_is_not_that_of_the_image(image: Layout, damage: Any, why: str) -> None:
    """One error, and nothing of it is kept."""
    path = content(image, image.manifest["layers"][1]["digest"])
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(BuildError, match="does not match the configuration of its image") as error:
        made(image, "twin")
    assert why in error.value.why
    assert error.value.where == str(path)  # the image's layer, not what was made of it
    kept = [json.loads(file.read_text()) for file in (store.root() / "zstd").rglob("*") if file.is_file()]
    assert len(kept) <= 1
    assert not list(store.root().glob(".partial-*"))


def test_a_compressed_layer_is_proved_by_its_bytes() -> None:
    diff_id = f"sha256:{hashlib.sha256(LAYERS[0]).hexdigest()}"
    packed = zstandard.compress(LAYERS[0])
    zstd_twin.refuse_other_layer(io.BytesIO(packed), diff_id, "here")
    halves = zstandard.compress(LAYERS[0][:100]) + zstandard.compress(LAYERS[0][100:])
    zstd_twin.refuse_other_layer(io.BytesIO(halves), diff_id, "here")
    for other in (zstandard.compress(LAYERS[1]), packed[: len(packed) // 2], b"no zstd at all"):
        with pytest.raises(BuildError, match="does not match the configuration"):
            zstd_twin.refuse_other_layer(io.BytesIO(other), diff_id, "here")


@pytest.mark.parametrize(
    ("change", "why"),
    [  # of the twin's manifest
        ({"mediaType": oci_layout.MANIFEST}, "the media type of its manifest"),
        ({"config": {"digest": "sha256:other"}}, "its configuration is sha256:other"),
        ({"layers": [{"mediaType": zstd_twin.LAYER}]}, "it has 1 layers, the image has 3"),
        ({"layers": [{"mediaType": oci_layout.OCIS.layers[0]}] * 3}, "the media type of its layer"),
    ],
    ids=["Docker's manifest", "another configuration", "fewer layers", "gzip"],
)
def test_a_manifest_that_is_no_twin_of_the_image(image: Layout, change: dict[str, Any], why: str) -> None:
    twin = made(image, "twin")
    assert why in zstd_twin.differences({**twin.manifest, **change}, image.manifest)
