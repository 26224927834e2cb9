"""Compute what the sources of images take on disk, and compare what a build needs with what is free."""

import os
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from trainwright.core import store
from trainwright.core.host_settings import HostDisk
from trainwright.image.inputs import Inputs


class Disk(NamedTuple):
    """A disk: the paths on it, the bytes that they need together, and the bytes that are free."""

    paths: list[Path]
    need: float
    free: int


def sources_of(found: Inputs) -> dict[str, int]:
    """Map the sha256 of each file of an image's locks to its bytes: what a build needs is a multiple of these."""
    python = {file.sha256: file.size for file in found.lock.python}
    return python | {file.sha256: file.size for file in found.distribution.packages().values()}


def engine_folder(facts: Mapping[str, Any]) -> Path | None:
    """Return the folder of an engine with these facts; None if it is on another machine, whose disk is not seen."""
    return Path(facts["root"]) if os.environ.get("DOCKER_HOST", "unix:").startswith("unix:") else None


def to_prove(found: Inputs, factors: HostDisk, engine: Path | None, build: bool) -> dict[Path, float]:
    """Map the store and the engine's folder to the bytes that the proof of one image needs there.

    Sources that the store holds are counted out. Without `build` the image is published, and is only pulled.
    """
    sizes = sources_of(found)
    missing = sum(size for sha256, size in sizes.items() if not store.has(sha256))
    wanted = {store.root(): missing * factors.store + sum(sizes.values()) * factors.listing} if build else {}
    if engine:
        wanted[engine] = sum(sizes.values()) * factors.engine
    return wanted


def disks(wanted: Mapping[Path, float], rest: float = 0) -> list[Disk]:
    """Group paths by disk, because paths on one disk share its free space; each disk needs `rest` bytes more."""
    found: dict[int, list[Path]] = {}
    for path in wanted:
        found.setdefault(_there(path).stat().st_dev, []).append(path)
    return [
        Disk(paths, sum(wanted[path] for path in paths) + rest, shutil.disk_usage(_there(paths[0])).free)
        for paths in found.values()
    ]


def short(found: Iterable[Disk]) -> list[Disk]:
    """Return the disks on which less is free than needed."""
    return [disk for disk in found if disk.need > disk.free]


def said(disk: Disk) -> str:
    return f"{' and '.join(map(str, disk.paths))}: {disk.need / 1e9:.2f} GB needed, {disk.free / 1e9:.2f} GB free"


def _there(path: Path) -> Path:
    """Return the path, or the nearest folder above it that exists."""
    return next(place for place in [path, *path.parents] if place.exists())
