"""Test that `lock --update` only shows changes, that --write writes the same, and that `lock` alone is unaffected."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from trainwright.core.errors import LockError
from trainwright.core.toml import load
from trainwright.image import inputs
from trainwright.lock import diff, packages
from trainwright.lock.diff import changes
from trainwright.matrix.matrix import Recipe, load_intent
from trainwright.matrix.model import Lock, PythonFile, Variant
from trainwright.resolve import pypi
from trainwright.resolve import resolve as resolve_resolve

ONLY = "pytorch-2.13-cpu-py311-ec2"
Cli = Callable[..., Any]


def test_changes() -> None:
    old = {"a": ("1.0", "x"), "b": ("1", "x"), "c": ("1", "1" * 40), "gone": ("1", "x")}
    new = {"a": ("2.0", "y"), "b": ("1", "x"), "c": ("1", "2" * 40), "more": ("3", "x")}
    assert [(row.name, row.old, row.new) for row in changes("l", "python", old, new)] == [
        ("a", "1.0", "2.0"),
        ("c", "1 (111111111111)", "1 (222222222222)"),
        ("gone", "1", ""),
        ("more", "", "3"),
    ]


@pytest.fixture
def variant(tree: Path) -> Variant:
    return next(variant for variant in load_intent(tree).variants if variant.id == ONLY)


@pytest.fixture
def now(tree: Path, variant: Variant, tmp_path: Path, wheel: Any, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Make mirror and indexes offer what is locked, except for the versions in the returned dict."""
    moved: dict[str, str] = {}
    intent = load_intent(tree)
    found = inputs.load(Recipe(intent, variant))

    def resolve_packages(*_: object) -> tuple[str, packages.Stanzas]:
        locked = found.distribution.locked.items()
        fresh = {
            name: {field: stanza[field] for field in packages.FIELDS if field in stanza} for name, stanza in locked
        }
        for name in moved.keys() & fresh.keys():
            fresh[name] |= {"Version": moved[name], "SHA256": "9" * 64}
        return "Sat, 01 Jan 2028 00:00:00 GMT", fresh

    def resolve(requirements: list[str], *_: object, **__: object) -> list[pypi.Offer]:
        asked = requirements[0].split("==")[0]
        groups = {"uv": ("tools",), "setuptools": ("sdist-build",)}.get(asked, ("framework", "toolkit", "devel"))
        return [offer(entry) for entry in found.lock.python if entry.group in groups]

    def offer(entry: PythonFile) -> pypi.Offer:
        version, file, sha256 = entry.version, entry.file, entry.sha256
        if entry.name in moved:
            version = moved[entry.name]
            sha256, file = wheel(tmp_path, entry.name, version), f"{entry.name}-{version}-py3-none-any.whl"
        url = (tmp_path / file).as_uri()
        return pypi.Offer(name=entry.name, version=version, file=file, url=url, sha256=sha256)

    def with_licences(_: object, base: str, text: str, *__: object) -> str:
        header, stanzas = packages.parse(text, base)
        return packages.dump(header, {name: {**held, "Licence": "read"} for name, held in stanzas.items()})

    monkeypatch.setattr(resolve_resolve, "with_licences", with_licences)  # the real one fetches every package
    monkeypatch.setattr(resolve_resolve, "resolve_packages", resolve_packages)
    monkeypatch.setattr(pypi, "resolve", resolve)
    return moved


def written(tree: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in (tree / "dockerfiles/locks").iterdir()}


def test_nothing_has_moved(cli: Cli, tree: Path, now: dict[str, str]) -> None:
    before = written(tree)
    for words in ((), ("--write",)):  # another date of the mirror alone would be another key
        ended = cli(tree, "lock", "--update", *words, ONLY, "--json")
        assert (ended.code, json.loads(ended.out)) == (0, [])
        assert "no lock would change" in ended.err
        assert written(tree) == before


