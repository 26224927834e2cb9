"""Write images of a few bytes as an engine would save them: an OCI layout with Docker's media types."""

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
CONFIG = "application/vnd.docker.container.image.v1+json"
LAYER = "application/vnd.docker.image.rootfs.diff.tar.gzip"


class Layout(NamedTuple):
    folder: Path
    digest: str
    manifest: dict[str, Any]


def make(folder: Path, layers: Sequence[bytes], config: Mapping[str, Any], **also: Any) -> Layout:
    """Write an image layout. `config` has Env, Labels and the like; `also` has other fields, such as created."""
    blobs = folder / "blobs/sha256"
    blobs.mkdir(parents=True)

    def blob(content: bytes, kind: str) -> dict[str, Any]:
        digest = hashlib.sha256(content).hexdigest()
        (blobs / digest).write_bytes(content)
        return {"mediaType": kind, "digest": f"sha256:{digest}", "size": len(content)}

    held = [blob(content, LAYER) for content in layers]
    unpacked = {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(unpack(one)).hexdigest()}" for one in layers]}
    said = json.dumps({"architecture": "amd64", "os": "linux", "config": config, "rootfs": unpacked, **also}).encode()
    manifest = {"schemaVersion": 2, "mediaType": MANIFEST, "config": blob(said, CONFIG), "layers": held}
    head = blob(json.dumps(manifest).encode(), MANIFEST)
    (folder / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [head]}))
    (folder / "oci-layout").write_text('{"imageLayoutVersion":"1.0.0"}')
    return Layout(folder, head["digest"], manifest)


def unpack(layer: bytes) -> bytes:
    return gzip.decompress(layer) if layer[:2] == b"\x1f\x8b" else layer


def layout(folder: Path, labels: dict[str, str], file: str = "hello") -> str:
    """Write an image with one layer, which holds one empty file; return its digest."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        archive.addfile(tarfile.TarInfo(file), io.BytesIO())
    return make(folder, [packed.getvalue()], {"Labels": labels}).digest
