"""Read the checkout through git: commits, uncommitted files, trees of other commits. Its work tree is never changed."""

import tarfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from trainwright.core import store
from trainwright.core.errors import ConfigError, EnvironmentProblem
from trainwright.core.files import unpack
from trainwright.core.git import FOREIGN
from trainwright.core.process import run
from trainwright.core.project import home, tree

PARTS = ("dockerfiles",)  # everything that defines an image's content


def git(root: Path, *words: str | Path) -> str:
    """Run git and return its output; this user's hooks do not run. Raises EnvironmentProblem with git's last words."""
    root = home(root)
    refuse_without_git(root)
    return run(
        ["git", "-c", "core.hooksPath=/dev/null", "-C", root, *words],
        env=dict.fromkeys(FOREIGN),
        error=EnvironmentProblem,
        fix=f"git -C {root} status",
    )


def refuse_without_git(root: Path) -> None:
    """Raise EnvironmentProblem if no folder from `root` upwards is a git checkout."""
    if not any((folder / ".git").exists() for folder in (root.absolute(), *root.absolute().parents)):
        raise EnvironmentProblem(
            f"{root} is not in a git checkout",
            where=str(root),
            why="this command compares or records commits",
            fix="cd to a checkout; or, if this folder is your project: git init && git add . && git commit",
        )


def refuse_project(root: Path) -> None:
    """Raise ConfigError in a project, which has only a part of the files of a checkout."""
    if home(root) != root:
        raise ConfigError(
            "this command changes a checkout of trainwright",
            where=str(home(root)),
            why="a project's pins are few, and those that it does not set come with trainwright",
            fix="edit dockerfiles/matrix.toml; pip install --upgrade trainwright, then trainwright upgrade",
        )


def commit_of(root: Path, reference: str) -> str:
    """Return the commit (40 hex digits) that a branch, tag or commit names. Raises ConfigError if it names none."""
    refuse_without_git(home(root))
    try:
        return git(root, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{reference}^{{commit}}").strip()
    except EnvironmentProblem as error:
        raise ConfigError(
            f"commit {reference!r} does not exist in this checkout",
            why=error.why,
            fix="git fetch --unshallow --tags, or name another commit",
        ) from None


def uncommitted(root: Path, but: str = "") -> list[str]:
    """List the files that differ from the last commit or that git does not track, except those below `but`."""
    words = ["status", "--porcelain", "--untracked-files=all", "--", "."]
    rows = git(root, *words, *([f":(exclude){but}"] if but else [])).splitlines()
    return [row[3:] for row in rows]


def changed(root: Path, commit: str, *but: str) -> list[str]:
    """List the files that differ between a commit and the last one, except those below `but`."""
    without = [f":(exclude){folder}" for folder in but]
    return git(root, "diff", "--name-only", commit, "HEAD", "--", ".", *without).splitlines()


@contextmanager
def exported(root: Path, commit: str) -> Iterator[Path]:
    """Yield dockerfiles/ as of a commit, in a folder that is removed afterwards; a project's over the installed one."""
    of_a_project = home(root) != root
    with store.scratch() as folder:
        git(root, "archive", f"--output={folder / 'tree.tar'}", commit, *([] if of_a_project else PARTS))
        with tarfile.open(folder / "tree.tar") as archive:
            unpack(archive, folder / "tree")
        yield tree(folder / "tree", declared=True) if of_a_project else folder / "tree"


@contextmanager
def worktree(root: Path, commit: str) -> Iterator[Path]:
    """Yield a whole work tree at a commit, on no branch; remove it afterwards in any case.

    Raises ConfigError in a project, which has only a part of the files.
    """
    refuse_project(root)
    git(root, "worktree", "prune")  # removes the entry of a process that was killed before it cleaned up
    with store.scratch() as folder:
        try:
            git(root, "worktree", "add", "--quiet", "--detach", folder / "tree", commit)
            yield folder / "tree"
        finally:
            with suppress(EnvironmentProblem):
                git(root, "worktree", "remove", "--force", folder / "tree")
