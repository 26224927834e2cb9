"""Test the settings of ECR repositories without AWS: tags that move, expiry, readers, and differences."""

import json
from typing import Any

import pytest

from trainwright.core.errors import ConfigError
from trainwright.image import tags
from trainwright.image.tags import key_tag
from trainwright.matrix.matrix import Intent
from trainwright.registry import ecr_settings
from trainwright.registry import settings as registry_settings
from trainwright.registry.ecr_settings import PULL, Held
from trainwright.registry.settings import Repository

ARN = "arn:aws:ecr:us-east-1:111122223333:repository/trainwright/pytorch"
OTHERS = {"Sid": "Others", "Effect": "Allow", "Principal": "*", "Action": "ecr:*"}


@pytest.fixture
def settings(intent: Intent) -> Repository:
    return registry_settings.publication(intent.root).repository


def as_wanted(settings: Repository, **changes: Any) -> Held:
    held = Held(
        arn=ARN,
        mutability=ecr_settings.IMMUTABLE,
        moving=settings.moving,
        scan_on_push=settings.scan_on_push,
        encryption=settings.encryption,
        kms_key="",
        tags=settings.tags,
        lifecycle=ecr_settings.lifecycle(settings),
        policy=ecr_settings.with_readers("", settings.readers, ARN),
    )
    return held.model_copy(update=changes)


def changed(settings: Repository, **changes: Any) -> Repository:
    return Repository.model_validate(settings.model_dump() | changes)


def test_tags_of_keys_and_releases_never_move_and_aliases_do(intent: Intent, settings: Repository) -> None:
    """For every image there is; ECR decides by wildcards alone."""
    ecr_settings.refuse_filters(settings, [variant.id for variant in intent.variants])
    for variant in intent.variants:
        fixed = [
            key_tag(variant.id, "0123456789abcdef"),
            tags.release_tag(variant.id, "2026.11.0"),
            variant.id,
            "nightly",
        ]
        assert not any(tags.movable(tag, settings.moving) for tag in fixed)
        assert tags.movable(tags.alias(variant.id), settings.moving)
        assert not tags.is_immutable(tags.alias(variant.id))
    assert tags.movable(f"sha256-{'0' * 64}.sig", settings.moving)
    assert tags.movable("cache-x", settings.moving)


@pytest.mark.parametrize(
    "moving",
    [
        ["pytorch-*", "cache-*"],  # the tags of keys, too
        ["*-latest", "*-2026*", "cache-*"],
        ["cache-*"],  # no alias could move
    ],
)
def test_filters_that_would_let_a_fixed_tag_move(moving: list[str], settings: Repository) -> None:
    with pytest.raises(ConfigError, match="has wrong patterns for the tag pytorch-2"):
        ecr_settings.refuse_filters(changed(settings, moving=moving), ["pytorch-2.15-cpu-py311-ec2"])


def test_an_id_that_looks_like_a_cache(settings: Repository) -> None:
    with pytest.raises(ConfigError, match="has wrong patterns for the tag cache-1"):
        ecr_settings.refuse_filters(settings, ["cache-1.0-cpu-py311-ec2"])


@pytest.mark.parametrize(
    "changes",
    [
        {"moving": ["a", "b", "c", "d", "e", "cache-*"]},  # ECR takes five
        {"moving": ["*-*-*", "cache-*"]},  # and two wildcards in each
        {"moving": ["*-latest"]},  # without the caches
        {"caches": "*-cache", "moving": ["*-cache"]},
        {"kms_key": "alias/x"},
        {"readers": ["me"]},
        {"untagged_days": 0},
    ],
)
def test_settings_that_are_none(changes: dict[str, Any], settings: Repository) -> None:
    with pytest.raises(ValueError, match="validation error"):
        changed(settings, **changes)


def test_what_expires(settings: Repository) -> None:
    """Untagged images and caches: no rule asks for a tag that an image has, or for `any`."""
    rules = json.loads(ecr_settings.lifecycle(settings))["rules"]
    assert [rule["selection"].get("tagPatternList") for rule in rules] == [None, [settings.caches]]
    assert [rule["selection"]["tagStatus"] for rule in rules] == ["untagged", "tagged"]
    assert {rule["action"]["type"] for rule in rules} == {"expire"}
    assert 100 <= len(ecr_settings.lifecycle(settings)) <= 30720  # what ECR takes


