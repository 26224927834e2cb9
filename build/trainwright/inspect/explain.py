"""Explain why each component of an image has its version."""

import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType

from trainwright.core import project
from trainwright.core.toml import Model
from trainwright.core.versions import in_order
from trainwright.image.render import folders_of, left_out
from trainwright.lock.facts import came_along, facts_of
from trainwright.lock.lockfile import python_name
from trainwright.matrix.compat import Facts, Verdict, judge, violations
from trainwright.matrix.matrix import Recipe
from trainwright.matrix.model import IN_BASE, Lock, Package, PythonFile, Source
from trainwright.matrix.validate import MATRIX, declared

NOT_LOCKED = "not locked"
NOT_INCLUDED = "not included"
NOT_READ = "no job reads it (dockerfiles/bases.toml)"


class Explained(Model):
    """One component of one image."""

    component: str
    version: str  # "" if it needs a lock, and there is none, or if it is not included
    provider: str
    declared: str  # the table of the matrix that decides it, the wheel that requires it, or why it is not included
    where: str  # file:line of that; "" if it is not declared
    resolved: str  # the file, package or source that it was resolved to
    digest: str  # of that: "sha256:…" or "commit:…"
    licence: str
    rules: list[Verdict]  # those that concern this component


def explain(
    recipe: Recipe,
    locked: Lock | None,
    packages: Mapping[str, Package],
    build_packages: Mapping[str, Package],
    elsewhere: Mapping[str, str] = MappingProxyType({}),
) -> list[Explained]:
    """Return every component, pinned or required by a wheel, and those that the rules keep out.

    `packages` and the locks come from `inputs.known`. `elsewhere` says what decides the pins of an image without a row.
    """
    found = facts_of(recipe, locked, packages, build_packages)
    judged, text, rows = list(judge(recipe.intent.compat, found)), (recipe.root / MATRIX).read_text(), []
    for name, pin in recipe.pins.items():
        said = elsewhere.get(name, "")
        what, where = (said, "") if said else declared(recipe.intent.matrix, recipe.variant, name, text)
        if (own := project.cited(recipe.root, where, name)) != where and not own.endswith("(installed)"):
            what = re.sub(r"^row \d+ of", "row of", what)  # it has another number in the project's file
        where = own
        resolved, digest = _resolved(recipe, name, locked, packages)
        if said and pin.provider == IN_BASE:
            resolved, _, digest = recipe.base.reference.partition("@")
        rows.append(_row(recipe, name, found.get(name, ""), pin.provider, (what, where), (resolved, digest), judged))
    for name, entry in came_along(recipe, locked).items():
        users = [other.name for other in recipe.installed(locked).values() if entry.name in other.needs]
        why = f"required by {', '.join(users) or 'another wheel'}"
        rows.append(_row(recipe, name, entry.version, "wheel", (why, ""), _wheel(entry), judged))
    return rows + list(_left_out(recipe, found))


def _left_out(recipe: Recipe, found: Facts) -> Iterator[Explained]:
    """Yield the Python libraries that other images of the framework pin, if the rules refuse each version here."""
    known: dict[str, set[str]] = {}
    for other in recipe.intent.variants if not recipe.made_by_others else ():
        for name, pin in other.pins.items() if other.framework == recipe.variant.framework else ():
            if name not in found and pin.version and recipe.component(name).position == "python":
                known.setdefault(name, set()).add(pin.version)
    for name, versions in sorted(known.items()):
        refusals = [_refusals(recipe, found, name, version) for version in in_order(list(versions))]
        if all(refusals):
            common = [rule for rule in refusals[-1] if all(rule in others for others in refusals)]
            because = (common or refusals[-1])[0]
            yield _row(recipe, name, "", NOT_INCLUDED, (because, ""), ("", ""), [])


def _refusals(recipe: Recipe, found: Facts, name: str, version: str) -> list[str]:
    """Return the rules, with their evidence, that keep a version of a component out of an image."""
    broken = violations(recipe.intent.compat, {**found, name: version})
    return [f"{one.rule} ({one.evidence})" for one in broken if one.severity == "refuse" and one.a.name == name]


