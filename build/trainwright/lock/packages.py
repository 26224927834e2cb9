"""Read and write a lock of the distribution's packages in the distribution's own Packages format, and compute drift."""

import re
from email.utils import parsedate_to_datetime
from functools import lru_cache

from trainwright.core.errors import DamagedLock, LockError
from trainwright.lock.lockfile import digest
from trainwright.matrix.model import Package
from trainwright.matrix.records import Drift

# The fields that dpkg and apt need to install a package, in the order of writing; the others are description.
FIELDS = [
    "Package",
    "Version",
    "Architecture",
    "Archive",
    "Essential",
    "Protected",
    "Important",
    "Priority",
    "Section",
    "Multi-Arch",
    "Pre-Depends",
    "Depends",
    "Conflicts",
    "Breaks",
    "Replaces",
    "Provides",
    "Filename",
    "Size",
    "SHA256",
]

# Ours, at the end of a stanza: apt and dpkg do not get it. It is in the notices of an image, which its key counts.
LICENCE = "Licence"

# A file below the archive's own folder: packages are laid out by this name. `.` and `..` are not allowed in it.
_PART = r"[A-Za-z0-9+_~%:-][A-Za-z0-9+._~%:-]*"
_FILE = re.compile(rf"(\./)?{_PART}(/{_PART})*")

_BEHIND_NAME = re.compile(r"[\s:(\[<]")  # an architecture, a version, a restriction

Stanzas = dict[str, dict[str, str]]  # package name to its fields


@lru_cache(maxsize=32)  # many images, few bases
def parse(text: str, name: str) -> tuple[dict[str, str], Stanzas]:
    """Parse a lock's header (Intent, Date) and its packages.

    Raises LockError if `dump` would not have written the text.
    """
    header, *rest = [_paragraph(rows) for rows in text.split("\n\n")]
    try:
        epoch_of(header)
        stanzas = {stanza["Package"]: stanza for stanza in rest}
        to_packages(stanzas)
        if "Intent" not in header or dump(header, stanzas) != text:  # for example an unfinished merge
            raise ValueError("it was edited by hand")
    except KeyError as error:
        raise _malformed(name, f"field {error} is missing") from None
    except ValueError as error:
        raise _malformed(name, str(error)) from None
    return header, stanzas


def _paragraph(rows: str) -> dict[str, str]:
    """Split lines of the form `Field: value`, as dump() writes them. parse() refuses any other text."""
    return {field: value for field, _, value in (row.partition(": ") for row in rows.strip("\n").split("\n"))}


def _malformed(name: str, why: str) -> DamagedLock:
    return DamagedLock(f"{name} was not written by `trainwright lock`", where=name, why=why, fix="trainwright lock")


def epoch_of(header: dict[str, str]) -> int:
    """Return the date of the index that a lock was resolved from, in seconds since 1970."""
    return int(parsedate_to_datetime(header["Date"]).timestamp())


def unmet(stanzas: Stanzas) -> tuple[str, str] | None:
    """Return a package and its dependency that these packages do not satisfy; None if all are satisfied."""
    present = stanzas.keys() | providers(stanzas).keys()
    for name, stanza in stanzas.items():
        for field in ("Pre-Depends", "Depends"):
            for group in _relations(stanza, field):
                if not present.intersection(group):
                    return name, " | ".join(group)
    return None


def requires(stanza: dict[str, str]) -> set[str]:
    """Return the names of all dependencies of a package, including every alternative."""
    fields = ("Pre-Depends", "Depends")
    return {choice for field in fields for group in _relations(stanza, field) for choice in group}


def providers(stanzas: Stanzas) -> dict[str, list[str]]:
    """Map each virtual package to the packages that provide it."""
    found: dict[str, list[str]] = {}
    for name, stanza in stanzas.items():
        for group in _relations(stanza, "Provides"):
            for choice in group:
                found.setdefault(choice, []).append(name)
    return found


def _relations(stanza: dict[str, str], field: str) -> list[list[str]]:
    """Read the names of a field such as `a (>= 1), b:any | c`: one list of alternatives for each relation."""
    groups = stanza[field].split(",") if field in stanza else []
    return [[_BEHIND_NAME.split(choice.strip(), maxsplit=1)[0] for choice in group.split("|")] for group in groups]


def dump(header: dict[str, str], stanzas: Stanzas) -> str:
    """Render a lock, sorted by name; apt reads everything below the header as it is."""
    rows = [header, *(stanzas[name] for name in sorted(stanzas))]
    return "\n".join("".join(f"{field}: {value}\n" for field, value in row.items()) for row in rows)


def status(stanzas: Stanzas) -> str:
    """Render dpkg's status file of a system that has exactly these packages."""
    rows = (
        {
            field: value
            for field, value in stanza.items()
            if field not in ("Archive", "Filename", "Size", "SHA256", LICENCE)
        }
        for stanza in stanzas.values()
    )
    return "\n".join(
        "Status: install ok installed\n" + "".join(f"{field}: {value}\n" for field, value in row.items())
        for row in rows
    )


def reduce(stanza: dict[str, str], archive: str) -> dict[str, str]:
    """Reduce an index entry to the fields that matter for installing.

    Raises LockError if its Filename leaves the archive.
    """
    if not _FILE.fullmatch(stanza["Filename"]):
        why = f"Filename: {stanza['Filename']!r}, which is not a file below the archive"
        raise LockError(f"the index of {archive} cannot be trusted", why=why, fix="trainwright doctor")
    full = {**stanza, "Archive": archive}
    return {field: full[field] for field in FIELDS if field in full}


def to_packages(stanzas: Stanzas) -> dict[str, Package]:
    """Convert stanzas to packages. Raises ValueError or KeyError if a stanza is malformed."""
    for name, stanza in stanzas.items():
        if stanza["SHA256"] and not _FILE.fullmatch(stanza["Filename"]):  # a package of the base image has no file
            raise ValueError(f"{name} is in {stanza['Filename']!r}, which is not a file below the archive")
    return {
        name: Package(
            name=name,
            version=stanza["Version"],
            architecture=stanza["Architecture"],
            archive=stanza["Archive"],
            filename=stanza["Filename"],
            size=int(stanza["Size"]),
            sha256=stanza["SHA256"],
            location=stanza.get("Location", ""),
            address=stanza.get("Address", ""),
        )
        for name, stanza in stanzas.items()
    }


def manifest_digest(stanzas: Stanzas) -> str:
    """Return the sha256 over the distribution's packages: name, version, sha256 of each."""
    return digest(sorted([name, stanza["Version"], stanza["SHA256"]] for name, stanza in stanzas.items()))


def drift(locked: Stanzas, effective: Stanzas) -> list[Drift]:
    """Return how the used packages differ from the locked ones: replaced, added, and no longer needed."""
    return [
        Drift(
            package=name,
            locked=locked.get(name, {}).get("Version", ""),
            used=effective.get(name, {}).get("Version", ""),
        )
        for name in sorted(locked.keys() | effective.keys())
        if locked.get(name, {}).get("SHA256") != effective.get(name, {}).get("SHA256")
    ]
