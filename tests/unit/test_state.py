"""Test that each test starts without cached state: what modules cache is found, and is empty at the start."""

import ast
import importlib
import os
import pkgutil
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import state
from unit.conftest import Checkout

import trainwright
from trainwright.core.files import write
from trainwright.docker import engine
from trainwright.registry import http, uploads

MATRIX = "dockerfiles/matrix.toml"
PACKAGE = Path(trainwright.__file__).parent
EMPTY = {"dict", "list", "set", "defaultdict", "WeakSet", "Counter", "deque"}
# Names in capitals are constants by convention: these rules are about the others.


def mutable(tree: ast.Module) -> Iterator[tuple[str, bool]]:
    """Yield each mutable container of a module, and whether it starts empty."""
    for one in tree.body:
        targets = one.targets if isinstance(one, ast.Assign) else [one.target] if isinstance(one, ast.AnnAssign) else []
        value = getattr(one, "value", None)
        for target in targets:
            if not isinstance(target, ast.Name) or target.id.upper() == target.id or target.id.startswith("__"):
                continue
            if isinstance(value, ast.Dict | ast.List | ast.Set):
                yield target.id, not (value.keys if isinstance(value, ast.Dict) else value.elts)
            elif isinstance(value, ast.DictComp | ast.ListComp | ast.SetComp):
                yield target.id, False
            elif isinstance(value, ast.Call):
                called = value.func.value if isinstance(value.func, ast.Subscript) else value.func
                if ast.unparse(called).rpartition(".")[2] in EMPTY:
                    yield target.id, True


def wrong(name: str, text: str) -> list[str]:
    """List the containers that a reset would miss, or would wrongly empty."""
    tree = ast.parse(text)
    found = [f"{name}.{own}" for own, empty in mutable(tree) if not own.startswith("_") or not empty]
    nodes = ast.walk(tree) if "global " in text else ()
    return found + [f"{name}: global" for one in nodes if isinstance(one, ast.Global)]


def test_what_modules_remember_begins_empty_and_has_a_name_that_is_found() -> None:
    sources = {str(path.relative_to(PACKAGE)): path.read_text() for path in PACKAGE.rglob("*.py")}
    assert [one for name, text in sources.items() for one in wrong(name, text)] == []


@pytest.mark.parametrize(
    "text",
    [
        "seen = set()",
        "_seen: dict[str, int] = {'a': 1}",
        "_seen = [x for x in y]",
        "def f():\n    global _one\n    _one = 1",
    ],
)
def test_the_rule_can_fail(text: str) -> None:
    assert wrong("one", text) != []


def test_every_name_of_the_lists_is_there() -> None:
    for module in pkgutil.walk_packages([str(PACKAGE)], "trainwright."):
        importlib.import_module(module.name)
    assert {name for name, _ in state.held()} >= state.PURE | state.FILLED_BY_IMPORT


@pytest.mark.parametrize("turn", [1, 2])
def test_nothing_is_there_from_the_test_before(turn: int) -> None:
    assert not uploads._whole
    assert not http._heard
    assert engine.builder.cache_info().currsize == 0
    uploads._whole.add("127.0.0.1:5000")
    http._heard.add("127.0.0.1:5000")
    engine.buildx.cache_clear()


def _contents(root: Path) -> dict[str, tuple[int, bytes]]:
    """Map each path to mode and bytes; folders and unreadable files have no bytes."""
    return {
        str(path.relative_to(root)): (
            path.stat().st_mode,
            path.read_bytes() if path.is_file() and os.access(path, os.R_OK) else b"",
        )
        for path in root.rglob("*")
    }


def _replaced(root: Path, by: Callable[[Path], object]) -> None:
    (root / MATRIX).unlink()
    by(root / MATRIX)


def _closed(folder: Path) -> None:
    (folder / "more").touch()
    folder.chmod(0o500)


DOINGS: dict[str, Callable[[Path], object]] = {
    "other bytes, as many": lambda root: (root / MATRIX).write_bytes(b"#" * (root / MATRIX).stat().st_size),
    "a file more": lambda root: (root / "more").touch(),
    "a folder more": lambda root: write(root / "out/x/y", "z"),
    "a file less": lambda root: (root / MATRIX).unlink(),
    "another file in its place": lambda root: (root / "dockerfiles/bases.toml").replace(root / MATRIX),
    "a folder in its place": lambda root: _replaced(root, Path.mkdir),
    "a link in its place": lambda root: _replaced(root, lambda path: path.symlink_to("bases.toml")),
    "a folder less": lambda root: shutil.rmtree(root / "dockerfiles/layers"),
    "nobody may read it": lambda root: (root / MATRIX).chmod(0),
    "nobody may write there": lambda root: (root / "dockerfiles").chmod(0o500),
    "a file more, and nobody may write there": lambda root: _closed(root / "dockerfiles/locks"),
}


@pytest.mark.parametrize("what", DOINGS)
def test_a_checkout_is_whole_again(lasting: Checkout, what: str) -> None:
    """Tests share one, which is mended after each of them."""
    whole = _contents(lasting.root)
    DOINGS[what](lasting.root)
    assert _contents(lasting.root) != whole
    lasting.mend()
    assert _contents(lasting.root) == whole
