"""Test that two image stores give the same image the same digest, and that a packed layer is not packed again."""

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from trainwright.core import store
from trainwright.core.errors import BuildError
from trainwright.docker import canonical, layers, oci_layout
from trainwright.image import key as image_key

CREATED = "2023-11-14T22:13:20Z"
EPOCH = 1_700_000_000
Make = Callable[..., Path]


def archive(**files: str) -> bytes:
    """Return a layer's tar. A name that ends with a slash is a directory; `__` stands for a slash."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as out:
        for name, content in files.items():
            entry = tarfile.TarInfo(name.replace("__", "/"))
            entry.mtime, entry.mode = EPOCH + 99, 0o755
            entry.type = tarfile.DIRTYPE if content == "/" else tarfile.REGTYPE
            entry.size = 0 if content == "/" else len(content)
            out.addfile(entry, io.BytesIO(content.encode()) if content != "/" else None)
    return made.getvalue()


LAYERS = [archive(etc="/", etc__one="1"), archive(etc="/"), archive(opt="/", opt__two="22")]
SPARING = [LAYERS[0], archive(), LAYERS[2]]  # without a directory that did not change


@pytest.fixture(autouse=True)
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TRAINWRIGHT_STORE", str(tmp_path / "store"))
    return tmp_path / "store"


def blob(folder: Path, content: bytes, kind: str) -> dict[str, Any]:
    digest = hashlib.sha256(content).hexdigest()
    (folder / "blobs/sha256" / digest).write_bytes(content)
    return {"mediaType": kind, "digest": f"sha256:{digest}", "size": len(content)}


def engines(folder: Path, tars: list[bytes], compressed: bool, more: Mapping[str, Any] = {}) -> Path:
    """Write a layout as an engine saves it: the containerd store keeps layers compressed, the older one does not."""
    (folder / "blobs/sha256").mkdir(parents=True)
    kinds = (
        (oci_layout.LAYER, oci_layout.CONFIG, oci_layout.MANIFEST) if compressed else ("layer", "config", "manifest")
    )
    held = [blob(folder, gzip.compress(tar) if compressed else tar, kinds[0]) for tar in tars]
    history = [{"created": CREATED, "created_by": "RUN x"}] * len(tars) + [{"created": CREATED, "empty_layer": True}]
    config = {
        "architecture": "amd64",
        "os": "linux",
        "created": CREATED,
        "config": {"Env": ["A=b"], "Cmd": None, "Tty": False} if compressed else {"Env": ["A=b"]},
        "history": history,
        "rootfs": {"type": "layers", "diff_ids": ["sha256:" + hashlib.sha256(tar).hexdigest() for tar in tars]},
        **more,
    }
    said = blob(folder, json.dumps(config).encode(), kinds[1])
    manifest = {"schemaVersion": 2, "config": said, "layers": held}
    head = blob(folder, json.dumps(manifest).encode(), kinds[2])
    (folder / "index.json").write_text(json.dumps({"manifests": [head]}))
    return folder


def test_two_stores_one_digest(tmp_path: Path) -> None:
    one = canonical.pack(engines(tmp_path / "containerd", SPARING, True, {"moby.buildkit.cache.v0": "x"}))
    other = canonical.pack(engines(tmp_path / "classic", LAYERS, False))
    assert one == other
    assert one.manifest["mediaType"] == oci_layout.MANIFEST
    assert {layer["mediaType"] for layer in one.manifest["layers"]} == {oci_layout.LAYER}


@pytest.mark.parametrize("compressed", [True, False])
def test_what_is_packed_stays_what_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compressed: bool) -> None:
    """As an engine gives it back: as it was loaded, or unpacked; on a host that never saw it."""
    made = canonical.pack(engines(tmp_path / "first", LAYERS, False))
    canonical.lay_out(made, tmp_path / "packed", "trainwright/x:1")
    tars = [gzip.decompress(canonical._blob(layer["digest"]).read_bytes()) for layer in made.manifest["layers"]]
    monkeypatch.setenv("TRAINWRIGHT_STORE", str(tmp_path / "another"))
    again = tmp_path / "packed" if compressed else engines(tmp_path / "unpacked", tars, False)
    assert canonical.pack(again).digest == made.digest


def test_a_layout_for_engines_and_for_everybody(tmp_path: Path) -> None:
    made = canonical.pack(engines(tmp_path / "first", LAYERS, False))
    canonical.lay_out(made, tmp_path / "named", "trainwright/x:1")
    said = oci_layout.read(tmp_path / "named")
    assert said.digest == made.digest
    assert said.config["config"] == {"Env": ["A=b"]}
    assert [set(oci_layout.entries(tmp_path / "named", layer)) for layer in said.layers] == [
        {"etc", "etc/one"},
        set(),
        {"opt", "opt/two"},
    ]
    (row,) = json.loads((tmp_path / "named/manifest.json").read_text())
    assert row["RepoTags"] == ["trainwright/x:1"]
    assert all((tmp_path / "named" / path).is_file() for path in [row["Config"], *row["Layers"]])
    canonical.lay_out(made, tmp_path / "less", leave_out=[layer["digest"] for layer in made.manifest["layers"][:2]])
    assert len(list((tmp_path / "less/blobs/sha256").iterdir())) == 3  # manifest, configuration, the upper layer


def test_a_parents_layers_keep_its_time(tmp_path: Path) -> None:
    """By the history; so a child shares its parent's bytes."""
    parent = canonical.pack(engines(tmp_path / "parent", LAYERS, False))
    steps = [{"created": CREATED}] * 3 + [{"created": "2024-01-01T00:00:00.123456789+01:00"}]
    more = {"created": "2024-01-01T00:00:00Z", "history": steps}
    child = canonical.pack(engines(tmp_path / "child", [*LAYERS, archive(new="n")], False, more))
    assert child.manifest["layers"][:3] == parent.manifest["layers"]
    canonical.lay_out(child, tmp_path / "layout")
    entry = oci_layout.entries(tmp_path / "layout", child.manifest["layers"][3]["digest"])["new"]
    assert entry.mtime == EPOCH + 99


