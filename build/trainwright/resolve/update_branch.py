"""Move pins to newer versions on a branch, with locks and golden texts, in one commit. No other tree is touched."""

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import tomlkit

from trainwright.core import checkout, versions
from trainwright.core.errors import ConfigError, EnvironmentProblem, TestError, TrainwrightError, did_you_mean
from trainwright.core.files import write
from trainwright.core.process import run
from trainwright.core.progress import Progress, Say, counted
from trainwright.core.toml import Model
from trainwright.image import changes
from trainwright.image.changes import Moved, State
from trainwright.matrix.matrix import Intent, load_intent, select
from trainwright.matrix.providers import VERSIONLESS
from trainwright.matrix.validate import MATRIX, last_word
from trainwright.resolve import outdated, remote_branch, resolve
from trainwright.resolve.outdated import Update

TOOLS = "dockerfiles/tools.toml"
BUILD = " (build)"  # suffix of the names that only the build uses


class Asked(Model):
    """The pins to consider, all if none is named; and the remote to push to, "" for a local branch."""

    framework: str | None = None
    images: list[str] | None = None
    pins: tuple[str, ...] = ()
    remote: str = ""


class Move(Model):
    """One pin, and its result."""

    name: str
    old: str
    new: str
    state: str  # moved, refused, unknown
    why: str = ""


class Result(Model):
    """The result for a branch: its moves, the changed images, and the diff."""

    branch: str
    commit: str  # "" if nothing moved, or in a dry run
    moves: list[Move]
    images: list[Moved]
    diff: str  # of rendered text and of the locks
    pushed: remote_branch.Pushed = ""
    summary: str = ""


# The intent after, the images before and after, what moved, which images changed.
Summarize = Callable[[Intent, Mapping[str, State], Mapping[str, State], list[Move], list[Moved]], str]


def update(
    root: Path,
    branch: str,
    asked: Asked,
    dry_run: bool,
    say: Say,
    advance: Progress,
    summarize: Summarize = lambda *_: "",
) -> Result:
    """Move every pin for which upstream has a newer version that no rule refuses.

    The work is done in a work tree of the last commit; the branch is created or pushed last, and only if a pin moved.
    `summarize` is called while that work tree exists. Raises ConfigError if the branch exists, if the remote's has
    commits of others, or if a name is not a pin.
    """
    checkout.refuse_project(root)
    there = remote_branch.Tip()
    if asked.remote:
        refuse_name(root, branch)
        remote_branch.refuse_uncommitted(root)
        there = remote_branch.tip(root, asked.remote, branch)
    else:
        refuse_branch(root, branch)
    with checkout.worktree(root, "HEAD") as tree:
        old = load_intent(tree)
        held, _ = resolve.waiting(select(old, asked.framework, asked.images))
        pinned = outdated.pins_of(held)
        if lacking := set(asked.pins) - {_plain(pin.name) for pin in pinned}:
            why = did_you_mean(min(lacking), {_plain(pin.name) for pin in pinned})
            raise ConfigError(f"no pin is called {min(lacking)!r}", why=why, fix="trainwright outdated")
        meant = [pin for pin in pinned if not asked.pins or _plain(pin.name) in asked.pins]
        wanted = outdated.of_pins(meant, say)
        before = changes.load_all(old)
        moves = [_unknown(row) for row in wanted if row.state == "unknown"]
        moves += [_refused(row, row.why) for row in wanted if row.state == "newer" and not row.allowed]
        able = [row for row in wanted if row.state == "newer" and row.allowed]
        moves += _apply(tree, able, say, advance)
        new = load_intent(tree)
        after = changes.load_all(new)
        images = changes.compare(before, after)
        _accept_golden(tree, say)
        checkout.git(tree, "add", "--all")
        diff = changes.rendered(before, after, images) + checkout.git(tree, "diff", "--cached", "--", "dockerfiles")
        done = [move for move in moves if move.state == "moved"]
        result = Result(branch=branch, commit="", moves=moves, images=images, diff=diff)
        result = result.model_copy(update={"summary": summarize(new, before, after, moves, images)})
        if done and not dry_run:
            checkout.git(tree, "commit", "--quiet", "--no-verify", "--message", message(done, images))
            commit, pushed = checkout.commit_of(tree, "HEAD"), ""
            if asked.remote:  # last, so that no branch is incomplete
                pushed = remote_branch.push(root, asked.remote, branch, commit, there)
                commit = there.commit if pushed == "there already" else commit
            else:
                checkout.git(root, "branch", branch, commit)
            result = result.model_copy(update={"commit": commit, "pushed": pushed})
    return result


def refuse_name(root: Path, branch: str) -> None:
    """Check the branch's name. Raises ConfigError if git refuses it."""
    try:
        checkout.git(root, "check-ref-format", "--branch", branch)
    except EnvironmentProblem as error:
        raise ConfigError(f"{branch!r} is not a branch name", why=error.why) from None


