"""Write an image in one form, independent of the engine: pack its layers, rewrite configuration and manifest.

Terms used here and in `docker/layers.py`:
- row: one path of a layer, with all its tar metadata; for a file, the digest of its content instead of the content.
- changes: the rows of a layer that differ from the result of the layers below it. A layer contains nothing else.
- packed: a layer that was written from its changes and compressed by us; an image of such layers.
- known: an engine's image that was packed before, and all of whose blobs the store still has.
- spared: a layer that the engine need not export, because the store has its rows.

The store keeps packed results below packed/<packer>/: `rows` by the digest of a layer as the engine exported it,
`layers` (the packed result) by the digest of their changes, `images` by the engine's id, `configurations` by digest.
"""

import gzip
import hashlib
import json
import os
import tarfile
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from trainwright.core import files, store
from trainwright.core.errors import BuildError
from trainwright.docker import layers, oci_layout
from trainwright.docker.layers import Row, Tree, Written
from trainwright.image import key

# Fields of a configuration that are kept; engines may add others for their own use.
CONFIG = (
    "architecture",
    "author",
    "config",
    "created",
    "history",
    "os",
    "os.features",
    "os.version",
    "rootfs",
    "variant",
)


class Lacking(Exception):
    """Raised if the bytes of a layer are needed, and the layout has no file or an empty one in its place."""


class Packed(NamedTuple):
    """A packed image: the digest of its manifest, and the manifest. Its blobs are in the store."""

    digest: str
    manifest: dict[str, Any]

    @property
    def config(self) -> str:
        return str(self.manifest["config"]["digest"])

    def layers(self) -> list[str]:
        """Return the sha256 (hex) of the uncompressed tar of each layer, lowest first."""
        config = json.loads(_blob(self.config).read_text())
        return [str(digest).removeprefix("sha256:") for digest in config["rootfs"]["diff_ids"]]

    def blobs(self) -> list[str]:
        return [self.digest, self.config, *(str(layer["digest"]) for layer in self.manifest["layers"])]


def known(identity: str) -> Packed | None:
    """Return the packed image of an engine's id; None if it was not packed, or the store lost one of its blobs."""
    place = _folder("images") / identity
    if not place.is_file():
        return None
    digest = place.read_text().strip()
    found = Packed(digest, json.loads(_blob(digest).read_text())) if _blob(digest).is_file() else None
    return found if found and all(_blob(blob).is_file() for blob in found.blobs()) else None


def digest_of(config: str) -> str:
    """Return the digest of a packed image's manifest, by the digest of its configuration; "" if that is not known."""
    place = _folder("configurations") / config
    return place.read_text().strip() if place.is_file() else ""


def spared() -> list[str]:
    """Return the sha256 (hex) of every layer that an engine need not export, because the store has its rows."""
    return [path.name for path in _folder("rows").glob("*")]


def pack(layout: Path, identity: str = "") -> Packed:
    """Pack the one image of an OCI layout into the store; `identity` is the engine's id of it.

    Raises BuildError for a layout without an image or a layer that cannot be packed, and Lacking.
    """
    manifest, config = _image(layout)
    below, made, tree = list[str](), list[Written](), Tree()
    epochs = _epochs(config, len(manifest["layers"]))
    for layer, epoch in zip(manifest["layers"], epochs, strict=True):
        try:
            made.append(_layer(layout, str(layer["digest"]), tree, epoch))
        except (tarfile.TarError, OSError, EOFError) as error:
            raise BuildError(
                "a layer cannot be packed", where=str(layer["digest"]), why=str(error), fix="build the image again"
            ) from None
        below.append(made[-1].tar)
    written = _json(_config(config, below))
    described = _keep(written, oci_layout.CONFIG)
    kinds = [{"mediaType": oci_layout.LAYER, "digest": f"sha256:{layer.blob}", "size": layer.size} for layer in made]
    whole = {"schemaVersion": 2, "mediaType": oci_layout.MANIFEST, "config": described, "layers": kinds}
    found = Packed(_keep(_json(whole), oci_layout.MANIFEST)["digest"], whole)
    files.write(_folder("configurations") / found.config, found.digest + "\n")
    for name in {identity, found.config, found.digest} - {""}:
        files.write(_folder("images") / name, found.digest + "\n")
    return found


def lay_out(made: Packed, layout: Path, name: str = "", leave_out: Iterable[str] = ()) -> None:
    """Write a packed image as an OCI layout that engines can load, under `name`, without the blobs in `leave_out`."""
    left, blobs = set(leave_out), layout / "blobs/sha256"
    blobs.mkdir(parents=True)
    for digest in set(made.blobs()) - left:
        _link(_blob(digest), blobs / digest.removeprefix("sha256:"))
    tag = name.rpartition(":")[2]
    notes = {"io.containerd.image.name": f"docker.io/{name}", "org.opencontainers.image.ref.name": tag} if name else {}
    described = {
        "mediaType": oci_layout.MANIFEST,
        "digest": made.digest,
        "size": _blob(made.digest).stat().st_size,
        **({"annotations": notes} if notes else {}),
    }
    (layout / "oci-layout").write_text('{"imageLayoutVersion":"1.0.0"}')
    (layout / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [described]}))
    held = [f"blobs/{digest.replace(':', '/')}" for digest in made.blobs()[1:]]
    row = {"Config": held[0], "RepoTags": [name] if name else None, "Layers": held[1:]}
    (layout / "manifest.json").write_text(json.dumps([row]))


