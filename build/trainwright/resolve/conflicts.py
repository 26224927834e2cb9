"""Solve requirements against an image; on failure, show the conflicting line, its chain, and what fits."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from packaging.requirements import Requirement

from trainwright.core.errors import EnvironmentProblem, IncompatibleError, LockError
from trainwright.core.toml import Model
from trainwright.image.inputs import Inputs
from trainwright.lock import additions
from trainwright.lock.requirements import Asked, Line
from trainwright.matrix.matrix import Recipe
from trainwright.matrix.model import Base, Lock
from trainwright.resolve import pypi
from trainwright.resolve.fetch import own_index
from trainwright.resolve.pypi import Beside, Offer

Graph = dict[str, tuple[str, list[str]]]  # package to its version and the packages that require it


class Below(Model):
    """The image that a requirements file adds packages to: one of the matrix, or one of others below a graft."""

    name: str  # for errors
    recipe: Recipe
    lock: Lock  # of everything that its Python holds
    lock_file: str  # path of the lock that is written, for errors
    made_by_others: bool = False  # not an image of the matrix: wheels cannot be compiled for it, and it has no proof

    @classmethod
    def of(cls, recipe: Recipe, inputs: Inputs) -> "Below":
        """Return the image of the matrix that `recipe`, of an image on top of it, starts from."""
        path = str(additions.lock_path(recipe))
        return cls(name=recipe.variant.parent, recipe=inputs.recipe, lock=inputs.lock, lock_file=path)

    @property
    def has(self) -> str:
        """Return the beginning of a sentence that ends in the packages which stay."""
        return f"{self.name} {'holds' if self.made_by_others else 'was proved with'}"

    @property
    def build(self) -> str:
        """Return the command that makes the image without the file."""
        return f"trainwright {'graft' if self.made_by_others else 'build'} {self.name}"

    @property
    def wheel_fix(self) -> str:
        """Return what helps if a package has no wheel for an image that cannot compile one; "" if it can."""
        how = "build a wheel of it for this image, and publish that in an index or a find-links folder of pip"
        return f"{how}; trainwright doctor shows the indexes in use" if self.made_by_others else ""

    def elsewhere(self, *versions: str) -> str:
        """Return how to get an image that has these versions, where that differs from images of the matrix."""
        return f"graft upon an image that has {' and '.join(versions)}" if self.made_by_others else ""


class Question(Model):
    """A problem to solve: the lines that apply in the image, and the image's packages."""

    file: str  # of the requirements
    below: Below
    python: str
    base: Base
    index: str  # the framework's own
    lines: list[Line]
    held: dict[str, str]  # package of the image to its version
    constraints: list[str]  # of the file itself
    beside: Beside

    @classmethod
    def of(cls, recipe: Recipe, below: Below, asked: Asked, folder: Path) -> "Question":
        base = recipe.base
        return cls(
            file=recipe.variant.requirements,
            below=below,
            python=recipe.variant.python,
            base=base,
            index=own_index(recipe),
            lines=[line for line in asked.lines if additions.applies(line, recipe.variant.python, base)],
            held={entry.name: entry.version for entry in additions.held(recipe, below.lock)},
            constraints=[line.text for line in asked.constraints],
            beside=Beside(folder=str(folder), wheels_only=below.made_by_others),
        )

    @property
    def parent(self) -> str:
        return self.below.name

    def image(self, without: Sequence[str] = ()) -> list[str]:
        """Return constraints that pin the image's packages."""
        return [f"{name}=={version}" for name, version in self.held.items() if name not in without]


def check_lines(question: Question) -> None:
    """Raise IncompatibleError, without an index, for a line that asks for another version of an image's package."""
    for line in question.lines:
        if version := question.held.get(line.name):
            below = question.below
            elsewhere = below.elsewhere(f"{line.name}{Requirement(line.text).specifier}")
            additions.check_line(line, version, below.has, elsewhere)


def solve(question: Question) -> list[Offer]:
    """Return the packages that the image lacks for these lines.

    Raises IncompatibleError with the culprit, LockError for a requirement that no index has, EnvironmentProblem if the
    indexes cannot be reached.
    """
    return [offer for offer in resolve(question, deps=True) if offer.name not in question.held]


def resolve(question: Question, deps: bool) -> list[Offer]:
    """Resolve the lines of a question at the indexes; without `deps`, leave out their dependencies."""
    texts = [line.text for line in question.lines]
    held, beside = [*question.image(), *question.constraints], question.beside

    def resolved(index: str) -> list[Offer]:
        return pypi.resolve(texts, question.python, question.base, index, deps, held, beside)

    try:
        return resolved("")
    except LockError as error:
        fix = question.below.wheel_fix or error.fix
        if deps:  # checked before the framework's own index, which may be unreachable and would not help
            refuse(question, error)
        lost = next((line for line in question.lines if _graph(question, [line], []) is None), None)
        what = f"{lost.text} cannot be resolved" if lost else error.what
        where, why = (lost.where, _words(question, [lost], [])) if lost else (question.file, error.why)
        if not question.index:
            raise LockError(what, where=where, why=why, fix=fix) from None
    try:
        return resolved(question.index)
    except EnvironmentProblem as error:
        why = f"{why}\nand the framework's own index, {question.index}, does not answer"
        raise EnvironmentProblem(what, where=where, why=why, fix=error.fix) from None
    except LockError as error:
        raise LockError(what, where=where, why=error.why, fix=fix) from None