def refuse_branch(root: Path, branch: str) -> None:
    """Check the branch's name. Raises ConfigError if git refuses it or the branch exists."""
    refuse_name(root, branch)
    if checkout.git(root, "branch", "--list", branch).strip():
        raise ConfigError(
            f"the branch {branch} already exists",
            why="an existing branch is never overwritten",
            fix=f"choose another name, or git branch -D {branch}",
        )


def message(moves: list[Move], images: list[Moved]) -> str:
    """Return the commit's message: the moves, one on each line, and last the mark that the branch is ours."""
    lines = [f"{move.name}: {move.old} -> {move.new}" for move in moves]
    return "\n".join(
        [subject(moves), "", *lines, "", f"Changed: {counted(len(images), 'image')}.", "", remote_branch.MARK, ""]
    )


def subject(moves: list[Move]) -> str:
    names = ", ".join(move.name for move in moves)
    return f"Move {names}" if len(names) < 60 else f"Move {len(moves)} pins"


def edit(tree: Path, name: str, old: str, new: str) -> None:
    """Replace a pin's old version in the matrix, or for the build's own tools in tools.toml, wherever it is declared.

    Comments and layout stay. Raises ConfigError if it would move an image out of its release.
    """
    if name.endswith(BUILD):
        _replace(tree / TOOLS, [(("python_tools",), _plain(name)), (("sdist_build",), _plain(name))], old, new)
        return
    intent, places = load_intent(tree), dict[tuple[tuple[int | str, ...], str], None]()
    for recipe in intent.recipes:
        pin = recipe.pins.get(name)
        if pin and recipe.provider(name).kind not in VERSIONLESS:
            if recipe.component(name).position == "framework":
                _refuse_another_release(recipe.variant.release, name, old, new)
            places[(*last_word(intent.matrix, recipe.variant, name)[1], "pins"), name] = None
    _replace(tree / MATRIX, list(places), old, new)


def _refuse_another_release(release: str, name: str, old: str, new: str) -> None:
    """Check that the framework's pin stays in its release, because the image's id contains the release, such as 2.13.

    Raises ConfigError.
    """
    held = f"=={release}.*"
    if versions.within(old, held) and not versions.within(new, held):
        raise ConfigError(
            f"{name} {new} does not belong to the release {release}",
            why=f"the image's id contains {release}; a new release requires a new row of {MATRIX}",
        )


def _replace(file: Path, places: list[tuple[tuple[int | str, ...], str]], old: str, new: str) -> None:
    document = tomlkit.parse(file.read_text())
    for path, key in places:
        table: Any = document
        for part in path:
            table = table[part]  # a table or an array of them
        said = str(table.get(key, ""))
        if said.split()[-1:] == [old]:
            table[key] = " ".join([*said.split()[:-1], new])
    write(file, tomlkit.dumps(document))


def _apply(tree: Path, rows: list[Update], say: Say, advance: Progress) -> list[Move]:
    """Apply all rows at once; if that cannot be locked, one after the other, and keep each that can.

    git's index holds the last good state.
    """
    try:
        for row in rows:
            edit(tree, row.name, row.pinned, row.allowed)
        _lock(tree, say, advance)
        return [_moved(row) for row in rows]
    except TrainwrightError:
        _put_back(tree)
    moves = []
    for row in rows:
        try:
            say(f"{row.name} {row.pinned} -> {row.allowed}")
            edit(tree, row.name, row.pinned, row.allowed)
            _lock(tree, say, advance)
            checkout.git(tree, "add", "--all")
            moves.append(_moved(row))
        except TrainwrightError as error:
            _put_back(tree)
            moves.append(_refused(row, " ".join(f"{error.what}: {error.why}".split())))
    return moves


def _lock(tree: Path, say: Say, advance: Progress) -> None:
    """Lock again every stale lock of all images; images that await an input stay without."""
    intent = load_intent(tree)
    resolve.lock_all(intent, intent.recipes, False, say, advance)


def _put_back(tree: Path) -> None:
    checkout.git(tree, "checkout", "--quiet", "--", ".")
    checkout.git(tree, "clean", "--quiet", "--force", "-d")


def _accept_golden(tree: Path, say: Say) -> None:
    """Update the golden texts of the project's own tests, if the tree has them."""
    if not (tree / "tests/golden").is_dir():
        return
    say("updating the golden texts")
    run(
        [sys.executable, "-m", "pytest", "--quiet", "-p", "no:cacheprovider", "tests/golden"],
        cwd=tree,
        env={"TRAINWRIGHT_UPDATE_GOLDEN": "1"},
        error=TestError,
        what="the golden texts cannot be updated",
        fix="make setup",
    )


def _plain(name: str) -> str:
    return name.removesuffix(BUILD)


def _moved(row: Update) -> Move:
    return Move(name=row.name, old=row.pinned, new=row.allowed, state="moved", why=row.why)


def _refused(row: Update, why: str) -> Move:
    return Move(name=row.name, old=row.pinned, new=row.allowed or row.newest, state="refused", why=why)


def _unknown(row: Update) -> Move:
    return Move(name=row.name, old=row.pinned, new="", state="unknown", why=row.why)
