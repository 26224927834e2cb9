"""Decide which images of a registry are kept, and why. An image that cannot be judged is kept."""

import re
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from typing import Literal

from pydantic import Field

from trainwright.core.toml import Model
from trainwright.image import tags as image_tags
from trainwright.image.tags import ID_LABEL, KEY_LABEL, PARENT_LABEL

BESIDE = re.compile(r"sha256-([0-9a-f]{64})\.(sig|att|sbom)")  # cosign's tags for what is about an image
# Facts that may be unknown, and that a person can waive: --waive NAME.
JOBS, ACCOUNTS, AGE = "running-jobs", "other-accounts", "age"
WAIVABLE = {
    JOBS: "no running job or model uses a deleted image",
    ACCOUNTS: "no running job or model of another account uses a deleted image",
    AGE: "every deleted image was pushed long ago",
}
DAY = 86400


class Listed(Model):
    """One manifest of a repository."""

    place: str  # the registry, for people
    repository: str  # host[:port]/path
    digest: str
    tags: list[str]
    pushed: datetime | None = None  # from the registry; None in a plain one
    created: datetime | None = None  # from the image: the date of its lock, so that it was pushed later
    labels: dict[str, str] | None = None  # None: not an image
    blobs: dict[str, int] = Field(default={})  # digest to bytes
    config: str = ""  # digest of its configuration, which an image and its zstd twin share
    twin: bool = False  # whether it is a zstd twin by its media types


class Known(Model):
    """The facts that this checkout and Amazon know."""

    at: datetime
    days: int  # younger images are kept
    keys: dict[str, str] = Field(default={})  # id of the matrix to the tag of its present key; "" if unknown
    released: dict[str, str]  # digest to the release that names it
    used: set[str] = Field(default=set())  # addresses in running jobs and models, as far as they could be listed
    unasked: dict[str, str] = Field(default={})  # what could not be listed and why, by waivable fact
    waived: set[str] = Field(default=set())


class Verdict(Model):
    """One row of `trainwright prune`."""

    repository: str
    digest: str
    tags: list[str]
    pushed: datetime | None
    days: int | None  # since then
    size: int  # bytes
    state: Literal["kept", "would delete", "deleted"]
    why: str


def judge(listed: Iterable[Listed], known: Known) -> list[Verdict]:
    """Return one verdict for each manifest; what lies beside an image shares its verdict.

    That are its signatures and attestations, and its zstd twin, which in turn keeps the image.
    """
    rows = list(listed)
    images = _together([row for row in rows if not _about(row)], known)
    return [_verdict(row, known, _beside(row, images) if _about(row) else images[row.digest]) for row in rows]


def _together(rows: list[Listed], known: Known) -> dict[str, tuple[bool, str]]:
    """Judge images by digest: an image and its zstd twins are kept if one of them is, so that none is left alone."""
    found = {row.digest: _kept(row, known) for row in rows}
    alike = dict[tuple[str, str], list[Listed]]()
    for row in rows:
        alike.setdefault((row.repository, row.config), []).append(row)
    for (_, config), group in alike.items():
        if not config or not any(row.twin for row in group):
            continue
        kept = [row for row in group if found[row.digest][0]]
        for row in group:
            if kept and row not in kept:
                other = "zstd twin" if kept[0].twin else "image, of which it is the zstd twin"
                found[row.digest] = True, f"its {other} {kept[0].digest} is kept: {found[kept[0].digest][1]}"
            elif not kept and row.twin:
                alone = all(other.twin for other in group)
                found[row.digest] = False, f"it is a zstd twin, and its image is {'not there' if alone else 'deleted'}"
    return found


def _verdict(row: Listed, known: Known, kept: tuple[bool, str]) -> Verdict:
    return Verdict(
        repository=row.repository,
        digest=row.digest,
        tags=row.tags,
        pushed=row.pushed,
        days=(known.at - row.pushed).days if row.pushed else None,
        size=sum(row.blobs.values()),
        state="kept" if kept[0] else "would delete",
        why=kept[1],
    )