def refuse(question: Question, error: LockError) -> None:
    """Raise IncompatibleError if lines resolve alone, but not with the image's packages: for the first such line."""
    if _graph(question, question.lines, []) is None:
        return
    for line in question.lines:
        if _graph(question, [line], question.image()) is None:
            raise _culprit(question, line)
    raise IncompatibleError(
        f"these requirements conflict with each other on {question.parent}",
        where=question.file,
        why=error.why,
        fix=f"$EDITOR {question.file}",
    )


def _culprit(question: Question, line: Line) -> IncompatibleError:
    """Return the error for a line that would change image packages: their names, what requires them, and what fits."""
    free = _graph(question, [line], []) or {}
    moved = [name for name in free if name in question.held and free[name][0] != question.held[name]]
    single = [name for name in moved if _graph(question, [line], question.image([name])) is not None]
    blamed = single[:1] or moved
    graph = _graph(question, [line], question.image(blamed)) or free
    changed = [name for name in blamed if graph.get(name, ("",))[0] != question.held[name]] or blamed
    chains = [_chain(graph, name) for name in changed]
    wants = [_wants(question, chain, graph) for chain in chains]
    fits = nearest(question, line)
    versions = [f"{name}={graph[name][0]}" for name in changed if name in graph]
    elsewhere = question.below.elsewhere(*versions) or (
        "find an image that it fits: trainwright find --has " + " --has ".join(versions)
    )
    moves = ", ".join(f"{name} from {question.held[name]} to {graph[name][0]}" for name in changed if name in graph)
    return IncompatibleError(
        f"{line.text} would change {moves or 'packages of the image'}",
        where=line.where,
        why="; ".join(wants)
        + f"; {question.below.has} "
        + ", ".join(f"{name} {question.held[name]}" for name in changed),
        fix=f"write {fits} in that line: the newest version that fits"
        if fits
        else f"no version of {line.name} fits; {elsewhere}",
    )


def nearest(question: Question, line: Line) -> str:
    """Return `name==version` of the newest version that fits the image, or "" if none does."""
    requirement = Requirement(line.text)
    extras = f"[{','.join(sorted(requirement.extras))}]" if requirement.extras else ""
    any_version = line.model_copy(update={"text": f"{requirement.name}{extras}"})
    beside = question.beside.model_copy(update={"requires": {}})
    graph = _graph(question.model_copy(update={"beside": beside}), [any_version], question.image())
    return f"{requirement.name}{extras}=={graph[line.name][0]}" if graph else ""


def check_refused(question: Question, harms: Mapping[str, str], offers: Sequence[Offer]) -> None:
    """Raise IncompatibleError, with the requirement chain, for a package that may not be added to any image."""
    name, harm = additions.refused(harms, [offer.name for offer in offers])
    if not name:
        return
    for line in question.lines:
        graph = _graph(question, [line], question.image()) or {}
        if name in graph:
            chain = _chain(graph, name)
            without = (
                f"leave out {line.text}"
                if len(chain) < 3
                else f"leave out {line.text}, or find a version of {chain[0]} without it"
            )
            raise IncompatibleError(
                f"{line.text} would add {name} {graph[name][0]} to {question.parent}",
                where=line.where,
                why=f"{_wants(question, chain, graph)}; {harm}",
                fix=f"{without}; the rules for added packages are in {additions.FILE}",
            )
    raise IncompatibleError(f"{name} cannot be added to an image", where=question.file, why=harm)


def _graph(question: Question, lines: Sequence[Line], held: Sequence[str]) -> Graph | None:
    """Return the solution of some lines under some constraints, or None if they cannot be solved."""
    try:
        return pypi.who_wants(
            [line.text for line in lines],
            question.python,
            question.base,
            [*held, *question.constraints],
            question.beside,
        )
    except LockError:
        return None


def _words(question: Question, lines: Sequence[Line], held: Sequence[str]) -> str:
    """Return the resolver's explanation of why the lines cannot be solved."""
    texts = [line.text for line in lines]
    try:
        pypi.who_wants(texts, question.python, question.base, [*held, *question.constraints], question.beside)
    except LockError as error:
        return error.why
    return ""


def _chain(graph: Graph, name: str) -> list[str]:
    """Return the shortest chain from a requirement of the file down to a package."""
    ways = [[name]]
    while ways:
        way = ways.pop(0)
        above = [other for other in graph.get(way[0], ("", []))[1] if other in graph and other not in way]
        if not above:
            return way
        ways += [[other, *way] for other in above]
    return [name]


def _wants(question: Question, chain: list[str], graph: Graph) -> str:
    """Return a chain as text: which package requires which, with the version that the last one must have."""
    named = [f"{name} {graph[name][0]}" if name in graph else name for name in chain]
    if len(chain) < 2:
        return f"the line itself asks for {named[0]}"
    owner, name = chain[-2], chain[-1]
    pinned = f"{owner}=={graph[owner][0]}"
    line = Line(text=pinned, where="")
    said = re.search(
        rf"{re.escape(owner)}\S* depends? on (?:one of:\s+)?({re.escape(name)}[<>=!~]\S*)",
        _words(question, [line], question.image()),
    )
    wanted = said[1].rstrip(",.") if said else named[-1]
    return " -> ".join(named[:-1]) + f" requires {wanted}"
