"""Read the archives that this host's apt is configured to use, from its sources alone.

Downloaded indexes are not read, because a fresh, partial or old list does not show which mirror a host uses.
"""

import platform
import re
import shlex
import shutil
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from trainwright.core.errors import EnvironmentProblem
from trainwright.core.process import run
from trainwright.matrix.model import Base

SCHEMES = ("https", "http", "file")  # of apt's; other programs do not read cdrom:, tor+https: and the like
MIRROR_LIST = "mirror+file:"  # a file of addresses: the cloud images of Debian have it
ONE_LINE = re.compile(r"deb\s+(?:\[(?P<options>[^\]]*)\]\s*)?(?P<uri>\S+)\s+(?P<suite>\S+)(?P<components>.*)")
OPTION = re.compile(r"([a-z-]+?)([+-]?)=(\S+)")
DISABLED = ("no", "false", "without", "off", "disable", "0")  # as apt reads a truth value
FILE_NAME = re.compile(r"[A-Za-z0-9_.-]+\.(list|sources)")  # apt ignores other file names


class Source(NamedTuple):
    """One source of binary packages: each suite is available at each address."""

    addresses: list[str]
    suites: list[str]
    components: list[str]
    architectures: list[str]  # empty: any
    signed_by: list[str]  # empty: any key that apt trusts


def of_host() -> list[Source]:
    """Return every enabled source, in apt's order; [] on a host without apt."""
    if not shutil.which("apt-config"):
        return []
    words = ["apt-config", "shell", "LIST", "Dir::Etc::sourcelist/f", "PARTS", "Dir::Etc::sourceparts/d"]
    try:
        said = dict(word.split("=", 1) for word in shlex.split(run(words, error=EnvironmentProblem)))
    except EnvironmentProblem:  # apt cannot read its own configuration: treat the host as one without mirrors
        return []
    files = [Path(said.get("LIST", ""))]
    with suppress(OSError):
        files += sorted(file for file in Path(said.get("PARTS", "")).iterdir() if FILE_NAME.fullmatch(file.name))
    found: list[Source] = []
    for file in files:
        with suppress(OSError):  # missing, or not readable by this user
            text = file.read_bytes().decode(errors="replace")
            found += deb822(text) if file.suffix == ".sources" else one_line(text)
    return found


def one_line(text: str) -> list[Source]:
    """Return the sources of a file in apt's one-line format. Lines that apt would refuse are skipped."""
    found = []
    for line in text.splitlines():
        match = ONE_LINE.fullmatch(line.partition("#")[0].strip())
        if not match:
            continue
        options = {name + how: value for name, how, value in OPTION.findall(match["options"] or "")}
        found.append(
            Source(
                addresses=list(_usable([match["uri"]])),
                suites=[match["suite"]],
                components=match["components"].split(),
                architectures=_listed(options.get("arch", "")),
                signed_by=_listed(options.get("signed-by", "")),
            )
        )
    return found


def _listed(value: str) -> list[str]:
    return [word for word in value.split(",") if word]


def deb822(text: str) -> list[Source]:
    """Return the sources of a file in apt's deb822 format. Stanzas that apt would refuse are skipped."""
    from debian.deb822 import Deb822

    found = []
    for paragraph in Deb822.iter_paragraphs(text, use_apt_pkg=False):
        words = {str(key).lower(): str(value).split() for key, value in paragraph.items()}
        if "deb" not in words.get("types", []) or " ".join(words.get("enabled", [])).lower() in DISABLED:
            continue
        found.append(
            Source(
                addresses=list(_usable(words.get("uris", []))),
                suites=words.get("suites", []),
                components=words.get("components", []),
                architectures=words.get("architectures", []),
                signed_by=words.get("signed-by", []),
            )
        )
    return found


def _usable(uris: Sequence[str]) -> Iterator[str]:
    """Yield the addresses with a scheme that all our programs support, without a trailing slash."""
    for uri in uris:
        lines = [uri]
        if uri.startswith(MIRROR_LIST):
            with suppress(OSError):
                lines = Path(unquote(urlsplit(uri).path)).read_text(errors="replace").splitlines()
        for address in (line.split()[0] for line in lines if line.strip()):
            if address.partition(":")[0] in SCHEMES:
                local = address.startswith("file:")
                yield (Path(unquote(urlsplit(address).path)).as_uri() if local else address).rstrip("/")


def mirror(sources: Sequence[Source], base: Base, archive: str, codename: str) -> str:
    """Return the address that these sources give an archive of the base's distribution, or "" if they give none.

    A source counts if it has the base's sections and architecture, and is signed by no key but the distribution's own.
    `codename` is the host's own release: an archive that has it also has the base's release. Because a third party's
    source without a key may look the same (`bookworm main`, and a path with the same ending), the candidates are
    ranked: signed by the distribution's keyring first, then with every suite of the archive, then with the archive's
    name. A wrong choice does no harm: an index is verified with the distribution's keyring, a file with the sha256 of
    the lock.
    """
    keyring, releases = f"{base.distribution}-archive-keyring", {base.suite, codename or base.suite}
    wanted = [{suite.replace(base.suite, release) for suite in base.archives[archive]} for release in releases]
    usable = [
        source
        for source in sources
        if set(base.sections) <= set(source.components)
        and (not source.architectures or base.architecture in source.architectures)
        and (not source.signed_by or keyring in (Path(word).stem for word in source.signed_by))
    ]
    ranks: dict[str, tuple[bool, bool, bool]] = {}
    for address in dict.fromkeys(address for source in usable for address in source.addresses):
        here = [source for source in usable if address in source.addresses]
        suites = {suite for source in here for suite in source.suites}
        own, named = any(source.signed_by for source in here), address.endswith(f"/{archive}")
        whole, some = any(release <= suites for release in wanted), any(release & suites for release in wanted)
        if whole or (named and own) or (some and (named or own)):
            ranks[address] = (own, whole, named)
    return max(ranks, key=lambda address: ranks[address], default="")


def mirrors(base: Base) -> dict[str, str]:
    """Map each archive to the address in this host's apt sources; archives without one are left out."""
    sources = of_host()
    system = {}
    with suppress(OSError):  # macOS has no os-release
        system = platform.freedesktop_os_release()
    codename = system.get("VERSION_CODENAME", "") if system.get("ID") == base.distribution else ""
    found = {archive: mirror(sources, base, archive, codename) for archive in base.archives}
    return {archive: address for archive, address in found.items() if address}
