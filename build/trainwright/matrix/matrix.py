"""Load the intent, expand it into images, and select images by framework, id or glob."""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import fnmatchcase
from functools import cached_property, partial, wraps
from itertools import product
from pathlib import Path
from typing import Any, Self, TypeVar, TypeVarTuple

from trainwright.core import project
from trainwright.core.errors import ConfigError, did_you_mean
from trainwright.core.toml import Model, load
from trainwright.matrix import overlaid
from trainwright.matrix.compat import Compat, load_rules
from trainwright.matrix.instances import Instance, architectures, load_instances
from trainwright.matrix.model import (
    IN_BASE,
    Base,
    Bases,
    Component,
    Components,
    Lock,
    Matrix,
    Names,
    Pin,
    Provider,
    PythonFile,
    Row,
    Stack,
    Tested,
    TestedBy,
    Toolkit,
    Tools,
    Variant,
)
from trainwright.matrix.providers import VERSIONLESS, is_compiled, requirement
from trainwright.matrix.validate import MATRIX, check, check_instances, declared, edit, in_row

Words = TypeVarTuple("Words")
R = TypeVar("R")

OWN = "own"  # in place of an id or glob: the images of the rows that a project itself declares
ABSENT = "none"  # in place of a version: removes a common pin from these images


class Intent(Model):
    """All declarations of people: the matrix, the components, and the variants that follow from them."""

    root: Path
    matrix: Matrix
    components: Components
    variants: list[Variant]
    compat: Compat
    instances: dict[str, Instance]

    @cached_property
    def derived(self) -> dict[Hashable, Any]:
        """Cache the results of once_per_intent()."""
        return {}

    def __copy__(self) -> Self:
        """Copy without the derived results, because model_copy() changes what they were derived from."""
        made = super().__copy__()
        for name in ("derived", "recipes"):
            made.__dict__.pop(name, None)
        return made

    @cached_property
    def recipes(self) -> list["Recipe"]:
        return [Recipe(self, variant) for variant in self.variants]

    def find(self, identity: str) -> "Recipe | None":
        return next((recipe for recipe in self.recipes if recipe.id == identity), None)

    def recipe(self, identity: str) -> "Recipe":
        """Return the image with this id. Raises ConfigError if the matrix has no such id."""
        if found := self.find(identity):
            return found
        why = did_you_mean(identity, [variant.id for variant in self.variants])
        raise self.is_on_top(identity) or ConfigError(f"unknown image {identity!r}", why=why, fix="trainwright list")

    def is_on_top(self, identity: str) -> ConfigError | None:
        """Return the error of an id that stands for an image --with, if it does: the matrix has only the one below."""
        below, _, name = identity.partition("-with-")
        if not (name and self.find(below)):
            return None
        fix = f"build, push, test, lock: {below} --with FILE --name {name}"
        fix += "; emit, gate, launch: the address that push prints"
        return ConfigError(f"{identity} is not in the matrix", why=f"it is {below} with packages on top", fix=fix)


@dataclass(frozen=True, eq=False, repr=False)
class Recipe:
    """One image, of the matrix or on top of one, with the declarations it refers to: no lock, network or engine.

    Intent.find() knows only those of the matrix.
    """

    intent: Intent
    variant: Variant
    image: str = ""  # of a base that is one of others: its reference with a digest, as a lock has it; "": as declared

    def __repr__(self) -> str:  # the intent alone would fill many screens of a failed test
        return f"Recipe({self.id})"

    @property
    def id(self) -> str:
        return self.variant.id

    @property
    def words(self) -> str:
        """Return the command line's arguments that select this image."""
        return self.variant.words

    @property
    def root(self) -> Path:
        return self.intent.root

    @property
    def pins(self) -> Mapping[str, Pin]:
        return self.variant.pins

    @property
    def base(self) -> Base:
        declared = self.intent.components.bases[self.variant.base]
        return declared.model_copy(update={"reference": self.image}) if self.image else declared

    @property
    def tools(self) -> Tools:
        return self.intent.components.tools

    def component(self, name: str) -> Component:
        """Return a component, pinned here or not."""
        return self.intent.components.components[name]

    def provider(self, pin: str) -> Provider:
        """Return what supplies a pinned component."""
        return self.component(pin).provider(self.pins[pin].provider)

    def requirement(self, pin: str) -> str:
        """Return the Python requirement of a pin, or "" if its provider has none for this accelerator."""
        return requirement(self.provider(pin), self.variant.accelerator, self.pins[pin].version)

    def packages(self, said: Names) -> list[str]:
        """Return the names that a provider's packages have in this base's distribution, for the image's Python."""
        if not isinstance(said, list):
            place = f"{self.base.distribution}-{self.base.suite}"
            said = next((names for glob, names in said.items() if fnmatchcase(place, glob)), [])
        return [package.format(python=self.variant.python) for package in said]

    def installed(self, locked: Lock | None) -> dict[str, PythonFile]:
        """Return the Python packages of the finished image by name, without those that only the build needs."""
        groups = self.variant.groups
        return {entry.name: entry for entry in (locked.python if locked else []) if entry.group in groups}

    @property
    def capabilities(self) -> list[str]:
        """Return the compute capabilities of the image's instance types, lowest first."""
        return architectures(self.variant.instances, self.intent.instances)

    @cached_property
    def compiles(self) -> bool:
        """Return whether the image has a stage that compiles."""
        return any(is_compiled(self.provider(pin)) for pin in self.pins)

    @property
    def has_compilers(self) -> bool:
        """Return whether the image or one of its stages compiles."""
        return self.variant.devel or self.compiles

    @cached_property
    def toolkit(self) -> Toolkit | None:
        """Return the image that compilers are copied from; None if packages provide them, or if nothing is compiled."""
        found = (self.component(name).toolkits.get(pin.version) for name, pin in self.pins.items())
        return next(filter(None, found), None) if self.has_compilers else None

    @property
    def made_by_others(self) -> bool:
        """Return whether the base brings its own Python, as NGC and AWS DLC do: the lock does not list its content."""
        return "python" in self.pins and self.pins["python"].provider == IN_BASE


