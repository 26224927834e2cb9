"""Test `changes --since`: which images differ from those of a commit, and why."""

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from commits import begin, git

from trainwright.core import checkout
from trainwright.core.errors import ConfigError
from trainwright.core.toml import parse
from trainwright.lock import lockfile
from trainwright.matrix.model import Lock

DEFAULT = "pytorch-2.13-cpu-py311-sagemaker"


@pytest.fixture
def committed(few: Path) -> Path:
    begin(few)
    return few


@pytest.fixture
def changes(cli: Any, committed: Path) -> Callable[[], list[dict[str, str]]]:
    def ask() -> list[dict[str, str]]:
        ended = cli(committed, "changes", "--since", "HEAD", "--json")
        assert ended.code == 0, ended.err
        return list(json.loads(ended.out))

    return ask


def test_nothing(changes: Any, cli: Any, committed: Path) -> None:
    assert changes() == []
    assert "no image changes" in cli(committed, "changes", "--since", "HEAD").err


def test_a_template_changes_the_images_that_are_rendered_from_it(changes: Any, committed: Path, edit: Any) -> None:
    edit(committed / "dockerfiles/layers/gdrcopy.j2", "RUN ", "RUN true; ")
    rows = changes()
    assert rows
    assert all("-distro" in row["id"] or "single-node" not in row["id"] for row in rows)
    assert {row["why"] for row in rows if row["new"] != "blocked"} == {"file dockerfiles/layers/gdrcopy.j2"}
    known = [row for row in rows if row["new"] != "blocked"]
    assert all(row["old"] != row["new"] and len(row["old"]) == len(row["new"]) == 64 for row in known)
    assert not any(row["id"].startswith("pytorch-2.13-cpu") for row in rows)


def test_a_template_of_another_component_is_no_reason(changes: Any, committed: Path, edit: Any) -> None:
    edit(committed / "dockerfiles/layers/gdrcopy.j2", "RUN ", "RUN true; ")
    edit(committed / "dockerfiles/layers/openssh.j2", r"LABEL ", "LABEL more=true ")
    rows = {row["id"]: row["why"] for row in changes()}
    assert rows[DEFAULT] == "file dockerfiles/layers/openssh.j2"
    assert "gdrcopy.j2, dockerfiles/layers/openssh.j2" in rows["pytorch-2.15-cu132-py313-sagemaker-distro"]


def test_what_was_stale_before_is_not_unchanged(cli: Any, committed: Path, edit: Any) -> None:
    edit(committed / "dockerfiles/matrix.toml", r"5\.1\.4", "5.1.3")
    git(committed, "commit", "--quiet", "--all", "--message", "stale")
    rows = json.loads(cli(committed, "changes", "--since", "HEAD", "--json").out)
    assert {(row["old"], row["new"]) for row in rows} == {("unknown", "unknown")}
    assert DEFAULT in {row["id"] for row in rows}


def test_a_pin_that_is_not_locked_yet_is_unknown_and_says_why(changes: Any, committed: Path, edit: Any) -> None:
    edit(committed / "dockerfiles/matrix.toml", r"5\.1\.4", "5.1.3")
    rows = [row for row in changes() if row["new"] != "blocked"]  # of those only the text is known, and has changed
    assert {row["new"] for row in rows} == {"unknown"}
    assert DEFAULT in {row["id"] for row in rows}
    assert all("-sagemaker" in row["id"] and "is stale" in row["why"] for row in rows)


def test_a_pin_is_named_with_both_versions(changes: Any, committed: Path, edit: Any, settle: Any) -> None:
    edit(committed / "dockerfiles/matrix.toml", r'^mpi4py = "4\.1\.2"', 'mpi4py = "4.1.1"')
    for path in (committed / "dockerfiles/locks").glob("*.toml"):
        locked = parse(path.read_text(), Lock, path.name)
        moved = [
            entry.model_copy(update={"version": "4.1.1"} if entry.name == "mpi4py" else {}) for entry in locked.python
        ]
        entries = lockfile.entries_digest(moved)
        path.write_text(lockfile.dump(locked.model_copy(update={"python": moved, "entries": entries})))
    settle(committed)
    rows = [row for row in changes() if row["new"] != "blocked"]
    assert rows
    assert all(row["why"].startswith("component mpi4py wheel 4.1.2 -> wheel 4.1.1") for row in rows), rows


def test_images_that_come_and_go(changes: Any, committed: Path, edit: Any, settle: Any) -> None:
    edit(committed / "dockerfiles/matrix.toml", r'^flavour = "single-node"', 'flavour = "one-host"')
    edit(committed / "dockerfiles/matrix.toml", r"single-node", "one-host")
    for path in (committed / "dockerfiles/locks").glob("*single-node*"):
        path.rename(path.with_name(path.name.replace("single-node", "one-host")))
    rows = {row["id"]: row for row in changes()}
    gone, new = (rows[f"pytorch-2.15-cu132-py313-sagemaker-{flavour}"] for flavour in ("single-node", "one-host"))
    assert (gone["new"], gone["why"]) == ("", "not in the matrix any more")
    assert (new["old"], new["why"]) == ("", "a new image")


def test_a_commit_that_is_not_there(cli: Any, committed: Path) -> None:
    for reference in ("nowhere", "0" * 40, "--all", ""):
        ended = cli(committed, "changes", "--since", reference)
        assert (ended.code, ended.out) == (2, ""), reference
        assert "does not exist in this checkout" in ended.err


def test_nothing_is_left_behind(changes: Any, committed: Path, tmp_path: Path) -> None:
    changes()
    assert git(committed, "status", "--porcelain") == ""
    assert not [path for path in (tmp_path / "store").iterdir() if path.name.startswith(".partial")]


# --- the checkout --------------------------------------------------------------------------------------------------


def test_what_is_not_committed(committed: Path) -> None:
    assert checkout.uncommitted(committed) == []
    (committed / "dockerfiles/releases/2026.11.0.toml").write_text("")
    (committed / "notes").write_text("")
    (committed / "dockerfiles/matrix.toml").unlink()
    assert set(checkout.uncommitted(committed, "dockerfiles/releases")) == {"notes", "dockerfiles/matrix.toml"}


def test_a_commit_without_its_history(committed: Path, tmp_path: Path) -> None:
    """A shallow clone, as CI has it."""
    first = git(committed, "rev-parse", "HEAD")
    git(committed, "commit", "--quiet", "--allow-empty", "--message", "more")
    git(tmp_path, "clone", "--quiet", "--depth", "1", f"file://{committed}", "shallow")
    with pytest.raises(ConfigError, match="does not exist in this checkout"):
        checkout.commit_of(tmp_path / "shallow", first)


def test_a_worktree_is_gone_after_an_interrupt(committed: Path) -> None:
    folders = []
    with suppress(KeyboardInterrupt), checkout.worktree(committed, "HEAD") as folder:
        assert (folder / "dockerfiles/matrix.toml").exists()
        folders.append(folder)
        raise KeyboardInterrupt
    (folder,) = folders
    assert len(git(committed, "worktree", "list").splitlines()) == 1
    assert not folder.exists()