def test_readers_may_pull_and_nothing_else_and_statements_of_others_stay() -> None:
    document = json.loads(
        ecr_settings.with_readers(
            json.dumps({"Version": "2008-10-17", "Statement": OTHERS}), ["444455556666", "111122223333"], ARN
        )
    )
    own = document["Statement"][1]
    assert document["Statement"][0] == OTHERS
    assert document["Version"] == "2008-10-17"
    assert own["Action"] == PULL
    assert own["Principal"] == {"AWS": ["arn:aws:iam::111122223333:root", "arn:aws:iam::444455556666:root"]}
    without = ecr_settings.with_readers(json.dumps(document), [], ARN)
    assert json.loads(without)["Statement"] == [OTHERS]
    assert ecr_settings.with_readers(json.dumps({"Statement": [own]}), [], ARN) == ""
    china = ecr_settings.with_readers("", ["111122223333"], ARN.replace("arn:aws:", "arn:aws-cn:"))
    assert "arn:aws-cn:iam::111122223333:root" in china


def test_nothing_differs(settings: Repository) -> None:
    read = changed(settings, readers=["444455556666"])
    assert ecr_settings.differences(settings, as_wanted(settings)) == []
    assert ecr_settings.differences(read, as_wanted(read)) == []
    document = json.loads(as_wanted(read).policy)
    document["Statement"][0]["Principal"]["AWS"] = "arn:aws:iam::444455556666:root"  # as Amazon writes a list of one
    assert ecr_settings.differences(read, as_wanted(read, policy=json.dumps(document))) == []


@pytest.mark.parametrize(
    ("held", "setting"),
    [
        ({"mutability": "MUTABLE", "moving": []}, "moving tags"),
        ({"moving": ["*"]}, "moving tags"),
        ({"scan_on_push": False}, "scan on push"),
        ({"encryption": "KMS"}, "encryption"),
        ({"tags": {}}, "tag project"),
        ({"lifecycle": ""}, "lifecycle"),
        ({"policy": ecr_settings.with_readers("", ["999988887777"], ARN)}, "readers"),
    ],
)
def test_what_differs_is_named(held: dict[str, Any], setting: str, settings: Repository) -> None:
    assert [row[0] for row in ecr_settings.differences(settings, as_wanted(settings, **held))] == [setting]


def test_readers_with_more_rights_than_ours_differ(settings: Repository) -> None:
    read = changed(settings, readers=["444455556666"])
    document = json.loads(as_wanted(read).policy)
    document["Statement"][0]["Action"] = "ecr:*"
    ((setting, held, _),) = ecr_settings.differences(read, as_wanted(read, policy=json.dumps(document)))
    assert (setting, held) == ("readers", "444455556666 with other rights")


def test_tags_of_others_do_not_differ(settings: Repository) -> None:
    assert ecr_settings.differences(settings, as_wanted(settings, tags={**settings.tags, "owner": "somebody"})) == []


def test_replication_grows_and_loses_nothing(settings: Repository) -> None:
    to = changed(settings, replicate_to=["us-east-1", "eu-west-1", "us-west-2"])
    theirs = {
        "destinations": [{"region": "ap-south-1", "registryId": "9"}, {"region": "us-west-2", "registryId": "1"}],
        "repositoryFilters": [{"filter": "train", "filterType": "PREFIX_MATCH"}],
    }
    other = {**theirs, "repositoryFilters": [{"filter": "web/", "filterType": "PREFIX_MATCH"}]}
    rules = ecr_settings.replicated([theirs, other], to, "trainwright/", "1", "us-east-1")
    assert rules[:2] == [theirs, other]
    assert rules[2]["destinations"] == [{"region": "eu-west-1", "registryId": "1"}]  # not here, not what is served
    assert rules[2]["repositoryFilters"] == [{"filter": "trainwright/", "filterType": "PREFIX_MATCH"}]
    assert ecr_settings.replicated(rules, to, "trainwright/", "1", "us-east-1") == rules
    everything = [{"destinations": [{"region": "eu-west-1", "registryId": "1"}]}]
    assert (
        ecr_settings.replicated(everything, changed(to, replicate_to=["eu-west-1"]), "trainwright/", "1", "us-east-1")
        == everything
    )
