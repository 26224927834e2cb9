"""What lies in an OCI layout on this host: the configuration of its one image, and the files of each layer."""

import hashlib
import json
import tarfile
from pathlib import Path
from typing import Any, NamedTuple

CHUNK = 1 << 20  # bytes
KINDS = {tarfile.DIRTYPE: "directory", tarfile.SYMTYPE: "link", tarfile.LNKTYPE: "hard link"}


class Entry(NamedTuple):
    """One path of a layer, as far as it enters the layer's digest."""

    kind: str
    mode: str  # octal
    owner: str  # uid:gid
    mtime: float  # seconds
    content: str  # sha256 (hex) of a file, the target of a link, the numbers of a device
    attributes: str  # extended ones


class Content(NamedTuple):
    """An image: what its digest is made of."""

    digest: str
    config: dict[str, Any]
    layers: list[str]  # digests as compressed, lowest first


def read(layout: Path) -> Content:
    """The image of a layout as the engine saves it."""
    digest = str(json.loads((layout / "index.json").read_text())["manifests"][0]["digest"])
    manifest = json.loads(_blob(layout, digest).read_text())
    config = json.loads(_blob(layout, manifest["config"]["digest"]).read_text())
    return Content(digest, config, [str(layer["digest"]) for layer in manifest["layers"]])


def entries(layout: Path, layer: str) -> dict[str, Entry]:
    """Path to what lies there, of one layer."""
    with tarfile.open(_blob(layout, layer)) as archive:
        return {member.name: _entry(archive, member) for member in archive}


def _entry(archive: tarfile.TarFile, member: tarfile.TarInfo) -> Entry:
    content, kind = member.linkname, KINDS.get(member.type, "device")
    if member.isreg():
        kind, digest = "file", hashlib.sha256()
        file = archive.extractfile(member)
        while file and (chunk := file.read(CHUNK)):
            digest.update(chunk)
        content = digest.hexdigest()
    elif kind == "device":
        content = f"{member.devmajor}:{member.devminor}"
    attributes = {name: value for name, value in member.pax_headers.items() if name.startswith("SCHILY.xattr.")}
    return Entry(
        kind=kind,
        mode=f"{member.mode:04o}",
        owner=f"{member.uid}:{member.gid}",
        mtime=float(member.mtime),
        content=content,
        attributes=json.dumps(attributes, sort_keys=True) if attributes else "",
    )


def _blob(layout: Path, digest: str) -> Path:
    return layout / "blobs" / digest.replace(":", "/")