def _row(
    recipe: Recipe,
    name: str,
    version: str,
    provider: str,
    said: tuple[str, str],
    resolved: tuple[str, str],
    judged: list[Verdict],
) -> Explained:
    return Explained(
        component=name,
        version=version,
        provider=provider,
        declared=said[0],
        where=said[1],
        resolved=resolved[0],
        digest=resolved[1],
        licence=recipe.component(name).licence,
        rules=[verdict for verdict in judged if name in (verdict.a.name, verdict.b and verdict.b.name)],
    )


def _resolved(recipe: Recipe, name: str, locked: Lock | None, packages: Mapping[str, Package]) -> tuple[str, str]:
    """Return the resolution of a pin, and its digest."""
    provider, nothing = recipe.provider(name), (NOT_LOCKED, "")
    sources = {source.name: source for source in locked.sources} if locked else {}
    if provider.kind == "bundled":
        installer, held = provider.bundled_by, recipe.pins.get(provider.bundled_by)
        what = f"bundled by {installer}" + (f" {held.version}" if held else "")
        return what, _source(sources[installer])[1] if installer in sources else ""
    if provider.kind == "own":
        return f"the files of dockerfiles/rootfs/{name}", ""
    if provider.kind == "distro":
        package = packages.get(next(iter(recipe.packages(provider.packages)), ""))
        return (f"{package.name} {package.version}", f"sha256:{package.sha256}") if package else nothing
    if name in sources:
        return _source(sources[name])
    entry = recipe.installed(locked).get(python_name(recipe, name))
    return _wheel(entry) if entry else nothing


def _source(source: Source) -> tuple[str, str]:
    digests = [f"commit:{source.commit}" if source.commit else "", f"sha256:{source.sha256}" if source.sha256 else ""]
    what = f"{source.url} {source.tag}".strip()
    return what, next(filter(None, digests), "not established")


def _wheel(entry: PythonFile) -> tuple[str, str]:
    return entry.file, f"sha256:{entry.sha256}"


def left_out_table(recipe: Recipe, locked: Lock | None) -> list[dict[str, str]]:
    """Return what the image leaves out: of the base's packages by its globs, of Python's by the components' rules."""
    rows = [{"left out of": recipe.variant.base, "files": glob, "because": NOT_READ} for glob in recipe.base.left_out]
    if not locked or recipe.made_by_others:
        return rows
    rules = [rule for folder in left_out(recipe, folders_of(recipe, locked)).values() for rule in folder]
    return rows + [
        {
            "left out of": rule["package"],
            "files": ", ".join(rule["files"]) + ": debug sections" * rule["debug"],
            "because": rule["why"] + ("; the devel twin has them" if rule["devel"] else ""),
        }
        for rule in rules
        if not (rule["devel"] and recipe.variant.devel)
    ]


def as_tables(rows: list[Explained]) -> list[list[dict[str, str]]]:
    """Return tables for people: components, those not included, and the rules, each rule once, broken rules first."""
    components = [
        {
            "component": row.component,
            "version": row.version or "unknown",
            "provider": row.provider,
            "declared": ", ".join(filter(None, [row.declared, row.where.removeprefix("dockerfiles/")])),
            "resolved to": " ".join(filter(None, [row.resolved, row.digest[:19]])),
            "licence": row.licence,
        }
        for row in rows
        if row.provider != NOT_INCLUDED
    ]
    left_out = [{NOT_INCLUDED: row.component, "because": row.declared} for row in rows if row.provider == NOT_INCLUDED]
    verdicts = {verdict.row: verdict for row in rows for verdict in row.rules}
    rules = [
        {
            "rule": verdict.state if verdict.state != "broken" else f"broken ({verdict.severity})",
            "component": f"{verdict.a.name} {verdict.a.version}",
            "goes with": f"{verdict.b.name} {verdict.b.version} ({verdict.b.range})"
            if verdict.b
            else f"not {verdict.a.range}",
            "because": f"{verdict.rule} ({verdict.evidence}; checked {verdict.checked_on})",
        }
        for verdict in sorted(verdicts.values(), key=lambda verdict: (verdict.state == "holds", verdict.row))
    ]
    return [table for table in (components, left_out, rules) if table]
