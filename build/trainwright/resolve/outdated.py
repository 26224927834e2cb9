"""Find upstream versions that are newer than the pins; if upstream does not answer, the state is "unknown"."""

import re
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Literal

from packaging.utils import canonicalize_name

from trainwright.core import mirrors, versions
from trainwright.core.errors import TrainwrightError
from trainwright.core.progress import Say, counted
from trainwright.core.toml import Model
from trainwright.image import inputs
from trainwright.lock import diff, facts, lockfile
from trainwright.matrix import compat
from trainwright.matrix.matrix import Intent, Recipe
from trainwright.resolve import fetch, pypi, resolve, upstream

Kind = Literal["python", "source", "file", "distribution"]
WORKERS = 4  # servers that are asked in parallel


class Update(Model):
    """One pinned item; `allowed` is the newest known version that breaks no rule of compat.toml that held."""

    kind: Kind
    name: str
    pinned: str
    newest: str = ""
    allowed: str = ""
    state: Literal["current", "newer", "unknown"]
    why: str = ""


class Pinned(Model):
    """An item to look up upstream, and one image that has it."""

    kind: Kind
    name: str
    version: str
    recipe: Recipe
    ask: str  # name of the Python package, address of the repository; "" if there is none
    tag: str = ""
    index: str = ""  # the framework's own index, for its own packages


def outdated(intent: Intent, recipes: list[Recipe], say: Say) -> list[Update]:
    """Look up every pin of these images and of the build's tools, then the packages of their bases that have moved."""
    mirrors.check_names(archive for base in intent.components.bases.values() for archive in base.archives)
    rows = of_pins(pins_of(recipes), say)
    bases = resolve.bases_of(recipes)
    say(f"looking up the packages of {', '.join(_stem(intent, *base) for base in bases)}")
    with ThreadPoolExecutor(WORKERS) as pool:
        for found in pool.map(lambda base: _distribution(intent, *base), bases):
            rows += found
    return rows


def pins_of(recipes: list[Recipe]) -> list[Pinned]:
    """Return every pin of these images and of the build's own tools, each version of it once."""
    return list({(p.kind, p.name, p.version): p for p in _pinned(recipes)}.values())


def of_pins(pinned: list[Pinned], say: Say) -> list[Update]:
    say(f"looking up {counted(len(pinned), 'pin')}")
    with ThreadPoolExecutor(WORKERS) as pool:
        rows = [row for found in pool.map(_ask, _together(pinned)) for row in found]
    return sorted(rows, key=lambda row: (row.kind, row.name, row.pinned))


def _pinned(recipes: list[Recipe]) -> Iterator[Pinned]:
    for recipe in recipes:
        for name, pin in recipe.pins.items():
            provider = recipe.provider(name)
            ask = lockfile.python_name(recipe, name) or provider.git
            if provider.kind in ("python", "source", "file"):
                yield Pinned.model_validate(
                    {"kind": provider.kind, "name": name, "version": pin.version, "recipe": recipe, "ask": ask}
                    | {"tag": provider.tag, "index": provider.index.get(recipe.variant.accelerator, "")}
                )
        for table in (recipe.tools.python_tools, recipe.tools.sdist_build):
            for name, version in table.items():
                yield Pinned(kind="python", name=f"{name} (build)", version=version, recipe=recipe, ask=name)


def _together(pinned: Iterable[Pinned]) -> list[list[Pinned]]:
    """Group the pins that one query settles: the Python packages for one platform, the releases of one repository."""
    groups: dict[tuple[str, ...], list[Pinned]] = {}
    for pin in pinned:
        where = (pin.recipe.variant.base, pin.recipe.variant.python, pin.index) if pin.kind == "python" else (pin.name,)
        groups.setdefault((pin.kind, *where), []).append(pin)
    return list(groups.values())


def _ask(pins: list[Pinned]) -> list[Update]:
    kind = pins[0].kind
    if kind == "python":
        return _python(pins)
    if kind == "file":
        return [_known(pin) for pin in pins]
    try:
        tags = upstream.tags(pins[0].ask)
    except TrainwrightError as error:
        return [_unknown(pin, error) for pin in pins]
    return [_judged(pin, _releases(pin.tag, tags)) for pin in pins]


def _releases(pattern: str, tags: Iterable[str]) -> list[str]:
    """Return the versions that tags of this pattern name: numbers alone, so no candidate and no vendor's rebuild."""
    before, _, after = pattern.partition("{version}")
    shape = re.compile(rf"{re.escape(before)}(\d+(?:\.\d+)*){re.escape(after)}")
    return versions.in_order([match[1] for tag in tags if (match := shape.fullmatch(tag))])


