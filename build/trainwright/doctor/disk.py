"""Check that the disks of the store and of the engine have room for the images that are still to be built."""

from collections import ChainMap

from trainwright.build import disk
from trainwright.core import store
from trainwright.core.progress import counted
from trainwright.doctor.context import Context, Finding


def check(context: Context) -> Finding:
    images, factors, daemon = context.to_build(), context.host.disk, context.engine
    each = [disk.sources_of(found) for found in images]
    sources = sum(dict(ChainMap(*each)).values())  # compressed bytes
    largest = max((sum(sizes.values()) for sizes in each), default=0)
    wanted = {store.root(): sources * factors.store + largest * factors.listing}
    if folder := disk.engine_folder(daemon) if isinstance(daemon, dict) else None:
        wanted[folder] = sources * factors.engine
    which = "default " if context.ids is None else ""
    disks = disk.disks(wanted)
    said = [
        f"{counted(len(images), which + 'image')} to build, {sources / 1e9:.2f} GB of sources",
        *map(disk.said, disks),
    ]
    if any(one.need > one.free for one in disks):
        fix = "docker system prune, free some space, or point TRAINWRIGHT_STORE to another disk"
        return Finding(check="disk", state="failed", found="; ".join(said), fix=fix)
    if not folder:
        said.append("the engine's disk cannot be checked from here")
        fix = "df -h, on the machine of the engine" if isinstance(daemon, dict) else daemon.fix
        return Finding(check="disk", state="unknown", found="; ".join(said), fix=fix)
    return Finding(check="disk", state="ok", found="; ".join(said))
