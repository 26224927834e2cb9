"""Test buildspec.yml, the batches that `ci codebuild` writes, and the variables of `ci exports`."""

import json
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import buildspecs
import pytest
from pydantic import ValidationError

from trainwright.build import state
from trainwright.image import inputs
from trainwright.matrix.matrix import Recipe, load_intent
from trainwright.matrix.records import Image
from trainwright.publish import pipelines

ROOT = Path(__file__).parents[3]
DEFAULT = "pytorch-2.13-cpu-py311-sagemaker"
DIGEST = f"sha256:{'1' * 64}"
OURS = buildspecs.parse((ROOT / "buildspec.yml").read_text())


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("version: 0.2\nphases:\n  build:\n    comands: [a]\n", "phases.build.comands"),
        ("version: 0.2\nphases:\n  build: {commands: [a], finaly: [b]}\n", "finaly"),
        ("version: 0.1\nphases: {}\n", "version"),
        ("version: 0.2\nphases:\n  build: {commands: []}\n", "phases.build.commands"),
        ("version: 0.2\nenv: {exported-variables: [AWS_X]}\nphases: {}\n", "env.exported-variables"),
        ("version: 0.2\nphases: {}\nbatch:\n  build-graph:\n    - identifier: a-b\n", "identifier"),
        ("version: 0.2\nphases: {}\nreports: {a: {files: [x], file-format: PDF}}\n", "file-format"),
    ],
)
def test_what_is_no_buildspec(text: str, says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        buildspecs.parse(text)


def test_our_buildspec_only_calls_make() -> None:
    """And takes into its shell what a make goal printed, in a command of its own."""
    goals = set(re.findall(r"^([a-z][a-z-]*):(?!=)", (ROOT / "Makefile").read_text(), re.MULTILINE))
    commands = OURS.commands
    for command in commands:
        if command == 'eval "$exports"':
            continue
        make, *words = shlex.split(command.removeprefix("exports=$(").removesuffix(")"))
        assert make == "make"
        assert {word for word in words if not word.startswith("-")} <= goals
    assert commands.index('eval "$exports"') == commands.index("exports=$(make --silent exports)") + 1


def test_our_buildspec_exports_what_the_goal_prints(cli: Any, tree: Path, tmp_path: Path) -> None:
    intent = load_intent(tree)
    (variant,) = [one for one in intent.variants if one.id == DEFAULT]
    ended = cli(tree, "ci", "exports", "--framework", "pytorch")
    assert (ended.code, ended.out) == (7, "")
    assert "make build push ONLY=" in ended.err
    key, digest = inputs.load(Recipe(intent, variant)).key, f"sha256:{'1' * 64}"
    image = Image(id=DEFAULT, key=key, digest=digest, uri=f"localhost:1/a@{digest}")
    state.write_image(state.out_folder(Recipe(intent, variant)), image)
    ended = cli(tree, "ci", "exports", "--framework", "pytorch")
    assert ended.code == 0, ended.err
    seen = subprocess.run(["bash", "-c", f"{ended.out}env"], capture_output=True, text=True, check=True).stdout
    env = dict(line.split("=", 1) for line in seen.splitlines() if "=" in line)
    assert {name: env[name] for name in OURS.env.exported_variables} == {
        "IMAGE_ID": DEFAULT,
        "IMAGE_KEY": key,
        "IMAGE_DIGEST": digest,
        "IMAGE_URI": f"localhost:1/a@{digest}",
    }
    state.write_image(state.out_folder(Recipe(intent, variant)), image.model_copy(update={"key": "0" * 64}))
    assert cli(tree, "ci", "exports", "--framework", "pytorch").code == 7, "of other inputs"


def test_exports_of_nothing_named(cli: Any, tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As make: ONLY, FRAMEWORK; else what was pushed from here, and no id that nobody asked for."""
    for name in ("ONLY", "FRAMEWORK"):
        monkeypatch.delenv(name, raising=False)
    intent = load_intent(tree)
    ended = cli(tree, "ci", "exports")
    assert ended.code == 7
    assert "no image was pushed from this checkout with its present inputs" in ended.err
    for variant in intent.variants:
        if variant.id in (DEFAULT, "jax-0.12-cpu-py313-ec2", "base-1.0-cpu-py313-ec2"):
            key = inputs.load(Recipe(intent, variant)).key if variant.framework != "base" else "0" * 64
            image = Image(id=variant.id, key=key, digest=DIGEST, uri=f"localhost:1/{variant.id}@{DIGEST}")
            state.write_image(state.out_folder(Recipe(intent, variant)), image)
    for found, environment in {
        f"{DEFAULT} jax-0.12-cpu-py313-ec2": {},
        DEFAULT: {"FRAMEWORK": "pytorch"},
        "jax-0.12-cpu-py313-ec2": {"FRAMEWORK": "pytorch", "ONLY": "jax-0.12-cpu-py313-ec2"},
    }.items():
        with monkeypatch.context() as patch:
            for name, value in environment.items():
                patch.setenv(name, value)
            ended = cli(tree, "ci", "exports", "--json")
        assert ended.code == 0, ended.err
        assert sorted(json.loads(ended.out)["IMAGE_ID"].split()) == sorted(found.split())
        assert ("left out base-1.0-cpu-py313-ec2: its inputs changed after it was pushed" in ended.err) == (
            not environment
        )


def test_a_failing_goal_is_not_hidden_by_eval() -> None:
    """Each line is a command of its own: the one that fails ends the phase."""
    assert OURS.phases.build
    lines = [command.replace("make --silent exports", "false") for command in OURS.phases.build.commands[1:]]
    assert [subprocess.run(["bash", "-c", line]).returncode for line in lines] == [1, 0]


def test_the_batch_that_we_write_is_one(cli: Any, tree: Path) -> None:
    for words in (["*"], ["*-ubuntu-*"]):
        ended = cli(tree, "ci", "plan", "--of", "codebuild", *words, "--cache", "registry.example.com/cache")
        found = buildspecs.parse(ended.out)
        assert found.batch
        assert buildspecs.missing(found.batch) == []
    assert found.batch
    assert [task.identifier for task in found.batch.build_graph] == [pipelines.settings(ROOT).codebuild.idle.identifier]
