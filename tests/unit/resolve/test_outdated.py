"""Test `outdated`: answers are compared as numbers; a missing answer is unknown, never current."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from commits import git

from trainwright.core.errors import EnvironmentProblem, LockError
from trainwright.image import inputs
from trainwright.matrix.matrix import Intent, Recipe
from trainwright.matrix.model import Variant
from trainwright.resolve import fetch, outdated, pypi
from trainwright.resolve.outdated import Pinned, Update

pytestmark = pytest.mark.usefixtures("bare_network")


@pytest.fixture
def variant(intent: Intent) -> Variant:
    """Return an image that has pins of every kind."""
    return next(variant for variant in intent.variants if "efa-installer" in variant.pins)


@pytest.fixture
def ask(intent: Intent, variant: Variant) -> Callable[..., Update]:
    """Return a function that looks up the newest version of one component."""

    def one(name: str, **changes: str) -> Update:
        pin = next(pin for pin in outdated._pinned([Recipe(intent, variant)]) if pin.name == name)
        return outdated._ask([pin.model_copy(update=changes)])[0]

    return one


# --- git -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def tagged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return a function that makes a mirror of nccl-tests with these tags."""

    def make(*tags: str) -> None:
        git(tmp_path, "init", "--quiet")
        git(tmp_path, "commit", "--quiet", "--allow-empty", "--message", "all of it")
        for tag in tags:
            git(tmp_path, "tag", tag)
        monkeypatch.setenv("TRAINWRIGHT_MIRRORS", f"https://github.com/NVIDIA/nccl-tests={tmp_path}")

    return make


@pytest.mark.parametrize(
    ("tags", "newest", "state"),
    [
        (["v2.9.9", "v2.19.6"], "2.19.6", "current"),
        (["v2.19.6", "v2.19.10", "v2.3.99"], "2.19.10", "newer"),  # as strings 2.3.99 would be the newest
        (["v2.19.6", "v2.20.0-rc1", "v3", "w4.0", "v5.0+x", "latest"], "3", "newer"),
        (["v2.19.6", "v9.0rc1", "9.0"], "2.19.6", "current"),
        (["v2.19.5"], "2.19.5", "unknown"),  # a mirror that lags behind
        (["nightly"], "", "unknown"),
        ([], "", "unknown"),
    ],
)
def test_git(tagged: Callable[..., None], ask: Any, tags: list[str], newest: str, state: str) -> None:
    tagged(*tags)
    found = ask("nccl-tests", version="2.19.6")
    assert (found.newest, found.state) == (newest, state)
    assert bool(found.why) is (state == "unknown")