def _known(pin: Pinned) -> Update:
    """Judge a file by its recorded releases, because upstream lists no files; one without sha256 cannot be locked."""
    component = pin.recipe.component(pin.name)
    row = _judged(pin, versions.in_order([*component.releases, pin.version]))
    if row.state != "newer":
        why = row.why or "upstream lists no versions, and its file in dockerfiles/layers/ has no newer one"
        return row.model_copy(update={"state": "unknown", "allowed": "", "why": why})
    lockable = facts.lockable(component)
    allowed = _judged(pin, versions.in_order([*lockable, pin.version])).allowed
    missing = "" if row.newest in lockable else f"the sha256 of {row.newest} is not established"
    return row.model_copy(update={"allowed": allowed, "why": "; ".join(filter(None, [row.why, missing]))})


def _python(pins: list[Pinned]) -> list[Update]:
    """Judge each pin by the newest version that fits the image: one query for all, or, if it fails, one for each."""
    names, base = sorted({pin.ask for pin in pins}), pins[0].recipe.base
    try:
        offers = pypi.resolve(names, pins[0].recipe.variant.python, base, pins[0].index, deps=False)
    except TrainwrightError as error:
        if len(names) > 1:
            return [row for pin in pins for row in _python([pin])]
        return [_unknown(pin, error) for pin in pins]
    found: dict[str, str] = {canonicalize_name(offer.name): offer.version for offer in offers}
    return [_judged(pin, [found[pin.ask]]) for pin in pins]


def _unknown(pin: Pinned, error: TrainwrightError) -> Update:
    return Update(kind=pin.kind, name=pin.name, pinned=pin.version, state="unknown", why=_reason(error))


def _reason(error: TrainwrightError) -> str:
    """Return an error's text on one line, because programs wrap it."""
    return " ".join((error.why or error.what).split())[:300]


def _judged(pin: Pinned, known: list[str]) -> Update:
    """Judge a pin by its known versions; `known` is oldest first."""
    row = {"kind": pin.kind, "name": pin.name, "pinned": pin.version}
    if not known:
        return Update.model_validate(row | {"state": "unknown", "why": "upstream lists no release of it"})
    newest = known[-1]
    if versions.older(newest, pin.version):
        return Update.model_validate(
            row | {"newest": newest, "state": "unknown", "why": "upstream lists only older releases"}
        )
    if not versions.older(pin.version, newest):
        return Update.model_validate(row | {"newest": newest, "allowed": newest, "state": "current"})
    refused, breaks = "", _breaks(pin)
    for version in reversed([version for version in known if not versions.older(version, pin.version)]):
        if not (said := breaks(version)):
            return Update.model_validate(
                row
                | {"newest": newest, "allowed": version, "state": "newer", "why": refused and f"{newest}: {refused}"}
            )
        refused = refused or said
    return Update.model_validate(row | {"newest": newest, "state": "newer", "why": f"{newest}: {refused}"})


def _breaks(pin: Pinned) -> Callable[[str], str]:
    """Return a function that returns the rule that a version would newly break, or ""."""
    locked, packages, build_packages = inputs.known(pin.recipe)
    held = facts.facts_of(pin.recipe, locked, packages, build_packages)

    def refusals(version: str) -> dict[int, str]:
        found = compat.violations(pin.recipe.intent.compat, {**held, **({pin.name: version} if version else {})})
        return {verdict.row: verdict.rule for verdict in found if verdict.severity == "refuse"}

    now = refusals("")
    return lambda version: next((rule for row, rule in refusals(version).items() if row not in now), "")


def _stem(intent: Intent, base: str, tools: bool) -> str:
    return inputs.packages_path(intent, base, tools).stem


def _distribution(intent: Intent, base: str, tools: bool) -> list[Update]:
    """Return a row for each package that has moved since the lock, and one row for all others."""
    name = _stem(intent, base, tools)
    try:
        locked = inputs.current_distribution(intent, base, tools).locked
        below = inputs.read_distribution(intent, base).locked if tools else {}
        _, fresh = fetch.resolve_packages(intent, base, tools, below)
    except TrainwrightError as error:
        return [
            Update(
                kind="distribution",
                name=name,
                pinned="as locked",
                state="unknown",
                why=f"{error.what}: {_reason(error)}",
            )
        ]
    rows = []
    for change in diff.changes(name, "distribution", diff.packages_held(locked), diff.packages_held(fresh)):
        why = "" if change.old and change.new else "newly required" if change.new else "no longer required"
        row = {"kind": "distribution", "name": f"{change.name} ({name})", "pinned": change.old, "newest": change.new}
        rows.append(Update.model_validate(row | {"allowed": change.new, "state": "newer", "why": why}))
    kept = sum(locked[package] == fresh.get(package) for package in locked)
    rest = Update(kind="distribution", name=f"{name}: {kept} packages", pinned="as locked", state="current")
    return [*rows, rest] if kept else rows
