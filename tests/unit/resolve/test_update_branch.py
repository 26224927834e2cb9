"""Test moving pins on a branch: where they are written, what is refused, and what continues after a refusal."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from commits import begin, git

from trainwright.core.errors import ConfigError, LockError
from trainwright.matrix.matrix import load_intent
from trainwright.resolve import update_branch
from trainwright.resolve.outdated import Update
from trainwright.resolve.update_branch import Move


@pytest.fixture
def committed(tree: Path) -> Path:
    begin(tree)
    return tree


def lines_of(tree: Path) -> list[str]:
    """List the lines that were added since the commit."""
    diff = git(tree, "diff", "--unified=0").splitlines()
    return [line[1:] for line in diff if line.startswith("+") and not line.startswith("+++")]


def test_a_common_pin_and_its_layout(committed: Path) -> None:
    update_branch.edit(committed, "mpi4py", "4.1.2", "4.1.3")
    assert lines_of(committed) == ['mpi4py = "4.1.3"']


def test_a_pin_with_a_provider_in_every_table_that_says_it(committed: Path) -> None:
    said = (committed / "dockerfiles/matrix.toml").read_text().count("wheel 2.30.7")
    assert said > 1
    update_branch.edit(committed, "nccl", "2.30.7", "2.30.8")
    written = (committed / "dockerfiles/matrix.toml").read_text()
    assert (written.count("wheel 2.30.7"), written.count("wheel 2.30.8")) == (0, said)
    assert len(lines_of(committed)) == said
    held = {variant.pins["nccl"].version for variant in load_intent(committed).variants if "nccl" in variant.pins}
    assert "2.30.7" not in held


def test_a_pin_of_the_devel_twin(committed: Path) -> None:
    update_branch.edit(committed, "cmake", "4.4.4", "4.4.5")
    assert lines_of(committed) == ['cmake = "4.4.5"']


def test_a_tool_of_the_build_and_the_comment_behind_it(committed: Path) -> None:
    path = committed / "dockerfiles/tools.toml"
    path.write_text(path.read_text().replace('wheel = "0.48.0"', 'wheel = "0.48.0" # stays'))
    git(committed, "commit", "--quiet", "--all", "--message", "a comment")
    update_branch.edit(committed, "wheel (build)", "0.48.0", "0.49")
    assert lines_of(committed) == ['wheel = "0.49" # stays']


def test_a_tool_that_has_another_version_elsewhere(committed: Path) -> None:
    path = committed / "dockerfiles/tools.toml"
    path.write_text(
        path.read_text().replace("[python_tools]", '[python_tools]\nwheel = "0.1"').replace(" # never", "\n#")
    )
    git(committed, "commit", "--quiet", "--all", "--message", "two of them")
    update_branch.edit(committed, "wheel (build)", "0.48.0", "0.49")
    assert lines_of(committed) == ['wheel = "0.49"']


def test_only_the_version_that_was_outdated_moves(committed: Path) -> None:
    before = {v.id: v.pins["torch"].version for v in load_intent(committed).variants if "torch" in v.pins}
    update_branch.edit(committed, "torch", "2.13.0", "2.13.1")
    after = {v.id: v.pins["torch"].version for v in load_intent(committed).variants if "torch" in v.pins}
    assert after == {one: "2.13.1" if version == "2.13.0" else version for one, version in before.items()}
    assert after != before


def test_a_framework_stays_in_the_release_that_its_id_names(committed: Path) -> None:
    with pytest.raises(ConfigError, match=r"torch 2\.15\.0 does not belong to the release 2\.13") as error:
        update_branch.edit(committed, "torch", "2.13.0", "2.15.0")
    assert "new row" in error.value.why
    assert lines_of(committed) == []


def row(name: str, old: str, new: str) -> Update:
    return Update(kind="python", name=name, pinned=old, newest=new, allowed=new, state="newer")


@pytest.fixture
def lock(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], list[int]]:
    """Return a function that makes the solver fail while the matrix contains a text; it returns the number of calls."""

    def refuse(text: str) -> list[int]:
        asked = [0]

        def solve(tree: Path, *_: object) -> None:
            asked[0] += 1
            (tree / "dockerfiles/locks/new.toml").write_text("")
            if text in (tree / "dockerfiles/matrix.toml").read_text():
                raise LockError("no solution", why="they do not go together")

        monkeypatch.setattr(update_branch, "_lock", solve)
        return asked

    return refuse


def test_one_that_cannot_be_locked_is_reported_and_others_go_on(committed: Path, lock: Any) -> None:
    asked = lock('pip = "99"')
    rows = [row("mpi4py", "4.1.2", "4.1.3"), row("pip", "26.3", "99"), row("torch", "2.13.0", "2.99.0")]
    moves = update_branch._apply(committed, [*rows, row("cmake", "4.4.4", "4.4.5")], lambda _: None, lambda _: None)
    assert [(move.name, move.state) for move in moves] == [
        *(("mpi4py", "moved"), ("pip", "refused"), ("torch", "refused"), ("cmake", "moved")),
    ]
    assert moves[1].why == "no solution: they do not go together"
    assert "does not belong" in moves[2].why
    assert asked == [3]  # the whole was refused by the torch before it came to that
    staged = git(committed, "diff", "--cached", "--unified=0")
    assert ('+mpi4py = "4.1.3"' in staged, '+cmake = "4.4.5"' in staged) == (True, True)
    assert "99" not in staged
    assert git(committed, "status", "--porcelain").split("\n")[-1].startswith("M")


def test_all_at_once_where_that_goes(committed: Path, lock: Any) -> None:
    asked = lock("what no matrix says")
    rows = [row("mpi4py", "4.1.2", "4.1.3"), row("cmake", "4.4.4", "4.4.5")]
    moves = update_branch._apply(committed, rows, lambda _: None, lambda _: None)
    assert [move.state for move in moves] == ["moved", "moved"]
    assert asked == [1]


def test_the_message_lists_the_moves() -> None:
    moves = [Move(name=name, old="1", new="2", state="moved") for name in ("numpy", "mpi4py")]
    text = update_branch.message(moves, [])
    assert text.splitlines()[:4] == ["Move numpy, mpi4py", "", "numpy: 1 -> 2", "mpi4py: 1 -> 2"]
    many = [Move(name="x" * 20, old="1", new="2", state="moved")] * 5
    assert update_branch.message(many, []).splitlines()[0] == "Move 5 pins"


@pytest.mark.parametrize(
    ("branch", "says"), [("main", "exists"), ("a..b", "not a branch name"), ("-x", "not a branch name")]
)
def test_a_branch_that_exists_or_is_none(cli: Any, committed: Path, branch: str, says: str) -> None:
    git(committed, "branch", "-M", "main")
    ended = cli(committed, "update", f"--branch={branch}")
    assert (ended.code, ended.out) == (2, "")
    assert says in ended.err


def test_a_pin_that_is_none(cli: Any, committed: Path) -> None:
    """Said before anybody is asked, and before the lock is resolved."""
    ended = cli(committed, "update", "--branch", "newer", "--pins", "numpi")
    assert (ended.code, ended.out) == (2, "")
    assert "did you mean 'numpy'" in ended.err
    assert "looking up" not in ended.err
    assert git(committed, "branch", "--list", "newer") == ""
    assert len(git(committed, "worktree", "list").splitlines()) == 1
