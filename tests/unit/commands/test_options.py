"""Test how a command line names images, and that one thing has one name in every command."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trainwright.matrix.matrix import Intent
from trainwright.matrix.model import Variant
from trainwright.resolve import resolve

Cli = Callable[..., Any]


@pytest.mark.parametrize("command", ["build", "test", "push"])
def test_nothing_asked_for_is_never_everything(cli: Cli, tree: Path, command: str) -> None:
    ended = cli(tree, command)
    assert (ended.code, ended.out) == (2, "")
    assert "no image was chosen" in ended.err
    assert "the same command with --framework" in ended.err


@pytest.mark.parametrize(
    ("words", "number"),
    [
        (["pytorch-2.13-cpu-py311-*"], 2),
        (["pytorch-2.13-cpu-py311-ec2", "jax-0.12-cpu-*"], 3),
        (["pytorch-2.13-cpu-py311-ec2 jax-0.12-cpu-*"], 3),  # make ONLY='...'
    ],
)
def test_images_are_named_as_arguments(cli: Cli, tree: Path, words: list[str], number: int) -> None:
    ended = cli(tree, "list", *words, "--json")
    assert len(json.loads(ended.out)["images"]) == number


def test_each_of_the_named_images_has_to_be_there(cli: Cli, tree: Path) -> None:
    ended = cli(tree, "list", "pytorch-2.13-cpu-py311-ec2", "jax-0.13-*")
    assert (ended.code, ended.out) == (2, "")
    assert "no image matches 'jax-0.13-*'" in ended.err


def test_a_lock_that_waits_is_tried_for_an_image_that_is_named(
    cli: Cli, tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = list[bool]()

    def lock_all(_intent: Intent, _variants: list[Variant], by_name: bool, *_: Any) -> list[dict[str, str]]:
        tried.append(by_name)
        return []

    monkeypatch.setattr(resolve, "lock_all", lock_all)
    for words in ([], ["--framework", "pytorch"], ["pytorch-2.13-cpu-py311-ec2"], ["jax-0.12-cpu-*"]):
        assert cli(tree, "lock", *words).code == 0
    assert tried == [False, False, True, True]


def test_the_same_thing_has_the_same_name_in_every_command(registered: dict[str, Any]) -> None:
    found = {words: {option for one in command.params for option in one.opts} for words, command in registered.items()}
    for words in ("run", "launch", "emit", "gate"):
        assert "--nodes" in found[words]
    for words in ("run", "launch", "emit"):
        assert found[words] >= {"--channel", "--env", "--distribution", "--processes", "--checkpoints"}
        assert not found[words] & {"--hosts", "--data", "--environment"}
    for words in ("launch", "emit", "gate"):
        assert "--instance" in found[words]
