"""Record the release trains: 2026.11.0 begins one, 2026.11.1 adds only security updates to it."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated

from packaging.version import InvalidVersion, Version
from pydantic import Field

from trainwright.core.errors import ConfigError
from trainwright.core.toml import Model, load
from trainwright.image import tags
from trainwright.lock.packages import Stanzas, requires
from trainwright.matrix.model import Sha256

FOLDER = "dockerfiles/releases"
SECURITY = "-security"  # suffix in bases.toml of a distribution's archive of security updates: debian-security
MONTHS = 12


class Shipped(Model):
    """One image of a release."""

    key: Sha256
    digest: Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")]
    repository: str  # path below the registry
    gate: str = ""  # the gate it passed on GPU hosts, or its waiver; "" in records older than gates


class Train(Model):
    """The whole of releases/<name>.toml: the images of a release. Their contents are in the locks of its commit."""

    name: str
    date: str
    commit: Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")]  # of the checkout that it was released from
    images: dict[str, Shipped]


def known(root: Path) -> dict[str, Train]:
    """Return every release of this checkout, oldest first. Raises ConfigError if a record is malformed."""
    found = {path.name.removesuffix(".toml"): load(path, Train) for path in (root / FOLDER).glob("*.toml")}
    for name, train in found.items():
        if train.name != name:
            where = f"{FOLDER}/{name}.toml"
            raise ConfigError(f"{where} holds the record of {train.name}", where=where, fix=f"git checkout -- {where}")
    return {name: found[name] for name in sorted(found, key=version)}


def version(name: str) -> Version:
    """Parse a release's name into a sortable version. Raises ConfigError if it is not <year>.<month>.<patch>."""
    try:
        found = Version(name)
    except InvalidVersion:
        found = Version("0")
    shaped = re.fullmatch(tags.RELEASE, name) and str(found) == name and 1 <= found.minor <= MONTHS
    if not shaped:
        raise ConfigError(
            f"{name!r} is not a release name",
            why="a release is <year>.<month>.<patch> without leading zeros; patch 0 starts a train, others hold "
            "security updates only",
            fix="trainwright release 2026.11.0 '<id or glob>'",
        )
    return found


def earlier(name: str, trains: Mapping[str, Train]) -> list[Train]:
    """Return the earlier releases of the same train, newest first."""
    own = version(name)
    found = [train for train in trains.values() if version(train.name) < own]
    found = [train for train in found if version(train.name).release[:2] == own.release[:2]]
    return sorted(found, key=lambda train: version(train.name), reverse=True)


def newest(identity: str, trains: Iterable[Train]) -> str:
    """Return the newest release that contains this image; "" if none does."""
    names = [train.name for train in trains if identity in train.images]
    return max(names, key=version, default="")


def next_train(names: Iterable[str]) -> str:
    """Return the name of the train after all of these."""
    year, month = max(version(name).release[:2] for name in names)
    return f"{year + month // MONTHS}.{month % MONTHS + 1}.0"


def dump(train: Train) -> str:
    """Return a release as TOML, sorted by image."""
    import tomlkit

    document = tomlkit.document()
    document.add(tomlkit.comment("Written by `trainwright release`; a person reads it, nobody edits it."))
    for field in ("name", "date", "commit"):
        document[field] = getattr(train, field)
    images = tomlkit.table(is_super_table=True)
    for identity in sorted(train.images):
        row = tomlkit.table()
        row.update(train.images[identity].model_dump())
        images[identity] = row
    document["images"] = images
    return tomlkit.dumps(document)


def beyond_security(old: Stanzas, new: Stanzas) -> list[str]:
    """Return the changes that are not security updates, one phrase each.

    New packages that a security update requires are allowed as well.
    """
    moved = {name for name in new if _identity(old.get(name)) != _identity(new[name])}
    allowed = {name for name in moved if new[name]["Archive"].endswith(SECURITY)}
    following = list(allowed)
    while following:
        for name in requires(new[following.pop()]) & (moved - old.keys()) - allowed:
            allowed.add(name)
            following.append(name)
    found = [
        f"{name} {old[name]['Version'] if name in old else '(new)'} -> {new[name]['Version']} ({new[name]['Archive']})"
        for name in sorted(moved - allowed)
    ]
    return found + [f"{name} {old[name]['Version']} is gone" for name in sorted(old.keys() - new.keys())]


def _identity(stanza: dict[str, str] | None) -> tuple[str, str] | None:
    return (stanza["Version"], stanza["SHA256"]) if stanza else None
