"""Write rpm packages as entries of a package lock, from what scripts/rpm_solve.py and rpm_packages.py print. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping
from urllib.parse import urlsplit

from pydantic import Field

from trainwright.core.toml import Model
from trainwright.lock.packages import LICENCE, Stanzas

NAME, ADDRESS, LOCATION, INDEX, SIGNED = "Name", "Address", "Location", "Index", "Signed-By"  # of rpm packages alone


class Rpm(Model):
    """One package of rpm's database. `version` is [epoch:]version-release."""

    name: str
    version: str
    architecture: str


class Offer(Rpm):
    """A package of a repository."""

    repository: str
    address: str
    location: str  # in the repository
    size: int
    sha256: str
    licence: str


class Solution(Model):
    """The output of scripts/rpm_solve.py; with `refused`, why there is none."""

    refused: str = ""
    date: int = 0  # seconds since 1970: the newest index
    signed: list[str] = Field(default=[])  # repositories whose index has a valid signature
    held: list[Rpm] = Field(default=[])
    fetch: list[Offer] = Field(default=[])


def version(found: Rpm) -> str:
    """Return a version without the epoch 0, which rpm writes for some packages and dnf for none."""
    return found.version.removeprefix("0:")


def by_name(rows: Iterable[Rpm]) -> dict[str, Rpm]:
    """Map names to packages; packages that share a name, such as rpm's public keys, are told apart by the rest."""
    rows = list(rows)
    same = Counter(row.name for row in rows)
    return {
        row.name if same[row.name] == 1 else f"{row.name}-{version(row)}.{row.architecture}": row
        for row in sorted(rows, key=lambda row: (row.name, row.version, row.architecture))
    }


def stanzas(found: Solution, originals: Mapping[str, str]) -> Stanzas:
    """Return the entries of a solution. `originals` maps the prefix of a mirror's addresses to upstream's."""
    rows = by_name([*found.held, *found.fetch])
    return {name: _stanza(name, row, found.signed, originals) for name, row in rows.items()}


def rpm_name(stanza: Mapping[str, str]) -> str:
    """Return the name that rpm has for an entry, which several may share."""
    return stanza.get(NAME, stanza["Package"])


def _stanza(name: str, row: Rpm, signed: list[str], originals: Mapping[str, str]) -> dict[str, str]:
    own = {"Package": name, "Version": version(row), "Architecture": row.architecture}
    own |= {NAME: row.name} if name != row.name else {}
    if not isinstance(row, Offer):
        return own | {"Archive": "image", "Filename": "", "Size": "0", "SHA256": ""}
    return own | {
        "Archive": row.repository,
        "Filename": file(row),
        "Size": str(row.size),
        "SHA256": row.sha256,
        LOCATION: row.location,
        ADDRESS: _upstream(row.address, originals),
        INDEX: "signed" if row.repository in signed else "without a signature",
        LICENCE: " ".join(row.licence.split()) or "not said",
    }


def file(row: Rpm) -> str:
    """Return the name of a package's file in a build. A caret, which no name in a lock may have, is escaped."""
    return f"{row.name}-{row.version.rpartition(':')[2]}.{row.architecture}.rpm".replace("^", "%5E")


def _upstream(address: str, originals: Mapping[str, str]) -> str:
    """Return an address without user and password, and with upstream's prefix in place of a mirror's."""
    best = max((prefix for prefix in originals if address.startswith(f"{prefix}/")), key=len, default="")
    address = originals[best] + address.removeprefix(best) if best else address
    parts = urlsplit(address)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def expected(entries: Stanzas) -> dict[str, str]:
    """Return what rpm should list: name to version and architecture."""
    return {name: f"{stanza['Version']} {stanza['Architecture']}" for name, stanza in entries.items()}


def differences(entries: Stanzas, rows: Iterable[Rpm]) -> list[str]:
    """Return every difference between a lock and what rpm lists, one sentence each."""
    wanted, found = (
        expected(entries),
        {name: f"{version(row)} {row.architecture}" for name, row in by_name(rows).items()},
    )
    return [
        f"rpm package {name}: the lock says {wanted.get(name, 'nothing')}, the image holds {found.get(name, 'nothing')}"
        for name in sorted(wanted.keys() | found.keys())
        if wanted.get(name) != found.get(name)
    ]
