"""Images made by hand: small, and without an engine."""

import hashlib
import io
import json
import tarfile
from pathlib import Path

DOCKER = "application/vnd.docker"


def layout(folder: Path, labels: dict[str, str], file: str = "hello") -> str:
    """An OCI layout with Docker media types, as the engine saves one; the digest of its one image."""
    blobs = folder / "blobs/sha256"
    blobs.mkdir(parents=True)

    def blob(content: bytes, kind: str) -> dict[str, object]:
        digest = hashlib.sha256(content).hexdigest()
        (blobs / digest).write_bytes(content)
        return {"mediaType": kind, "digest": f"sha256:{digest}", "size": len(content)}

    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        archive.addfile(tarfile.TarInfo(file), io.BytesIO())
    layer = blob(packed.getvalue(), f"{DOCKER}.image.rootfs.diff.tar.gzip")
    config = {"architecture": "amd64", "os": "linux", "config": {"Labels": labels}, "rootfs": {"type": "layers"}}
    manifest = {
        "schemaVersion": 2,
        "mediaType": f"{DOCKER}.distribution.manifest.v2+json",
        "config": blob(json.dumps(config).encode(), f"{DOCKER}.container.image.v1+json"),
        "layers": [layer],
    }
    entry = blob(json.dumps(manifest).encode(), str(manifest["mediaType"]))
    (folder / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [entry]}))
    (folder / "oci-layout").write_text('{"imageLayoutVersion":"1.0.0"}')
    return str(entry["digest"])
