"""Test the requirements files of this repository: each is locked for its image, and shown where people look."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trainwright.image import child
from trainwright.lock import additions
from trainwright.matrix.matrix import Intent
from trainwright.resolve import with_packages

ROOT = Path(__file__).parents[3]
KNOWN = additions.settings(ROOT)
Cli = Callable[..., Any]


@pytest.mark.parametrize("name", sorted(KNOWN.recipes))
def test_locked_for_its_image(intent: Intent, name: str) -> None:
    row = KNOWN.recipes[name]
    recipe = additions.on_top(intent.recipe(row.image), str(ROOT / row.requirements), name)
    rows, error = with_packages.check_lock(recipe)
    assert error is None, f"{rows}; trainwright lock {row.image} --with {row.requirements} --name {name}"
    assert bool(row.blocked) == bool(row.evidence) == bool(row.instead)


def test_no_file_is_left_over() -> None:
    files = {path.relative_to(ROOT).as_posix() for path in (ROOT / "dockerfiles/recipes").iterdir()}
    wanted = {row.requirements for row in KNOWN.recipes.values()}
    locks = {row.requirements.replace(".txt", f".{row.image}.lock.toml") for row in KNOWN.recipes.values()}
    assert files == wanted | locks


def test_list_and_explain_show_them_and_why_one_is_blocked(cli: Cli, tree: Path) -> None:
    image = KNOWN.recipes["flash-attn"].image
    for command in ("list", "explain"):
        ended = cli(tree, command, image)
        assert ended.code == 0, ended.err
        assert "--with dockerfiles/recipes/deepspeed.txt --name deepspeed" in ended.out
        assert KNOWN.recipes["flash-attn"].blocked in ended.out.replace("\n", " ")
        assert "dockerfiles/recipes" not in cli(tree, command, "jax-0.12-cpu-py313-ec2").out
    rows = json.loads(cli(tree, "list", image, "--json").out)["on_top"]
    assert {row["on top"]: row["state"] for row in rows}["flash-attn"] == "blocked"


def test_a_blocked_one_is_not_built(intent: Intent) -> None:
    for name, row in KNOWN.recipes.items():
        found = child.load(additions.on_top(intent.recipe(row.image), str(ROOT / row.requirements), name))
        assert found.blocked == [row.blocked] * bool(row.blocked)


@pytest.mark.parametrize("command", [["build"], ["push"], ["push", "--dry-run"]])
def test_a_blocked_one_says_who_blocked_it_and_what_to_do(cli: Cli, tree: Path, command: list[str]) -> None:
    row = KNOWN.recipes["flash-attn"]
    ended = cli(tree, *command, row.image, "--with", row.requirements, "--name", "flash-attn")
    said = re.sub(r"\s+", " ", ended.err)
    assert ended.code == 4
    assert f"{row.requirements} is blocked on {row.image}: {row.blocked}" in said
    assert "[recipes.flash-attn] of dockerfiles/additions.toml, where trainwright's maintainers blocked it" in said
    assert f"fix: {row.instead}" in said
    assert "checksum" not in said


def test_a_compilation_must_end_with_code_for_the_gpus_of_the_image(intent: Intent) -> None:
    row = KNOWN.recipes["deepspeed"]
    [job] = child.load(additions.on_top(intent.recipe(row.image), str(ROOT / row.requirements), "deepspeed")).compile
    assert "python /device_code.py /out/*.whl 80 90 100 103" in job.text["Dockerfile"]
    assert job.text["requirements/device_code.py"] == (ROOT / "dockerfiles/with/device_code.py").read_text()