def once_per_intent(work: Callable[[Intent, *Words], R]) -> Callable[[Intent, *Words], R]:
    """Cache the result on the intent, so that it is computed once and not for every image.

    The further arguments are positional and hashable. Callers must not modify the result.
    """

    @wraps(work)
    def kept(intent: Intent, /, *words: *Words) -> R:
        key = (work, *words)
        if key not in intent.derived:
            intent.derived[key] = work(intent, *words)
        found: R = intent.derived[key]
        return found

    return kept


def image_id(framework: str, release: str, accelerator: str, python: str, target: str, *flavours: str) -> str:
    """Return `<framework>-<major.minor>-<accelerator>-<pyXY>-<target>[-<flavour>]`."""
    parts = [framework, release, accelerator, "py" + python.replace(".", ""), target, *flavours]
    return "-".join(part for part in parts if part)


def tested_by(tested: Tested, identity: str) -> TestedBy:
    """Return which automatic run builds and tests an image."""
    if identity in tested.make_test:
        return "make test"
    return "CI" if identity in tested.ci else ""


def expand(matrix: Matrix, components: Mapping[str, Component], text: str = "") -> Iterator[Variant]:
    """Yield every cell of the matrix. The first base of a row is omitted from the id; another one is a flavour.

    `text` is that of matrix.toml, so that errors can name its lines.
    """
    made = dict[tuple[str, str], Pin]()  # most images of a matrix have the same pins
    for name, framework in matrix.frameworks.items():
        for number, row in enumerate(framework.rows):
            stack = stack_of(matrix, row, partial(in_row, name, number, text, "stack"))
            for accelerator, python, target, base in product(row.accelerators, row.pythons, row.targets, row.bases):
                if target not in matrix.targets:
                    raise ConfigError(
                        f"unknown target {target!r}",
                        where=in_row(name, number, text, "targets", target),
                        why=did_you_mean(target, matrix.targets),
                        fix=f"add [targets.{target}.pins], or correct the row",
                    )
                flavours = [row.flavour, "" if base == row.bases[0] else base]
                for devel in (False, True) if row.devel else (False,):
                    flavour = "-".join(filter(None, flavours))
                    twin = "devel" if devel else ""
                    identity = image_id(name, row.release, accelerator, python, target, flavour, twin)
                    said = matrix.common.pins | matrix.targets[target].pins | framework.pins | stack.pins | row.pins
                    said |= matrix.devel.pins if devel else {}
                    said = {pin: word for pin, word in said.items() if word != ABSENT}
                    variant = Variant(
                        id=identity,
                        framework=name,
                        release=row.release,
                        accelerator=accelerator,
                        python=python,
                        target=target,
                        base=base,
                        flavour=flavour,
                        devel=devel,
                        default=identity == framework.default,
                        tested=tested_by(matrix.tested, identity),
                        instances=row.instances or stack.instances,
                        driver=row.driver,
                        awaits=row.awaits,
                        row=number,
                        pins={},
                    )

                    def where(pin: str, variant: Variant = variant) -> str:
                        return declared(matrix, variant, pin, text)[1]

                    for one in said.items():
                        if one not in made:
                            made[one] = _pin(identity, *one, components, where)
                    pins = {pin: made[pin, said[pin]] for pin in said}
                    yield variant.model_copy(update={"pins": pins})


def stack_of(matrix: Matrix, row: Row, where: Callable[[], str]) -> Stack:
    """Return the stack that a row names, or an empty one; `where` returns its file:line.

    Raises ConfigError for an unknown name.
    """
    if row.stack and row.stack not in matrix.stacks:
        raise ConfigError(
            f"unknown stack {row.stack!r}",
            where=where(),
            why=did_you_mean(row.stack, matrix.stacks),
            fix=edit(where(), f"add [stacks.{row.stack}.pins], or correct the row"),
        )
    return matrix.stacks[row.stack] if row.stack else Stack(pins={})


