"""Test that two wheels which claim one path with different bytes are refused by name, or have a certain winner."""

import subprocess
import sys
from base64 import urlsafe_b64encode
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

from trainwright.core import store
from trainwright.core.errors import ConfigError, IncompatibleError, LockError
from trainwright.core.toml import parse
from trainwright.image import render
from trainwright.lock import overlaps, wheel_files
from trainwright.matrix.matrix import Recipe, load_intent
from trainwright.matrix.model import Group, Lock, Overlap, PythonFile
from trainwright.resolve import pypi, resolve

ID = "pytorch-2.13-cpu-py311-ec2"
WINNER = """
[[winners]]
winner = "two"
loser = "one"
rule = "two has what both need"
evidence = "a test"
checked_on = 2026-11-23
"""


def digest(content: str) -> str:
    return "sha256=" + urlsafe_b64encode(sha256(content.encode()).digest()).rstrip(b"=").decode()


def packed(
    folder: Path, name: str, files: dict[str, str], scripts: str = "", record: bool = True, group: Group = "framework"
) -> PythonFile:
    """Write a wheel, also to the store, and return its lock entry. Without `record` its RECORD states no digest."""
    info = f"{name}-1.dist-info"
    contents = {f"{name}-1.{path}" if path.startswith("data/") else path: text for path, text in files.items()}
    contents |= {f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n"}
    contents |= {f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"}
    contents |= {f"{info}/entry_points.txt": scripts} if scripts else {}
    rows = [f"{path},{digest(text) if record else ''},\n" for path, text in contents.items()]
    path = folder / f"{name}-1-py3-none-any.whl"
    with ZipFile(path, "w") as archive:
        for file, text in {**contents, f"{info}/RECORD": "".join(rows)}.items():
            archive.writestr(file, text)
    checksum = store.sha256_of(path)
    kept = store.path_of(checksum)
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_bytes(path.read_bytes())
    return PythonFile(name=name, version="1", file=path.name, sha256=checksum, size=path.stat().st_size, group=group)


def pairs(*entries: PythonFile) -> list[tuple[int, str]]:
    return [(row.files, row.such_as) for row in wheel_files.found(entries)[0]]


def test_same_bytes_are_no_overlap(tmp_path: Path) -> None:
    one = packed(tmp_path, "one", {"shared/__init__.py": "", "one.py": "1"})
    two = packed(tmp_path, "two", {"shared/__init__.py": "", "two.py": "2"})
    assert pairs(one, two) == []


@pytest.mark.parametrize("record", [True, False])
def test_other_bytes_are_one_whatever_record_omits(tmp_path: Path, record: bool) -> None:
    one = packed(tmp_path, "one", {"tests/__init__.py": "1", "tests/a.py": "1", "same.py": ""}, record=record)
    two = packed(tmp_path, "two", {"tests/__init__.py": "2", "tests/a.py": "2", "same.py": ""})
    assert pairs(one, two) == [(2, "site-packages/tests/__init__.py")]


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("data/scripts/tool", "bin/tool"),
        ("data/data/bin/tool", "bin/tool"),
        ("data/purelib/m.py", "site-packages/m.py"),
        ("data/data/lib/python3.11/site-packages/m.py", "site-packages/m.py"),
        ("data/data/share/man/a.1", "share/man/a.1"),
    ],
)
def test_the_folders_of_data_are_compared_where_they_go(tmp_path: Path, path: str, place: str) -> None:
    plain = {"bin/tool": "data/scripts/tool", "site-packages/m.py": "m.py", "share/man/a.1": "data/data/share/man/a.1"}
    one, two = packed(tmp_path, "one", {path: "1"}), packed(tmp_path, "two", {plain[place]: "2"})
    assert pairs(one, two) == [(1, place)]


