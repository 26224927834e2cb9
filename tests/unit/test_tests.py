"""Test the rules for tests: a skip says that a test was not run, and no test limits a duration."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
NOT_RUN = "not run: "  # as tests/conftest.py says it, for --require-engine
SKIPS = {"skip", "skipif", "importorskip"}
CLOCKS = {f"time.{name}" for name in ("monotonic", "perf_counter", "process_time", "thread_time", "time")}
LIMITS = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)
FILES = sorted(TESTS.rglob("*.py"))


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def unnamed(tree: ast.AST) -> Iterator[int]:
    """Yield the lines of skips whose reason does not begin with "not run: "."""
    for call in ast.walk(tree):
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute) or call.func.attr not in SKIPS:
            continue
        if ast.unparse(call.func) not in {f"pytest.{call.func.attr}", f"pytest.mark.{call.func.attr}"}:
            continue
        reasons = [word.value for word in call.keywords if word.arg == "reason"]
        if call.func.attr == "skip":
            reasons += call.args
        said = ast.unparse(reasons[0]).removeprefix("f")[1:] if reasons else ""
        if not said.startswith((NOT_RUN, "{NOT_RUN}")):
            yield call.lineno


def timed(tree: ast.AST) -> Iterator[int]:
    """Yield the lines of assertions that compare a clock's value; in a `while` it only ends a wait that hangs."""
    waits = {inner for loop in ast.walk(tree) if isinstance(loop, ast.While) for inner in ast.walk(loop)}
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef):
            clocked = {
                name.id
                for statement in ast.walk(function)
                if isinstance(statement, ast.Assign) and reads(statement.value, set())
                for target in statement.targets
                for name in ast.walk(target)
                if isinstance(name, ast.Name)
            }
            for one in ast.walk(function):
                if isinstance(one, ast.Assert) and one not in waits:
                    compared = [
                        found
                        for found in ast.walk(one.test)
                        if isinstance(found, ast.Compare) and isinstance(found.ops[0], LIMITS)
                    ]
                    if any(reads(side, clocked) for found in compared for side in (found.left, *found.comparators)):
                        yield one.lineno


def reads(value: ast.AST, clocked: set[str]) -> bool:
    """Return whether a value comes from a clock; our own results call it `.seconds`."""
    for one in ast.walk(value):
        if isinstance(one, ast.Name) and one.id in clocked:
            return True
        if not isinstance(one, ast.Attribute) or not isinstance(one.value, ast.Name):
            continue
        if one.attr == "seconds" or f"{one.value.id}.{one.attr}" in CLOCKS:
            return True
    return False


@pytest.mark.parametrize(("rule", "word"), [(unnamed, r"\.skip|\.importorskip"), (timed, r"\btime\.\w|\.seconds\b")])
def test_every_file_of_tests(rule: object, word: str) -> None:
    """A file without the words that a rule looks for breaks none; to parse all of them takes two seconds."""
    assert callable(rule)
    files = [path for path in FILES if re.search(word, path.read_text())]
    found = [f"{path.relative_to(TESTS)}:{line}" for path in files for line in rule(parsed(path))]
    assert found == []


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        (unnamed, "pytest.skip('no curl')"),
        (unnamed, "pytest.skip(f'{name} is missing')"),
        (unnamed, "pytest.skip()"),
        (unnamed, "real = pytest.mark.skipif(not here, reason='needs root: not run')"),
        (unnamed, "pytest.importorskip('numpy')"),
        (timed, "def test():\n    began = time.monotonic()\n    assert time.monotonic() - began < 2"),
        (timed, "def test():\n    began = time.process_time()\n    took = 1\n    assert began < 2"),
        (timed, "def test():\n    assert result.seconds < SOON"),
    ],
)
def test_the_rules_can_fail(rule: object, text: str) -> None:
    assert callable(rule)
    assert [*rule(ast.parse(text))] != []


@pytest.mark.parametrize(
    "text",
    [
        "pytest.skip('not run: no curl')",
        "pytest.skip(f'{NOT_RUN}{why}')",
        "def until():\n    end = time.monotonic() + 60\n    while not true():\n        assert time.monotonic() < end",
    ],
)
def test_and_pass(text: str) -> None:
    tree = ast.parse(text)
    assert [*unnamed(tree), *timed(tree)] == []
