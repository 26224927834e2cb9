"""Test `rebuild --compare`: the same digest exits with 0, another one with 5. The engine's answers are stand-ins."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trainwright.build import baking, build
from trainwright.build import rebuild as build_rebuild
from trainwright.build.rebuilt import Row
from trainwright.docker import engine
from trainwright.resolve import fetch

ID = "pytorch-2.13-cpu-py311-ec2"
HELD, OTHER = "sha256:" + "a" * 64, "sha256:" + "b" * 64
DIFFERENCE = Row(layer="3 RUN date", path="etc/moment", what="content", rebuilt="1", held="2")
Rebuild = Callable[..., Any]


@pytest.fixture
def rebuild(cli: Any, tree: Path, monkeypatch: pytest.MonkeyPatch) -> Rebuild:
    """Return a function that rebuilds an image: the engine holds HELD and builds `again`."""
    for module, name in ((build, "must_be_able"), (build, "lay_out"), (baking, "bake"), (engine, "remove")):
        monkeypatch.setattr(module, name, lambda *_: None)
    for module in (build_rebuild, fetch):
        monkeypatch.setattr(module, "fetch", lambda *_: None)
    monkeypatch.setattr(build_rebuild, "_differences", lambda *_: [DIFFERENCE])

    def run(again: str, *words: str) -> Any:
        (tree / "out" / ID).mkdir(parents=True, exist_ok=True)
        monkeypatch.setattr(engine, "image_id", lambda name: again if "/rebuild:" in name else HELD)
        return cli(tree, "rebuild", ID, *words)

    return run


def test_the_same_digest(rebuild: Rebuild) -> None:
    ended = rebuild(HELD, "--compare", "--json")
    assert ended.code == 0, ended.err
    assert (said := json.loads(ended.out))["same"] is True
    assert said["differences"] == []


def test_another_digest_ends_with_5_and_says_what_differs(rebuild: Rebuild) -> None:
    ended = rebuild(OTHER, "--compare", "--json")
    assert ended.code == 5
    assert (said := json.loads(ended.out))["same"] is False
    assert (said["rebuilt"], said["held"]) == (OTHER, HELD)
    assert json.loads(ended.err.splitlines()[-1])["exit_code"] == 5
    table = rebuild(OTHER, "--compare")
    assert table.code == 5
    assert "etc/moment" in table.out
    assert f"expected {HELD}, found {OTHER}: 1 difference in 1 place" in table.err


def test_without_a_comparison_nothing_differs(rebuild: Rebuild) -> None:
    ended = rebuild(OTHER, "--json")
    assert (ended.code, json.loads(ended.out)["same"]) == (0, None)
