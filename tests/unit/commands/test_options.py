"""Test how a command line names images, and that the option names of the previous release still work."""

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trainwright.commands.options import HAD_ONLY, renamed
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
        (["--only", "jax-0.12-cpu-*"], 2),
        (["pytorch-2.13-cpu-py311-ec2", "--only", "jax-0.12-cpu-*"], 3),
        (["--only=pytorch-2.13-cpu-py311-ec2 jax-0.12-cpu-*"], 3),
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
    for words in ([], ["--framework", "pytorch"], ["pytorch-2.13-cpu-py311-ec2"], ["--only", "jax-0.12-cpu-*"]):
        assert cli(tree, "lock", *words).code == 0
    assert tried == [False, False, True, True]


@pytest.mark.parametrize(
    ("words", "found", "note"),
    [
        (
            "run IMAGE train.py --hosts 2",
            "run IMAGE train.py --nodes 2",
            "--hosts of run is deprecated; it is --nodes",
        ),
        ("launch --environment=A=b X", "launch --env=A=b X", "--environment of launch is deprecated; it is --env"),
        ("emit X --data a=b", "emit X --channel a=b", "--data of emit is deprecated; it is --channel"),
        ("run IMAGE train.py -- --hosts 2", "run IMAGE train.py -- --hosts 2", ""),
        ("gate X --on ssh --hosts f", "gate X --on ssh --hosts f", ""),
        ("run IMAGE train.py --hosts 2 --json", "run IMAGE train.py --nodes 2 --json", ""),
        ("list --only 'a* b' c", "list 'a*' b c", "--only of list is deprecated; name the images as arguments: 'a*' b"),
        ("build --only=a --no-wait", "build a --no-wait", "--only of build is deprecated"),
        ("build --only '' --push", "build '' --push", "--only of build is deprecated"),
        ("ci exports --only a", "ci exports a", "--only of ci is deprecated"),
        (
            "release --only 'a b' 2026.11.0 --dry-run",
            "release 2026.11.0 --dry-run a b",
            "--only of release is deprecated",
        ),
        ("release --only a -- 2026.11.0", "release -- 2026.11.0 a", "--only of release is deprecated"),
        ("rollback --only a --to 2026.11.0", "rollback a --to 2026.11.0", "--only of rollback is deprecated"),
        ("list --only a --json", "list a --json", ""),
        ("list -- --only a", "list -- --only a", ""),
        ("list --only --json", "list --only --json", ""),
        ("run IMAGE train.py --only a", "run IMAGE train.py --only a", ""),
    ],
)
def test_options_that_were_renamed(words: str, found: str, note: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert renamed(shlex.split(words)) == shlex.split(found)
    assert note in (said := capsys.readouterr().err)
    assert bool(said) == bool(note)


def test_every_command_that_takes_images_had_an_option_for_them(registered: dict[str, Any]) -> None:
    taking = {words.split()[0] for words, one in registered.items() if any(p.name == "images" for p in one.params)}
    assert taking - {"explain", "doctor", "prove"} == HAD_ONLY
    assert not [words for words, one in registered.items() if any("--only" in p.opts for p in one.params)]


def test_the_same_thing_has_the_same_name_in_every_command(registered: dict[str, Any]) -> None:
    found = {words: {option for one in command.params for option in one.opts} for words, command in registered.items()}
    for words in ("run", "launch", "emit", "gate"):
        assert "--nodes" in found[words]
    for words in ("run", "launch", "emit"):
        assert found[words] >= {"--channel", "--env", "--distribution", "--processes", "--checkpoints"}
        assert not found[words] & {"--hosts", "--data", "--environment"}
    for words in ("launch", "emit", "gate"):
        assert "--instance" in found[words]
