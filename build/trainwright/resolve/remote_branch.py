"""Push a commit of `update` to a branch that it keeps on a remote; a branch that anybody else changed is left alone."""

from pathlib import Path
from typing import Literal, NamedTuple

from trainwright.core import checkout
from trainwright.core.errors import ConfigError
from trainwright.core.progress import few

MARK = "Written-by: trainwright update"  # the last line of a commit's message, by which its branch is known again
Pushed = Literal["pushed", "there already", ""]


class Tip(NamedTuple):
    """The head commit of a remote's branch; all fields are "" if the branch does not exist."""

    commit: str = ""
    parent: str = ""
    tree: str = ""


def refuse_uncommitted(root: Path) -> None:
    """Check that nothing is uncommitted, because the branch starts from the last commit. Raises ConfigError."""
    if files := checkout.uncommitted(root):
        raise ConfigError(
            "the checkout has uncommitted changes, which the pushed branch would not have",
            where=few(files, 1),
            fix="git stash, or commit them",
        )


def tip(root: Path, remote: str, branch: str) -> Tip:
    """Return what the remote's branch has now.

    Raises ConfigError if its last commit is not of `update`, EnvironmentProblem if the remote cannot be read.
    """
    reference = f"refs/heads/{branch}"
    rows = checkout.git(root, "ls-remote", "--", remote, reference).split()
    if not rows:
        return Tip()
    commit = rows[0]
    # Without --depth, which would cut the history of the user's own checkout.
    checkout.git(root, "fetch", "--quiet", "--no-tags", "--", remote, reference)
    head, _, message = checkout.git(root, "cat-file", "commit", commit).partition("\n\n")
    if message.rstrip().rpartition("\n")[2] != MARK:
        raise ConfigError(
            f"the branch {branch} of {remote} has commits of others",
            where=commit,
            why="`update` replaces only a branch whose last commit it wrote",
            fix=f"merge the branch, or git push {remote} --delete {branch}, or name another --branch",
        )
    fields = [line.partition(" ")[::2] for line in head.splitlines()]
    said = dict(reversed(fields))  # a merge has several parents; ours has one
    return Tip(commit, said.get("parent", ""), said.get("tree", ""))


def push(root: Path, remote: str, branch: str, commit: str, held: Tip) -> Pushed:
    """Push a commit to the branch unless it has the same content on the same parent.

    Fails if the branch changed since tip() read it. Raises EnvironmentProblem with git's reason.
    """
    head = checkout.git(root, "rev-parse", f"{commit}^", f"{commit}^{{tree}}").split()
    if [held.parent, held.tree] == head:
        return "there already"
    reference = f"refs/heads/{branch}"
    lease = f"--force-with-lease={reference}:{held.commit}"  # "" means: only if the branch does not exist
    checkout.git(root, "push", "--quiet", lease, "--", remote, f"{commit}:{reference}")
    return "pushed"
