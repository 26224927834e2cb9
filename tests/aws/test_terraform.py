"""Test docs/examples/terraform with Terraform: it is valid, can be applied, and grants no excessive permission.

It is applied to a stand-in for Amazon's APIs. Moto enforces no policy, so this does not show that a build in a real
account has all permissions that it needs.
"""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from moto.server import ThreadedMotoServer

from trainwright.matrix.matrix import load_intent
from trainwright.publish import pipelines
from trainwright.registry import aws, ecr, ecr_repositories, ecr_settings
from trainwright.registry import settings as registry_settings

pytestmark = pytest.mark.terraform
ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "docs/examples/terraform"
MIRROR = Path("/opt/tf-plugins")  # providers of a host without registry.terraform.io; elsewhere Terraform fetches them
OVERRIDE = 'provider "aws" {\n  s3_use_path_style = true\n}\n'  # a bucket is no host name on loopback
REGION = "eu-west-1"
VARIABLES = {"source_location": "https://github.com/you/trainwright.git", "github_repository": "you/trainwright"}
SECONDS = 300  # of one command: the provider is a large program, and the machine may be slow


class Example:
    """An initialised copy of the example; `run` runs terraform in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "docs/examples/terraform"
        shutil.copytree(EXAMPLE, self.folder, ignore=shutil.ignore_patterns(".terraform*", "*.tfstate*"))
        shutil.copy(ROOT / "docs/iam-policy.json", folder / "docs")
        self.settings = folder / "terraformrc"
        mirror = f'provider_installation {{\n  filesystem_mirror {{ path = "{MIRROR}" }}\n}}\n'
        self.settings.write_text(mirror if MIRROR.is_dir() else "")
        self.env: dict[str, str] = {}

    def run(self, *words: str, accept: tuple[int, ...] = (0,)) -> subprocess.CompletedProcess[str]:
        own = {"TF_CLI_CONFIG_FILE": str(self.settings), "TF_IN_AUTOMATION": "1", "CHECKPOINT_DISABLE": "1"}
        own |= {f"TF_VAR_{name}": value for name, value in VARIABLES.items()}
        command = ["terraform", *words]
        env = {**os.environ, **own, **self.env}
        ended = subprocess.run(command, cwd=self.folder, env=env, capture_output=True, text=True, timeout=SECONDS)
        assert ended.returncode in accept, f"{command}\n{ended.stdout}\n{ended.stderr}"
        return ended


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Example:
    if not shutil.which("terraform"):
        pytest.skip("not run: terraform is not installed")
    made = Example(tmp_path_factory.mktemp("terraform"))
    ended = made.run("init", "-no-color", "-input=false", "-backend=false", accept=(0, 1))
    if ended.returncode:
        last = " ".join(ended.stderr.split())[:200]
        pytest.skip(f"not run: terraform cannot get its provider: {last}")
    return made


def test_it_is_valid_and_formatted(example: Example) -> None:
    assert json.loads(example.run("validate", "-json").stdout)["valid"] is True
    assert example.run("fmt", "-check", "-recursive", "-diff").stdout == ""


@pytest.fixture(scope="module")
def applied(example: Example) -> Iterator[Example]:
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    address = "http://{}:{}".format(*server.get_host_and_port())
    (example.folder / "moto_override.tf").write_text(OVERRIDE)
    example.env = {
        "AWS_ENDPOINT_URL": address,
        "AWS_ACCESS_KEY_ID": "AKIATEST",
        "AWS_SECRET_ACCESS_KEY": "c2VjcmV0",
        "AWS_REGION": REGION,
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": str(example.folder / "none"),
        "AWS_SHARED_CREDENTIALS_FILE": str(example.folder / "none"),
        "NO_PROXY": "127.0.0.1",
    }
    example.run("apply", "-no-color", "-input=false", "-auto-approve")
    yield example
    server.stop()


@pytest.fixture
def ask(applied: Example, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that makes boto3 clients for the account that Terraform filled."""
    import boto3

    for name, value in applied.env.items():
        monkeypatch.setenv(name, value)
    aws.forget()
    ecr.forget()
    return lambda service: boto3.client(service, region_name=REGION)


def policies(iam: Any, role: str) -> list[dict[str, Any]]:
    """Return every policy statement of a role."""
    assert iam.list_attached_role_policies(RoleName=role)["AttachedPolicies"] == []
    found = []
    for name in iam.list_role_policies(RoleName=role)["PolicyNames"]:
        found += statements(iam.get_role_policy(RoleName=role, PolicyName=name)["PolicyDocument"])
    return found


def statements(document: dict[str, Any]) -> list[dict[str, Any]]:
    held = document["Statement"]
    return list(held) if isinstance(held, list) else [held]


def words(value: Any) -> list[str]:
    return value if isinstance(value, list) else [value]


