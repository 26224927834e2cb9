"""Test that a passed test is kept while nothing that it depends on has changed, and a failed one never."""

import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest.mock import Mock
from xml.etree import ElementTree

import pytest

from trainwright.build import kept
from trainwright.core import store

ROOT = Path(__file__).parents[3]
ON = {"diff_id": "sha256:1", "code": "2"}


def test_it_is_made_once() -> None:
    make = Mock(return_value={"found": [1, 2]})
    first, again = kept.outcome("check", ON, make), kept.outcome("check", ON, make)
    assert (first.outcome, first.when, make.call_count) == ({"found": [1, 2]}, "", 1)
    assert again.outcome == first.outcome
    assert again.when.endswith("+00:00")


@pytest.mark.parametrize("changed", [{"diff_id": "sha256:3"}, {"code": "3"}, {"tool": "1.0"}])
def test_whatever_changes_makes_it_anew(changed: dict[str, str]) -> None:
    kept.keep("check", ON, "old")
    assert kept.outcome("check", ON | changed, lambda: "new").outcome == "new"
    assert kept.outcome("other", ON, lambda: "other").outcome == "other"


def test_a_failure_is_not_kept() -> None:
    with pytest.raises(ZeroDivisionError):
        kept.outcome("check", ON, lambda: 1 / 0)
    assert kept.outcome("check", ON, lambda: "whole").outcome == "whole"


DAMAGE: dict[str, Callable[[str], str]] = {
    "cut": lambda text: text[:-5],
    "another outcome": lambda text: text.replace("whole", "faked"),
    "no object": lambda _: "[]",
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_what_is_damaged_is_made_anew(damage: str) -> None:
    kept.keep("check", ON, "whole")
    (file,) = (store.root() / "kept/check").glob("*.json")
    file.write_text(DAMAGE[damage](file.read_text()))
    assert kept.outcome("check", ON, lambda: "new") == ("new", "")


def test_of_many_at_once_one_makes_it() -> None:
    make = Mock(return_value="it")
    with ThreadPoolExecutor(4) as pool:
        said = [pool.submit(kept.outcome, "check", ON, make) for _ in range(4)]
    assert ([one.result().outcome for one in said], make.call_count) == (["it"] * 4, 1)


def test_code_is_names_and_contents(tmp_path: Path) -> None:
    folder = tmp_path / "code"
    (folder / "__pycache__").mkdir(parents=True)
    (folder / "a.py").write_text("1")
    before = kept.code(folder)
    (folder / "__pycache__/a.pyc").write_text("compiled")
    assert kept.code(folder) == before
    (folder / "a.py").write_text("2")
    assert kept.code(folder) != before
    (folder / "a.py").rename(folder / "b.py")
    (folder / "b.py").write_text("1")
    assert kept.code(folder) != before


# --- the image tests: those that passed are kept, those that failed or were skipped run again ----------------------

OPTIONS = "def pytest_addoption(parser):\n    parser.addoption('--kept', default='')\n"
TESTS = """\
import pathlib, pytest
@pytest.fixture
def costly():
    with open("log", "a") as log: log.write("fixture\\n")
    yield
    assert not pathlib.Path("no-teardown").exists()
def test_passes(costly, record_property): record_property("measured", 7)
def test_fails(): assert not pathlib.Path("broken").exists()
def test_skips(): pytest.skip("not run: it cannot")
@pytest.mark.parametrize("number", [1, 2])
def test_numbers(number, costly): assert number
"""


ALONE = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # plugins of others take as long as all else


class Checkout:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "image").mkdir()
        (folder / "conftest.py").write_text(OPTIONS)
        (folder / "image/conftest.py").write_text((ROOT / "tests/image/conftest.py").read_text())
        (folder / "image/test_it.py").write_text(TESTS)

    def run(self, digest: str, *words: str) -> tuple[set[str], set[str], str]:
        """Run pytest; return which tests were kept, which failed, and the output."""
        log = self.folder / "log"
        log.unlink(missing_ok=True)
        done = subprocess.run(
            [*(sys.executable, "-m", "pytest", "--quiet", "-p", "no:cacheprovider", "-p", "xdist"),
             *("--import-mode=importlib", "-c", os.devnull, "--rootdir", ".", "image"),
             *(f"--kept={digest}", "--junitxml=report.xml", *words)],
            cwd=self.folder, capture_output=True, text=True,
            env=os.environ | {"PYTHONPATH": f"{ROOT / 'build'}{os.pathsep}{ROOT / 'tests'}", **ALONE},
        )  # fmt: skip
        cases = list(ElementTree.parse(self.folder / "report.xml").getroot().iter("testcase"))
        named = {str(case.get("name")): case for case in cases}
        old = {name for name, case in named.items() if case.find("properties/property[@name='kept']") is not None}
        red = {
            name for name, case in named.items() if case.find("failure") is not None or case.find("error") is not None
        }
        return old, red, done.stdout

    @property
    def fixtures(self) -> int:
        log = self.folder / "log"
        return len(log.read_text().splitlines()) if log.exists() else 0


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    (tmp_path / "tests").mkdir()
    return Checkout(tmp_path / "tests")


@pytest.mark.waits
def test_only_what_passed_is_kept(checkout: Checkout) -> None:
    (checkout.folder / "broken").touch()
    assert checkout.run("one")[:2] == (set(), {"test_fails"})
    assert checkout.fixtures == 3
    old, red, said = checkout.run("one")
    assert old == {"test_passes", "test_numbers[1]", "test_numbers[2]"}
    assert red == {"test_fails"}, "also with everything else kept"
    assert checkout.fixtures == 0, "a kept test starts nothing"
    assert "KEPT: 3 of 3 outcomes" in said
    assert 'name="measured" value="7"' in (checkout.folder / "report.xml").read_text()
    (checkout.folder / "broken").unlink()
    assert checkout.run("one")[1] == set()
    assert "test_fails" in checkout.run("one")[0]


@pytest.mark.waits
def test_another_digest_keeps_nothing(checkout: Checkout) -> None:
    checkout.run("one")
    (checkout.folder / "broken").touch()
    assert checkout.run("two")[:2] == (set(), {"test_fails"})
    assert checkout.run("")[0] == set(), "without a digest nothing is kept"
    assert checkout.fixtures == 3


@pytest.mark.waits
def test_what_fails_when_it_is_put_away_is_not_kept(checkout: Checkout) -> None:
    (checkout.folder / "no-teardown").touch()
    checkout.run("one")
    assert checkout.run("one", "-k", "passes")[:2] == (set(), {"test_passes"})


@pytest.mark.waits
def test_several_processes_keep_alike(checkout: Checkout) -> None:
    checkout.run("one", "--numprocesses=2")
    old, _, said = checkout.run("one", "--numprocesses=2")
    assert len(old) == 4
    assert "KEPT: 4 of 4" in said
