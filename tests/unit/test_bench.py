"""Test benchmarks/bench.py: what it runs and prints, and that the page matches its results. No test limits a time."""

import json
from pathlib import Path

import bench
import pytest
from bench import Row, Side

ROOT = Path(__file__).parents[2]


def row(command: str, **said: object) -> Row:
    return Row(**{"id": "a", "what": "a thing", "command": command, "where": "checkout", "runs": 2, **said})  # type: ignore[arg-type]


@pytest.fixture
def sides(tmp_path: Path) -> list[Side]:
    """Make two checkouts, in which a command can leave files."""
    for name in ("before", "after"):
        (tmp_path / name).mkdir()
    return [Side(name, tmp_path / name) for name in ("before", "after")]


def test_sides_run_in_turn_after_a_warm_up(tmp_path: Path, sides: list[Side]) -> None:
    found = bench.measure(row("basename $PWD >>../order"), sides, "id", 2)
    assert (tmp_path / "order").read_text().split() == ["before", "after"] * 3
    assert [len(found[side.name]["seconds"]) for side in sides] == [2, 2]


def test_a_command_that_fails_is_said_and_not_run_again(sides: list[Side], tmp_path: Path) -> None:
    found = bench.measure(row("echo >>runs; test $(basename $PWD) = after"), sides, "id", 3)
    assert found["before"] == {"seconds": [], "failed": "exit 1"}
    assert len((tmp_path / "before/runs").read_text().splitlines()) == 1
    assert len(found["after"]["seconds"]) == 3


@pytest.mark.parametrize(
    ("said", "engine", "why"),
    [
        ({}, "", ""),
        ({"needs": "engine"}, "", "no engine answers"),
        ({"needs": "engine"}, "28", ""),
        ({"needs": "no engine"}, "28", "engine 28 answers here, and another one would have to take its place"),
        ({"needs": "no engine"}, "", ""),
        ({"full": True}, "28", "only with FULL=1"),
    ],
)
def test_what_cannot_run_says_why(
    monkeypatch: pytest.MonkeyPatch, said: dict[str, object], engine: str, why: str
) -> None:
    monkeypatch.setattr(bench, "engine", lambda: engine)
    assert bench.why_not(row("true", **said), full=False) == why


RESULT = {
    "day": "2026-11-22",
    "machine": {"cores": 2, "memory_gb": 8, "architecture": "x86_64", "engine": "28.5.2"},
    "load": {"began": 0.1, "ended": 2.0},
}


def side(*seconds: float) -> dict[str, object]:
    middle = sorted(seconds)[len(seconds) // 2]
    return {"seconds": list(seconds), "median": middle, "min": min(seconds), "max": max(seconds)}


def test_one_side_shows_median_least_and_most() -> None:
    rows = [
        {"what": "a", "command": "b", "sides": {"now": side(1.0, 90.0, 600.0)}},
        {"what": "c", "command": "d", "not_run": "no engine answers"},
        {"what": "e", "command": "f", "sides": {"now": {"seconds": [], "failed": "exit 2"}}},
    ]
    result = {**RESULT, "sides": [{"name": "now", "commit": "abc"}], "rows": rows}
    assert bench.table(result).splitlines()[2:] == [
        "| a | `b` | 3 | 90 s | 1.00 s | 10:00 min |",
        "| c | `d` | 0 | not run: no engine answers |  |  |",
        "| e | `f` | 0 | failed: exit 2 |  |  |",
    ]


def test_two_sides_show_how_they_compare() -> None:
    rows = [
        {"what": "a", "command": "b", "sides": {"before": side(6.0, 8.0), "after": side(2.0, 2.0)}},
        {"what": "c", "command": "d", "sides": {"before": side(6.0), "after": {"seconds": [], "failed": "exit 1"}}},
    ]
    result = {**RESULT, "sides": [{"name": "before", "commit": "a"}, {"name": "after", "commit": "b"}], "rows": rows}
    assert bench.table(result).splitlines()[2:] == [
        "| a | `b` | 2 | 8.00 s (6.00 s to 8.00 s) | 2.00 s (2.00 s to 2.00 s) | 4.00 |",
        "| c | `d` | 1 and 0 | 6.00 s (6.00 s to 6.00 s) | failed: exit 1 |  |",
    ]


def test_rows_are_what_can_be_run() -> None:
    _, rows = bench.settings()
    assert len({row.id for row in rows}) == len(rows)
    for one in rows:
        assert one.where in ("checkout", "scratch", "fresh", "clone")
        assert not one.change or (ROOT / one.change).is_file()
        assert "{" not in one.told("i").replace("{{", "")


def test_the_registry_is_that_of_this_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its port is another one where somebody else had the usual one."""
    monkeypatch.setenv("TRAINWRIGHT_REGISTRY_PORT", "5123")
    command = row("REGISTRY={registry} {trainwright} plan {id}").told("an-id", "/x/bin/")
    assert command == "REGISTRY=127.0.0.1:5123 /x/bin/trainwright plan an-id"


def test_the_page_is_that_of_the_results() -> None:
    text = bench.PAGE.read_text()
    results = json.loads((ROOT / "benchmarks/results/latest.json").read_text())
    assert bench.page(text, results) == text, "make bench PAGE=1"
