"""Write the zstd twin of an image: the same configuration and the same layers, compressed with zstd, as an OCI image.

A configuration names its layers unpacked, by their diff_ids, so that image and twin have one configuration with one
digest. A twin with the configuration digest of a proved image, whose layers unpack to its diff_ids, is that image.

A compressed layer is kept in the store, by its diff_id, the library and the level: the same ones always give the same
bytes, whatever the number of threads.
"""

import gzip
import hashlib
import json
import os
import zlib
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any, NamedTuple

import zstandard

from trainwright.core import files, store
from trainwright.core.errors import BuildError
from trainwright.docker import oci_layout
from trainwright.docker.oci_layout import CHUNK, OCIS, Kinds

LAYER = f"{oci_layout.OCI}.layer.v1.tar+zstd"
KINDS = Kinds(OCIS.manifest, OCIS.config, (LAYER,))
FORM = 1  # raise it by hand when the same settings start to give other bytes


class Made(NamedTuple):
    """A twin as an OCI layout: digest of its manifest, the manifest, and how many layers the store did not have."""

    digest: str
    manifest: dict[str, Any]
    compressed: int


class Kept(NamedTuple):
    """A compressed layer in the store: sha256 (hex) and bytes."""

    blob: str
    size: int


def make(
    manifest: Mapping[str, Any],
    config: bytes,
    layer: Callable[[Mapping[str, Any]], Path],
    layout: Path,
    level: int,
    threads: int = 0,
) -> Made:
    """Write the twin of an image as an OCI layout into a new folder.

    `layer` returns the file of a layer of the image; it is called for those that the store does not have compressed.
    `threads` compress each of them, 0 is one for each processor. Raises BuildError for a layer whose bytes do not match
    the configuration, and what `layer` raises; EnvironmentProblem if the store cannot be written.
    """
    blobs = layout / "blobs/sha256"
    blobs.mkdir(parents=True)
    diff_ids = [str(one) for one in json.loads(config)["rootfs"]["diff_ids"]]
    rows = list(zip(manifest["layers"], diff_ids, strict=True))
    known = {diff_id: kept for diff_id in diff_ids if (kept := _known(diff_id, level))}
    largest_first = sorted(dict.fromkeys(diff_ids), key=lambda diff_id: -_size(rows, diff_id))
    missing = [diff_id for diff_id in largest_first if diff_id not in known]
    by_diff_id = {diff_id: row for row, diff_id in rows}
    cpus = os.cpu_count() or 1

    def one(diff_id: str) -> Kept:
        return _compressed(layer(by_diff_id[diff_id]), diff_id, level, threads or cpus)

    with store.told(), ThreadPoolExecutor(cpus) as pool:
        known |= dict(zip(missing, pool.map(one, missing), strict=True))
    for kept in known.values():
        _link(store.path_of(kept.blob), blobs / kept.blob)
    digest = hashlib.sha256(config).hexdigest()
    (blobs / digest).write_bytes(config)
    said = {
        "schemaVersion": 2,
        "mediaType": KINDS.manifest,
        "config": {"mediaType": KINDS.config, "digest": f"sha256:{digest}", "size": len(config)},
        "layers": [
            {"mediaType": LAYER, "digest": f"sha256:{known[one].blob}", "size": known[one].size} for one in diff_ids
        ],
    }
    content = json.dumps(said, sort_keys=True, separators=(",", ":")).encode()
    return Made(oci_layout.describe(layout, content, KINDS.manifest), said, len(missing))


def differences(twin: Mapping[str, Any], image: Mapping[str, Any]) -> str:
    """Return why a manifest is not that of a zstd twin of an image, by their manifests alone; "" if it is."""
    kinds = [("manifest", twin.get("mediaType"), KINDS.manifest)]
    kinds += [("layer", row.get("mediaType"), LAYER) for row in twin.get("layers", [])]
    if wrong := next(
        (f"the media type of its {part} is {said}, not {kind}" for part, said, kind in kinds if said != kind), ""
    ):
        return wrong
    one, other = (manifest["config"]["digest"] for manifest in (twin, image))
    if one != other:
        return f"its configuration is {one}, that of the image is {other}"
    count = len(image["layers"])
    return "" if len(twin["layers"]) == count else f"it has {len(twin['layers'])} layers, the image has {count}"


