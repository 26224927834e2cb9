"""Test the comparison of two images: layers as different tools write them, and the reported differences."""

import hashlib
import io
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from trainwright.build.rebuild import rows_of
from trainwright.build.rebuilt import Row, config_rows, names
from trainwright.docker import oci_layout

EPOCH = 1_700_000_000
PLAIN: dict[str, Any] = {"content": b"text", "mode": 0o644, "mtime": EPOCH, "uid": 0}


def layer(files: dict[str, dict[str, Any]], pax: dict[str, str] | None = None) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, said in files.items():
            member = tarfile.TarInfo(name)
            member.mode, member.mtime, member.uid = said["mode"], said["mtime"], said["uid"]
            member.pax_headers = pax or {}
            if "target" in said:
                member.type, member.linkname = tarfile.SYMTYPE, said["target"]
                archive.addfile(member)
            else:
                member.size = len(said["content"])
                archive.addfile(member, io.BytesIO(said["content"]))
    return packed.getvalue()


def image(folder: Path, *layers: bytes, created: str = "2026-01-01T00:00:00Z", zipped: int = 9) -> Path:
    """Write an OCI layout with these layers, each made by one instruction."""
    import gzip

    def blob(content: bytes) -> dict[str, str]:
        digest = hashlib.sha256(content).hexdigest()
        (folder / "blobs/sha256").mkdir(parents=True, exist_ok=True)
        (folder / "blobs/sha256" / digest).write_bytes(content)
        return {"digest": f"sha256:{digest}"}

    config = {
        "created": created,
        "config": {"Labels": {"a": "b"}, "Env": ["PATH=/bin"]},
        "history": [{"created_by": "LABEL a=b", "empty_layer": True}]
        + [
            {"created_by": f"RUN |2 A=1 B= /bin/sh -c --mount=type=bind,from=x step {number} # buildkit"}
            for number in range(len(layers))
        ],
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(one).hexdigest()}" for one in layers]},
    }
    packed = [blob(gzip.compress(one, zipped, mtime=0)) for one in layers]
    manifest = {"config": blob(json.dumps(config).encode()), "layers": packed}
    (folder / "index.json").write_text(json.dumps({"manifests": [blob(json.dumps(manifest).encode())]}))
    return folder


def compared(tmp_path: Path, ours: list[bytes], theirs: list[bytes], **options: Any) -> list[Row]:
    one = image(tmp_path / "ours", *ours, **options)
    return list(
        rows_of(oci_layout.read(one), oci_layout.read(image(tmp_path / "theirs", *theirs)), one, tmp_path / "theirs")
    )


def test_the_same_image_differs_in_nothing(tmp_path: Path) -> None:
    same = [layer({"a": PLAIN}), layer({"b": PLAIN})]
    assert compared(tmp_path, same, same) == []


@pytest.mark.parametrize(
    ("change", "what", "held", "rebuilt"),
    [
        ({"content": b"TEXT"}, "content", hashlib.sha256(b"text").hexdigest()[:12], None),
        ({"mode": 0o600}, "mode", "0644", "0600"),
        ({"mtime": EPOCH + 1}, "mtime", f"{EPOCH}.0", f"{EPOCH + 1}.0"),
        ({"mtime": EPOCH + 0.5}, "mtime", f"{EPOCH}.0", f"{EPOCH}.5"),
        ({"uid": 7}, "owner", "0:0", "7:0"),
    ],
)
def test_each_thing_that_may_differ_is_named(
    tmp_path: Path, change: dict[str, Any], what: str, held: str, rebuilt: str | None
) -> None:
    same = layer({"x": PLAIN})
    (row,) = compared(
        tmp_path, [same, layer({"a": PLAIN, "b": PLAIN | change})], [same, layer({"a": PLAIN, "b": PLAIN})]
    )
    assert (row.layer, row.path, row.what, row.held) == ("2 RUN step 1", "b", what, held)
    assert rebuilt is None or row.rebuilt == rebuilt


def test_a_link_elsewhere_and_a_file_that_became_one(tmp_path: Path) -> None:
    held = layer({"a": PLAIN, "b": PLAIN | {"target": "x"}})
    ours = layer({"a": PLAIN | {"target": "a"}, "b": PLAIN | {"target": "y"}})
    assert [(row.path, row.what) for row in compared(tmp_path, [ours], [held])] == [
        ("a", "kind"),
        ("a", "content"),
        ("b", "content"),
    ]


def test_extended_attributes_count(tmp_path: Path) -> None:
    ours = layer({"a": PLAIN}, {"SCHILY.xattr.security.capability": "x"})
    assert [row.what for row in compared(tmp_path, [ours], [layer({"a": PLAIN})])] == ["attributes"]


def test_what_only_one_of_them_has(tmp_path: Path) -> None:
    rows = compared(tmp_path, [layer({"a": PLAIN})], [layer({"b": PLAIN})])
    assert [(row.path, row.what, row.rebuilt, row.held) for row in rows] == [
        ("a", "presence", "there", "(not there)"),
        ("b", "presence", "(not there)", "there"),
    ]


def test_a_layer_more(tmp_path: Path) -> None:
    same = layer({"a": PLAIN})
    rows = compared(tmp_path, [same, layer({"b": PLAIN})], [same])
    assert ("2 RUN step 1", "presence", "") in [(row.layer, row.what, row.held) for row in rows]


def test_the_order_of_an_archive_and_its_compression_are_said_to_be_that(tmp_path: Path) -> None:
    one, other = layer({"a": PLAIN, "b": PLAIN}), layer({"b": PLAIN, "a": PLAIN})
    assert [row.what for row in compared(tmp_path / "1", [one], [other])] == ["order or encoding of the archive"]
    assert [row.what for row in compared(tmp_path / "2", [one], [one], zipped=1)] == ["compression"]


def test_of_a_configuration_only_what_differs(tmp_path: Path) -> None:
    same = [layer({"a": PLAIN})]
    (row,) = compared(tmp_path, same, same, created="2027-01-01T00:00:00Z")
    assert (row.layer, row.path, row.held) == ("configuration", "created", "2026-01-01T00:00:00Z")
    one, other = {"config": {"Env": ["A=1", "B=1"]}}, {"config": {"Env": ["A=1", "B=2"]}}
    assert [(row.path, row.rebuilt, row.held) for row in config_rows(one, other)] == [("config.Env.1", "B=1", "B=2")]


def test_a_history_that_does_not_fit_names_no_instruction() -> None:
    assert names({"rootfs": {"diff_ids": ["x", "y"]}, "history": [{"created_by": "RUN a"}]}) == ["1", "2"]
