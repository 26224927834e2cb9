"""Compare a lock that was resolved anew with the stored one."""

from collections.abc import Iterable, Mapping
from typing import Literal

from trainwright.core.toml import Model
from trainwright.lock.packages import Stanzas
from trainwright.matrix.model import Lock, Source

Held = Mapping[str, tuple[str, str]]  # name to version and to the identity that distinguishes two files of one version
Kind = Literal["distribution", "python", "source"]


class Change(Model):
    """One entry of a lock, as stored and as newly resolved; an empty text means that the entry is absent."""

    lock: str
    kind: Kind
    name: str
    old: str
    new: str


def changes(lock: str, kind: Kind, old: Held, new: Held) -> list[Change]:
    found = []
    for name in sorted(old.keys() | new.keys()):
        before, after = old.get(name, ("", "")), new.get(name, ("", ""))
        if before == after:
            continue
        if before[0] == after[0]:  # the same version with other bytes: a rebuild, another file, a moved tag
            before, after = ((f"{version} ({identity[:12]})", identity) for version, identity in (before, after))
        found.append(Change(lock=lock, kind=kind, name=name, old=before[0], new=after[0]))
    return found


def packages_held(stanzas: Stanzas) -> Held:
    return {name: (stanza["Version"], stanza["SHA256"]) for name, stanza in stanzas.items()}


def python_held(lock: Lock) -> Held:
    """Map names to Python packages; names of build-only packages have their group appended.

    Because an image may hold the same package, the group keeps the two apart.
    """
    return {python_name(entry.name, entry.group): (entry.version, entry.sha256) for entry in lock.python}


def python_name(name: str, group: str) -> str:
    return f"{name} ({group})" if group in ("tools", "sdist-build") else name


def sources_held(sources: Iterable[Source]) -> Held:
    return {source.name: (source.version, source.commit or source.sha256) for source in sources}
