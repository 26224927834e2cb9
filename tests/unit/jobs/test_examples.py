"""Test docs/training.md and docs/examples: their parsers accept them, and they use only options that exist."""

import ast
import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[3]
ROOTFS = ROOT / "dockerfiles/rootfs"
LAUNCHER = ROOTFS / "common/opt/trainwright/launcher"
PAGE = (ROOT / "docs/training.md").read_text()
EXAMPLES = sorted(path for path in (ROOT / "docs/examples").iterdir() if path.is_file())
VARIABLE = re.compile(r"\bTRAINWRIGHT_[A-Z][A-Z_]*[A-Z]\b")
LONG_HEX = re.compile(r"\b[0-9a-fA-F]{24,}\b")


@pytest.fixture(scope="module")
def options() -> set[str]:
    """Return the options that the launcher's help lists."""
    said = subprocess.run([sys.executable, "-IB", LAUNCHER, "--help"], capture_output=True, text=True)
    return set(re.findall(r"--[a-z][a-z-]*", said.stdout + said.stderr)) - {"--help"}


def variables() -> set[str]:
    """Return every variable that a file of the image's rootfs reads or sets."""
    files = [path for path in ROOTFS.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    return {name for path in files for name in VARIABLE.findall(path.read_text())}


def pods(text: str) -> list[dict[str, Any]]:
    replicas = next(value for key, value in yaml.safe_load(text)["spec"].items() if key.endswith("ReplicaSpecs"))
    return [replica["template"]["spec"] for replica in replicas.values()]


def commands(path: Path) -> list[list[str]]:
    """List every use of the launcher in a file: the words between its name and the script."""
    text = path.read_text().replace("\\\n", " ")
    if path.suffix == ".yaml":
        containers = [container for pod in pods(text) for container in pod["containers"]]
        found = [[*container["command"], *container.get("args", [])] for container in containers]
        found = [words[words.index("trainwright-launch") :] for words in found]
    else:
        uses = re.findall(r"\btrainwright-launch(?=[ )])([^\n`)]*)", text)
        found = [["trainwright-launch", *shlex.split(rest)] for rest in uses]
    return [list(until_script(words[1:])) for words in found if words[0] == "trainwright-launch"]


def until_script(words: list[str]) -> Any:
    for word in words:
        if word.endswith((".py", ".sh")):
            return
        yield word


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_an_example_is_linked_and_reads(path: Path) -> None:
    assert f"(examples/{path.name})" in PAGE
    text = path.read_text()
    if path.suffix == ".py":
        ast.parse(text)
    elif path.suffix == ".yaml":
        assert yaml.safe_load(text)["kind"] in ("PyTorchJob", "MPIJob")
    else:
        assert text.startswith("#!")
        subprocess.run(["bash", "-n", path], check=True)


def test_no_example_hides_a_module_of_python() -> None:
    """The examples are packed and run as one folder: torch itself imports cProfile, and that `profile`."""
    assert {path.stem for path in EXAMPLES} & sys.stdlib_module_names == set()


@pytest.mark.parametrize("path", [*EXAMPLES, ROOT / "docs/training.md"], ids=lambda path: path.name)
def test_only_options_and_variables_that_there_are(path: Path, options: set[str]) -> None:
    used = {word for words in commands(path) for word in words if word.startswith("--")}
    assert used <= options
    assert set(VARIABLE.findall(path.read_text())) <= variables()
    if path.suffix in (".yaml", ".sh", ".sbatch"):
        assert commands(path)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_no_example_has_a_secret_in_it(path: Path) -> None:
    assert LONG_HEX.findall(path.read_text()) == []


@pytest.mark.parametrize("path", [path for path in EXAMPLES if path.suffix == ".yaml"], ids=lambda path: path.name)
def test_pods_get_the_secret_as_a_file(path: Path) -> None:
    for pod in pods(path.read_text()):
        (container,) = pod["containers"]
        mounted = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
        assert set(mounted.values()) <= {volume["name"] for volume in pod["volumes"]}
        (secret,) = [volume for volume in pod["volumes"] if "secret" in volume]
        assert secret["secret"]["defaultMode"] == 0o400
        (named,) = [one["value"] for one in container["env"] if one["name"] == "TRAINWRIGHT_JOB_SECRET_FILE"]
        assert mounted[str(Path(named).parent)] == secret["name"]
        assert pod["terminationGracePeriodSeconds"] >= 120


def test_slurm_gets_a_secret_of_its_own_for_each_job(tmp_path: Path) -> None:
    """A stand-in for srun says what it was given: the secret is in the environment alone, another one each time."""
    stand_in = tmp_path / "srun"
    stand_in.write_text('#!/bin/sh\nprintf "%s\\n" "$TRAINWRIGHT_JOB_SECRET" "$*"\n')
    stand_in.chmod(0o755)
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "SLURM_CPUS_ON_NODE": "96"}
    text = (ROOT / "docs/examples/slurm.sbatch").read_text().replace("/fsx", str(tmp_path))
    command = ["bash", "-c", text]
    said = [
        subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True).stdout
        for _ in range(2)
    ]
    first, second = [text.splitlines()[0] for text in said]
    assert re.fullmatch("[0-9a-f]{64}", first)
    assert first != second
    assert first not in said[0].splitlines()[1]
    assert "trainwright-launch --distribution torchrun" in said[0]


def test_the_request_of_a_training_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """Amazon's own model of the request takes it, and it has where the secret lies, not the secret."""
    import boto3
    import botocore.client
    from moto import mock_aws

    asked = list[dict[str, Any]]()
    call = vars(botocore.client.BaseClient)["_make_api_call"]

    def listen(client: Any, name: str, parameters: dict[str, Any]) -> Any:
        asked.append(parameters)
        return call(client, name, parameters)

    monkeypatch.setattr(botocore.client.BaseClient, "_make_api_call", listen)
    monkeypatch.setattr(sys, "argv", ["", "image", "arn:aws:iam::123456789012:role/train", "bucket"])
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    with mock_aws():
        runpy.run_path(str(ROOT / "docs/examples/sagemaker_boto3.py"), run_name="__main__")
        (job,) = boto3.client("sagemaker").list_training_jobs()["TrainingJobSummaries"]
    (channel,) = asked[0]["InputDataConfig"]
    assert asked[0]["TrainingJobName"] == job["TrainingJobName"]
    assert asked[0]["Environment"] == {
        "TRAINWRIGHT_JOB_SECRET_FILE": f"/opt/ml/input/data/{channel['ChannelName']}/secret"
    }


@pytest.mark.parametrize("page", ["training", "launch", "clusters", "pipelines"])
def test_a_page_says_once_where_the_program_is(page: str) -> None:
    text = (ROOT / f"docs/{page}.md").read_text()
    assert ".venv/bin/trainwright" in text.split("\n\n")[1]
    assert text.count(".venv/bin/trainwright") == 1


def test_two_commands_do_not_share_a_folder() -> None:
    """README's --output has one job's results; the checkpoints of another job would be taken for its own."""
    outputs = re.findall(r"--output (\w+)", (ROOT / "README.md").read_text())
    assert outputs
    assert not set(outputs) & set(re.findall(r"--checkpoints (\w+)", PAGE))


def test_every_setting_of_the_image_is_in_the_table() -> None:
    table = PAGE.partition("## Settings")[2].partition("\n## ")[0]
    listed = {name for row in table.splitlines() if row.startswith("|") for name in VARIABLE.findall(row.split("|")[1])}
    assert listed == variables()