def test_console_scripts_of_one_name(tmp_path: Path) -> None:
    one = packed(tmp_path, "one", {}, "[console_scripts]\nRun = one.cli:main [extra]\nboth = shared:main\n")
    two = packed(tmp_path, "two", {}, "[console_scripts]\nRun = two.cli : main\nboth=shared:main\nrun = two:a\n")
    assert pairs(one, two) == [(1, "bin/Run")]
    three = packed(tmp_path, "three", {"data/scripts/both": "#!python\n"})
    assert pairs(one, three) == [(1, "bin/both")]


def test_what_only_a_build_installs_meets_nothing(tmp_path: Path) -> None:
    one = packed(tmp_path, "one", {"a.py": "1"})
    assert pairs(one, packed(tmp_path, "two", {"a.py": "2"}, group="sdist-build")) == []
    assert pairs(one, packed(tmp_path, "three", {"a.py": "2"}, group="devel")) == [(1, "site-packages/a.py")]


def test_wheels_that_cannot_be_read(tmp_path: Path) -> None:
    broken = packed(tmp_path, "one", {}, "Run = one.cli:main\n")
    with pytest.raises(LockError, match=r"one-1-py3-none-any.whl is not a readable Python package"):
        wheel_files.found([broken])
    assert wheel_files.found([broken.model_copy(update={"sha256": "0" * 64})]) == ([], ["one"])
    content = store.path_of(broken.sha256).read_bytes()
    for damaged in (b"", b"no zip", content[: len(content) // 2], content.replace(b"RECORD", b"RECO\xffD")):
        store.path_of(broken.sha256).write_bytes(damaged)
        with pytest.raises(LockError, match="not a readable Python package"):
            wheel_files.found([broken])


@pytest.fixture
def locked(tree: Path, tmp_path: Path) -> Callable[..., Lock]:
    """Return a function that locks two wheels as `trainwright lock` does, once they are resolved."""

    def lock(*files: dict[str, str], groups: tuple[Group, Group] = ("framework", "framework")) -> Lock:
        recipe = load_intent(tree).recipe(ID)
        solved = []
        for name, contents, group in zip(("one", "two"), files, groups, strict=True):
            entry = packed(tmp_path, name, contents, group=group)
            url = (tmp_path / entry.file).as_uri()
            offer = pypi.Offer(name=name, version="1", file=entry.file, url=url, sha256=entry.sha256)
            solved.append(resolve.Solved(group, False, offer))
        return parse(resolve.lock_python(recipe, solved, lambda *_: None)[1], Lock, "lock")

    return lock


def win(tree: Path) -> None:
    with (tree / "dockerfiles/compat.toml").open("a") as file:
        file.write(WINNER)


def test_lock_refuses_by_the_names_of_both_and_the_path(locked: Callable[..., Lock]) -> None:
    with pytest.raises(IncompatibleError) as raised:
        locked({"cv2/a.so": "1", "cv2/b.so": "1"}, {"cv2/a.so": "2", "cv2/b.so": "2"})
    said = raised.value
    assert said.what == f"{ID}: one 1 and two 1 claim site-packages/cv2/a.so and 1 more with different bytes"
    assert said.where == f"dockerfiles/locks/{ID}.toml"
    assert "[[winners]]" in said.fix
    assert locked({"cv2/a.so": "1"}, {"cv2/b.so": "2"}).overlaps == []


def test_a_winner_is_installed_after_the_loser(tree: Path, locked: Callable[..., Lock]) -> None:
    win(tree)
    found = locked({"a.py": "1"}, {"a.py": "2"})
    assert found.overlaps == [Overlap(wheels=("one", "two"), files=1, such_as="site-packages/a.py")]
    recipe = load_intent(tree).recipe(ID)
    folders = render.folders_of(recipe, found)
    assert [entry.name for entry in folders["framework-1"]] == ["one"]
    assert [entry.name for entry in folders["libraries"]] == ["two"]


def test_a_winner_that_no_step_installs_last_is_refused(tree: Path, locked: Callable[..., Lock]) -> None:
    win(tree)
    with pytest.raises(IncompatibleError, match="claim site-packages/a") as raised:
        locked({"a.py": "1"}, {"a.py": "2"}, groups=("toolkit", "framework"))
    assert "no step installs it after one: they are of the groups framework and toolkit" in raised.value.why
    assert locked({"a.py": "1"}, {"a.py": "2"}, groups=("framework", "toolkit")).overlaps


def test_a_winner_that_loses_against_a_third_is_refused(tree: Path) -> None:
    win(tree)
    winners = load_intent(tree).compat.winners
    third = winners[0].model_copy(update={"winner": "three", "loser": "two"})
    rows = [Overlap(wheels=pair, files=1, such_as="a") for pair in (("one", "two"), ("three", "two"))]
    entry = {"version": "1", "file": "a.whl", "sha256": "0" * 64, "size": 1, "group": "framework"}
    held = [PythonFile.model_validate({"name": name, **entry}) for name in ("one", "two", "three")]
    with pytest.raises(IncompatibleError, match="one 1 and two 1") as raised:
        overlaps.check("image", "lock", held, rows, [*winners, third])
    assert "two loses against another wheel" in raised.value.why


def test_a_lock_whose_winner_left_compat_is_refused(tree: Path, locked: Callable[..., Lock]) -> None:
    win(tree)
    lock = locked({"a.py": "1"}, {"a.py": "2"})
    recipe = load_intent(tree).recipe(ID)
    without = Recipe(recipe.intent.model_copy(update={"compat": load_intent(tree).compat}), recipe.variant)
    wheel_files.check(without, lock)
    with pytest.raises(LockError, match="does not say that one and two claim site-packages/a"):
        wheel_files.check(without, lock.model_copy(update={"overlaps": []}))
    for rows in (lock.overlaps, []):
        with pytest.raises(IncompatibleError):
            overlaps.check(ID, "lock", lock.python, rows or wheel_files.found(lock.python)[0], [])


def test_a_row_names_two_packages_as_the_index_does(tree: Path) -> None:
    text = WINNER.replace('"two"', '"Two_Wheels"', 1)
    with (tree / "dockerfiles/compat.toml").open("a") as file:
        file.write(text)
    with pytest.raises(ConfigError, match="is not valid") as raised:
        load_intent(tree)
    assert "'Two_Wheels' is not the normalized name of a Python package: two-wheels" in raised.value.why


def test_the_file_of_a_later_step_is_the_one_that_stays(tmp_path: Path) -> None:
    """Ask uv itself, as an image does: one step after the other."""
    uv, venv = Path(sys.executable).with_name("uv"), tmp_path / "venv"
    entries = [packed(tmp_path, "one", {"a.py": "1", "b.py": "1"}), packed(tmp_path, "two", {"a.py": "2"})]

    def run(*words: Any) -> None:
        subprocess.run([uv, *words, "--no-config", "--offline", "--no-cache", "--quiet"], check=True)

    run("venv", "--python", sys.executable, venv)
    for entry in entries:
        run("pip", "install", "--python", venv / "bin/python", "--no-index", "--find-links", tmp_path, entry.name)
    (site,) = venv.glob("lib/python*/site-packages")
    assert ((site / "a.py").read_text(), (site / "b.py").read_text()) == ("2", "1")


def test_a_compiled_component_and_a_wheel(tmp_path: Path) -> None:
    held = packed(tmp_path, "one", {"horovod/a.py": "1", "b.py": "1"})
    built = sha256(b"1").hexdigest()
    place = "/opt/venv/lib/python3.11/site-packages/horovod/a.py"
    assert list(wheel_files.of_compiled({"horovod": {place: (built, built)}}, [held])) == []
    (said,) = wheel_files.of_compiled({"horovod": {place: ("0" * 64, "0" * 64)}}, [held])
    assert said == (
        "component horovod and the wheel one-1-py3-none-any.whl claim site-packages/horovod/a.py with different bytes"
    )
    assert list(wheel_files.of_compiled({"gdrcopy": {"/opt/gdrcopy/lib/a": ("0" * 64, "")}}, [held])) == []