def test_only_the_changed_layer_is_packed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    canonical.pack(engines(tmp_path / "first", LAYERS, False))
    packed, write = list[int](), layers.write

    def counted(*words: Any) -> layers.Written:
        packed.append(1)
        return write(*words)

    monkeypatch.setattr(layers, "write", counted)
    canonical.pack(engines(tmp_path / "again", LAYERS, False))
    assert packed == []
    canonical.pack(engines(tmp_path / "more", [*LAYERS, archive(etc="/", etc__three="3")], False))
    canonical.pack(engines(tmp_path / "below", [archive(usr="/"), *LAYERS[1:]], False))
    assert len(packed) == 3  # of the last, the lowest; and /etc, which is new on top of it


def test_what_is_known_need_not_come(tmp_path: Path) -> None:
    made = canonical.pack(engines(tmp_path / "first", LAYERS, False))
    again = engines(tmp_path / "again", LAYERS, False)
    for digest in canonical.spared():
        (again / "blobs/sha256" / digest).write_bytes(b"")
    assert canonical.pack(again) == made
    changed = engines(tmp_path / "changed", [archive(etc="/", etc__one="other"), *LAYERS[1:]], False)
    for digest in canonical.spared():
        (changed / "blobs/sha256" / digest).write_bytes(b"")
    canonical.pack(changed)
    older = engines(tmp_path / "older", LAYERS, False, {"history": [], "created": "2000-01-01T00:00:00Z"})
    for digest in canonical.spared():
        (older / "blobs/sha256" / digest).write_bytes(b"")
    with pytest.raises(canonical.Lacking):
        canonical.pack(older)


def test_the_store_may_lose_it(tmp_path: Path) -> None:
    made = canonical.pack(engines(tmp_path / "first", LAYERS, False), "sha256:of-the-engine")
    assert canonical.known("sha256:of-the-engine") == made == canonical.known(made.config)
    assert canonical.digest_of(made.config) == made.digest
    store.path_of(made.manifest["layers"][0]["digest"].removeprefix("sha256:")).unlink()
    assert canonical.known("sha256:of-the-engine") is None
    assert canonical.pack(engines(tmp_path / "again", LAYERS, False)) == made
    for path in (Path(store.root()) / "packed").rglob("*"):
        if path.is_file():
            path.write_bytes(b"\x00 damaged")
    assert canonical.known(made.config) is None
    assert canonical.pack(engines(tmp_path / "once more", LAYERS, False)) == made


# Digest of one packed image: bytes of its layers, configuration and manifest. It changes with plan.PACKING and with
# deflate alone: then every image has another digest, and so another key.
KNOWN = "sha256:0c7b5248ad3df1bff51a08773a2d00f82b2768675dfa8ab8555431f65f1b40b4"


def test_the_bytes_of_an_image_change_with_the_packer_alone(tmp_path: Path) -> None:
    more = {"config": {"Env": ["Ä=ü"], "Labels": {"b": "2", "a": "1"}, "Cmd": None}, "variant": "v8", "author": ""}
    made = canonical.pack(engines(tmp_path / "one", LAYERS, False, more))
    assert made.digest == KNOWN, "raise plan.PACKING, and write the new digest here"


def test_another_packer_starts_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = canonical.pack(engines(tmp_path / "first", LAYERS, False))
    key = image_key.input_key({}, {}, "")
    monkeypatch.setattr(image_key, "PACKING", image_key.PACKING + 1)
    assert canonical.known(made.config) is None
    assert image_key.input_key({}, {}, "") != key


def test_a_layer_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match="cannot be packed"):
        canonical.pack(engines(tmp_path / "bad", [b"this is no tar" * 100], False))
    (tmp_path / "none").mkdir()
    (tmp_path / "none/index.json").write_text('{"manifests": []}')
    with pytest.raises(BuildError, match="the image cannot be packed"):
        canonical.pack(tmp_path / "none")
