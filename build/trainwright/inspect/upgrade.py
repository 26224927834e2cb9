"""Compare the keys of a project's images with those that it recorded, before anything is built."""

from collections.abc import Mapping
from pathlib import Path

import tomlkit
from pydantic import Field

from trainwright import __version__
from trainwright.build import proofs
from trainwright.core import project
from trainwright.core.errors import LockError, NotRunError, TrainwrightError
from trainwright.core.toml import Model, load
from trainwright.image import inputs
from trainwright.image.inputs import Inputs
from trainwright.lock import facts
from trainwright.lock.lockfile import digest
from trainwright.matrix import overlaid
from trainwright.matrix.matrix import Intent, Recipe

FILE = "trainwright.lock"  # beside trainwright.toml
KEYLESS = "docker-bake.json"  # names the key itself


class State(Model):
    """What an image was made of: enough to say why its key is another one."""

    key: str
    versions: dict[str, str] = Field(default={})  # component to version
    parts: dict[str, str] = Field(default={})  # part of the inputs to its digest


class Recorded(Model):
    """The whole of trainwright.lock."""

    trainwright: str  # the version that these keys are of
    images: dict[str, State] = Field(default={})


class Change(Model):
    """One image of a project, then and now."""

    id: str
    change: str  # none, key, new, gone, unknown
    old: str  # key, "" if unknown
    new: str
    why: str


def images(intent: Intent, home: Path) -> list[Recipe]:
    """Return the images of a project: those that it says something about, and those that it recorded a proof of."""
    proved = {path.stem for path in (home / "dockerfiles/proofs").glob("*.toml")}
    return [recipe for recipe in intent.recipes if recipe.id in proved or overlaid.used_by(recipe, ())]


def read(home: Path) -> Recorded | None:
    """Read trainwright.lock; None if there is none. Raises ConfigError."""
    path = home / FILE
    return load(path, Recorded) if path.is_file() else None


def dump(recorded: Recorded) -> str:
    document = tomlkit.document()
    document.add(tomlkit.comment("Written by `trainwright upgrade --write`. Commit this file; do not edit it."))
    document.update(recorded.model_dump())
    return tomlkit.dumps(document)


def state(found: Inputs) -> State:
    """Return what an image is made of now."""
    parts = {name: digest(text)[:16] for name, text in sorted(found.text.items()) if name != KEYLESS}
    parts |= {
        "base": found.base_key[:16],
        "wheels": digest([[name, [one.sha256 for one in held]] for name, held in found.wheels.items()])[:16],
        "sources": digest([source.model_dump(mode="json") for source in found.lock.sources])[:16],
        "rootfs": digest(inputs.rootfs_fingerprints(found))[:16],
    }
    parts |= {"project": found.overlay[:16]} if found.overlay else {}
    versions = facts.versions_of(found.recipe, found.lock, found.distribution.held) | found.versions
    return State(key=found.key, versions=dict(sorted(versions.items())), parts=parts)


def compare(intent: Intent, home: Path) -> tuple[list[Change], Recorded]:
    """Return each image of a project, as recorded and as the installed trainwright makes it, and the present states.

    Raises NotRunError if nothing was recorded.
    """
    recorded, chosen = read(home), images(intent, home)
    before = dict(recorded.images) if recorded else {}
    for recipe in chosen:
        if recipe.id not in before and (record := proofs.read(recipe)):
            before[recipe.id] = State(key=record.key)
    rows, now = list[Change](), dict[str, State]()
    for recipe in chosen:
        old = before.get(recipe.id)
        try:
            now[recipe.id] = state(inputs.load(recipe, as_locked=True))
        except TrainwrightError as error:  # a stale lock, a rule that is new
            project.cite(error, recipe.root)
            why = ": ".join(filter(None, (error.named, error.why)))
            rows.append(Change(id=recipe.id, change="unknown", old=old.key if old else "", new="", why=why))
            continue
        new = now[recipe.id]
        change = "new" if old is None else "none" if old.key == new.key else "key"
        why = _why(old, new) if old and change == "key" else ""
        rows.append(Change(id=recipe.id, change=change, old=old.key if old else "", new=new.key, why=why))
    gone = [identity for identity in before if identity not in {recipe.id for recipe in chosen}]
    rows += [Change(id=one, change="gone", old=before[one].key, new="", why="no row makes it now") for one in gone]
    return rows, Recorded(trainwright=__version__, images=now)


def judge(rows: list[Change], recorded: Recorded | None) -> None:
    """Raise LockError if a key changed or cannot be computed, and NotRunError if there is nothing to compare with."""
    if unknown := [row for row in rows if row.change == "unknown"]:
        raise LockError(
            f"{len(unknown)} of {len(rows)} images cannot be compared yet",
            where=unknown[0].id,
            why=unknown[0].why,
            fix=f"trainwright lock {' '.join(row.id for row in unknown)}",
        )
    changed = [row for row in rows if row.change in ("key", "gone")]
    if changed:
        of = f"trainwright {recorded.trainwright}" if recorded else "its record"
        raise LockError(
            f"{len(changed)} of {len(rows)} images of this project are not what {of} made",
            where=FILE,
            why="; ".join(f"{row.id}: {row.why}" for row in changed[:3]),
            fix="review the table; trainwright upgrade --write accepts it, and a build then makes these images anew",
        )
    if rows and all(row.change == "new" for row in rows):
        raise NotRunError(
            "there are no earlier keys to compare with",
            where=FILE,
            fix="trainwright upgrade --write records the present ones",
        )


def _why(old: State, new: State) -> str:
    """Name what differs: versions first, else the parts of the inputs."""
    if not old.parts:
        return "the record has the key alone"
    moved = [
        f"{name} {before or 'none'} -> {after or 'none'}" for name, before, after in _moved(old.versions, new.versions)
    ]
    parts = [name for name, _, _ in _moved(old.parts, new.parts)]
    return "; ".join(filter(None, (", ".join(moved), f"differs: {', '.join(parts)}" if parts else "")))


def _moved(old: Mapping[str, str], new: Mapping[str, str]) -> list[tuple[str, str, str]]:
    names = sorted({*old, *new})
    return [(name, old.get(name, ""), new.get(name, "")) for name in names if old.get(name) != new.get(name)]