def test_applied_again_nothing_changes_but_what_moto_does_not_keep(applied: Example) -> None:
    """It keeps no configuration of batches, so that every plan adds that again; it says what Amazon would be told."""
    applied.run("plan", "-no-color", "-input=false", "-out=again")
    plan = json.loads(applied.run("show", "-json", "again").stdout)
    changes = {
        (row["address"], name)
        for row in plan["resource_changes"]
        if row["change"]["actions"] != ["no-op"]
        for name, value in row["change"]["after"].items()
        if value != row["change"]["before"].get(name)
    }
    assert changes == {("aws_codebuild_project.images", "build_batch_config")}
    (project,) = [row for row in plan["resource_changes"] if row["address"] == "aws_codebuild_project.images"]
    (batch,) = project["change"]["after"]["build_batch_config"]
    assert batch["service_role"].endswith(":role/trainwright-batch")
    (limits,) = batch["restrictions"]
    assert limits["maximum_builds_allowed"] == pipelines.settings(ROOT).codebuild.most_builds
    assert "BUILD_GENERAL1_LARGE" in limits["compute_types_allowed"]


@pytest.mark.parametrize("role", ["trainwright-build", "trainwright-github"])
def test_who_publishes_may_do_what_is_documented_for_that(ask: Any, role: str) -> None:
    """docs/iam-policy.json, with the account in it: its statements Token, Read and Publish, and of ECR nothing else."""
    account = ask("sts").get_caller_identity()["Account"]
    documented = json.loads((ROOT / "docs/iam-policy.json").read_text().replace("111122223333", account))
    wanted = [row for row in documented["Statement"] if row["Sid"] in ("Token", "Read", "Publish")]
    held = policies(ask("iam"), role)
    assert [row for row in held if any(action.startswith("ecr:") for action in words(row["Action"]))] == wanted


def test_no_right_is_a_wildcard_and_each_is_bound(ask: Any) -> None:
    for role in ("trainwright-build", "trainwright-batch", "trainwright-github"):
        for row in policies(ask("iam"), role):
            assert not [action for action in words(row["Action"]) if "*" in action]
            assert row["Effect"] == "Allow"
            if row["Sid"] != "Token":  # of the account, as ECR has it
                assert all("trainwright" in resource for resource in words(row["Resource"])), row


def test_a_batch_only_starts_builds_of_its_project(ask: Any) -> None:
    (row,) = policies(ask("iam"), "trainwright-batch")
    assert sorted(words(row["Action"])) == ["codebuild:RetryBuild", "codebuild:StartBuild", "codebuild:StopBuild"]
    assert words(row["Resource"])[0].endswith(":project/trainwright")
    build = {action for row in policies(ask("iam"), "trainwright-build") for action in words(row["Action"])}
    assert not build & set(words(row["Action"])), "a build could start builds, past the limits of a batch"


def test_who_may_take_a_role(ask: Any) -> None:
    def trust(role: str) -> dict[str, Any]:
        document = ask("iam").get_role(RoleName=role)["Role"]["AssumeRolePolicyDocument"]
        (statement,) = statements(document)
        return statement

    for role in ("trainwright-build", "trainwright-batch"):
        said = trust(role)
        assert said["Principal"] == {"Service": "codebuild.amazonaws.com"}
        assert said["Condition"]["ArnEquals"]["aws:SourceArn"].endswith(":project/trainwright")
    issuer = "token.actions.githubusercontent.com"
    said = trust("trainwright-github")
    assert said["Condition"]["StringEquals"] == {
        f"{issuer}:aud": pipelines.settings(ROOT).github.audience,
        f"{issuer}:sub": "repo:you/trainwright:ref:refs/heads/main",
    }


def test_the_project_is_what_the_buildspec_and_a_batch_need(ask: Any) -> None:
    (project,) = ask("codebuild").batch_get_projects(names=["trainwright"])["projects"]
    assert project["environment"]["privilegedMode"] is True
    assert project["source"]["buildspec"] == pipelines.settings(ROOT).codebuild.buildspec
    assert project["cache"]["type"] == "S3"


def test_repositories_differ_in_what_the_provider_cannot_say(ask: Any) -> None:
    """As `trainwright repositories` sees them; --apply makes up for it."""
    frameworks = load_intent(ROOT).matrix.frameworks
    names, settings = [f"trainwright/{name}" for name in frameworks], registry_settings.publication(ROOT).repository
    rows = ecr_repositories.ensure(REGION, names, settings, create=False, change=False)
    differing = {(row.repository.partition("/")[2], row.setting) for row in rows if row.state != "as wanted"}
    assert {setting for _, setting in differing} == {"moving tags"}
    ecr_repositories.ensure(REGION, names, settings, create=False, change=True)
    rows = ecr_repositories.ensure(REGION, names, settings, create=False, change=False)
    assert {row.state for row in rows} == {"as wanted"}


# --- what Terraform cannot read of our data, and so says itself -------------------------------------------------------


def default(name: str) -> Any:
    """Return the default of a variable, which must be a literal that is also valid JSON."""
    text = (EXAMPLE / "variables.tf").read_text()
    found = re.search(rf'variable "{name}" {{.*?default\s*= (.*?)\n', text, re.DOTALL)
    assert found
    return json.loads(found[1])


def test_its_numbers_are_ours() -> None:
    said = pipelines.settings(ROOT).codebuild
    used = {row.compute_type for row in said.compute} | {said.idle.compute_type}
    assert set(default("compute_types_allowed")) == used
    assert default("most_builds") == said.most_builds
    assert default("image") == said.architecture["amd64"].image
    assert set(default("frameworks")) == set(load_intent(ROOT).matrix.frameworks)
    settings = registry_settings.publication(ROOT).repository
    assert json.loads((EXAMPLE / "lifecycle.json").read_text()) == json.loads(ecr_settings.lifecycle(settings))
