"""Read the records in dockerfiles/proofs/, and judge whether a proof is still valid for an image's present inputs."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trainwright.build import proof_code
from trainwright.core import project
from trainwright.core.errors import ConfigError, LockError, StaleLock, TrainwrightError
from trainwright.core.progress import counted
from trainwright.core.toml import load
from trainwright.image import inputs
from trainwright.image.inputs import Inputs
from trainwright.image.tags import SHORT
from trainwright.lock import facts
from trainwright.matrix.matrix import Recipe
from trainwright.matrix.records import Record, Standing, State


def record_path(recipe: Recipe) -> Path:
    return recipe.root / "dockerfiles/proofs" / f"{recipe.id}.toml"


def dump(record: Record) -> str:
    import tomlkit

    document = tomlkit.document()
    document.add(tomlkit.comment("Written by `trainwright record`; a person reads it, nobody edits it."))
    document.update(record.model_dump(mode="python", exclude_none=True))
    return tomlkit.dumps(document)


def read(recipe: Recipe) -> Record | None:
    """Read the record; None if there is none. Raises LockError for a file that `trainwright record` would not write."""
    path = record_path(recipe)
    if not path.exists():
        return None
    try:
        return load(path, Record)
    except ConfigError as error:
        fix = f"git checkout -- dockerfiles/proofs/{path.name}, or trainwright record {recipe.id}"
        raise LockError(error.what, where=error.where, why=error.why, fix=fix) from None


def standing(recipe: Recipe) -> Standing:
    """Return whether an image is proved, from this checkout alone; drift recorded in this host's store is ignored.

    Never raises for one image: an input that is missing or cannot be rendered is shown with its reason.
    """
    record, missing = None, inputs.awaited(recipe)
    try:
        record = read(recipe)
        found = None if missing else inputs.load(recipe, as_locked=True)
    except TrainwrightError as error:
        project.cite(error, recipe.root)
        named = error.named.removeprefix(f"{recipe.id}: ")
        reason = "; ".join(filter(None, (named, _before(record), error.fix)))
        said: dict[str, Any] = {"state": "unproved", "reason": reason, "versions": _known(recipe)}
        if not isinstance(error, StaleLock):  # a lock that is not written yet is a step of the work, and not an error
            said |= {"state": "error", "error": error.as_dict()}
        return Standing(id=recipe.id, record=record, **said)
    if found is None:
        said = {"state": "blocked", "reason": "; ".join(missing), "versions": _known(recipe)}
        return Standing(id=recipe.id, record=record, **said)
    state, reason = _judge(record, found)
    versions = facts.versions_of(recipe, found.lock, found.distribution.held) | found.versions
    return Standing(
        id=recipe.id,
        state=state,
        reason=reason,
        key=found.key,
        overridden=found.overridden if state == "proved" else [],
        record=record,
        versions=versions,
    )


def changed(recipe: Recipe, record: Record) -> str:
    """Return why a record is not about the present tests and proving code; "" if it is."""
    if record.proof is None:
        return f"the record of {record.day} does not say which tests and which code proved it"
    if record.proof != proof_code.digest(recipe):
        return f"its tests or the code that proves it changed since {record.day}"
    return ""


def due(recipe: Recipe, found: Standing) -> str:
    """Return why CI proves an image again; "" if its record matches the present key and the present proving code."""
    if found.state != "proved" or found.record is None:
        return found.reason
    record = found.record
    if why := changed(recipe, record):
        return why
    lacking = [kind for kind in proof_code.kinds(recipe) if kind != "probe" and kind not in record.tests]
    return f"the record of {record.day} has no {' and no '.join(lacking)} tests" if lacking else ""


def in_turn(rows: Sequence[str], commit: str) -> str:
    """Return the image that this commit proves in rotation, even if nothing changed.

    Because the commit's hash selects it, nearly every commit proves another one.
    """
    return rows[int(commit[:SHORT], 16) % len(rows)] if rows else ""


def _judge(record: Record | None, found: Inputs) -> tuple[State, str]:
    """Return the state that a record, or a missing one, gives these inputs."""
    if found.blocked:
        return "blocked", "; ".join(found.blocked)
    if record is None:
        return "unproved", "no proof of it is recorded"
    if record.key != found.key:
        return "unproved", _before(record)
    tests = ", ".join(counted(count, f"{kind} test") for kind, count in record.tests.items())
    where = f"{record.where.architecture}, {record.where.cpus} CPUs, {record.where.gpu}, engine {record.where.engine}"
    rules = "; ".join(found.overridden)
    override = f"with override of {counted(len(found.overridden), 'rule')}: {rules}; " if rules else ""
    return "proved", f"{override}on {record.day}: {tests} passed ({where})"


def _before(record: Record | None) -> str:
    return f"was proved on {record.day} with other inputs (key {record.key[:SHORT]})" if record else ""


def _known(recipe: Recipe) -> dict[str, str]:
    """Return the versions that the intent and current locks contain; {} if they cannot be read."""
    try:
        locked, packages, _ = inputs.known(recipe)
        return facts.versions_of(recipe, locked, packages)
    except TrainwrightError:
        return {}
