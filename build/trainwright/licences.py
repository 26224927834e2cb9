"""Licences of the distribution's packages, as each of them says it in its own copyright file."""

import io
import logging
import posixpath
import re
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import cast

from debian.arfile import ArError
from debian.copyright import Copyright, Error, License
from debian.debfile import DebFile

from trainwright.errors import LockError

NOT_SAID = "not said"
LONGEST = 1000  # characters of names; libc6 has 820, and what is cut away might be the one that matters
LINKS = 8  # inside one package; one that goes round ends, too
COPYRIGHT = re.compile(r"usr/share/doc/([^/]+)/copyright")

# It grumbles on standard error about old spellings that mean the same.
logging.getLogger("debian.copyright").setLevel(logging.ERROR)


def licence(package: str, deb_of: Callable[[str], Path | None]) -> str:
    """What a package says of its licence, on one line.

    The short names of a machine-readable copyright file: Debian's own, no SPDX expression; else where to read it.
    `deb_of` gives the file of a package, None for one that has none. Raises LockError for a file that is no package.
    """
    path, asked = f"usr/share/doc/{package}/copyright", set[str]()
    while (found := COPYRIGHT.fullmatch(path)) and (deb := deb_of(found[1])):
        if found[1] in asked:  # two that refer to each other
            return NOT_SAID
        asked.add(found[1])
        place, text = _look_up(deb, path)
        if text is not None:
            return short_names(text) or f"see {place}"
        if place == path:
            return NOT_SAID
        path = place  # a link out of this package: many of one source share the documentation of one of them
    return f"see {path}"


def short_names(text: str) -> str:
    """Licences of a copyright file in Debian's machine-readable format, each once; "" where it is prose."""
    try:
        paragraphs = Copyright(io.StringIO(text), strict=False).all_files_paragraphs()
        found = [cast(License | None, paragraph.license) for paragraph in paragraphs]
        said = {" ".join(licence.synopsis.split()) for licence in found if licence}
    except (Error, ValueError):  # it says that it is in that format, and is not
        return ""
    names = sorted(said - {""})
    kept = list(names)
    while len(", ".join(kept)) > LONGEST:
        kept.pop()
    return ", ".join([*kept, f"and {len(names) - len(kept)} more"] if kept != names else names)


def _look_up(deb: Path, path: str) -> tuple[str, str | None]:
    """Where a path leads through a package's symbolic links, and the text of the file; None where it has none there."""
    try:
        with DebFile(filename=str(deb)) as package:
            archive = package.data.tgz()
            held = {posixpath.normpath(str(member.name)): member for member in archive}
            for _ in range(LINKS):
                places = (posixpath.dirname(path), path)
                link = next((place for place in places if place in held and held[place].issym()), None)
                if link is None:
                    break
                aim = posixpath.join("/", posixpath.dirname(link), held[link].linkname) + path.removeprefix(link)
                path = posixpath.normpath(aim).lstrip("/")
            file = archive.extractfile(held[path]) if path in held and not held[path].issym() else None
            return path, file.read().decode(errors="replace") if file else None
    except (ArError, tarfile.TarError, EOFError, OSError) as error:
        # Python unpacks what Debian packs (xz); for what Ubuntu packs (zst), python-debian calls unzstd.
        fix = "install zstd: this host has no unzstd" if "unzstd" in str(error) else f"rm {deb}, and run it again"
        raise LockError(f"the licence of {deb.name} cannot be read", why=str(error), fix=fix) from None
