"""Test what `push --dry-run` shows for ECR: regions, repositories, their settings, scans. It writes nothing."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from aws.conftest import REGIONS
from aws.emulator import Emulator

from trainwright.build import state
from trainwright.core.errors import AwsError, RegistryError
from trainwright.docker import engine
from trainwright.image import inputs
from trainwright.matrix import matrix
from trainwright.publish import licences, push, push_steps
from trainwright.publish.push import Forecast
from trainwright.registry import aws
from trainwright.registry.settings import Place, publication

ROOT = Path(__file__).parents[2]
HERE, THERE = REGIONS
INTENT = matrix.load_intent(ROOT)
ID = "pytorch-2.13-cpu-py311-ec2"
NAME, DIGEST = "trainwright/pytorch", "sha256:" + "d" * 64
WRITES = ("Create", "Put", "Set", "Tag", "Delete", "Batch_Delete")
Told = Callable[[], Forecast]


@pytest.fixture
def told(amazon: Emulator, monkeypatch: pytest.MonkeyPatch) -> Told:
    """Return a function that forecasts a push of a built image to two regions."""
    monkeypatch.setattr(engine, "image_id", lambda _: DIGEST)

    def forecast() -> Forecast:
        amazon.calls.clear()
        found = inputs.load(INTENT.recipe(ID))
        held = state.published(INTENT, [found], "ecr", ",".join(REGIONS))[ID]
        said = push.forecast(found, held, "")
        assert [name for _, name in amazon.calls if name.startswith(WRITES)] == []
        assert {method for method, _ in amazon.requests} <= {"GET"}
        return said

    return forecast


def repositories(found: Forecast) -> list[str]:
    return [step for step in found.done.steps if step.startswith("repository: ")]


def test_every_region_and_the_settings_of_what_is_created(amazon: Emulator, told: Told) -> None:
    found = told()
    assert found.refused == []
    assert found.done.action == "would push"
    for region, step in zip(REGIONS, repositories(found), strict=True):
        assert f"{amazon.address(region)}/{NAME} does not exist; it is created" in step
        assert "tags are immutable except *-latest" in step
        assert "scan on push: yes; encryption AES256" in step
    scans = [step for step in found.done.steps if step.startswith("scan in ")]
    assert [step.partition(":")[0] for step in scans] == [f"scan in {region}" for region in REGIONS]
    assert all("CRITICAL refuses it" in step and "no result refuses it, too" in step for step in scans)
    assert found.done.steps[-2].startswith(f"tag {ID}-")
    assert f"in {HERE}, {THERE}" in found.done.steps[-2]


def test_one_that_is_there_as_wanted_and_one_that_differs(told: Told) -> None:
    recipe = INTENT.recipe(ID)
    places = state.places(recipe, "ecr", ",".join(REGIONS))
    state.settle(INTENT, [recipe], places, create=True, change=False)
    aws.client("ecr", THERE).put_image_scanning_configuration(
        repositoryName=NAME, imageScanningConfiguration={"scanOnPush": False}
    )
    found = told()
    here, there = repositories(found)
    assert "matches dockerfiles/publish.toml" in here
    assert "stays as it is: scan on push is no, dockerfiles/publish.toml requires yes" in there
    assert "trainwright repositories --apply" in there
    assert found.refused == []


def test_one_whose_tags_move_is_refused(told: Told) -> None:
    """The very check of the real push, which would otherwise be seen only after a scan."""
    aws.client("ecr", HERE).create_repository(repositoryName=NAME, imageTagMutability="MUTABLE")
    (error,) = told().refused
    assert isinstance(error, RegistryError)
    assert "allows immutable tags to move" in error.what
    assert error.fix == "trainwright repositories --apply"
    place = Place(host="x", path=NAME, region=HERE)
    with pytest.raises(RegistryError, match="allows immutable tags to move"):
        push_steps.settled(place, publication(ROOT).repository, create=True)


def test_what_amazon_does_not_let_one_ask(amazon: Emulator, told: Told) -> None:
    amazon.refuse("DescribeRepositories", "AccessDeniedException", "no", times=9)
    found = told()
    assert {type(error) for error in found.refused} == {AwsError}
    assert found.done.steps[-1].startswith("no alias moves")


def test_a_repository_that_lets_everybody_pull_gets_no_compiler(amazon: Emulator) -> None:
    place = Place(host="x", path=NAME, region=HERE)
    devel = inputs.load(INTENT.recipe("pytorch-2.15-cu132-py313-ec2-single-node-devel"))
    assert licences.refusals(devel, [place], []) == []
    ecr = aws.client("ecr", HERE)
    ecr.create_repository(repositoryName=NAME)
    assert licences.refusals(devel, [place], []) == []
    statement: dict[str, object] = {"Sid": "all", "Effect": "Allow", "Principal": "*", "Action": ["ecr:BatchGetImage"]}
    ecr.set_repository_policy(repositoryName=NAME, policyText=json.dumps({"Statement": [statement]}))
    (error,) = licences.refusals(devel, [place], [])
    assert "the policy of this repository lets everybody pull" in error.why
    statement["Condition"] = {"StringEquals": {"aws:PrincipalOrgID": "o-1"}}
    ecr.set_repository_policy(repositoryName=NAME, policyText=json.dumps({"Statement": [statement]}))
    assert licences.refusals(devel, [place], []) == []