def _layer(layout: Path, digest: str, tree: Tree, epoch: int) -> Written:
    """Pack one layer on top of those in `tree`; take it from the store if its changes were packed before."""
    blob, held = layout / "blobs" / digest.replace(":", "/"), _folder("rows") / digest.removeprefix("sha256:")
    with store.scratch() as folder:
        tar, offsets = None, dict[str, int]()

        def read() -> list[Row]:
            nonlocal tar
            if not blob.is_file() or blob.stat().st_size == 0:
                raise Lacking(digest)
            tar = layers.unpacked(blob, folder / "tar")
            found = list(layers.rows_of(tar))
            offsets.update({row.content: offset for row, offset in found if row.kind == layers.FILE})
            return [row for row, _ in found]

        rows = _rows(held) if held.is_file() else None
        if rows is None:
            rows = read()
            _keep_rows(held, rows)
        changes = tree.apply(rows, epoch)
        text = _text(changes)
        place = _folder("layers") / hashlib.sha256(text).hexdigest()
        if (found := _written(place)) and store.has(found.blob):
            return found
        if tar is None:
            read()
        made = layers.write(changes, tar, offsets, folder / "layer", os.cpu_count() or 1)
        store.add(folder / "layer", made.blob)
    for name in (made.tar, made.blob):  # an engine that loads this layer exports it under one of these digests
        _keep_rows(_folder("rows") / name, changes)
    files.write(place, json.dumps(made._asdict()))
    return made


def _image(layout: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Read manifest and configuration of the image in a layout; skip an attestation beside it."""

    def read(digest: str) -> dict[str, Any]:
        return dict(json.loads((layout / "blobs" / digest.replace(":", "/")).read_text()))

    found = json.loads((layout / "index.json").read_text())
    while "manifests" in found:  # the engine writes an index if it adds an attestation
        rows = [row for row in found["manifests"] if row.get("platform", {}).get("os") != "unknown"]
        held = [row for row in rows if (layout / "blobs" / row["digest"].replace(":", "/")).is_file()]
        if not held:
            raise BuildError(
                "the image cannot be packed",
                where=str(layout),
                why="its index lists no existing manifest",
                fix="build it again",
            )
        found = read(held[0]["digest"])
    return found, read(found["config"]["digest"])


def _epochs(config: Mapping[str, Any], count: int) -> list[int]:
    """Return the time of each layer, from its step in the history; layers of a parent keep their times."""
    own = str(config.get("created") or "")
    steps = [str(step.get("created") or own) for step in config.get("history") or [] if not step.get("empty_layer")]
    return [_seconds(text) for text in (steps if len(steps) == count else [own] * count)]


def _seconds(text: str) -> int:
    """Return the seconds since 1970 of an RFC 3339 time, whose fraction may have nine digits; 0 for an empty text."""
    if not text:
        return 0
    whole = datetime.fromisoformat(text[:19] + "+00:00")
    zone = text[19:].lstrip(".0123456789")
    if zone not in ("", "Z"):
        whole = datetime.fromisoformat(text[:19] + zone)
    return max(0, int(whole.timestamp()))


def _config(config: Mapping[str, Any], tars: Sequence[str]) -> dict[str, Any]:
    """Return an equivalent configuration for containers: without empty values, and with the packed layers."""
    kept = {name: config[name] for name in CONFIG if config.get(name)}
    kept["config"] = {name: value for name, value in kept.get("config", {}).items() if value}
    kept["history"] = [{name: value for name, value in step.items() if value} for step in kept.get("history", [])]
    kept["rootfs"] = {"type": "layers", "diff_ids": [f"sha256:{tar}" for tar in tars]}
    return kept


def _json(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def _keep(content: bytes, kind: str) -> dict[str, Any]:
    """Put a document into the store, and return its descriptor for a manifest."""
    sha256 = hashlib.sha256(content).hexdigest()
    if not store.has(sha256):
        with store.scratch() as folder:
            (folder / "blob").write_bytes(content)
            store.add(folder / "blob", sha256)
    return {"mediaType": kind, "digest": f"sha256:{sha256}", "size": len(content)}


def _blob(digest: str) -> Path:
    return store.path_of(digest.removeprefix("sha256:"))


def _folder(name: str) -> Path:
    return store.root() / "packed" / key.packer() / name


def _link(source: Path, target: Path) -> None:
    try:
        target.hardlink_to(source)
    except OSError:
        target.symlink_to(source)


def _text(rows: Sequence[Row]) -> bytes:
    return json.dumps(rows, separators=(",", ":")).encode()


def _rows(place: Path) -> list[Row] | None:
    try:
        return [Row(*row) for row in json.loads(gzip.decompress(place.read_bytes()))]
    except (OSError, ValueError, TypeError, EOFError):
        return None


def _keep_rows(place: Path, rows: Sequence[Row]) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    with store.scratch() as folder:
        (folder / "rows").write_bytes(gzip.compress(_text(rows), 1, mtime=0))
        (folder / "rows").replace(place)


def _written(place: Path) -> Written | None:
    try:
        return Written(**json.loads(place.read_text()))
    except (OSError, ValueError, TypeError):
        return None
