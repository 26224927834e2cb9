"""Test that repositories are created as publish.toml defines them, and changed only on request."""

import json
from pathlib import Path
from typing import Any

import pytest
from aws.conftest import REGIONS
from aws.emulator import ACCOUNT, Emulator

from trainwright.core.errors import AwsError
from trainwright.registry import aws, ecr_repositories, ecr_settings
from trainwright.registry import settings as registry_settings
from trainwright.registry.ecr_settings import Setting
from trainwright.registry.settings import Repository

ROOT = Path(__file__).parents[2]
HERE, THERE = REGIONS
NAME = "trainwright/pytorch"


@pytest.fixture
def settings() -> Repository:
    settings = registry_settings.publication(ROOT).repository
    return Repository.model_validate(settings.model_dump() | {"readers": ["444455556666"]})


def ensure(settings: Repository, create: bool = True, change: bool = False, region: str = HERE) -> list[Setting]:
    return ecr_repositories.ensure(region, [NAME], settings, create, change)


def changed(settings: Repository, **changes: Any) -> Repository:
    return Repository.model_validate(settings.model_dump() | changes)


def states(rows: list[Setting]) -> dict[str, str]:
    return {row.setting: row.state for row in rows}


def test_what_is_missing_is_created_as_wanted(amazon: Emulator, settings: Repository) -> None:
    assert states(ensure(settings, create=False)) == {"all": "missing"}
    assert ("ecr", "CreateRepository") not in amazon.calls
    assert states(ensure(settings)) == {"all": "created"}
    amazon.calls.clear()
    assert states(ensure(settings)) == {"all": "as wanted"}
    assert {operation for _, operation in amazon.calls} == {
        *("DescribeRepositories", "ListTagsForResource", "GetLifecyclePolicy", "GetRepositoryPolicy")
    }
    (made,) = aws.client("ecr", HERE).describe_repositories()["repositories"]
    assert made["imageTagMutability"] == "IMMUTABLE_WITH_EXCLUSION"
    assert [row["filter"] for row in made["imageTagMutabilityExclusionFilters"]] == settings.moving
    assert made["imageScanningConfiguration"]["scanOnPush"] is True
    assert made["encryptionConfiguration"]["encryptionType"] == "AES256"
    (statement,) = json.loads(aws.client("ecr", HERE).get_repository_policy(repositoryName=NAME)["policyText"])[
        "Statement"
    ]
    assert statement["Action"] == ecr_settings.PULL
    held = aws.client("ecr", HERE).get_lifecycle_policy(repositoryName=NAME)["lifecyclePolicyText"]
    assert json.loads(held) == json.loads(ecr_settings.lifecycle(settings))


def test_each_region_has_its_own(amazon: Emulator, settings: Repository) -> None:
    ensure(settings, region=HERE)
    assert states(ensure(settings, create=False, region=THERE)) == {"all": "missing"}
    held = [ecr_repositories.describe(region, NAME) for region in REGIONS]
    assert [bool(repository) for repository in held] == [True, False]


def test_a_key_of_ones_own(amazon: Emulator, settings: Repository) -> None:
    key = f"arn:aws:kms:{HERE}:{ACCOUNT}:key/1234"
    own = changed(settings, encryption="KMS", kms_key=key)
    assert states(ensure(own)) == {"all": "created"}
    assert states(ensure(own)) == {"all": "as wanted"}
    assert states(ensure(changed(own, kms_key=key + "5"), change=True)) == {"KMS key": "cannot be changed"}
    assert states(ensure(settings, change=True)) == {"encryption": "cannot be changed"}


