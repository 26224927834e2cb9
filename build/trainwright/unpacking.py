"""The packages that dpkg and apt need before they can install anything, unpacked into a tar: the start of a base.

A base begins with nothing (FROM scratch), so its first programs cannot be installed by a package manager. They are
unpacked here, on the host, with Python alone; a step of the build then has dpkg install the same packages properly.
"""

import io
import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO

from trainwright.errors import BuildError
from trainwright.packages import Stanzas, providers, requires
from trainwright.store import path_of

FORMAT = 1  # part of a base's key: raise it when the same packages become another tar
INSTALLER = "apt"
LIST = "first"  # in a folder of packages: the files of those that are unpacked
STATUS = "var/lib/dpkg/status"  # dpkg wants it there, and empty is enough
MERGED = ("bin", "sbin", "lib")  # top-level folders that begin so are links to /usr: merged /usr, Debian 12 and later


def first(stanzas: Stanzas) -> list[str]:
    """Name what is unpacked: essential packages, apt, and everything that these depend on; sorted."""
    provided = providers(stanzas)
    found, waiting = set[str](), [INSTALLER, *(name for name in stanzas if stanzas[name].get("Essential") == "yes")]
    while waiting:
        name = waiting.pop()
        if name in stanzas and name not in found:
            found.add(name)
            waiting += [choice for wanted in requires(stanzas[name]) for choice in (wanted, *provided.get(wanted, ()))]
    return sorted(found)


def first_tar(stanzas: Stanzas, epoch: int, target: Path) -> None:
    """Write a tar of the files of first(); the store holds these packages already.

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
                raise BuildError(what, where=where, why=str(error), fix=f"rm {where}, and run it again") from None
        _write(tar, written, _entry(STATUS, epoch), io.BytesIO())


def _copy(package: Iterable[tarfile.TarInfo], tar: tarfile.TarFile, written: set[str], epoch: int) -> None:
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
            _write(tar, written, found, package.extractfile(member) if member.isreg() else None)  # type: ignore[attr-defined]


def _missing(path: str, written: set[str]) -> Iterator[tarfile.TarInfo]:
    """The link to /usr that a path leads through, and the folder that it leads to, where they are still missing."""
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
    if entry.name not in written:  # a folder of several packages, or a file that a later one replaces: dpkg decides
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
    """Where a path lies once /bin, /sbin and /lib are links to /usr."""
    return f"usr/{path}" if "/" in path and _is_merged(path.partition("/")[0]) else path
