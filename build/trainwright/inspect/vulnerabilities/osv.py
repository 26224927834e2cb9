"""Evaluate an advisory in OSV's format, as its schema describes: https://ossf.github.io/osv-schema/#evaluation."""

from collections.abc import Iterator, Mapping
from typing import Any

from packaging.utils import canonicalize_name
from pydantic import BaseModel, ConfigDict, Field

from trainwright.inspect.vulnerabilities.model import PYPI, Hit, Package, compare, rank, severity

COMPARED = ("SEMVER", "ECOSYSTEM")  # types of ranges; of GIT the commits would have to be known
GIT_ONLY = "the advisory names commits only"


class Said(BaseModel):
    """Base of what an advisory says; the schema grows, so unknown fields are allowed."""

    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)


class Rating(Said):
    type: str = ""
    score: str = ""


class Range(Said):
    type: str
    events: list[dict[str, str]] = Field(default=[])


class Affected(Said):
    package: dict[str, str] | None = None
    ranges: list[Range] = Field(default=[])
    versions: list[str] = Field(default=[])
    severity: list[Rating] | None = None
    ecosystem_specific: dict[str, Any] | None = None
    database_specific: dict[str, Any] | None = None


class Record(Said):
    """One advisory."""

    id: str
    modified: str = ""
    withdrawn: str | None = None
    aliases: list[str] | None = None
    upstream: list[str] | None = None
    severity: list[Rating] | None = None
    affected: list[Affected] | None = None
    database_specific: dict[str, Any] | None = None


def names(raw: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the ecosystem and the package's name of each affected part of an advisory that was not validated yet."""
    for part in raw.get("affected") or []:
        package = part.get("package") or {}
        if isinstance(name := package.get("name"), str) and isinstance(ecosystem := package.get("ecosystem"), str):
            yield ecosystem, canonical(ecosystem, name)


def canonical(ecosystem: str, name: str) -> str:
    return str(canonicalize_name(name)) if ecosystem == PYPI else name


def fits(ecosystem: str, said: str) -> bool:
    """Return whether an advisory's ecosystem is a package's: Ubuntu:24.04:LTS is of Ubuntu:24.04, Debian of all."""
    return said == ecosystem or said == ecosystem.partition(":")[0] or said.startswith(f"{ecosystem}:")


def hit(record: Record, package: Package) -> Hit | None:
    """Return how an advisory applies to a package; None if it does not."""
    unknown, found = "", list[tuple[str, Affected]]()
    for part in record.affected or []:
        said = part.package or {}
        ecosystem, name = said.get("ecosystem", ""), said.get("name", "")
        if not fits(package.ecosystem, ecosystem) or canonical(ecosystem, name) != package.name:
            continue
        affected, fixed, why = evaluate(part, package)
        if affected:
            found.append((fixed, part))
        unknown = unknown or why
    if not found and not unknown:
        return None
    word, score = rated(record, [part for _, part in found])
    others = [*(record.aliases or []), *(record.upstream or [])]
    distribution = package.ecosystem != PYPI
    return Hit(
        id=record.id,
        same=[] if distribution else others,
        covers=others if distribution else [],
        severity=word,
        score=score,
        fixed=next((fixed for fixed, _ in found if fixed), ""),
        undetermined="" if found else unknown,
    )


def evaluate(part: Affected, package: Package) -> tuple[bool, str, str]:
    """Return whether a part affects this version, the next version with the correction, and why that is unknown."""
    ecosystem, version = package.ecosystem, package.version
    ranges = [one for one in part.ranges if one.type in COMPARED]
    if not ranges and not part.versions:
        return False, "", GIT_ONLY if part.ranges else ""
    unknown, inside, fixed = "", False, ""
    for one in ranges:
        try:
            affected = included(one, ecosystem, version)
            corrected = next_fix(one, ecosystem, version)
        except ValueError as error:
            unknown = f"a version in the advisory cannot be compared: {error}"
            continue
        inside = inside or affected
        if affected and corrected:
            fixed = fixed or corrected
    if not inside and any(equal(ecosystem, version, one) for one in part.versions):
        inside = True
        for one in ranges:
            try:
                fixed = fixed or next_fix(one, ecosystem, version)
            except ValueError:
                continue
    return inside, fixed, "" if inside else unknown


def included(one: Range, ecosystem: str, version: str) -> bool:
    """Return whether a range includes a version. Raises ValueError if a bound is malformed."""
    limits = [event["limit"] for event in one.events if "limit" in event]
    if limits and not any(limit == "*" or compare(ecosystem, version, limit) < 0 for limit in limits):
        return False
    vulnerable = False
    for kind, bound in _sorted(one, ecosystem):
        side = compare(ecosystem, version, bound)
        if kind == "introduced" and side >= 0:
            vulnerable = True
        elif (kind == "fixed" and side >= 0) or (kind == "last_affected" and side > 0):
            vulnerable = False
    return vulnerable


def next_fix(one: Range, ecosystem: str, version: str) -> str:
    """Return the first version of a range's corrections that is above this version, or "". Raises ValueError."""
    later = [b for kind, b in _sorted(one, ecosystem) if kind == "fixed" and compare(ecosystem, version, b) < 0]
    return later[0] if later else ""


def equal(ecosystem: str, version: str, other: str) -> bool:
    try:
        return compare(ecosystem, version, other) == 0
    except ValueError:
        return version == other


class _Bound:
    """A bound in the order of its ecosystem, for sorting; "0" comes first."""

    def __init__(self, ecosystem: str, bound: str) -> None:
        self.ecosystem, self.bound = ecosystem, bound

    def __lt__(self, other: "_Bound") -> bool:
        if "0" in (self.bound, other.bound):
            return self.bound == "0" != other.bound
        return compare(self.ecosystem, self.bound, other.bound) < 0


def _sorted(one: Range, ecosystem: str) -> list[tuple[str, str]]:
    """Return a range's events by version; those of the same version stay in their order."""
    events = [(kind, bound) for event in one.events for kind, bound in event.items() if kind != "limit"]
    return sorted(events, key=lambda event: _Bound(ecosystem, event[1]))


def rated(record: Record, parts: list[Affected]) -> tuple[str, float | None]:
    """Return the severity that the databases state, in one word and as CVSS's base score.

    A word of the package's own database counts first, then the record's, then the word for the score.
    """
    specific = [one for part in parts for one in (part.ecosystem_specific, part.database_specific)]
    words = [severity(one.get(key)) for one in (*specific, record.database_specific) if one for key in KEYS]
    ratings = [rating for part in parts for rating in part.severity or []] or record.severity or []
    score, by_score = scored(ratings)
    words += [severity(rating.score) for rating in ratings if not rating.type.startswith("CVSS")] + [by_score]
    return next((word for word in words if word), ""), score


KEYS = ("urgency", "severity")


def scored(ratings: list[Rating]) -> tuple[float | None, str]:
    """Return the base score of the newest CVSS vector, and CVSS's word for it; (None, "") without a valid one."""
    from cvss import CVSS2, CVSS3, CVSS4
    from cvss.exceptions import CVSSError

    kinds = {"CVSS_V4": CVSS4, "CVSS_V3": CVSS3, "CVSS_V2": CVSS2}
    for kind, read in kinds.items():
        for rating in ratings:
            if rating.type == kind:
                try:
                    found = read(rating.score)
                    return float(found.base_score), severity(found.severities()[0])
                except (CVSSError, ValueError):
                    continue
    return None, ""


def worst(words: list[str]) -> str:
    """Return the highest of several severities; "" if none is stated."""
    return min((word for word in words if word), key=rank, default="")
