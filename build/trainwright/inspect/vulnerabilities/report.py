"""Report the known vulnerabilities of images: each problem once, with all its names, and what no snapshot covers."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import date
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from trainwright.core import progress
from trainwright.core.errors import BuildError, ConfigError, NotRunError
from trainwright.core.progress import few
from trainwright.core.toml import Model
from trainwright.inspect.vulnerabilities import contents, osv, snapshot
from trainwright.inspect.vulnerabilities.contents import Contents
from trainwright.inspect.vulnerabilities.model import Hit, NotCovered, Package, Seen, order, rank
from trainwright.inspect.vulnerabilities.settings import FILE, Accepted, Settings, settings
from trainwright.matrix.matrix import Recipe

NO_DATA = "no snapshot has advisories for it"
SHOWN = 3  # findings in a sentence
FIRST = ("CVE-", "GHSA-", "PYSEC-", "DSA-", "USN-")  # which of a problem's names stands for it


class Finding(Model):
    """One problem in one package."""

    id: str
    aliases: list[str]
    package: str
    version: str
    ecosystem: str
    installed: list[str]
    severity: str
    score: float | None
    fixed: str  # the first version with the correction; "" if none is known
    undetermined: str  # why it is not established that the package is affected; "" if it is
    accepted: str = ""  # the reason in vulnerabilities.toml


class Image(Model):
    """The findings of one image."""

    id: str
    source: str  # what they are by: SBOM or lock
    findings: list[Finding]
    covered: dict[str, int]  # ecosystem to the number of packages that were looked up
    not_covered: list[NotCovered]

    @property
    def counted(self) -> list[Finding]:
        return [one for one in self.findings if not one.accepted and not one.undetermined]

    @property
    def fixable(self) -> list[Finding]:
        return [one for one in self.counted if one.fixed]


class Report(Model):
    """The findings of several images, and the snapshots that they are by."""

    snapshots: list[Seen]
    images: list[Image]
    stale: list[str]  # a sentence for each snapshot that is too old
    notes: list[str]  # a snapshot without a date, an accepted finding whose day has passed


def known(recipes: Sequence[Recipe], paths: Sequence[Path]) -> Report:
    """Look up images of the matrix: by the SBOM of what was built here, by the lock before. Raises as report()."""
    said = settings(recipes[0].root)
    return report(paths, [contents.of_recipe(recipe, said) for recipe in recipes], said, date.today())


def known_of(name: str, sbom: Mapping[str, Any], recipe: Recipe | None, root: Path, paths: Sequence[Path]) -> Report:
    """Look up one image by an SBOM. Raises as report()."""
    said = settings(root)
    return report(paths, [contents.of_sbom(name, sbom, recipe, said)], said, date.today())


def judged(found: Report, root: Path) -> str:
    """Return in one sentence what is known of one image, if `fails_with` of vulnerabilities.toml is not met.

    Raises BuildError if it is; NotRunError if a snapshot is too old, or none covers some of the packages.
    """
    (image,), said = found.images, settings(root)
    counted = {"fixed": image.fixable, "any": image.counted, "none": []}[said.fails_with]
    if counted:
        rows = [f"{one.id} in {one.package} {one.version}{one.fixed and f', fixed in {one.fixed}'}" for one in counted]
        raise BuildError(f"{len(rows)} known{' with a correction' * (said.fails_with == 'fixed')}: {few(rows, SHOWN)}")
    if lacking := [str(row) for row in image.not_covered if row.ecosystem]:
        raise NotRunError(f"{cell(image)}; {'; '.join(lacking)}")
    if found.stale:
        raise NotRunError(f"{cell(image)}; {'; '.join(found.stale)}")
    looked = " and ".join(f"{progress.counted(count, 'package')} of {name}" for name, count in image.covered.items())
    return f"{cell(image)}, in {looked}; not covered: {len(image.not_covered)}"


def report(paths: Sequence[Path], held: Sequence[Contents], said: Settings, today: date) -> Report:
    """Look up all packages of all images in every snapshot. Raises ConfigError for an unreadable one."""
    wanted = {package for one in held for package in one.packages}
    seen, hits = list[Seen](), dict[Package, list[Hit]]()
    for path in paths:
        about, found = snapshot.read(path, wanted, said)
        seen.append(about)
        for package, rows in found.items():
            hits.setdefault(package, []).extend(rows)
    ecosystems = {ecosystem for about in seen for ecosystem in about.ecosystems}
    problems = {package: merged(package, rows) for package, rows in hits.items()}
    images = [_image(one, problems, ecosystems, said, today) for one in held]
    undated = [f"{one.path}: its age is unknown, because this format has no date" for one in seen if not one.newest]
    return Report(
        snapshots=seen, images=images, stale=_stale(seen, said, today), notes=[*undated, *_ended(said, today)]
    )


def merged(package: Package, hits: Iterable[Hit]) -> list[Finding]:
    """Return one finding for each problem of a package, worst first.

    Advisories of one problem in several databases have common names. What a distribution's advisory covers are several
    problems: it becomes another name of each of them.
    """
    groups = list[tuple[set[str], list[Hit]]]()
    for hit in hits:
        for names in [{hit.id, *hit.same}] if not hit.covers else [{name} for name in hit.covers]:
            meets = [group for group in groups if group[0] & names]
            for group in meets:
                groups.remove(group)
            rows = [row for group in meets for row in group[1]]
            groups.append((names.union(*(group[0] for group in meets)), [*rows, hit]))
    found = [_finding(package, names | {row.id for row in rows}, rows) for names, rows in groups]
    return sorted(found, key=lambda one: (rank(one.severity), -(one.score or 0), one.id))


def _finding(package: Package, names: Collection[str], hits: list[Hit]) -> Finding:
    ids = sorted(
        names, key=lambda name: (next((n for n, start in enumerate(FIRST) if name.startswith(start)), 9), name)
    )
    scores = [hit.score for hit in hits if hit.score is not None]
    certain = [hit for hit in hits if not hit.undetermined]
    return Finding(
        id=ids[0],
        aliases=ids[1:],
        package=package.name,
        version=package.version,
        ecosystem=package.ecosystem,
        installed=[],
        severity=osv.worst([hit.severity for hit in hits]),
        score=max(scores, default=None),
        fixed=_highest(package, [hit.fixed for hit in certain or hits if hit.fixed]),
        undetermined="" if certain else hits[0].undetermined,
    )


def _highest(package: Package, versions: list[str]) -> str:
    """Return the version that corrects the problem by every advisory of it."""
    try:
        return max(versions, key=lambda text: order(package.ecosystem, text), default="")
    except ValueError:
        return versions[0]


def _image(
    one: Contents, problems: Mapping[Package, list[Finding]], known: set[str], said: Settings, today: date
) -> Image:
    accepted = [row for row in said.accepted if row.until >= today and any(fnmatchcase(one.id, g) for g in row.images)]
    covered, missing, findings = Counter[str](), dict[str, NotCovered](), list[Finding]()
    for package, installed in one.packages.items():
        if not _is_known(package.ecosystem, known):
            missing[package.ecosystem] = NotCovered(what=package.ecosystem, why=NO_DATA, ecosystem=True)
            continue
        try:
            order(package.ecosystem, package.version)
        except ValueError:
            what = f"{package.name} {package.version}"
            missing[what] = NotCovered(what=what, why=f"the version is not valid in {package.ecosystem}")
            continue
        covered[package.ecosystem] += 1
        for found in problems.get(package, []):
            findings.append(found.model_copy(update={"installed": installed, "accepted": _reason(found, accepted)}))
    findings.sort(key=lambda row: (rank(row.severity), -(row.score or 0), row.package, row.id))
    return Image(
        id=one.id,
        source=one.source,
        findings=findings,
        covered=dict(sorted(covered.items())),
        not_covered=[*missing.values(), *one.not_covered],
    )


def _is_known(ecosystem: str, known: set[str]) -> bool:
    return any(osv.fits(ecosystem, name) for name in known)


def _reason(found: Finding, accepted: list[Accepted]) -> str:
    names = {found.id, *found.aliases}
    rows = (row for row in accepted if row.id in names and row.package in ("", found.package))
    return next((f"{row.reason} (until {row.until})" for row in rows), "")


def _stale(seen: list[Seen], said: Settings, today: date) -> list[str]:
    return [
        f"{one.path} is {days} days old: its newest entry is of {one.newest}; {FILE} says {said.oldest_days} at most"
        for one in seen
        if one.newest and (days := (today - _day(one)).days) > said.oldest_days
    ]


def _day(one: Seen) -> date:
    try:
        return date.fromisoformat(one.newest)
    except ValueError:
        why = f"{one.newest} is not a date"
        raise ConfigError(f"{one.path} is a damaged snapshot", where=one.path, why=why) from None


def _ended(said: Settings, today: date) -> list[str]:
    return [
        f"{row.id} is accepted no longer: {FILE} says until {row.until}" for row in said.accepted if row.until < today
    ]


# --- for people ------------------------------------------------------------------------------------------------------


def cell(image: Image) -> str:
    """Return an image's findings in a few words: "12 known, 3 fixed; not covered: Debian:13"."""
    if not image.covered:
        return "not covered"
    text = f"{len(image.counted)} known, {len(image.fixable)} fixed"
    lacking = [row.what for row in image.not_covered if row.ecosystem]
    return text + (f"; not covered: {', '.join(lacking)}" if lacking else "")