def _about(row: Listed) -> set[str]:
    """Return the digests that its tags are about if all of them are cosign's; an empty set otherwise."""
    found = [BESIDE.fullmatch(tag) for tag in row.tags]
    return {f"sha256:{match[1]}" for match in found if match} if found and all(found) else set()


def _beside(row: Listed, images: Mapping[str, tuple[bool, str]]) -> tuple[bool, str]:
    """Judge a signature or an attestation. Without its image, it is left over from an earlier deletion."""
    about = sorted(_about(row))
    if alive := [digest for digest in about if images.get(digest, (False, ""))[0]]:
        return True, f"it is about {alive[0]}, which is kept"
    gone = [digest for digest in about if digest not in images]
    return False, f"it is about {about[0]}, which is {'not there' if gone else 'deleted'}"


def _kept(row: Listed, known: Known) -> tuple[bool, str]:
    """Return whether an image is kept, and why."""
    if row.labels is None or not {ID_LABEL, KEY_LABEL} <= row.labels.keys():
        return True, "unknown: it was not built by trainwright"
    if PARENT_LABEL in row.labels:
        return True, "unknown: it was built on top of a trainwright image"
    identity, key = row.labels[ID_LABEL], row.labels[KEY_LABEL]
    if name := known.released.get(row.digest):
        return True, f"{name} names it"
    if reason := next((found for tag in row.tags if (found := _by_tag(tag, identity, key))), ""):
        return True, reason
    if not row.tags:
        return True, "unknown: it has no tag; the registry's own rules expire it"
    if identity not in known.keys:
        return True, f"unknown: {identity} is not in this checkout's matrix"
    if not known.keys[identity]:
        return True, f"unknown: this checkout cannot compute the present key of {identity}"
    if known.keys[identity] in map(image_tags.without_twin, row.tags):
        return True, "its tag is the present key of the matrix"
    if used := _used(row, known.used):
        return True, f"a running job or a model names {used}"
    if unknown := [why for name, why in known.unasked.items() if name not in known.waived]:
        return True, f"unknown: whether a running job uses it ({'; '.join(unknown)})"
    return _by_age(row, known)


def _by_tag(tag: str, identity: str, key: str) -> str:
    """Return the reason why a tag keeps its image; "" for a key tag, which does not keep it."""
    base = image_tags.without_twin(tag)
    if base == image_tags.alias(identity):
        return f"the alias {tag} points to it"
    if image_tags.is_of_release(base):
        return f"the tag {tag} is of a release, although no record here names it"
    return "" if base == image_tags.key_tag(identity, key) else f"unknown: the tag {tag} has an unknown purpose"


def _used(row: Listed, used: Collection[str]) -> str:
    own = {f"{row.repository}@{row.digest}", *(f"{row.repository}:{tag}" for tag in row.tags)}
    # If an address has a tag and a digest, the digest decides.
    return next((uri for uri in sorted(used) if uri in own or uri.endswith(f"@{row.digest}")), "")


def _by_age(row: Listed, known: Known) -> tuple[bool, str]:
    began = row.pushed or row.created
    if began and (known.at - began).total_seconds() < known.days * DAY:
        return True, f"younger than {known.days} days"
    if row.pushed is None and AGE not in known.waived:
        return True, "unknown: this registry does not report when it was pushed"
    return False, "its key is not the present one of the matrix, and nothing refers to it"


def freed(listed: Iterable[Listed], gone: Collection[tuple[str, str]]) -> int:
    """Return the bytes that nothing else in the repository holds; `gone` has pairs of repository and digest."""
    rows = list(listed)
    kept = {(row.repository, blob) for row in rows if (row.repository, row.digest) not in gone for blob in row.blobs}
    doomed = {
        (row.repository, blob): size
        for row in rows
        if (row.repository, row.digest) in gone
        for blob, size in row.blobs.items()
    }
    return sum(size for blob, size in doomed.items() if blob not in kept)
