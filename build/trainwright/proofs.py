"""What was proved of which image, as dockerfiles/proofs/ says, and whether that is still about its present inputs."""

from collections.abc import Iterable
from pathlib import Path

import tomlkit

from trainwright import facts, inputs
from trainwright.config import parse
from trainwright.errors import ConfigError, LockError, TrainwrightError
from trainwright.matrix import Intent
from trainwright.model import Variant
from trainwright.plan import SHORT
from trainwright.standing import Record, Standing


def record_path(intent: Intent, variant: Variant) -> Path:
    return intent.root / "dockerfiles/proofs" / f"{variant.id}.toml"


def dump(record: Record) -> str:
    document = tomlkit.document()
    document.add(tomlkit.comment("Written by `trainwright record`; a person reads it, nobody edits it."))
    document.update(record.model_dump(mode="python", exclude_none=True))
    return tomlkit.dumps(document)


def read(intent: Intent, variant: Variant) -> Record | None:
    """None where nobody has recorded a proof. Raises LockError for what `trainwright record` would not have written."""
    path = record_path(intent, variant)
    if not path.exists():
        return None
    try:
        return parse(path.read_text(), Record, f"dockerfiles/proofs/{path.name}")
    except ConfigError as error:
        fix = f"git checkout -- dockerfiles/proofs/{path.name}, or trainwright record --only {variant.id}"
        raise LockError(error.what, where=error.where, why=error.why, fix=fix) from None


def standing(intent: Intent, variant: Variant) -> Standing:
    """Known without engine, registry and network; the drift of this host's store does not count.

    Never raises for one image: what cannot be had or rendered is shown with its reason, like everything else.
    """
    locked, packages, _ = inputs.known(intent, variant)
    said = Standing(id=variant.id, state="unproved", reason="", versions={})
    try:
        record = read(intent, variant)
        said = said.model_copy(update={"record": record})
        said = said.model_copy(update={"versions": facts.versions_of(intent, variant, locked, packages)})
        if missing := inputs.awaited(intent, variant):
            return said.model_copy(update={"state": "blocked", "reason": "; ".join(missing)})
        found = inputs.load(intent, variant, as_locked=True)
    except TrainwrightError as error:
        return said.model_copy(update={"reason": error.what})
    said = said.model_copy(update={"key": found.key, "versions": {**said.versions, **found.versions}})
    if found.blocked:
        return said.model_copy(update={"state": "blocked", "reason": "; ".join(found.blocked)})
    if record is None:
        return said.model_copy(update={"reason": "no proof of it is recorded"})
    if record.key != found.key:
        reason = f"proved on {record.day} with other inputs (key {record.key[:SHORT]}), not with the present ones"
        return said.model_copy(update={"reason": reason})
    tests = ", ".join(f"{count} {kind} tests" for kind, count in record.tests.items())
    return said.model_copy(update={"state": "proved", "reason": f"on {record.day}: {tests} passed"})


def counts(standings: Iterable[Standing]) -> dict[str, int]:
    """How many images are in each state, and in all."""
    states = [one.state for one in standings]
    return {state: states.count(state) for state in ("proved", "unproved", "blocked")} | {"all": len(states)}