def test_who_does_not_answer_is_unknown(ask: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINWRIGHT_MIRRORS", "https://github.com=http://me:s3cret@127.0.0.1:1")
    found = ask("nccl-tests")
    assert (found.state, found.newest, found.allowed) == ("unknown", "", "")
    assert "127.0.0.1" in found.why
    assert "s3cret" not in found.why


# --- files ---------------------------------------------------------------------------------------------------------


def test_what_has_no_listing_is_never_current(intent: Intent, ask: Any) -> None:
    from trainwright.core import versions

    releases = intent.components.components["efa-installer"].releases
    known = versions.in_order(list(releases))
    newest = ask("efa-installer", version=known[-1])
    assert (newest.state, newest.newest) == ("unknown", known[-1])
    assert "lists no versions" in newest.why
    lockable = versions.in_order([version for version, release in releases.items() if release.sha256])
    for version in (known[-2], lockable[-2]):
        older = ask("efa-installer", version=version)
        assert (older.state, older.newest) == ("newer", known[-1])
        assert older.allowed == lockable[-1]  # AWS's own page has more releases than checksums that anybody wrote down
        assert ("sha256" in older.why) is (known[-1] != lockable[-1])


# --- Python --------------------------------------------------------------------------------------------------------


@pytest.fixture
def wheels(tmp_path: Path, wheel: Any, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a folder of wheels the only index of this host."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    for name, *versions in (("numpy", "2.4.6", "2.10.0", "3.0rc1"), ("pip", "1.0"), ("mpi4py", "4.1.2")):
        for version in versions:
            wheel(folder, name, version)
    wheel(folder, "numpy", "99.0", tag="cp38-cp38-win_amd64")  # fits no image
    monkeypatch.setattr(pypi, "pip_settings", lambda: {"find-links": str(folder), "no-index": "true"})
    return folder


def test_python_packages_by_the_real_uv(intent: Intent, variant: Variant, wheels: Path) -> None:
    """One that the index lacks does not hide what it says of the others."""
    pins = [
        Pinned(kind="python", name=name, version=version, recipe=Recipe(intent, variant), ask=name)
        for name, version in (("numpy", "2.4.6"), ("pip", "26.3"), ("mpi4py", "4.1.2"), ("ninja", "1.0"))
    ]
    found = {row.name: row for row in outdated._ask(pins)}
    assert (found["numpy"].state, found["numpy"].newest) == ("newer", "2.10.0")
    assert (found["mpi4py"].state, found["mpi4py"].newest) == ("current", "4.1.2")
    assert (found["pip"].state, found["pip"].why) == ("unknown", "upstream lists only older releases")
    assert found["ninja"].state == "unknown"
    assert "ninja" in found["ninja"].why


def test_what_a_rule_holds_back(intent: Intent, variant: Variant, monkeypatch: pytest.MonkeyPatch) -> None:
    """A newer NCCL than the framework's own would be two in one process."""
    offer = pypi.Offer(name="nvidia-nccl-cu13", version="9.0", file="f", url="u", sha256="0" * 64)
    monkeypatch.setattr(pypi, "resolve", lambda *_, **__: [offer])
    pin = next(pin for pin in outdated._pinned([Recipe(intent, variant)]) if pin.name == "nccl")
    assert pin.ask == "nvidia-nccl-cu13"
    (row,) = outdated._ask([pin])
    assert (row.state, row.newest, row.allowed) == ("newer", "9.0", "")
    assert row.why.startswith("9.0: ")
    assert "NCCL" in row.why


def test_the_newest_that_is_allowed(tagged: Callable[..., None], ask: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    tagged("v2.19.6", "v2.19.7", "v2.20.0")
    monkeypatch.setattr(outdated, "_breaks", lambda *_: lambda version: "a rule" if version == "2.20.0" else "")
    found = ask("nccl-tests")
    assert (found.newest, found.allowed, found.why) == ("2.20.0", "2.19.7", "2.20.0: a rule")


# --- the distribution, and all together ------------------------------------------------------------------------------


@pytest.fixture
def _current(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inputs, "current_distribution", inputs.read_distribution)


@pytest.mark.usefixtures("_current")
def test_packages_of_a_base(intent: Intent, variant: Variant, monkeypatch: pytest.MonkeyPatch) -> None:
    locked = inputs.read_distribution(intent, variant.base).locked
    fresh = {name: dict(stanza) for name, stanza in locked.items() if name != "tzdata"}
    fresh["libc6"] |= {"Version": "99-1", "SHA256": "9" * 64}
    fresh["zlib1g"] |= {"SHA256": "9" * 64}
    fresh["new"] = {"Version": "1", "SHA256": "9" * 64}
    monkeypatch.setattr(fetch, "resolve_packages", lambda *_: ("", fresh))
    *rows, rest = outdated._distribution(intent, variant.base, False)
    assert [(row.name.split()[0], row.newest, row.why, row.state) for row in rows] == [
        ("libc6", "99-1", "", "newer"),
        ("new", "1", "newly required", "newer"),
        ("tzdata", "", "no longer required", "newer"),
        ("zlib1g", f"{locked['zlib1g']['Version']} (999999999999)", "", "newer"),
    ]
    assert (rest.name, rest.state) == (f"{variant.base}: {len(locked) - 3} packages", "current")


@pytest.mark.usefixtures("_current")
@pytest.mark.parametrize("error", [EnvironmentProblem("down", why="E: nobody\nE: no route"), LockError("no route")])
def test_packages_where_nobody_answers(
    intent: Intent, variant: Variant, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise error

    monkeypatch.setattr(fetch, "resolve_packages", fails)
    (row,) = outdated._distribution(intent, variant.base, False)
    assert (row.state, row.newest) == ("unknown", "")
    assert row.why.endswith("no route")


def test_every_pin_has_a_row_and_without_network_all_are_unknown(
    cli: Any, intent: Intent, variant: Variant, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise LockError("no route")

    monkeypatch.setattr(pypi, "resolve", fails)
    monkeypatch.setattr(fetch, "resolve_packages", fails)
    monkeypatch.setenv("TRAINWRIGHT_MIRRORS", "https://github.com=http://127.0.0.1:1")
    ended = cli(intent.root, "outdated", variant.id, "--json")
    assert ended.code == 0, ended.err
    rows = json.loads(ended.out)
    fetched = {name for name, pin in variant.pins.items() if pin.version}
    assert fetched <= {row["name"] for row in rows}
    assert {"uv (build)", variant.base} <= {row["name"] for row in rows}
    assert {row["state"] for row in rows if row["name"] != "efa-installer"} == {"unknown"}
    assert all(row["why"] for row in rows)
    assert "unknown" in cli(intent.root, "outdated", variant.id).out
