"""Read what this checkout grafted, from out/<id>/: as recipes and inputs, like those of an image of the matrix."""

import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from pydantic import Field

from trainwright.core.errors import LockError, TrainwrightError
from trainwright.core.files import write
from trainwright.core.toml import Model
from trainwright.graft import files, lock
from trainwright.graft import plan as graft_plan
from trainwright.graft import recipe as graft_recipe
from trainwright.graft.files import Graft
from trainwright.graft.found import Fabric, Found, Target, without_secrets
from trainwright.graft.plan import Plan
from trainwright.graft.results import read_record, results
from trainwright.graft.wanted import File, Wanted
from trainwright.image import tags
from trainwright.matrix.matrix import Intent, Recipe
from trainwright.matrix.model import IN_BASE, Lock, Package
from trainwright.publish import twins

SEEN = "graft.found.json"


class Seen(Model):
    """What a graft is made of, without looking again: the content of out/<id>/graft.found.json."""

    target: Target
    fabric: Fabric
    name: str  # the last part of its id
    file: File | None = None  # whose packages were added, as it was then
    found: Found = Field(repr=False)  # the image below, with *** for what its variables keep secret


class Recorded(NamedTuple):
    """A graft of this checkout, as its files say it."""

    found: Found
    made: Plan
    recipe: Recipe
    file: File | None = None

    @property
    def decided(self) -> dict[str, str]:
        """Map each component to what decides its version: the image below, or what was asked for."""
        asked = f"added by trainwright graft, for {self.recipe.variant.target}"
        return {name: "the image below" if pin.provider == IN_BASE else asked for name, pin in self.recipe.pins.items()}


def command(seen: Seen, requirements: str = "") -> str:
    """Return the command that grafts the same again, or with the packages of another requirements file."""
    given = {"target": seen.target, "fabric": seen.fabric, "name": seen.name}
    given["with"] = requirements or (seen.file.path if seen.file else "")
    words = ["trainwright", "graft", seen.found.reference]
    return shlex.join([*words, *(word for name, value in given.items() if value for word in (f"--{name}", value))])


def command_of(root: Path, identity: str, requirements: str) -> str:
    """Return the command that makes a graft of this checkout with a requirements file on top; "" if it is not known."""
    seen = read_record(root / "out" / identity / SEEN, Seen)
    return command(seen, requirements) if seen else ""


def write_down(found: Found, wanted: Wanted, made: Plan, out: Path) -> None:
    """Write what a graft is made of, so that its inputs can be computed again without the image below."""
    name = made.id.partition(f"-{wanted.target}-")[2]
    if wanted.file:
        name = name.removesuffix(f"-with-{wanted.file.name}")
    own, hidden = (wanted.target, wanted.fabric), without_secrets(found)
    seen = Seen(target=own[0], fabric=own[1], name=name, file=wanted.file, found=hidden)
    write(out / SEEN, seen.model_dump_json(indent=1) + "\n")


def contents(
    intent: Intent, told: Callable[[str], None]
) -> Iterator[tuple[Recipe, Lock, dict[str, Package], dict[str, str]]]:
    """Yield of each graft with a current lock: recipe, lock, its packages, and those of the image's own Python.

    `told` gets a line for each of the others: of another version, damaged, or of a matrix that has moved on.
    """
    for result in results(intent.root):
        try:
            one = must(intent, result.id)
            own = inputs(intent, one).inputs
        except TrainwrightError as error:
            told(f"not looked into: {result.id}: {error.what}")
            continue
        python = one.found.python
        yield one.recipe, own.lock, own.distribution.packages(), dict(python.packages if python else {})


def recorded(intent: Intent, identity: str) -> Recorded | None:
    """Return a graft of this checkout; None if this id is not one. Raises ConfigError for a damaged file."""
    seen = read_record(intent.root / "out" / identity / SEEN, Seen) if Path(identity).name == identity else None
    if seen is None:
        return None
    architecture = seen.found.config.architecture
    wanted = graft_plan.asked_for(intent, seen.target, seen.fabric, architecture, file=seen.file)
    made = graft_plan.plan(intent, seen.found, wanted, seen.name)
    recipe = graft_recipe.recipe(intent, seen.found, wanted, made.id, made.framework)
    return Recorded(seen.found, made, recipe, seen.file)


def must(intent: Intent, identity: str) -> Recorded:
    """Return a graft of this checkout. Raises LockError if it does not say what it is made of."""
    if one := recorded(intent, identity):
        return one
    fix = "graft again, with the same options"
    raise LockError(f"what {identity} is made of is not recorded", where=f"out/{identity}/{SEEN}", fix=fix)


def find(intent: Intent, identity: str) -> Recipe | None:
    """Return the image of the matrix, or else the graft of this checkout, with this id."""
    if recipe := intent.find(identity):
        return recipe
    one = recorded(intent, identity) if identity else None
    return one.recipe if one else None


def inputs(intent: Intent, one: Recorded) -> Graft:
    """Compute the inputs of a graft from its lock. Raises LockError if that is missing or stale."""
    out, when = intent.root / "out" / one.recipe.id, files.epoch(one.found.config.created)
    locked = lock.held(one.recipe, one.found, out, when, one.file)
    if locked is None:
        raise LockError(
            f"the lock of {one.recipe.id} is missing or stale",
            where=f"out/{one.recipe.id}/{lock.FILES[0]}",
            why="it was made of another image below, or before the matrix said something else",
            fix=f"trainwright graft {one.found.reference}",
        )
    return files.graft(one.recipe, one.found, one.made, locked)


def identity_of(root: Path, uri: str) -> str:
    """Return the id of the graft of this checkout that an address names; "" for none.

    An address names it by its digest, by that of its zstd twin, or by its key's tag.
    """
    repository, _, digest = uri.partition("@")
    for one in results(root):
        if digest and (digest in (one.digest, one.twin.partition("@")[2]) or twins.recorded_as(root, [one.id], digest)):
            return one.id
        if not digest and repository.rpartition(":")[2] == tags.key_tag(one.id, one.key):
            return one.id
    return ""
