"""Read the licences of the distribution's packages, each from the package's own copyright file."""

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

from trainwright.core.errors import LockError

NOT_SAID = "not said"
LONGEST = 1000  # characters of names; libc6 has 820, and a name that is cut away might matter
LINKS = 8  # followed inside one package, so that a cycle ends
COPYRIGHT = re.compile(r"usr/share/doc/([^/]+)/copyright")
# The lines of a field after its second one: whole licence texts, of which no name is read, and which are slow to parse.
TEXTS = re.compile(r"^(\S.*\n[ \t]+\S.*\n)(?:[ \t]+\S.*\n)+", re.MULTILINE)

# It warns on standard error about old spellings that mean the same.
logging.getLogger("debian.copyright").setLevel(logging.ERROR)


def licence(package: str, deb_of: Callable[[str], Path | None]) -> str:
    """Return what a package states of its licence, on one line.

    These are the short names of a machine-readable copyright file (Debian's names, not an SPDX expression), else where
    to read the licence. `deb_of` returns the file of a package, None if it has none. Raises LockError if a file is not
    a package.
    """
    path, asked = f"usr/share/doc/{package}/copyright", set[str]()
    while (found := COPYRIGHT.fullmatch(path)) and (deb := deb_of(found[1])):
        if found[1] in asked:  # two packages that refer to each other
            return NOT_SAID
        asked.add(found[1])
        place, text = _look_up(deb, path)
        if text is not None:
            return short_names(text) or f"see {place}"
        if place == path:
            return NOT_SAID
        path = place  # a link to another package: packages of one source often share the documentation of one of them
    return f"see {path}"


def short_names(text: str) -> str:
    """Return the licences of a machine-readable Debian copyright file, each once; "" for prose.

    Names beyond LONGEST characters are only counted.
    """
    try:
        paragraphs = Copyright(io.StringIO(TEXTS.sub(r"\1", text)), strict=False).all_files_paragraphs()
        found = [cast(License | None, paragraph.license) for paragraph in paragraphs]
        said = {" ".join(licence.synopsis.split()) for licence in found if licence}
    except (Error, ValueError):  # it claims that format, and is malformed
        return ""
    names = sorted(said - {""})
    kept = list(names)
    while len(", ".join(kept)) > LONGEST:
        kept.pop()
    return ", ".join([*kept, f"and {len(names) - len(kept)} more"] if kept != names else names)


def _look_up(deb: Path, path: str) -> tuple[str, str | None]:
    """Follow a package's symbolic links; return the final path and the file's text, None if it is not in there."""
    try:
        with DebFile(filename=str(deb)) as package:
            archive = package.data.tgz()
            held = dict[str, tarfile.TarInfo]()
            for member in archive:
                held[name := posixpath.normpath(str(member.name))] = member
                if name == path and member.isreg() and (text := archive.extractfile(member)):
                    return path, text.read().decode(errors="replace")  # and nothing behind it is unpacked
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