def _pin(identity: str, name: str, text: str, components: Mapping[str, Component], where: Callable[[str], str]) -> Pin:
    """Parse a pin: `version`, `provider version` or `provider`; `where` returns file:line of a pin."""
    if name not in components:
        raise ConfigError(
            f"pin {name!r} of {identity} names an unknown component",
            where=where(name),
            why=did_you_mean(name, components),
            fix=edit(where(name), f"correct it, or add dockerfiles/layers/{name}.toml and {name}.j2"),
        )
    providers = components[name].providers
    first, *rest = text.strip().split(maxsplit=1) or [""]
    if first in providers or first == IN_BASE:
        return Pin(provider=first, version=" ".join(rest))
    if rest or len(providers) > 1 or not first:
        version = "".join(rest) or first or "<version>"
        near = get_close_matches(first, providers, 1) or sorted(providers)
        ways = [f'"{way}"' if providers[way].kind in VERSIONLESS else f'"{way} {version}"' for way in near]
        wrong = (
            f"unknown provider {first!r} of {name}" if rest else f"pin {name!r} of {identity} does not name a provider"
        )
        raise ConfigError(
            wrong if first else f"pin {name!r} of {identity} is empty",
            where=where(name),
            why=f'{name} = "{text}": a provider of dockerfiles/layers/{name}.toml belongs there; '
            + did_you_mean(first, providers),
            fix=edit(where(name), f"{name} = {' or '.join(ways)}"),
        )
    return Pin(provider=next(iter(providers)), version=text)


def load_components(root: Path, pinned: set[str]) -> dict[str, Component]:
    """Load every component of layers/, by file name; skip an invalid one unless it is pinned."""
    found = dict[str, Component]()
    for path in sorted((root / "dockerfiles/layers").glob("*.toml")):
        try:
            found[path.stem] = load(path, Component)
        except ConfigError:
            if path.stem in pinned:
                raise
    return found


def pinned_names(matrix: Matrix) -> set[str]:
    """Return every component that any pin of the matrix names, with or without an image."""
    rows = [row.pins for framework in matrix.frameworks.values() for row in framework.rows]
    tables = [matrix.common.pins, matrix.devel.pins, *rows]
    tables += [one.pins for table in (matrix.targets, matrix.stacks, matrix.frameworks) for one in table.values()]
    return {name for table in tables for name in table}


def load_intent(root: Path) -> Intent:
    """Read the intent below `root`. Raises ConfigError with file and line."""
    matrix = load(root / MATRIX, Matrix)
    components = Components(
        components=load_components(root, pinned_names(matrix)),
        bases=load(root / "dockerfiles/bases.toml", Bases).bases,
        tools=load(root / "dockerfiles/tools.toml", Tools),
    )
    overlaid.check(root)
    variants = list(expand(matrix, components.components, (root / MATRIX).read_text()))
    check(root, matrix, components, variants)
    compat = load_rules(root, components.components)
    instances = load_instances(root)
    check_instances(root, matrix, variants, instances, components.bases)
    return Intent(
        root=root, matrix=matrix, components=components, variants=variants, compat=compat, instances=instances
    )


def globs(images: str | Sequence[str]) -> list[str]:
    """Return the ids and globs of one text or several, in which spaces separate them, as in make's ONLY."""
    return [glob for text in ([images] if isinstance(images, str) else images) for glob in text.split() or [text]]


def select(intent: Intent, framework: str | None, images: str | Sequence[str] | None) -> list[Recipe]:
    """Select images: `framework` means its one default, `images` has ids and globs, see globs(). Neither: all.

    OWN stands for the images of the project's own rows. Raises ConfigError with the valid names if nothing matches.
    """
    frameworks = {variant.framework for variant in intent.variants}
    if framework is not None and framework not in frameworks:
        near = get_close_matches(framework, frameworks, 1) or sorted(frameworks)
        raise ConfigError(
            f"unknown framework {framework!r}" if framework else "FRAMEWORK is empty",
            why=did_you_mean(framework, frameworks),
            fix=f"the same command with --framework {near[0]} (of make: FRAMEWORK={near[0]})"
            if near
            else "add one to dockerfiles/matrix.toml",
        )
    if framework is not None and images is None:
        return [one for one in intent.recipes if one.variant.framework == framework and one.variant.default]
    asked = globs("*" if images is None else images)
    held = [recipe for recipe in intent.recipes if framework in (None, recipe.variant.framework)]
    own = {recipe.id for recipe in held if overlaid.declares(recipe)} if OWN in asked else set[str]()
    if OWN in asked and not own:
        raise ConfigError(
            f"{OWN!r} stands for the images of a project's own rows, and there is none",
            where=MATRIX,
            why="the project declares no row" if project.is_project(intent.root) else "this folder is in no project",
            fix="trainwright list shows all images; trainwright init DIR makes a project with a row",
        )
    for glob in asked:
        if glob != OWN and not any(fnmatchcase(recipe.id, glob) for recipe in held):
            raise intent.is_on_top(glob) or ConfigError(
                f"no image matches {glob!r}",
                why=did_you_mean(glob, [variant.id for variant in intent.variants]),
                fix="trainwright list",
            )
    return [recipe for recipe in held if recipe.id in own or any(fnmatchcase(recipe.id, glob) for glob in asked)]
