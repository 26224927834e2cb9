"""Find a remedy for incompatible versions: the nearest compatible ones, and the refusal that names them."""

from collections.abc import Callable, Mapping
from itertools import product

from trainwright.core import versions
from trainwright.core.errors import IncompatibleError
from trainwright.matrix.compat import Compat, Facts, Verdict, complete, violations

Bundles = Mapping[str, Mapping[str, Mapping[str, str]]]  # installer, its version, component: the bundled version


def nearest(
    compat: Compat, facts: Facts, broken: Verdict, known: Mapping[str, list[str]], bundles: Bundles | None = None
) -> tuple[str, str] | None:
    """Return the smallest change of one side that fixes a violation: newer before older, `a` before `b`.

    A bundled component is changed by changing its installer.
    """
    bundles, facts = bundles or {}, complete(facts)
    before = {v.row for v in violations(compat, facts) if v.severity == "refuse"} - {broken.row}
    names = [_installer(facts, side.name, bundles) for side in (broken.a, broken.b) if side]
    candidates: dict[str, tuple[list[str], list[str]]] = {}
    for name in names:
        present = versions.parse(facts[name])
        releases = [v for v in versions.in_order(known.get(name, [])) if not versions.parse(v).is_prerelease]
        newer = [v for v in releases if versions.parse(v) > present]
        candidates[name] = newer, [v for v in reversed(releases) if versions.parse(v) < present]
    for tolerated in (set(), before):  # first without any refusal; else fix this rule and break no further one
        for direction, name in product((0, 1), names):
            for version in candidates[name][direction]:
                wrong = violations(compat, _changed(facts, name, version, bundles))
                refused = {verdict.row for verdict in wrong if verdict.severity == "refuse"}
                if broken.row not in {verdict.row for verdict in wrong} and refused <= tolerated:
                    return name, version
    return None


def _brings(bundles: Bundles, installer: str, version: str) -> dict[str, str]:
    """Return what a version of an installer bundles; its plugin was compiled against its libfabric."""
    parts = dict(bundles.get(installer, {}).get(version, {}))
    return parts | ({"plugin-libfabric": parts["libfabric"]} if {"aws-ofi-nccl", "libfabric"} <= parts.keys() else {})


def _installer(facts: Facts, name: str, bundles: Bundles) -> str:
    """Return the component to change in order to change `name`: its installer, or itself."""
    brought = (i for i in bundles if i in facts and _brings(bundles, i, facts[i]).get(name) == facts[name])
    return next(brought, name)


def _changed(facts: Facts, name: str, version: str, bundles: Bundles) -> Facts:
    """Return the facts as they are with another version of one component, and the versions that it then bundles."""
    carried = {part for part, held in _brings(bundles, name, facts[name]).items() if facts.get(part) == held}
    brings = _brings(bundles, name, version)
    return {**facts, name: version, **{part: brings[part] for part in brings if part in carried}}


def refuse(
    identity: str,
    where: str,
    found: list[Verdict],
    mend: Callable[[Verdict], tuple[str, str] | None],
    pin: Callable[[str, str], str] = '{} = "{}"'.format,
    origin: Callable[[Verdict], str] = lambda _: "",
    place: Callable[[Verdict], str] = lambda _: "",
) -> list[Verdict]:
    """Raise IncompatibleError if an image breaks a rule; otherwise return the findings as warnings to show.

    `where` is file:line of the image's pins, `mend` is `nearest` for these facts, `pin` returns how the matrix writes
    a component and its version, or "" if no pin can. `origin` returns one sentence on where an unpinned side comes
    from, or "". `place` returns file:line of a rule.
    """
    refused = [verdict for verdict in found if verdict.severity == "refuse"]
    if not refused:
        return found
    first, works = refused[0], mend(refused[0])
    file, _, line = where.partition(":")
    better = pin(*works) if works else ""
    raise IncompatibleError(
        f"{identity}: {sentence(first)}",
        where=where,
        why="\n".join(
            [
                _rule(first, place),
                *filter(None, [origin(first)]),
                f"evidence: {first.evidence} (checked {first.checked_on})",
                f"nearest that works: {works[0]} {works[1]}"
                if works
                else "no known release of either one is compatible",
                *(f"also: {sentence(verdict)}: {_rule(verdict, place)}" for verdict in refused[1:]),
            ]
        ),
        fix=f"$EDITOR {f'+{line} ' if line else ''}{file}" + (f"   # {better}" if better else ""),
    )


def _rule(verdict: Verdict, place: Callable[[Verdict], str]) -> str:
    return f"{verdict.rule} ({where})" if (where := place(verdict)) else verdict.rule


def sentence(verdict: Verdict) -> str:
    """Return both sides with version and range."""
    a, b = verdict.a, verdict.b
    if b is None:
        return (
            f"{a.name} {a.version} is in the {'banned' if verdict.severity == 'refuse' else 'doubtful'} range {a.range}"
        )
    if b.range == "not documented":
        return f"not documented: {b.name} {b.version} on {a.name} {a.version}"
    if b.range.startswith("net"):
        return f"{a.name} {a.version} speaks {a.range}, {b.name} {b.version} {b.range}"
    return f"{a.name} {a.version} (of {a.range}) requires {b.name} {b.range}, and the image has {b.version}"