def test_shown_and_not_written(cli: Cli, tree: Path, now: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    before = written(tree)
    monkeypatch.delattr(resolve_resolve, "with_licences")  # to compare, no package is fetched
    now |= {"numpy": "2.99.0", "libc6": "9.9-1", "uv": "99.0"}
    rows = json.loads(cli(tree, "lock", "--update", ONLY, "--json").out)
    assert {(row["lock"], row["kind"], row["name"], row["new"]) for row in rows} == {
        ("debian-12", "distribution", "libc6", "9.9-1"),
        (ONLY, "python", "numpy", "2.99.0"),
        (ONLY, "python", "uv (tools)", "99.0"),
    }
    assert all(row["old"] and row["old"] != row["new"] for row in rows)
    assert written(tree) == before
    ended = cli(tree, "lock", "--update", ONLY)
    assert "3 changes; `trainwright lock --update --write` writes them" in ended.err
    assert "libc6" in ended.out


def test_written_on_request(cli: Cli, tree: Path, now: dict[str, str], variant: Variant) -> None:
    now |= {"libc6": "9.9-1"}
    before = written(tree)
    ended = cli(tree, "lock", "--update", "--write", ONLY)
    assert ended.code == 0, ended.err
    assert "1 change; written" in ended.err
    after = written(tree)
    assert [name for name in after if after[name] != before[name]] == ["debian-12.packages"]
    header, stanzas = packages.parse(after["debian-12.packages"], "debian-12.packages")
    assert (stanzas["libc6"]["Version"], stanzas["libc6"]["Licence"]) == ("9.9-1", "read")
    assert "2028" in header["Date"]
    assert diff.changes("", "distribution", diff.packages_held(stanzas), {})[0].new == ""
    assert inputs.load(Recipe(load_intent(tree), variant)).distribution.locked["libc6"]["Version"] == "9.9-1"


@pytest.fixture
def asked(now: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> list[set[str]]:
    """Return the list of constraints of each question to the resolver; one on `impossible` has no solution."""
    seen: list[set[str]] = []
    offers = pypi.resolve

    def resolve(requirements: list[str], *words: Any, constraints: Sequence[str] = ()) -> list[pypi.Offer]:
        seen.append(set(constraints))
        if any(text.startswith("impossible") for text in constraints):
            raise LockError("the Python packages cannot be resolved")
        return offers(requirements, *words)

    monkeypatch.setattr(pypi, "resolve", resolve)
    return seen


def test_a_stale_lock_keeps_what_no_pin_has_moved(
    cli: Cli, tree: Path, asked: list[set[str]], edit: Callable[..., None]
) -> None:
    """A new pin must move nothing else; `--update` is what moves the rest."""
    path = tree / f"dockerfiles/locks/{ONLY}.toml"
    locked = {entry.name: entry.version for entry in load(path, Lock).python if entry.group == "framework"}
    edit(path, '^intent = "', 'intent = "' + "0" * 64 + '" # ')
    cli(tree, "lock", ONLY)  # ends without the files, which only an index has
    assert f"sympy=={locked['sympy']}" in asked[0]
    assert not any(text.startswith("numpy==") for text in asked[0]), "pins of the matrix decide themselves"
    asked.clear()
    cli(tree, "lock", "--update", ONLY)
    assert asked[0] == set()


def test_a_version_that_a_new_pin_excludes_moves(
    cli: Cli, tree: Path, asked: list[set[str]], edit: Callable[..., None]
) -> None:
    path = tree / f"dockerfiles/locks/{ONLY}.toml"
    edit(path, '^intent = "', 'intent = "' + "0" * 64 + '" # ')
    edit(path, '^name = "sympy"', 'name = "impossible"')
    cli(tree, "lock", ONLY)  # ends without the files, which only an index has
    assert any(text.startswith("impossible") for text in asked[0])
    assert asked[1] == set()


def test_nothing_is_written_where_a_part_fails(
    cli: Cli, tree: Path, now: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All or nothing: here a wheel of the new solution cannot be had."""
    now |= {"libc6": "9.9-1", "numpy": "2.99.0"}
    before = written(tree)
    ended = cli(tree, "lock", "--update", "--write", ONLY)
    assert ended.code == 4
    assert "cannot be fetched" in ended.err
    assert written(tree) == before


@pytest.mark.parametrize("damage", ["missing", "broken"])
def test_a_lock_that_is_not_there(cli: Cli, tree: Path, now: dict[str, str], damage: str) -> None:
    for path in (tree / f"dockerfiles/locks/{ONLY}.toml", tree / "dockerfiles/locks/debian-12.packages"):
        path.unlink() if damage == "missing" else path.write_text("<<<<<<< HEAD\n")
    rows = json.loads(cli(tree, "lock", "--update", ONLY, "--json").out)
    assert {row["kind"] for row in rows} == {"distribution", "python"}
    assert all(row["old"] == "" for row in rows)


def test_plain_lock_touches_nothing_that_is_current(cli: Cli, tree: Path, now: dict[str, str]) -> None:
    now |= {"libc6": "9.9-1"}
    before = written(tree)
    rows = json.loads(cli(tree, "lock", ONLY, "--json").out)
    assert {row["state"] for row in rows} == {"current"}
    assert written(tree) == before
    (tree / "dockerfiles/locks/debian-12.packages").unlink()
    rows = json.loads(cli(tree, "lock", ONLY, "--json").out)
    assert [row["state"] for row in rows] == ["written", "current"]
    _, stanzas = packages.parse(written(tree)["debian-12.packages"], "debian-12.packages")
    assert (stanzas["libc6"]["Version"], stanzas["libc6"]["Licence"]) == ("9.9-1", "read")


@pytest.mark.parametrize("words", [["--write"], ["--check", "--update"], ["--check", "--write"]])
def test_options_that_do_not_go_together(cli: Cli, tree: Path, words: list[str]) -> None:
    ended = cli(tree, "lock", *words)
    assert ended.code == 2
    assert "--write requires --update" in ended.err


def test_a_misspelt_mirror_is_said_before_anything_is_asked(
    cli: Cli, tree: Path, variant: Variant, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRAINWRIGHT_MIRRORS", "debain=http://127.0.0.1:1")
    for words in (["lock"], ["lock", "--update"], ["outdated"], ["fetch"]):
        ended = cli(tree, *words, ONLY)
        assert ended.code == 2, words
        assert "did you mean 'debian'?" in ended.err
