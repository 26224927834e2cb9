"""Test the list of an image's packages: layers that are kept as they tell give the list of whole ones."""

import gzip
import io
import json
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from layouts import Layout, make

from trainwright.build import syft
from trainwright.core import store
from trainwright.core.errors import BuildError
from trainwright.docker import oci_layout

SITE = "opt/venv/lib/python3.11/site-packages"
METADATA = "Metadata-Version: 2.1\nName: {}\nVersion: {}\nLicense: MIT\n{}"
STATUS = "Package: hello\nStatus: install ok installed\nVersion: 2.10-3\nArchitecture: amd64\nDescription: it greets\n"
LONG = "# a comment\n" * 1000


def layer(files: Mapping[str, str]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, text in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(text.encode())
            archive.addfile(member, io.BytesIO(text.encode()))
    return packed.getvalue()


LOWER = {
    "etc/os-release": 'ID=debian\nVERSION_ID="12"\n',
    "var/lib/dpkg/status": STATUS,
    "usr/share/doc/hello/copyright": "License: GPL-3+\n" + LONG,
    "usr/lib/libhello.so": LONG * 100,
    f"{SITE}/old-1.0.dist-info/METADATA": METADATA.format("old", "1.0", LONG),
    f"{SITE}/gone-1.0.dist-info/METADATA": METADATA.format("gone", "1.0", LONG),
}
UPPER = {
    f"{SITE}/old-1.0.dist-info/METADATA": METADATA.format("old", "1.1", LONG),
    f"{SITE}/.wh.gone-1.0.dist-info": "",
    f"{SITE}/new-2.0.dist-info/METADATA": METADATA.format("new", "2.0", LONG),
    f"{SITE}/new-2.0.dist-info/RECORD": f"new-2.0.dist-info/METADATA,,\nnew/data.txt,,\n{LONG}",
    f"{SITE}/new/data.txt": LONG,
}


PACKAGES = {"hello": "2.10-3", "old": "1.1", "new": "2.0"}


@pytest.fixture
def image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Layout:
    """Make an image of two layers, the upper of which is too small to be kept; and a store of its own."""
    monkeypatch.setenv("TRAINWRIGHT_STORE", str(tmp_path / "store"))
    packed = [layer(LOWER), layer(UPPER)]
    monkeypatch.setattr(syft, "SMALL_LAYER", len(gzip.decompress(packed[1])) + 1)
    return make(tmp_path / "image", packed, {})


def scan(layout: Path, target: Path, *_: str) -> None:
    """List as syft does, in milliseconds: a component for each file called METADATA."""
    found = []
    for digest in oci_layout.read(layout).layers:
        with tarfile.open(layout / "blobs" / digest.replace(":", "/")) as archive:
            for member in archive:
                file = archive.extractfile(member)
                if member.name.endswith("METADATA") and file and b"Name: " in file.read():
                    rows = [("layerID", digest), ("path", f"/{member.name}")]
                    found.append(
                        {"properties": [{"name": f"syft:location:0:{name}", "value": value} for name, value in rows]}
                    )
    target.write_text(json.dumps({"components": found}))


def listed(layout: Path, tmp_path: Path) -> Any:
    syft.sbom(layout, tmp_path / "sbom.json", "an-image")
    return json.loads((tmp_path / "sbom.json").read_text())


def test_a_known_layer_is_not_read_again_and_gives_the_same_list(
    image: Layout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(syft, "SMALL_LAYER", 1 << 30)
        whole = listed(image.folder, tmp_path)
    component = whole["metadata"]["component"]
    assert (component["name"], component["version"]) == ("an-image", image.digest)
    assert {row["name"]: row["version"] for row in whole["components"] if "purl" in row} == PACKAGES
    syft.sbom(image.folder, tmp_path / "sbom.json", "an-image")
    (kept,) = (path for path in (store.root() / "sha256").rglob("*") if path.is_file())
    assert kept.stat().st_size < 4000 < len(LOWER["usr/lib/libhello.so"])
    unpack, read = oci_layout.unpack, []

    def noted(layout: Path, layer: str, *rest: Any) -> None:
        read.append(layer)
        unpack(layout, layer, *rest)

    monkeypatch.setattr(oci_layout, "unpack", noted)
    assert listed(image.folder, tmp_path)["components"] == whole["components"]
    assert read == [image.manifest["layers"][1]["digest"]]
    places = {
        row["value"] for part in whole["components"] for row in part["properties"] if row["name"].endswith(":layerID")
    }
    assert places == set(oci_layout.read(image.folder).config["rootfs"]["diff_ids"])


def test_a_layer_that_tells_less_without_its_contents_is_read_whole(
    image: Layout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scans = []

    def noted(layout: Path, target: Path, *words: str) -> None:
        scans.append(layout.name)
        scan(layout, target, *words)

    monkeypatch.setattr(syft, "_scan", noted)
    monkeypatch.setattr(syft, "_places", lambda _: set())
    assert len(listed(image.folder, tmp_path)["components"]) == 4
    assert scans == ["0.whole", "0.small", "layout"]
    assert len(listed(image.folder, tmp_path)["components"]) == 4
    assert scans[3:] == ["layout"], "it is known by now"


INFO = f"{SITE}/old-1.0.dist-info"


@pytest.mark.parametrize(
    ("upper", "shown"),
    [
        ({f"{INFO}/METADATA": ""}, f"{INFO}/METADATA"),
        ({INFO: LONG}, INFO),  # the file stands where a lower layer has a folder
        ({"opt/venv": LONG}, "opt/venv"),
        ({"usr/lib/libhello.so/x": LONG}, "usr/lib/libhello.so/x"),  # the other way round
        ({"usr/share/.wh.doc": ""}, "usr/share/.wh.doc"),
        ({f"{INFO}/direct_url.json": LONG}, f"{INFO}/direct_url.json"),
        ({"usr/share/doc/other/copyright": LONG}, "usr/share/doc/other/copyright"),  # of a package of another layer
    ],
)
def test_what_hides_or_completes_a_lower_layer_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, upper: dict[str, str], shown: str
) -> None:
    """And what does neither is not shown to syft at all."""
    monkeypatch.setenv("TRAINWRIGHT_STORE", str(tmp_path / "store"))
    monkeypatch.setattr(syft, "SMALL_LAYER", 0)
    image = make(tmp_path / "image", [layer(LOWER), layer({**upper, "opt/data.txt": LONG})], {})
    read: list[str] = []

    def noted(layout: Path, target: Path, *words: str) -> None:
        if layout.name == "layout":  # of the whole image, not of one layer
            read.extend(oci_layout.entries(layout, oci_layout.read(layout).layers[1]))
        scan(layout, target, *words)

    monkeypatch.setattr(syft, "_scan", noted)
    for _ in ("at first", "kept"):
        listed(image.folder, tmp_path)
        assert shown in read
        assert "opt/data.txt" not in read
        read.clear()


def test_layers_whose_copies_hold_the_same_keep_their_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINWRIGHT_STORE", str(tmp_path / "store"))
    monkeypatch.setattr(syft, "SMALL_LAYER", 0)
    monkeypatch.setattr(syft, "_scan", scan)
    layers = [layer({**LOWER, "opt/data.txt": text}) for text in ("one", "two")]
    image = make(tmp_path / "image", layers, {})
    found = listed(image.folder, tmp_path)["components"]
    told = {row["value"] for part in found for row in part["properties"] if row["name"].endswith(":layerID")}
    assert told == set(oci_layout.read(image.folder).config["rootfs"]["diff_ids"])


@pytest.mark.parametrize("damage", ["changed", "lost"])
def test_a_kept_layer_that_is_damaged_is_read_anew(
    image: Layout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    monkeypatch.setattr(syft, "_scan", scan)
    whole = listed(image.folder, tmp_path)
    (kept,) = (path for path in (store.root() / "sha256").rglob("*") if path.is_file())
    sound = kept.read_bytes()
    kept.chmod(0o644)
    kept.write_bytes(b"other")
    if damage == "lost":
        kept.unlink()
    assert listed(image.folder, tmp_path) == whole
    assert kept.read_bytes() == sound


def test_a_layer_of_another_content_is_refused(image: Layout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(syft, "_scan", scan)
    (image.folder / "blobs" / image.manifest["layers"][1]["digest"].replace(":", "/")).write_bytes(gzip.compress(b""))
    with pytest.raises(BuildError, match="does not match its image"):
        syft.sbom(image.folder, tmp_path / "sbom.json", "an-image")
