"""Record which image passed the gate: dockerfiles/gates/<id>.toml, bound to the digest that the logs name."""

import re
from datetime import UTC, date, datetime
from hashlib import sha256
from pathlib import Path
from typing import Annotated

from pydantic import Field

from trainwright.core import project
from trainwright.core.errors import ConfigError, NotRunError
from trainwright.core.files import write
from trainwright.core.toml import Model, load
from trainwright.gate.case import Declared
from trainwright.gate.judge import Verdict
from trainwright.matrix.matrix import Recipe
from trainwright.matrix.records import Check

FOLDER = "dockerfiles/gates"  # written after a build, about it; not an input
WAIVER = re.compile(r"\s*(?P<who>[^:]+?)\s*:\s*(?P<why>\S.*?)\s*")
SEVERAL = 2  # nodes
WAIVE = "--waive-gate 'NAME: REASON'"


class Gate(Model):
    """The gate's result for one image."""

    id: str
    digest: Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")]
    day: date
    instance: str
    nodes: int
    nics: int | None = None  # per node, if fewer were declared than the instance type has
    collectives: list[str]
    peak_busbw: float  # GB/s
    logs: dict[str, str]  # name to sha256


def needed(recipe: Recipe) -> bool:
    """Return whether nccl-tests apply to an image, that is, whether it has NCCL."""
    return recipe.variant.accelerator != "cpu"


def read(root: Path, identity: str) -> Gate | None:
    """Return the gate record of an image, or None if there is none. Raises ConfigError if the record is invalid."""
    path = root / FOLDER / f"{identity}.toml"
    return load(path, Gate) if path.exists() else None


def record(recipe: Recipe, wanted: list[str], found: list[Verdict], declared: Declared) -> Gate:
    """Record that these logs prove an image; `wanted` are the collectives that they must cover.

    Raises NotRunError if they do not prove it for exactly one image, or do not prove all of it.
    """
    identity, done = recipe.id, {name for verdict in found for name in verdict.collectives}
    digests = {verdict.image for verdict in found}
    bad = [verdict for verdict in found if verdict.verdict != "pass"]
    why = ""
    if bad:
        why = f"{bad[0].file}: {bad[0].verdict}"
    elif not (declared.instance and declared.nodes):
        why = "a gate requires an instance type and a number of nodes: --instance, --nodes"
    elif missing := [name for name in wanted if name not in done]:
        why = f"the logs lack {', '.join(missing)}: each collective must be tested"
    elif "aws-ofi-nccl" in recipe.pins and (declared.nodes or 0) < SEVERAL:
        why = "the image has EFA support, which one node does not test: --nodes 2"
    elif digests == {""} or len(digests) != 1:
        why = (
            f"the logs must name one image, found {', '.join(sorted(digests - {''})) or 'none'}: run `trainwright gate`"
        )
    if why:
        raise NotRunError(f"no gate was recorded for {identity}", why=why, fix="trainwright gate --help")
    gate = Gate(
        id=identity,
        digest=digests.pop(),
        day=datetime.now(UTC).date(),
        instance=declared.instance,
        nodes=declared.nodes or 0,
        nics=declared.nics,
        collectives=sorted(done),
        peak_busbw=max(verdict.peak_busbw or 0.0 for verdict in found),
        logs={Path(verdict.file).name: sha256(Path(verdict.file).read_bytes()).hexdigest() for verdict in found},
    )
    import tomlkit

    document = tomlkit.document()
    document.add(tomlkit.comment("Written by `trainwright judge --record`; a person reads it, nobody edits it."))
    document.update(gate.model_dump(mode="python", exclude_none=True))
    write(project.place(recipe.root / FOLDER / f"{identity}.toml"), tomlkit.dumps(document))
    return gate


def check(recipe: Recipe, digest: str, waiver: str) -> Check:
    """Return the state of an image's gate for its release. `waiver` is NAME: REASON, or "" for none.

    Raises NotRunError if the image needs a gate and did not pass it, ConfigError if the waiver lacks name or reason.
    """
    if not needed(recipe):
        return Check(state="not run", detail="it has no NCCL: nothing to gate")
    gate = read(recipe.root, recipe.id)
    if gate and gate.digest == digest:
        nics = f" with {gate.nics} EFA interfaces each" if gate.nics else ""
        detail = f"{gate.nodes} x {gate.instance}{nics} on {gate.day}: {', '.join(gate.collectives)}"
        return Check(state="passed", detail=f"{detail}; {gate.peak_busbw:g} GB/s at most")
    if waiver:
        said = WAIVER.fullmatch(waiver)
        if not said:
            raise ConfigError(f"{waiver!r} does not say who waives the gate, and why", fix=WAIVE)
        return Check(state="not run", detail=f"waived by {said['who']}: {said['why']}")
    held = (
        f"the image that passed on {gate.day} is {gate.digest}" if gate else f"{FOLDER}/{recipe.id}.toml does not exist"
    )
    raise NotRunError(
        f"{recipe.id} has not passed the gate, and cannot be released",
        where=digest,
        why=held,
        fix=f"trainwright gate {recipe.id} --instance <type> --nodes <number>, and judge its log with --record "
        f"{recipe.id}; or {WAIVE}",
    )
