"""A checkout with many more images than ours has: each a copy of a real one with one pin of its own.

The copies have real locks, but for the entries of what differs: their versions and checksums are made up, so that none
of them could be fetched. Everything that decides over a key is the real code on real text.
"""

import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import tomlkit

from trainwright.image import inputs
from trainwright.lock import lockfile
from trainwright.lock.lockfile import python_name
from trainwright.matrix.matrix import Intent, Recipe, load_intent
from trainwright.matrix.model import Lock, PythonFile, Variant

ROOT = Path(__file__).parents[2]
MATRIX = "dockerfiles/matrix.toml"
FLAVOUR = "team"  # of every copy: `<id>-team-007`


def plant(tree: Path, originals: list[str], count: int, pin: str, version: str) -> Intent:
    """Our checkout at `tree`, and beside its own images `count` copies of `originals` in turn.

    `pin` is what each copy has in a version of its own, `<version>.post<number>`.
    """
    shutil.copytree(ROOT / "dockerfiles", tree / "dockerfiles")
    known = {variant.id: variant for variant in load_intent(tree).variants}
    document = tomlkit.parse((tree / MATRIX).read_text())
    for number in range(count):
        original = known[originals[number % len(originals)]]
        rows: Any = document["frameworks"][original.framework]["rows"]
        rows.append(_row(rows[original.row], original, f"{number:03}", {pin: f"{version}.post{number}"}))
    (tree / MATRIX).write_text(tomlkit.dumps(document))
    return relocked(tree)


def _row(row: Any, original: Variant, number: str, pins: dict[str, str]) -> dict[str, Any]:
    """A row of the matrix that gives one image: the original's, with pins of its own."""
    flavour = "-".join(filter(None, [original.flavour, FLAVOUR, number]))
    one = {"accelerators": original.accelerator, "pythons": original.python, "targets": original.target}
    kept = {name: value for name, value in row.unwrap().items() if name not in ("devel", "awaits")}
    lists = {name: [value] for name, value in one.items()}
    return kept | lists | {"bases": [original.base], "flavour": flavour, "pins": kept.get("pins", {}) | pins}


@contextmanager
def repinned(tree: Path, old: str, new: str) -> Iterator[Intent]:
    """Every place of the matrix that says `old` says `new`, and the locks follow; afterwards all is as it was."""
    text = (tree / MATRIX).read_text()
    assert old in text, old
    locks = {path: path.read_text() for path in (tree / "dockerfiles/locks").glob("*.toml")}
    (tree / MATRIX).write_text(text.replace(old, new))
    yield relocked(tree)
    (tree / MATRIX).write_text(text)
    for path, held in locks.items():
        path.write_text(held)


def copies(intent: Intent) -> list[Variant]:
    return [variant for variant in intent.variants if f"-{FLAVOUR}-" in variant.id]


def relocked(tree: Path) -> Intent:
    """What the intent is now; every stale or missing lock of an image that awaits nothing is written anew."""
    intent = load_intent(tree)
    for variant in intent.variants:
        path = inputs.lock_path(Recipe(intent, variant))
        named = variant.lock.partition(f"-{FLAVOUR}-")[0]
        source = path if path.exists() else path.with_name(f"{named}.toml")
        if variant.devel or not source.exists():
            continue
        held = inputs.read_lock(Recipe(intent, variant)) if source == path else _read(source)
        wanted = lockfile.intent_digest(Recipe(intent, variant))
        if held.intent != wanted:
            path.write_text(_text(source.read_text(), held, wanted, list(_moved(intent, variant, held))))
    return intent


def _read(path: Path) -> Lock:
    from trainwright.core.toml import parse

    return parse(path.read_text(), Lock, path.name)


def _moved(intent: Intent, variant: Variant, held: Lock) -> Iterable[tuple[PythonFile, PythonFile]]:
    """Entries of a lock that the pins no longer mean, and what stands in for each: of that version, and of no file."""
    pinned = {python_name(Recipe(intent, variant), name): pin.version for name, pin in variant.pins.items()}
    for entry in held.python:
        version = pinned.get(entry.name, "")
        if version and entry.version.partition("+")[0] != version:
            made_up = {"version": version, "file": entry.file.replace(entry.version, version)}
            yield entry, entry.model_copy(update=made_up | {"sha256": sha256(made_up["file"].encode()).hexdigest()})


def _text(text: str, held: Lock, intent: str, moved: list[tuple[PythonFile, PythonFile]]) -> str:
    """The text of a lock with other entries: quicker than to write all of it."""
    new = {id(old): entry for old, entry in moved}
    entries = lockfile.entries_digest([new.get(id(entry), entry) for entry in held.python])
    text = text.replace(f'intent = "{held.intent}"', f'intent = "{intent}"')
    text = text.replace(f'entries = "{held.entries}"', f'entries = "{entries}"')
    for old, entry in moved:
        for before, after in ((old.file, entry.file), (old.sha256, entry.sha256)):
            text = text.replace(f'"{before}"', f'"{after}"')
        name = f'name = "{old.name}"\nversion = '
        text = text.replace(f'{name}"{old.version}"', f'{name}"{entry.version}"')
    return text
