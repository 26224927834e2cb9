"""Test releases: the contents of a patch, the state of the tree, and the search for released bad packages."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from commits import begin, commit, git

from trainwright.core.errors import ConfigError
from trainwright.core.toml import parse
from trainwright.image import inputs
from trainwright.inspect import affected, find
from trainwright.lock import lockfile, packages
from trainwright.matrix.matrix import Recipe, load_intent
from trainwright.matrix.model import Lock
from trainwright.publish import release, release_records
from trainwright.publish.release_records import Shipped, Train

ID = "pytorch-2.13-cpu-py311-ec2"
Edit = Callable[[Path, str, str], None]


@pytest.fixture
def tree(few: Path) -> Path:
    return few


def first(tree: Path) -> str:
    (tree / ".gitignore").write_text("/out/\n")
    return begin(tree)


def one(tree: Path) -> Recipe:
    intent = load_intent(tree)
    return intent.recipe(ID)


def record(tree: Path, name: str, **changes: str) -> Train:
    """Record a release of the last commit, as `trainwright release` does."""
    found = inputs.load(one(tree))
    image = Shipped(key=found.key, digest="sha256:" + "d" * 64, repository="trainwright/pytorch")
    facts = {"name": name, "date": "2026-11-21", "commit": git(tree, "rev-parse", "HEAD"), **changes}
    train = Train(**facts, images={ID: image})
    (tree / f"dockerfiles/releases/{name}.toml").write_text(release_records.dump(train))
    return train


@pytest.fixture
def released(tree: Path) -> Train:
    """Record the release 2026.11.0, which has one image."""
    first(tree)
    return record(tree, "2026.11.0")


def beyond(tree: Path, train: Train) -> list[str]:
    return release._beyond(one(tree), train)


def move_package(tree: Path, name: str, version: str, archive: str) -> None:
    path = tree / "dockerfiles/locks/debian-12.packages"
    header, stanzas = packages.parse(path.read_text(), path.name)
    moved = {"Version": version, "Archive": archive, "SHA256": "9" * 64}
    path.write_text(packages.dump(header, {**stanzas, name: stanzas[name] | moved}))


def test_nothing_moved(tree: Path, released: Train) -> None:
    assert beyond(tree, released) == []


def test_a_security_update_and_what_follows(tree: Path, released: Train, settle: Any) -> None:
    move_package(tree, "libpython3.11-minimal", "99", "debian-security")
    move_package(tree, "python3.11", "99", "debian-security")  # its version is that of a component, and a label
    assert inputs.load(one(tree)).key != released.images[ID].key
    assert beyond(tree, released) == []


def test_a_package_of_another_archive(tree: Path, released: Train) -> None:
    move_package(tree, "tzdata", "2099a", "debian")
    (problem,) = beyond(tree, released)
    assert re.fullmatch(r"tzdata \S+ -> 2099a \(debian\)", problem)


def test_a_pin(tree: Path, released: Train, edit: Edit, settle: Any) -> None:
    edit(tree / "dockerfiles/matrix.toml", r'^mpi4py = "4\.1\.2"', 'mpi4py = "4.1.1"')
    move_python(tree, "mpi4py", "4.1.1")
    settle(tree)
    assert beyond(tree, released) == ["component mpi4py wheel 4.1.2 -> wheel 4.1.1"]


def move_python(tree: Path, name: str, version: str) -> None:
    for path in (tree / "dockerfiles/locks").glob("*.toml"):
        locked = parse(path.read_text(), Lock, path.name)
        moved = [e.model_copy(update={"version": version} if e.name == name else {}) for e in locked.python]
        path.write_text(
            lockfile.dump(locked.model_copy(update={"python": moved, "entries": lockfile.entries_digest(moved)}))
        )


def test_a_python_package_that_nobody_pinned(tree: Path, released: Train) -> None:
    move_python(tree, "filelock", "99.0")
    (problem,) = beyond(tree, released)
    assert re.fullmatch(r"Python package filelock \S+ -> 99.0", problem)


def test_a_template(tree: Path, released: Train, edit: Edit) -> None:
    edit(tree / "dockerfiles/layers/mpi4py.j2", r"\A", "{# more #}\nRUN true\n")
    edit(tree / "dockerfiles/frameworks/image.j2", r'^CMD \["bash"\]', 'CMD ["sh"]')
    assert beyond(tree, released)[-1] == "file dockerfiles/layers/mpi4py.j2"
    assert "file dockerfiles/frameworks/image.j2" in beyond(tree, released)


def test_a_file_of_the_image(tree: Path, released: Train) -> None:
    path = next(path for path in (tree / "dockerfiles/rootfs/common").rglob("*") if path.is_file())
    path.write_text(path.read_text() + "# more\n")
    assert beyond(tree, released) == [f"file rootfs/{path.relative_to(tree / 'dockerfiles/rootfs')}"]


def test_another_builder(tree: Path, released: Train) -> None:
    image = released.images[ID].model_copy(update={"key": "0" * 64})
    (problem,) = beyond(tree, released.model_copy(update={"images": {ID: image}}))
    assert problem.startswith("build/trainwright itself")


def test_a_commit_that_is_not_there(tree: Path, released: Train) -> None:
    with pytest.raises(ConfigError, match="does not exist in this checkout"):
        beyond(tree, released.model_copy(update={"commit": "0" * 40}))


# --- the command, before it asks a registry ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["2026.11"], "not a release name"),
        (["2026.11.0"], "no image was chosen"),
        (["2026.11.0", "nothing"], "no image matches"),
    ],
)
def test_what_is_no_release(cli: Any, tree: Path, words: list[str], says: str) -> None:
    ended = cli(tree, "release", *words)
    assert (ended.code, ended.out) == (2, "")
    assert says in ended.err


@pytest.mark.parametrize("path", ["dockerfiles/layers/mine.j2", "notes", "dockerfiles/matrix.toml"])
def test_a_tree_that_is_not_clean(cli: Any, tree: Path, released: Train, path: str) -> None:
    """The record of a release alone is no dirt: it is written before it can be committed."""
    ended = cli(tree, "release", "2026.11.0", ID, "--registry", "127.0.0.1:1")
    assert ended.code == 8
    with (tree / path).open("a") as file:
        file.write("\n")
    ended = cli(tree, "release", "2026.11.0", ID, "--registry", "127.0.0.1:1")
    assert ended.code == 2
    assert f"not clean: {path}" in ended.err


def test_an_image_joins_a_release_only_from_the_same_tree(cli: Any, tree: Path, released: Train) -> None:
    other = ("release", "2026.11.0", "pytorch-2.13-cpu-py311-sagemaker", "--registry", "127.0.0.1:1")
    commit(tree, "the record")
    assert cli(tree, *other).code == 8  # as far as the registry
    (tree / "notes").write_text("")
    commit(tree)
    ended = cli(tree, *other)
    assert ended.code == 2
    assert "cannot join 2026.11.0" in ended.err
    assert "notes" in ended.err


def test_a_record_under_another_name(cli: Any, tree: Path, released: Train) -> None:
    path = tree / "dockerfiles/releases/2026.11.0.toml"
    path.rename(path.with_name("2026.12.0.toml"))
    ended = cli(tree, "rollback", "--to", "2026.12.0", "--registry", "127.0.0.1:1")
    assert ended.code == 2
    assert "holds the record of 2026.11.0" in ended.err


def test_a_rollback_to_what_is_not_recorded(cli: Any, tree: Path, released: Train) -> None:
    ended = cli(tree, "rollback", "--to", "2026.10.0", "--registry", "127.0.0.1:1")
    assert ended.code == 2
    assert "did you mean '2026.11.0'" in ended.err
    ended = cli(tree, "rollback", "--to", "2026.11.0", "tensorflow-*", "--registry", "127.0.0.1:1")
    assert ended.code == 2
    assert ID in ended.err


@pytest.mark.parametrize("name", [ID, f"{ID}-latest"])
def test_a_push_does_not_take_the_name_of_an_alias(name: str, cli: Any, tree: Path) -> None:
    ended = cli(tree, "push", ID, "--release", name, "--registry", "127.0.0.1:1")
    assert ended.code == 2
    assert "is an image's alias" in ended.err


# --- affected ------------------------------------------------------------------------------------------------------


def ask(tree: Path, text: str) -> list[affected.Row]:
    return affected.affected(load_intent(tree), [find.query(text)], None)[0]


def test_affected_of_today_and_of_a_release(tree: Path, released: Train, edit: Edit, settle: Any) -> None:
    edit(tree / "dockerfiles/matrix.toml", r'^mpi4py = "4\.1\.2"', 'mpi4py = "4.1.1"')
    move_python(tree, "mpi4py", "4.1.1")
    settle(tree)
    (old,) = ask(tree, "mpi4py=4.1.2")
    assert (old.id, old.release, old.digest, old.alias) == (ID, "2026.11.0", "sha256:" + "d" * 64, "unknown")
    assert (old.what, old.name, old.version) == ("component", "mpi4py", "4.1.2")
    new = ask(tree, "mpi4py=4.1.1")
    assert len(new) > 1
    assert {(row.release, row.digest, row.version) for row in new if row.digest} == {("", "unknown", "4.1.1")}
    assert {row.release for row in ask(tree, "mpi4py>=4")} == {"", "2026.11.0"}
    assert ask(tree, "mpi4py=3") == []


def test_affected_by_what_only_a_release_had(tree: Path, released: Train, edit: Edit) -> None:
    text = (tree / "dockerfiles/locks/debian-12.packages").read_text()
    stanzas = packages.parse(text, "x")[1]
    assert "tzdata" in stanzas
    (tree / "dockerfiles/locks/debian-12.packages").write_text(text.replace("Package: tzdata\n", "Package: tzother\n"))
    rows = [row for row in ask(tree, f"tzdata={stanzas['tzdata']['Version']}") if row.id == ID]
    assert [(row.release, row.what) for row in rows] == [("2026.11.0", "distribution package")]


def test_a_release_whose_commit_is_not_there_is_unknown_and_never_clean(tree: Path) -> None:
    first(tree)
    record(tree, "2026.11.0", commit="0" * 40)
    for text in ("mpi4py=4.1.2", "mpi4py=3", "what-nobody-has"):
        (row,) = [row for row in ask(tree, text) if row.release]
        assert (row.id, row.what, row.digest) == (ID, "unknown", "sha256:" + "d" * 64)
        assert "does not exist in this checkout" in row.why


def test_a_lock_that_is_stale_is_unknown(tree: Path, edit: Edit) -> None:
    edit(tree / "dockerfiles/matrix.toml", r'^mpi4py = "4\.1\.2"', 'mpi4py = "4.1.1"')
    rows = {row.id: row.what for row in ask(tree, "mpi4py=3")}
    assert rows[ID] == "unknown"


def test_a_name_that_nothing_has(cli: Any, tree: Path) -> None:
    ended = cli(tree, "affected", "--by", "nunpy=2.4")
    assert (ended.code, ended.out) == (2, "")
    assert "did you mean 'numpy'" in ended.err
    ended = cli(tree, "affected", "--by", "=2")
    assert ended.code == 2
    assert "--by '=2' is not a valid query" in ended.err


def test_affected_says_that_no_registry_answers_and_ends_well(cli: Any, tree: Path) -> None:
    ended = cli(tree, "affected", "--by", "mpi4py", "--json")
    assert ended.code == 0, ended.err
    assert {(row["digest"], row["alias"]) for row in json.loads(ended.out)} <= {("unknown", "unknown"), ("", "unknown")}
    assert "unknown" in ended.err
    ended = cli(tree, "affected", "--by", "mpi4py=3", "--json")
    assert (ended.code, json.loads(ended.out)) == (0, [])
    assert "mpi4py exists as" in ended.err
