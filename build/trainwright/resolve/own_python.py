"""Lock what the Python of a base holds that others made: the packages that stay, and the versions that they give."""

import re
from collections.abc import Callable, Iterator

from trainwright.core.errors import LockError
from trainwright.core.progress import Say
from trainwright.core.toml import Model
from trainwright.image import probe
from trainwright.matrix.matrix import Intent, Recipe
from trainwright.matrix.model import IN_BASE, PythonFile
from trainwright.resolve import foreign


class Held(Model):
    """What a look into a base found."""

    python: str  # path of the interpreter that holds the framework
    first: str  # path of the first interpreter of PATH, by which launcher and probe start
    version: str
    packages: dict[str, str]
    components: dict[str, str]  # component to the version that it reports; "" if it reports none


Look = Callable[[Intent, str, Say], Held]


def entries(recipe: Recipe, look: Look | None, say: Say) -> tuple[list[PythonFile], dict[str, str]]:
    """Return the packages of a base's own Python, and the versions of components that the row leaves to the base.

    Raises LockError if the base does not hold what the row declares.
    """
    if not recipe.made_by_others:
        return [], {}
    if look is None:
        what = f"the lock of {recipe.id} is written by a look into its base"
        raise LockError(what, where=recipe.variant.lock_file, fix=f"trainwright lock {recipe.id}")
    image = foreign.pinned(recipe.intent.components.bases[recipe.variant.base].reference)
    found = look(recipe.intent, foreign.in_engine(image), say)
    if wrong := next(_wrong(recipe, found), ""):
        raise LockError(
            f"the base of {recipe.id} is not what its row says: {wrong}",
            where=image,
            why="what a base brings is declared by the row, and stays as it is",
            fix="$EDITOR dockerfiles/matrix.toml   # correct the pins of the row, or name another base",
        )
    held = [
        PythonFile(name=name, version=version, file="", sha256="", size=0, group="base")
        for name, version in sorted(found.packages.items())
    ]
    own = [name for name, pin in recipe.pins.items() if pin.provider == IN_BASE]
    return held, {name: found.components[name] for name in own if found.components.get(name)}


def _wrong(recipe: Recipe, found: Held) -> Iterator[str]:
    if found.python != found.first:
        yield f"its framework is in {found.python}, and the first Python of PATH is {found.first}"
    if not f"{found.version}.".startswith(f"{recipe.variant.python}."):
        yield f"{found.python} is Python {found.version}, not {recipe.variant.python}"
    declared = {name: pin.version for name, pin in recipe.pins.items() if pin.provider == IN_BASE and pin.version}
    reported = {name: version for name, version in found.components.items() if version}
    # A row may name the beginning of a version: 3.12 of 3.12.3, 2.12.0a0 of 2.12.0a0+a6c236b.
    begins = {name for name in declared if re.match(rf"{re.escape(declared[name])}[.+]", reported.get(name, ""))}
    compared = {name: version for name, version in declared.items() if name in reported.keys() - begins}
    yield from probe.version_differences(recipe, compared, reported)
    for name in declared.keys() & found.components.keys() - reported.keys():
        yield f"{name} {declared[name]} is declared, and the {name} of {found.python} does not start"
