"""Check that the disks of the store and of the engine have room for the images that are still to be built."""

import os
import shutil
from collections import ChainMap
from pathlib import Path

from trainwright.core import store
from trainwright.doctor.context import Context, Finding


def check(context: Context) -> Finding:
    images, factors, daemon = context.to_build(), context.host.disk, context.engine
    each = [
        {file.sha256: file.size for file in found.lock.python}
        | {file.sha256: file.size for file in found.distribution.packages().values()}
        for found in images
    ]
    sources = sum(dict(ChainMap(*each)).values())  # compressed bytes
    largest = max((sum(sizes.values()) for sizes in each), default=0)
    wanted = {store.root(): sources * factors.store + largest * factors.listing}
    if local := isinstance(daemon, dict) and os.environ.get("DOCKER_HOST", "unix:").startswith("unix:"):
        wanted[Path(daemon["root"])] = sources * factors.engine
    disks: dict[int, list[Path]] = {}  # paths on one disk share its free space
    for path in wanted:
        disks.setdefault(_there(path).stat().st_dev, []).append(path)
    which = "default " if context.ids is None else ""
    said, short = [f"{len(images)} {which}image(s) to build, {sources / 1e9:.2f} GB of sources"], False
    for paths in disks.values():
        need, free = sum(wanted[path] for path in paths), shutil.disk_usage(_there(paths[0])).free
        short = short or need > free
        said.append(f"{' and '.join(map(str, paths))}: {need / 1e9:.2f} GB needed, {free / 1e9:.2f} GB free")
    if short:
        fix = "docker system prune, free some space, or point TRAINWRIGHT_STORE to another disk"
        return Finding(check="disk", state="failed", found="; ".join(said), fix=fix)
    if not local:
        said.append("the engine's disk cannot be checked from here")
        fix = "df -h, on the machine of the engine" if isinstance(daemon, dict) else daemon.fix
        return Finding(check="disk", state="unknown", found="; ".join(said), fix=fix)
    return Finding(check="disk", state="ok", found="; ".join(said))


def _there(path: Path) -> Path:
    """Return the path, or the nearest folder above it that exists."""
    return next(place for place in [path, *path.parents] if place.exists())
