"""Read, unpack or write an OCI layout on this host: the configuration of its one image, and the files of each layer."""

import hashlib
import json
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple, cast

import zstandard

from trainwright.core.errors import BuildError

CHUNK = 1 << 20  # bytes
DOCKER = "application/vnd.docker"  # media types
MANIFEST = f"{DOCKER}.distribution.manifest.v2+json"
CONFIG = f"{DOCKER}.container.image.v1+json"
LAYER = f"{DOCKER}.image.rootfs.diff.tar.gzip"
TAR = f"{DOCKER}.image.rootfs.diff.tar"
OCI = "application/vnd.oci.image"
KINDS = {tarfile.DIRTYPE: "directory", tarfile.SYMTYPE: "link", tarfile.LNKTYPE: "hard link"}


class Kinds(NamedTuple):
    """The media types of an image."""

    manifest: str
    config: str
    layers: tuple[str, ...]


DOCKERS = Kinds(MANIFEST, CONFIG, (LAYER,))  # the only ones that SageMaker pulls
# Docker's media types have no name for zstd that every engine knows.
OCIS = Kinds(
    f"{OCI}.manifest.v1+json", f"{OCI}.config.v1+json", tuple(f"{OCI}.layer.v1.tar+{by}" for by in ("gzip", "zstd"))
)


class Entry(NamedTuple):
    """One path of a layer, as far as it enters the layer's digest."""

    kind: str
    mode: str  # octal
    owner: str  # uid:gid
    mtime: float  # seconds
    content: str  # sha256 (hex) of a file, the target of a link, the numbers of a device
    attributes: str  # extended attributes


class Content(NamedTuple):
    """An image: its digest, and what the digest is computed over."""

    digest: str
    config: dict[str, Any]
    layers: list[str]  # digests as compressed, lowest first


def read(layout: Path) -> Content:
    """Return the image of a layout that the engine saved."""
    digest = str(json.loads((layout / "index.json").read_text())["manifests"][0]["digest"])
    manifest = json.loads(_blob(layout, digest).read_text())
    config = json.loads(_blob(layout, manifest["config"]["digest"]).read_text())
    return Content(digest, config, [str(layer["digest"]) for layer in manifest["layers"]])


def entries(layout: Path, layer: str) -> dict[str, Entry]:
    """Return the entries of one layer, by path."""
    with tarfile.open(_blob(layout, layer)) as archive:
        return {member.name: _entry(archive, member) for member in archive}


def unpack(layout: Path, layer: str, diff_id: str, target: Path) -> None:
    """Write a layer's tar. Raises BuildError if it is not the one that the image's configuration names."""
    hashed = hashlib.sha256()
    with _opened(_blob(layout, layer)) as packed, target.open("wb") as tar:
        while chunk := packed.read(CHUNK):
            hashed.update(chunk)
            tar.write(chunk)
    if (said := f"sha256:{hashed.hexdigest()}") != diff_id:
        why = f"the configuration names {diff_id}, the layer holds {said}"
        raise BuildError("a layer does not match its image", where=layer, why=why, fix="build again")


def join(config: Mapping[str, Any], tars: Sequence[tuple[str, Path]], layout: Path) -> None:
    """Write a layout of one image: its configuration, and links to its tars with their digests, lowest first."""
    (layout / "blobs/sha256").mkdir(parents=True)
    content = json.dumps(config).encode()
    digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
    _blob(layout, digest).write_bytes(content)
    for layer, tar in dict(tars).items():
        _blob(layout, layer).hardlink_to(tar)
    layers = [{"mediaType": TAR, "digest": layer, "size": tar.stat().st_size} for layer, tar in tars]
    described = {"mediaType": CONFIG, "digest": digest, "size": len(content)}
    manifest = {"schemaVersion": 2, "mediaType": MANIFEST, "config": described, "layers": layers}
    describe(layout, json.dumps(manifest).encode(), MANIFEST)


def describe(layout: Path, manifest: bytes, kind: str) -> str:
    """Write the one manifest of a layout, and what leads to it; return its digest."""
    digest = f"sha256:{hashlib.sha256(manifest).hexdigest()}"
    _blob(layout, digest).write_bytes(manifest)
    (layout / "oci-layout").write_text('{"imageLayoutVersion":"1.0.0"}')
    described = {"mediaType": kind, "digest": digest, "size": len(manifest)}
    (layout / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [described]}))
    return digest


def _opened(blob: Path) -> IO[bytes]:
    """Open a layer that is compressed with gzip or zstd, as its first bytes say."""
    with blob.open("rb") as file:
        head = file.read(len(zstandard.FRAME_HEADER))
    if head == zstandard.FRAME_HEADER:
        return zstandard.ZstdDecompressor().stream_reader(blob.open("rb"), read_across_frames=True)
    from isal import igzip  # lazily, because only this function needs it

    opened: Any = igzip.open  # igzip has no types
    return cast(IO[bytes], opened(blob))


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