def table(images: Sequence[Image]) -> list[dict[str, Any]]:
    """Return a row for each problem of a package version, with the number of images that hold it, worst first."""
    rows = dict[tuple[str, str, str], tuple[Finding, list[str]]]()
    for image in images:
        for one in image.findings:
            rows.setdefault((one.id, one.package, one.version), (one, []))[1].append(image.id)
    ordered = sorted(
        rows.values(), key=lambda row: (rank(row[0].severity), -(row[0].score or 0), not row[0].fixed, row[0].id)
    )
    return [
        {
            "advisory": one.id,
            "package": one.package,
            "version": one.version,
            "fixed in": one.fixed or "not known",
            "severity": f"{one.severity or 'not stated'}{f' {one.score}' if one.score is not None else ''}",
            "images": ids[0] if len(ids) == 1 else f"{len(ids)} of {len(images)}",
            "also": ", ".join(one.aliases),
            "note": one.undetermined or (f"accepted: {one.accepted}" if one.accepted else ""),
        }
        for one, ids in ordered
    ]


def to_json(image: Image) -> dict[str, Any]:
    """Return an image's findings for programs, and the counts that a page shows."""
    counts = {"known": len(image.counted), "fixed": len(image.fixable), "text": cell(image)}
    return counts | image.model_dump(exclude={"id"})


def uncovered(images: Sequence[Image]) -> list[str]:
    """Return what no snapshot covers: a sentence for each reason, with the number of images that hold each thing."""
    rows = dict[str, Counter[str]]()
    for image in images:
        for row in image.not_covered:
            rows.setdefault(row.why, Counter())[row.what] += 1
    return [f"not covered: {_listed(held, len(images))}: {why}" for why, held in rows.items()]


def _listed(held: Counter[str], images: int) -> str:
    """Return names, the most frequent first, with the number of images unless all have it."""
    return ", ".join(
        f"{name} ({count} of {images} images)" if count < images else name for name, count in held.most_common()
    )
