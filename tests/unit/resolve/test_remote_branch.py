"""Test `update --push` against a bare repository on this disk, and the text of its pull request."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from commits import begin, commit, git

from trainwright.core.toml import parse
from trainwright.image import changes
from trainwright.lock import lockfile
from trainwright.matrix.model import Lock
from trainwright.resolve import outdated, remote_branch, resolve, update_branch
from trainwright.resolve.outdated import Update

BRANCH = "trainwright/update"
WORDS = ("update", "--branch", BRANCH, "--push", "origin", "--pins", "mpi4py")
NEWER = Update(kind="python", name="mpi4py", pinned="4.1.2", newest="4.1.1", allowed="4.1.1", state="newer")
REFUSED = Update(kind="python", name="torch", pinned="2.13.0", newest="9.0", state="newer", why="9.0: a | <b> @rule")


@pytest.fixture
def remote(few: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a bare repository, which the checkout `few` has as origin, with an author for its commits."""
    for name in ("GIT_AUTHOR", "GIT_COMMITTER"):
        monkeypatch.setenv(f"{name}_NAME", "A")
        monkeypatch.setenv(f"{name}_EMAIL", "a@example.com")
    git(tmp_path, "init", "--quiet", "--bare", "remote.git")
    begin(few)
    git(few, "branch", "-M", "main")
    git(few, "remote", "add", "origin", str(tmp_path / "remote.git"))
    git(few, "push", "--quiet", "origin", "main")
    return tmp_path / "remote.git"


@pytest.fixture
def upstream(monkeypatch: pytest.MonkeyPatch) -> list[Update]:
    """Return what upstream has newer. No image is loaded and no lock written: here only the branch counts."""
    rows = [NEWER, REFUSED]
    monkeypatch.setattr(outdated, "of_pins", lambda *_: rows)
    monkeypatch.setattr(resolve, "lock_all", lambda *_: None)
    monkeypatch.setattr(changes, "load_all", lambda _: {})
    return rows


@pytest.fixture
def locked(monkeypatch: pytest.MonkeyPatch, settle: Callable[[Path], None]) -> None:
    """Load the images, and give each lock the version of its pin without a resolver."""
    monkeypatch.setattr(outdated, "of_pins", lambda *_: [NEWER, REFUSED])

    def lock_all(intent: Any, *_: object) -> None:
        for path in (intent.root / "dockerfiles/locks").glob("*.toml"):
            locked = parse(path.read_text(), Lock, path.name)
            wanted = "4.1.1" if 'mpi4py = "4.1.1"' in (intent.root / "dockerfiles/matrix.toml").read_text() else "4.1.2"
            moved = [
                row.model_copy(update={"version": wanted} if row.name == "mpi4py" else {}) for row in locked.python
            ]
            entries = lockfile.entries_digest(moved)
            path.write_text(lockfile.dump(locked.model_copy(update={"python": moved, "entries": entries})))
        settle(intent.root)

    monkeypatch.setattr(resolve, "lock_all", lock_all)


def tip(remote: Path) -> str:
    return git(remote, "for-each-ref", "--format=%(objectname)", f"refs/heads/{BRANCH}")


def test_a_branch_is_pushed_and_a_second_run_keeps_or_replaces_it(
    cli: Any, few: Path, remote: Path, upstream: list[Update], tmp_path: Path
) -> None:
    page = tmp_path / "summary.md"
    ended = cli(few, *WORDS, "--summary", str(page))
    assert ended.code == 0, ended.err
    first = tip(remote)
    assert "(pushed: origin)" in ended.err
    assert 'mpi4py = "4.1.1"' in git(remote, "show", f"{first}:dockerfiles/matrix.toml")
    assert git(remote, "rev-parse", f"{first}^") == git(few, "rev-parse", "HEAD")
    assert git(few, "branch", "--list", BRANCH) == ""  # here nothing is left behind
    assert git(few, "status", "--porcelain") == ""
    assert page.read_text().startswith("# Move mpi4py\n")

    ended = cli(few, *WORDS)
    assert (ended.code, tip(remote)) == (0, first)
    assert "(there already: origin)" in ended.err
    assert git(few, "rev-parse", "--is-shallow-repository") == "false"

    (few / "README.md").write_text("main went on")
    commit(few)
    assert cli(few, *WORDS).code == 0
    assert tip(remote) != first
    assert git(remote, "rev-parse", f"{tip(remote)}^") == git(few, "rev-parse", "HEAD")


