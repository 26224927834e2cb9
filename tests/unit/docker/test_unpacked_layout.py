"""Test the unpacked layout for syft: it has the same layers, with the same contents."""

import gzip
import hashlib
import json
from pathlib import Path

import pytest
from layouts import make

from trainwright.core.errors import BuildError
from trainwright.docker import oci_layout

TARS = [b"first" * 1000, b"second"]


def test_the_same_image_with_unpacked_layers(tmp_path: Path) -> None:
    image = make(tmp_path / "image", [gzip.compress(tar) for tar in TARS], {"Labels": {"a": "b"}})
    assert oci_layout.unpack(image.folder, tmp_path / "unpacked") == image.digest
    found, packed = oci_layout.read(tmp_path / "unpacked"), oci_layout.read(image.folder)
    assert found.config == packed.config
    assert found.layers == found.config["rootfs"]["diff_ids"]
    held = [(tmp_path / "unpacked/blobs" / digest.replace(":", "/")).read_bytes() for digest in found.layers]
    assert held == TARS
    manifest = (tmp_path / "unpacked/blobs" / found.digest.replace(":", "/")).read_bytes()
    assert found.digest == f"sha256:{hashlib.sha256(manifest).hexdigest()}"
    assert [layer["size"] for layer in json.loads(manifest)["layers"]] == [len(tar) for tar in TARS]


def test_a_layer_of_another_content_is_refused(tmp_path: Path) -> None:
    image = make(tmp_path / "image", [gzip.compress(tar) for tar in TARS], {})
    (image.folder / "blobs" / image.manifest["layers"][1]["digest"].replace(":", "/")).write_bytes(gzip.compress(b""))
    with pytest.raises(BuildError, match="does not match its image"):
        oci_layout.unpack(image.folder, tmp_path / "unpacked")
