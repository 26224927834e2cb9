"""Determine which images change between two trees, and why."""

from collections.abc import Iterator, Mapping
from difflib import unified_diff
from pathlib import Path
from typing import Literal, NamedTuple

from trainwright.core import checkout
from trainwright.core.errors import ConfigError, TrainwrightError
from trainwright.core.progress import few
from trainwright.core.toml import Model
from trainwright.image import inputs
from trainwright.image.inputs import Inputs
from trainwright.lock import diff
from trainwright.matrix.matrix import Intent, Recipe, load_intent
from trainwright.matrix.model import Variant

Kind = Literal["component", "Python package", "source", "distribution package", "file"]
SHOWN = 3  # names of each kind in a sentence
UNKNOWN, BLOCKED = "unknown", "blocked"  # in place of a key


class Moved(Model):
    """An image whose key changed. A key is "" if the tree lacks the image, "unknown" or "blocked" if it has no key."""

    id: str
    old: str
    new: str
    why: str


class Difference(NamedTuple):
    """One difference between two images of the same id. A value is "" if that image lacks it."""

    kind: Kind
    name: str
    old: str
    new: str

    def __str__(self) -> str:
        moved = f" {self.old or '(new)'} -> {self.new or '(gone)'}" if self.old or self.new else ""
        return f"{self.name}{moved}"


class State(NamedTuple):
    """One image in one tree; `why` explains missing inputs."""

    key: str
    text: Mapping[str, str]
    why: str = ""
    inputs: Inputs | None = None


ABSENT = State("", {})


def since(intent: Intent, reference: str) -> list[Moved]:
    """Return the changes between a commit and the working tree. Raises ConfigError if the commit does not exist."""
    with checkout.exported(intent.root, checkout.commit_of(intent.root, reference)) as folder:
        try:
            old = load_intent(folder)
        except TrainwrightError as error:
            raise ConfigError(
                f"the intent of {reference} cannot be read by this version",
                where=f"{error.where} at {reference}",
                why=f"{error.what}: {error.why}",
                fix=f"git worktree add ../then {reference}, and use the trainwright of that worktree",
            ) from None
        return between(old, intent)


def between(old: Intent, new: Intent) -> list[Moved]:
    """Return every image whose key differs or is unknown; an image that is blocked in both only if its text differs."""
    return compare(load_all(old), load_all(new))


def compare(before: Mapping[str, State], after: Mapping[str, State]) -> list[Moved]:
    rows = []
    for identity in dict.fromkeys([*before, *after]):
        one, other = before.get(identity, ABSENT), after.get(identity, ABSENT)
        if one.key == other.key != UNKNOWN and one.text == other.text:
            continue
        if one.inputs and other.inputs:
            why = sentence(differ(one.inputs, other.inputs))
        elif ABSENT in (one, other):
            why = "a new image" if one is ABSENT else "not in the matrix any more"
        else:
            why = other.why or f"it was {one.why}"
        rows.append(Moved(id=identity, old=one.key, new=other.key, why=why))
    return rows


def load_all(intent: Intent) -> dict[str, State]:
    return {recipe.id: _load(recipe) for recipe in intent.recipes}


def _load(recipe: Recipe) -> State:
    try:
        if reasons := inputs.awaited(recipe):
            return State(BLOCKED, inputs.text_of(recipe), f"blocked: {'; '.join(reasons)}")
        found = inputs.load(recipe, as_locked=True)
        return State(found.key, found.text, inputs=found)
    except TrainwrightError as error:  # for example a stale lock
        return State(UNKNOWN, {}, " ".join(f"{error.what}: {error.why}".split()))