def test_nothing_moved_pushes_nothing(
    cli: Any, few: Path, remote: Path, upstream: list[Update], tmp_path: Path
) -> None:
    upstream[:] = [REFUSED]
    ended = cli(few, *WORDS, "--summary", str(tmp_path / "summary.md"))
    assert (ended.code, tip(remote), (tmp_path / "summary.md").exists()) == (0, "", False)
    assert "was not pushed" in ended.err


def test_a_dry_run_pushes_nothing_and_shows_the_text(
    cli: Any, few: Path, remote: Path, upstream: list[Update], tmp_path: Path
) -> None:
    assert cli(few, *WORDS, "--summary", str(tmp_path / "summary.md"), "--dry-run").code == 0
    assert tip(remote) == ""
    assert "mpi4py" in (tmp_path / "summary.md").read_text()


def test_uncommitted_changes_are_one_error(cli: Any, few: Path, remote: Path, upstream: list[Update]) -> None:
    (few / "new.txt").write_text("")
    ended = cli(few, *WORDS)
    assert (ended.code, ended.out, tip(remote)) == (2, "", "")
    assert "uncommitted changes" in ended.err
    assert "new.txt" in ended.err


def test_commits_of_others_are_not_replaced(
    cli: Any, few: Path, remote: Path, upstream: list[Update], tmp_path: Path
) -> None:
    assert cli(few, *WORDS).code == 0
    git(tmp_path, "clone", "--quiet", "--branch", BRANCH, str(remote), "other")
    (tmp_path / "other/README.md").write_text("a correction by hand")
    theirs = commit(tmp_path / "other")
    git(tmp_path / "other", "push", "--quiet", "origin", BRANCH)
    ended = cli(few, *WORDS)
    assert (ended.code, tip(remote)) == (2, theirs)
    assert "has commits of others" in ended.err


def test_a_branch_that_changes_meanwhile_is_not_replaced(
    cli: Any, few: Path, remote: Path, upstream: list[Update], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cli(few, *WORDS).code == 0
    held = tip(remote)
    (few / "README.md").write_text("main went on")  # so that there is another commit to push
    commit(few)
    monkeypatch.setattr(remote_branch, "tip", lambda *_: remote_branch.Tip("0" * 40))
    assert cli(few, *WORDS).code == 10
    assert tip(remote) == held


def test_a_remote_that_is_none(cli: Any, few: Path, remote: Path, upstream: list[Update]) -> None:
    ended = cli(few, "update", "--branch", BRANCH, "--push", "nowhere")
    assert (ended.code, ended.out) == (10, "")
    ended = cli(few, "update", "--branch", "a..b", "--push", "origin")
    assert (ended.code, "not a branch name" in ended.err) == (2, True)


def test_the_text_says_what_moved_what_it_rebuilds_and_what_the_rules_say(
    cli: Any, few: Path, remote: Path, locked: None, tmp_path: Path
) -> None:
    page = tmp_path / "summary.md"
    assert cli(few, *WORDS, "--summary", str(page), "--dry-run").code == 0
    text = page.read_text()
    assert [line for line in text.splitlines() if line.startswith("#")] == [
        "# Move mpi4py",
        "## What moved",
        next(line for line in text.splitlines() if line.startswith("## What it rebuilds: ")),
        "## What compat.toml says",
        "## What licences.toml says",
        "## Proofs that are due",
        "## What stays",
    ]
    assert "| mpi4py | 4.1.2 | 4.1.1 |" in text
    assert "| torch | 2.13.0 | 9.0 | refused | 9.0: a &#124; &lt;b&gt; &#64;rule |" in text
    assert "component mpi4py wheel 4.1.2 -&gt; wheel 4.1.1" in text
    assert "| NVIDIA-CUDA-EULA |" in text
    assert "as before" in text
    proofs = text.split("## Proofs that are due")[1]
    assert "| pytorch-2.13-cpu-py311-sagemaker | make test | no proof of it is recorded |" in proofs
    assert "| jax-0.12-cpu-py313-sagemaker | CI |" in proofs
    assert "-ec2" not in proofs.split("##")[0]  # never proved, and by nobody
    assert "Newer versions that are refused: 1." in text


def test_the_message_ends_with_the_mark() -> None:
    move = update_branch.Move(name="numpy", old="1", new="2", state="moved")
    assert update_branch.message([move], []).rstrip().splitlines()[-1] == remote_branch.MARK
