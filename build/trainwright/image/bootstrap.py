"""Unpack the packages that dpkg and apt need before they can install anything into a tar: the start of a base.

Because a base is built FROM scratch, a package manager cannot install its first programs. They are unpacked here, on
the host, in Python; a build step then has dpkg install the same packages properly.
"""

import io
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from trainwright.core.errors import BuildError
from trainwright.core.store import path_of
from trainwright.lock.packages import Stanzas, providers, requires

FORMAT = 1  # part of a base's key: increase it when the same packages give another tar
INSTALLER = "apt"
LIST = "first"  # in a folder of packages: the list of the unpacked files
STATUS = "var/lib/dpkg/status"  # dpkg requires this file; it may be empty
MERGED = ("bin", "sbin", "lib")  # top-level folders so prefixed are links to /usr: merged /usr, Debian 12 and later


def first(stanzas: Stanzas) -> list[str]:
    """Return the names of the packages to unpack: essential packages, apt, and all their dependencies; sorted."""
    provided = providers(stanzas)
    found, waiting = set[str](), [INSTALLER, *(name for name in stanzas if stanzas[name].get("Essential") == "yes")]
    while waiting:
        name = waiting.pop()
        if name in stanzas and name not in found:
            found.add(name)
            waiting += [choice for wanted in requires(stanzas[name]) for choice in (wanted, *provided.get(wanted, ()))]
    return sorted(found)


def first_tar(stanzas: Stanzas, epoch: int, target: Path) -> None:
    """Write a tar of the files of first(); the store must hold these packages already.

    The same packages and epoch (seconds, the newest time of any file) give the same bytes on every host. Raises
    BuildError for a package that cannot be read.
    """
    from debian.arfile import ArError
    from debian.debfile import DebFile

    with tarfile.open(target, "w", format=tarfile.PAX_FORMAT) as tar:
        written = set[str]()
        for name in first(stanzas):
            try:
                with DebFile(filename=str(path_of(stanzas[name]["SHA256"]))) as deb:
                    _copy(deb.data.tgz(), tar, written, epoch)
            except (ArError, tarfile.TarError, EOFError, OSError) as error:
                what, where = f"package {name} cannot be unpacked", str(path_of(stanzas[name]["SHA256"]))
                raise BuildError(
                    what, where=where, why=str(error), fix=f"rm {where}, then the same command again"
                ) from None
        _write(tar, written, _entry(STATUS, epoch), io.BytesIO())


def _copy(package: tarfile.TarFile, tar: tarfile.TarFile, written: set[str], epoch: int) -> None:
    for member in package:
        path = _inside(str(member.name))
        for parent in _missing(path, written):
            _write(tar, written, parent)
        found = _entry(_merged(path), min(int(member.mtime), epoch), member.type)
        found.mode, found.uid, found.gid, found.size = member.mode, member.uid, member.gid, member.size
        found.devmajor, found.devminor = member.devmajor, member.devminor
        hard = member.islnk()
        found.linkname = _merged(_inside(str(member.linkname))) if hard else str(member.linkname)
        if path and path not in written:
            _write(tar, written, found, package.extractfile(member) if member.isreg() else None)


def _missing(path: str, written: set[str]) -> Iterator[tarfile.TarInfo]:
    """Yield the link to /usr on the path, and the folder that it points to, if they are not yet written."""
    top = path.partition("/")[0]
    if _is_merged(top) and top not in written:
        for folder in ("usr", f"usr/{top}"):
            if folder not in written:
                made = _entry(folder, 0, tarfile.DIRTYPE)
                made.mode = 0o755
                yield made
        link = _entry(top, 0, tarfile.SYMTYPE)
        link.linkname, link.mode = f"usr/{top}", 0o777
        yield link


def _write(tar: tarfile.TarFile, written: set[str], entry: tarfile.TarInfo, data: IO[bytes] | None = None) -> None:
    if entry.name not in written:  # a shared folder, or a file that a later package replaces: dpkg resolves it
        written.add(entry.name)
        tar.addfile(entry, data)


def _entry(path: str, mtime: int, kind: bytes = tarfile.REGTYPE) -> tarfile.TarInfo:
    made = tarfile.TarInfo(path)
    made.mtime, made.type = mtime, kind
    return made


def _inside(path: str) -> str:
    return "" if path == "." else path.removeprefix("./").strip("/")


def _is_merged(top: str) -> bool:
    return top in MERGED[:2] or top.startswith(MERGED[2])


def _merged(path: str) -> str:
    """Return a path's location once /bin, /sbin and /lib are links to /usr."""
    return f"usr/{path}" if "/" in path and _is_merged(path.partition("/")[0]) else path