def differ(one: Inputs, other: Inputs) -> list[Difference]:
    """Return all differences that explain another key, declared pins first."""
    found = _pins(one.variant, other.variant)
    declared = {difference.name for difference in found}
    for kind, before, after in (
        ("Python package", _python(one), _python(other)),
        ("source", diff.sources_held(one.lock.sources), diff.sources_held(other.lock.sources)),
        ("distribution package", _packages(one), _packages(other)),
    ):
        for row in diff.changes("", "python", before, after):
            if row.name not in declared:
                found.append(Difference(kind, row.name, row.old, row.new))  # type: ignore[arg-type]  # of these
    files = [
        *_files(_templates(one.recipe), _templates(other.recipe)),
        *_files(_rootfs(one), _rootfs(other)),
    ]
    found += [Difference("file", name, "", "") for name in files]
    if not found:  # no difference in pins or files: the base's facts, how wheels become layers, or a script
        said = [name for name in other.text if one.text.get(name) != other.text[name] and name != "docker-bake.json"]
        found = [Difference("file", f"rendered {name}", "", "") for name in said or ["base"]]
    return found


def sentence(found: list[Difference]) -> str:
    """Format the differences for people: a few names of each kind, and the number of the others."""
    parts = []
    for kind in dict.fromkeys(difference.kind for difference in found):
        rows = [str(difference) for difference in found if difference.kind == kind]
        parts.append(f"{kind}{'s' * (len(rows) > 1)} {few(rows, SHOWN, ', ')}")
    return "; ".join(parts)


def rendered(before: Mapping[str, State], after: Mapping[str, State], rows: list[Moved]) -> str:
    """Return a unified diff of the rendered text of these images, old against new."""
    lines: list[str] = []
    for row in rows:
        old, new = before.get(row.id, ABSENT).text, after.get(row.id, ABSENT).text
        for name in sorted(old.keys() | new.keys()):
            words = (old.get(name, "").splitlines(True), new.get(name, "").splitlines(True))
            lines += unified_diff(*words, f"a/out/{row.id}/{name}", f"b/out/{row.id}/{name}")
    return "".join(lines)


def _pins(one: Variant, other: Variant) -> list[Difference]:
    """Return the differences in what the matrix itself declares: pins and base."""
    before = {name: f"{pin.provider} {pin.version}".strip() for name, pin in one.pins.items()} | {"base": one.base}
    after = {name: f"{pin.provider} {pin.version}".strip() for name, pin in other.pins.items()} | {"base": other.base}
    return [
        Difference("component", name, before.get(name, ""), after.get(name, ""))
        for name in sorted(before.keys() | after.keys())
        if before.get(name) != after.get(name)
    ]


def _python(found: Inputs) -> diff.Held:
    """Map the Python packages that this image is made with, not those of its twin alone, to version and sha256."""
    entries = [entry for folder in found.wheels.values() for entry in folder]
    return {diff.python_name(entry.name, entry.group): (entry.version, entry.sha256) for entry in entries}


def _packages(found: Inputs) -> diff.Held:
    tools = found.tools.effective if found.tools else {}
    build = {f"{name} (build)": held for name, held in diff.packages_held(tools).items()}
    return {**diff.packages_held(found.distribution.effective), **build}


def _templates(recipe: Recipe) -> Iterator[tuple[str, Path]]:
    """Yield the templates that may render an image: not those of other components and frameworks."""
    others = {*recipe.intent.components.components, *recipe.intent.matrix.frameworks} - {
        *recipe.pins,
        recipe.variant.framework,
    }
    for path in sorted((recipe.root / "dockerfiles").rglob("*.j2")):
        if path.stem not in others:
            yield str(path.relative_to(recipe.root)), path


def _rootfs(found: Inputs) -> Iterator[tuple[str, Path]]:
    return ((f"rootfs/{name}", path) for name, path in found.rootfs.items())


def _files(old: Iterator[tuple[str, Path]], new: Iterator[tuple[str, Path]]) -> list[str]:
    before, after = _contents(dict(old)), _contents(dict(new))
    return [name for name in sorted(before.keys() | after.keys()) if before.get(name) != after.get(name)]


def _contents(files: Mapping[str, Path]) -> dict[str, tuple[bytes, bool]]:
    return {name: (path.read_bytes(), bool(path.stat().st_mode & 0o100)) for name, path in files.items()}