def is_twin(manifest: Mapping[str, Any]) -> bool:
    """Return whether a manifest is that of an OCI image all of whose layers are compressed with zstd."""
    layers = manifest.get("layers") or []
    return (
        manifest.get("mediaType") == KINDS.manifest
        and bool(layers)
        and all(row.get("mediaType") == LAYER for row in layers)
    )


def refuse_other_layer(packed: IO[bytes], diff_id: str, where: str) -> None:
    """Check that a compressed layer unpacks to its diff_id. Raises BuildError."""
    digest = hashlib.sha256()
    try:
        with zstandard.ZstdDecompressor().stream_reader(packed, read_across_frames=True) as reader:
            while chunk := reader.read(CHUNK):
                digest.update(chunk)
    except zstandard.ZstdError as error:
        raise _other(where, diff_id, f"it cannot be unpacked: {error}") from None
    if (found := f"sha256:{digest.hexdigest()}") != diff_id:
        raise _other(where, diff_id, f"it unpacks to {found}")


def _other(where: str, diff_id: str, why: str) -> BuildError:
    return BuildError(f"a layer does not match the configuration of its image: {diff_id}", where=where, why=why)


def _size(rows: list[tuple[Mapping[str, Any], str]], diff_id: str) -> int:
    return max(int(row["size"]) for row, own in rows if own == diff_id)


def _compressed(gzipped: Path, diff_id: str, level: int, threads: int) -> Kept:
    """Compress a layer into the store, and unpack it again before it is kept."""
    compressor = zstandard.ZstdCompressor(level=level, threads=threads, write_checksum=True)
    with store.scratch() as folder:
        target, digest, unpacked = folder / "layer", hashlib.sha256(), hashlib.sha256()
        running = compressor.compressobj()
        with target.open("wb") as writer:

            def keep(piece: bytes) -> None:
                digest.update(piece)
                writer.write(piece)

            for chunk in _unpacked(gzipped, diff_id):
                unpacked.update(chunk)
                keep(running.compress(chunk))
            keep(running.flush())
        if (found := f"sha256:{unpacked.hexdigest()}") != diff_id:
            raise _other(str(gzipped), diff_id, f"it unpacks to {found}")
        with target.open("rb") as written:
            refuse_other_layer(written, diff_id, str(target))
        kept = Kept(digest.hexdigest(), target.stat().st_size)
        store.add(target, kept.blob)
    files.write(_place(diff_id, level), json.dumps(kept._asdict()))
    return kept


def _unpacked(gzipped: Path, diff_id: str) -> Iterator[bytes]:
    from isal import igzip, igzip_lib  # lazily, because only this function needs it

    opened: Any = igzip.open  # neither module has types
    damaged: Any = igzip_lib.IsalError
    try:
        with opened(gzipped) as reader:
            while chunk := reader.read(CHUNK):
                yield chunk
    except (EOFError, gzip.BadGzipFile, zlib.error, damaged) as error:
        raise _other(str(gzipped), diff_id, f"it cannot be unpacked: {error}") from None


def _known(diff_id: str, level: int) -> Kept | None:
    """Return the kept layer; None if there is none, or the store has lost its bytes."""
    try:
        kept = Kept(**json.loads(_place(diff_id, level).read_text()))
        return kept if store.path_of(kept.blob).stat().st_size == kept.size else None
    except (OSError, ValueError, TypeError):
        return None


def _place(diff_id: str, level: int) -> Path:
    library = ".".join(map(str, zstandard.ZSTD_VERSION))
    return store.root() / "zstd" / f"{FORM}-{library}-{level}" / diff_id.removeprefix("sha256:")


def _link(source: Path, target: Path) -> None:
    try:
        target.hardlink_to(source)
    except FileExistsError:
        return
    except OSError:
        target.symlink_to(source)
