"""Test pruning in Amazon ECR: it deletes images that nothing names, and keeps those that SageMaker uses."""

import json
import re
import shutil
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import layouts
import pytest
from aws.conftest import REGIONS
from aws.emulator import ACCOUNT, Emulator
from moto.sagemaker.models import sagemaker_backends
from tiny import ROOT

from trainwright.core.errors import AwsError, NotRunError
from trainwright.matrix.matrix import Intent, load_intent
from trainwright.publish import prune
from trainwright.publish.retention import Verdict
from trainwright.registry import auth, aws, client, ecr
from trainwright.registry.settings import Place

HERE, THERE = REGIONS
ID, NAME = "base-1.0-cpu-py313-sagemaker", "trainwright/base"
KEYS = {"old": "1" * 64, "used": "2" * 64, "model": "3" * 64, "young": "4" * 64}


@pytest.fixture
def intent() -> Intent:
    return load_intent(ROOT)


@pytest.fixture
def held(amazon: Emulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Push four images whose keys are not the present one, three of them old; return name to digest."""
    monkeypatch.setenv("TRAINWRIGHT_STORE", str(tmp_path / "store"))
    aws.client("ecr", HERE).create_repository(repositoryName=NAME, imageTagMutability="IMMUTABLE")
    repository, found = place().repository, {}
    auth.authenticate(ecr.host(HERE), ecr.credentials(HERE))
    for name, key in KEYS.items():
        labels = {"io.trainwright.id": ID, "io.trainwright.key": key}
        made = layouts.make(tmp_path / name, [b"common" * 100, name.encode()], {"Labels": labels})
        client.push(made.folder, repository, made.digest)
        client.tag(repository, made.digest, f"{ID}-{key[:12]}")
        found[name] = made.digest
    pushed = datetime.now(UTC) - timedelta(days=31)
    rows = [
        {
            "imageDigest": digest,
            "imageTags": [f"{ID}-{KEYS[name][:12]}"],
            "imagePushedAt": (pushed + timedelta(days=5) * (name == "young")).timestamp(),
        }
        for name, digest in found.items()
    ]
    amazon.say("DescribeImages", {"imageDetails": rows[:2], "nextToken": "more"})
    amazon.say("DescribeImages", {"imageDetails": rows[2:]})
    amazon.say("DescribeImages", {"imageDetails": rows})
    uses(found)
    return found


def uses(found: dict[str, str]) -> None:
    """Make SageMaker use two images: one in a training job that keeps running, one in a model."""
    sagemaker_backends[ACCOUNT].reset()
    runs(HERE, f"{place().repository}@{found['used']}")
    image = f"{place().repository}:{ID}-{KEYS['model'][:12]}"
    sagemaker: Any = aws.client("sagemaker", HERE)
    sagemaker.create_model(
        ModelName="model", PrimaryContainer={"Image": image}, ExecutionRoleArn="arn:aws:iam::1:role/x"
    )


def runs(region: str, image: str, name: str = "job") -> None:
    sagemaker: Any = aws.client("sagemaker", region)
    sagemaker.create_training_job(
        TrainingJobName=name,
        AlgorithmSpecification={"TrainingImage": image, "TrainingInputMode": "File"},
        RoleArn="arn:aws:iam::123456789012:role/x",
        OutputDataConfig={"S3OutputPath": "s3://some/where"},
        ResourceConfig={"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 1},
        StoppingCondition={"MaxRuntimeInSeconds": 60},
    )
    sagemaker_backends[ACCOUNT][region].training_jobs[name].training_job_status = "InProgress"


def place() -> Place:
    return Place(host=ecr.host(HERE), path=NAME, region=HERE)


def by_name(rows: list[Verdict], held: dict[str, str]) -> dict[str, tuple[str, str]]:
    names = {digest: name for name, digest in held.items()}
    return {names[row.digest]: (row.state, row.why) for row in rows}


def test_what_sagemaker_uses_and_what_is_young_stays(amazon: Emulator, held: dict[str, str], intent: Intent) -> None:
    dry = prune.prune(intent, [place(), place()], False, set(), print)
    found = by_name(dry.rows, held)
    assert {name: state for name, (state, _) in found.items()} == {
        **dict.fromkeys(("used", "model", "young"), "kept"),
        "old": "would delete",
    }
    assert "a running job or a model names" in found["used"][1]
    assert "a running job or a model names" in found["model"][1]
    assert "younger than" in found["young"][1]
    assert {name for _, name in amazon.calls} & {"BatchDeleteImage"} == set()
    assert dry.freed == next(row.size for row in dry.rows if row.digest == held["old"]) - 600


def test_deleted_in_one_call_and_read_back(amazon: Emulator, held: dict[str, str], intent: Intent) -> None:
    rows = amazon.said["DescribeImages"][2]
    amazon.said["DescribeImages"] = [rows, rows]
    done = prune.prune(intent, [place()], True, set(), print)
    assert {row.digest for row in done.rows if row.state == "deleted"} == {held["old"]}
    assert amazon.calls.count(("ecr", "BatchDeleteImage")) == 1
    tags = {name: f"{ID}-{key[:12]}" for name, key in KEYS.items()}
    there = client.resolve_all(place().repository, list(tags.values()))
    assert there == {tag: "" if name == "old" else held[name] for name, tag in tags.items()}
    assert "garbage" not in prune.sentences(done)[-1]


def test_what_was_released_meanwhile_stays(amazon: Emulator, held: dict[str, str], intent: Intent) -> None:
    """Between the two looks."""
    first = amazon.said["DescribeImages"][2]
    rows = json.loads(first.body)
    rows["imageDetails"][0]["imageTags"].append(f"{ID}-2026.11.0")
    client.tag(place().repository, held["old"], f"{ID}-2026.11.0")
    amazon.said["DescribeImages"] = [first, first._replace(body=json.dumps(rows).encode())]
    done = prune.prune(intent, [place()], True, set(), print)
    assert {row.state for row in done.rows} == {"kept"}
    assert client.resolve(place().repository, f"{ID}-2026.11.0") == held["old"]


def starts_between(act: Callable[[], None]) -> Callable[[str], None]:
    """Return a callback for messages that calls `act` when a listing begins, after SageMaker was first asked."""
    return lambda said: act() if said.endswith(": listing") else None


def test_a_job_that_starts_between_the_two_looks(amazon: Emulator, held: dict[str, str], intent: Intent) -> None:
    rows = amazon.said["DescribeImages"][2]
    amazon.said["DescribeImages"] = [rows, rows]

    def start() -> None:
        runs(HERE, f"{place().repository}@{held['old']}", "another")

    found = by_name(prune.prune(intent, [place()], True, set(), starts_between(start)).rows, held)
    assert found["old"][0] == "kept"
    assert "a running job or a model names" in found["old"][1]
    assert client.resolve(place().repository, f"{ID}-{KEYS['old'][:12]}") == held["old"]


def test_jobs_that_cannot_be_asked_again(amazon: Emulator, held: dict[str, str], intent: Intent) -> None:
    rows = amazon.said["DescribeImages"][2]
    amazon.said["DescribeImages"] = [rows, rows]

    def refuse() -> None:
        amazon.refuse("ListTrainingJobs", "AccessDeniedException", "no", times=3)

    with pytest.raises(NotRunError, match=f"nothing of .*{NAME} is deleted"):
        prune.prune(intent, [place()], True, set(), starts_between(refuse))
    assert ("ecr", "BatchDeleteImage") not in amazon.calls


def test_jobs_that_cannot_be_asked(amazon: Emulator, held: dict[str, str], intent: Intent) -> None:
    said = "User: me is not authorized to perform: sagemaker:ListTrainingJobs on resource: *"
    amazon.refuse("ListTrainingJobs", "AccessDeniedException", said, times=3)
    with pytest.raises(NotRunError, match="nothing is deleted") as error:
        prune.prune(intent, [place()], True, set(), print)
    assert "sagemaker:ListTrainingJobs" in error.value.why
    assert "--waive running-jobs" in error.value.fix
    dry = prune.prune(intent, [place()], False, set(), print)
    assert {row.state for row in dry.rows} == {"kept"}
    rows = json.loads(amazon.said["DescribeImages"][-1].body)
    amazon.say("DescribeImages", rows)
    waived = prune.prune(intent, [place()], False, {"running-jobs"}, print)
    assert {row.state for row in waived.rows} == {"would delete", "kept"}


@pytest.fixture
def declared(tmp_path: Path) -> Callable[[str], Intent]:
    """Return a function that copies this checkout and changes one line in [repository] of publish.toml."""

    def write(line: str) -> Intent:
        for folder in ("dockerfiles", "scripts"):
            shutil.copytree(ROOT / folder, tmp_path / "tree" / folder)
        path = tmp_path / "tree/dockerfiles/publish.toml"
        text, count = re.subn(rf"^{line.split()[0]} = .*", line, path.read_text(), flags=re.MULTILINE)
        assert count == 1
        path.write_text(text)
        return load_intent(tmp_path / "tree")

    return write


def test_a_job_in_another_region_that_is_published_to(amazon: Emulator, held: dict[str, str], intent: Intent) -> None:
    """By the digest: that is the same one everywhere."""
    del amazon.said["DescribeImages"][2:]  # there is no repository over there
    runs(THERE, f"{ACCOUNT}.dkr.ecr.{THERE}.amazonaws.com/{NAME}@{held['old']}")
    there = Place(host=ecr.host(THERE), path=NAME, region=THERE)
    found = by_name(prune.prune(intent, [place(), there], False, set(), print).rows, held)
    assert found["old"][0] == "kept"
    assert "a running job or a model names" in found["old"][1]


def test_a_job_in_a_region_that_amazon_copies_to(held: dict[str, str], declared: Callable[[str], Intent]) -> None:
    runs(THERE, f"{ACCOUNT}.dkr.ecr.{THERE}.amazonaws.com/{NAME}@{held['old']}")
    dry = prune.prune(declared(f'replicate_to = ["{THERE}"]'), [place()], False, set(), print)
    assert by_name(dry.rows, held)["old"][0] == "kept"


@pytest.mark.parametrize("account", ["444455556666", ACCOUNT])
def test_jobs_of_accounts_that_may_pull(
    amazon: Emulator, held: dict[str, str], declared: Callable[[str], Intent], account: str
) -> None:
    """Only theirs cannot be asked: what the own account uses is known, and said."""
    intent = declared(f'readers = ["{account}"]')
    again = json.loads(amazon.said["DescribeImages"][-1].body)
    dry = prune.prune(intent, [place()], False, set(), print)
    found = by_name(dry.rows, held)
    assert "a running job or a model names" in found["used"][1]
    if account == ACCOUNT:
        assert found["old"][0] == "would delete"
        return
    assert found["old"][0] == "kept"
    assert f"jobs of {account}, which may pull it, cannot be listed from here" in found["old"][1]
    assert [line for line in prune.sentences(dry) if account in line and "--waive other-accounts" in line]
    with pytest.raises(NotRunError, match="nothing is deleted") as error:
        prune.prune(intent, [place()], True, {"running-jobs"}, print)
    assert account in error.value.why
    assert "--waive other-accounts" in error.value.fix
    amazon.said["DescribeImages"] = []
    amazon.say("DescribeImages", again)
    waived = prune.prune(intent, [place()], False, {"other-accounts"}, print)
    assert by_name(waived.rows, held)["old"][0] == "would delete"


def test_a_registry_of_another_account(held: dict[str, str], intent: Intent) -> None:
    """Whose jobs run there, the caller cannot ask."""
    own = place().model_copy(update={"account": "444455556666"})
    with pytest.raises(NotRunError, match="nothing is deleted") as error:
        prune.prune(intent, [own], True, set(), print)
    assert "jobs of 444455556666" in error.value.why


def test_a_refusal_to_list(amazon: Emulator, held: dict[str, str], intent: Intent) -> None:
    amazon.said["DescribeImages"] = []
    amazon.refuse("DescribeImages", "AccessDeniedException", "not authorized to perform: ecr:DescribeImages")
    with pytest.raises(AwsError, match="may not ecr:DescribeImages"):
        prune.prune(intent, [place()], False, set(), print)


def test_no_repository(amazon: Emulator, intent: Intent) -> None:
    assert prune.prune(intent, [place()], True, set(), print).rows == []