def test_what_somebody_else_made_is_reported_and_not_changed(amazon: Emulator, settings: Repository) -> None:
    ecr = aws.client("ecr", HERE)
    ecr.create_repository(repositoryName=NAME, tags=[{"Key": "owner", "Value": "them"}])
    theirs = {"Sid": "Theirs", "Effect": "Allow", "Principal": "*", "Action": "ecr:BatchGetImage"}
    policy = {"Version": "2012-10-17", "Statement": [theirs]}
    ecr.set_repository_policy(repositoryName=NAME, policyText=json.dumps(policy))
    amazon.calls.clear()
    names = ["moving tags", "scan on push", "tag project", "lifecycle", "readers"]
    assert states(ensure(settings)) == dict.fromkeys(names, "differs")
    assert not [name for _, name in amazon.calls if not name.startswith(("Describe", "Get", "List"))]
    rows = {row.setting: row for row in ensure(settings)}
    assert rows["moving tags"].held == "MUTABLE"
    assert rows["moving tags"].wanted == f"IMMUTABLE_WITH_EXCLUSION {', '.join(sorted(settings.moving))}"
    assert states(ensure(settings, change=True)) == dict.fromkeys(names, "changed")
    assert states(ensure(settings)) == {"all": "as wanted"}
    held = ecr_repositories.describe(HERE, NAME)
    assert held
    assert held.tags == {"owner": "them", **settings.tags}
    assert theirs in json.loads(held.policy)["Statement"]
    assert states(ensure(changed(settings, readers=[]), change=True)) == {"readers": "changed"}
    held = ecr_repositories.describe(HERE, NAME)
    assert held
    assert json.loads(held.policy)["Statement"] == [theirs]


def test_a_policy_that_nothing_is_left_in_is_taken_away(amazon: Emulator, settings: Repository) -> None:
    ensure(settings)
    assert states(ensure(changed(settings, readers=[]), change=True)) == {"readers": "changed"}
    held = ecr_repositories.describe(HERE, NAME)
    assert held
    assert held.policy == ""


def test_somebody_was_quicker(amazon: Emulator, settings: Repository) -> None:
    """Between the look and the creation: theirs is what counts."""
    amazon.refuse("DescribeRepositories", "RepositoryNotFoundException", "not there")
    aws.client("ecr", HERE).create_repository(repositoryName=NAME, imageTagMutability="IMMUTABLE")
    assert states(ensure(settings)) == {"all": "created"}
    assert states(ensure(settings)) == {"all": "as wanted"}


def test_replication_is_added_and_takes_nothing_away(amazon: Emulator, settings: Repository) -> None:
    to = changed(settings, replicate_to=list(REGIONS))
    assert states(ensure(to)) == {"all": "created", "replication": "differs"}  # the registry's, so not by a push
    assert states(ensure(to, change=True)) == {"all": "as wanted", "replication": "changed"}
    assert states(ensure(to, change=True)) == {"all": "as wanted", "replication": "as wanted"}
    (rule,) = aws.client("ecr", HERE).describe_registry()["replicationConfiguration"]["rules"]
    assert rule["destinations"] == [{"region": THERE, "registryId": ACCOUNT}]
    # moto takes one rule at most; a rule beside one of others is tested in tests/unit/registry/test_ecr_settings.py.
    theirs = {
        "destinations": [{"region": "ap-south-1", "registryId": ACCOUNT}],
        "repositoryFilters": [{"filter": "web/", "filterType": "PREFIX_MATCH"}],
    }
    said = {"registryId": ACCOUNT, "replicationConfiguration": {"rules": [theirs]}}
    amazon.say("DescribeRegistry", said)
    amazon.say("PutReplicationConfiguration", {"replicationConfiguration": {"rules": []}})
    assert states(ensure(to, change=True))["replication"] == "changed"


def test_killed_between_creation_and_settings(amazon: Emulator, settings: Repository) -> None:
    """What is not there yet is told, and completed where somebody says so."""
    amazon.refuse("PutLifecyclePolicy", "AccessDeniedException", "no", times=1)
    with pytest.raises(AwsError, match="may not ecr:PutLifecyclePolicy"):
        ensure(settings)
    assert states(ensure(settings)) == {"lifecycle": "differs", "readers": "differs"}
    assert states(ensure(settings, change=True)) == {"lifecycle": "changed", "readers": "changed"}
