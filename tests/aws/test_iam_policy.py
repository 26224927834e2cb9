"""Test docs/iam-policy.json against the calls that were made: it allows all of them, and no others.

The calls are those that moto recorded. Moto enforces no policy: only a real account can show that IAM allows them.
"""

import json
import re
from pathlib import Path

import layouts
from aws.conftest import REGIONS
from aws.emulator import Emulator

from trainwright.registry import auth, ecr, ecr_repositories, ecr_settings
from trainwright.registry import client as registries
from trainwright.registry import settings as registry_settings
from trainwright.registry.settings import Repository

ROOT = Path(__file__).parents[2]
HERE, THERE = REGIONS
NAME = "trainwright/pytorch"
# What a request of the registry protocol needs: Amazon's "IAM permissions for pushing an image", and its managed
# policy for reading; tags/list is ListImages.
IMPLIED = {
    ("HEAD", "blobs"): {"BatchCheckLayerAvailability", "GetDownloadUrlForLayer"},
    ("GET", "blobs"): {"GetDownloadUrlForLayer"},
    ("POST", "blobs"): {"InitiateLayerUpload"},
    ("PATCH", "blobs"): {"UploadLayerPart"},
    ("PUT", "blobs"): {"CompleteLayerUpload", "UploadLayerPart"},
    ("HEAD", "manifests"): {"BatchGetImage"},
    ("GET", "manifests"): {"BatchGetImage"},
    ("PUT", "manifests"): {"PutImage"},
    ("GET", "tags"): {"ListImages"},
}
FREE = {"sts:GetCallerIdentity"}  # needs no permission
UNSEEN = {"iam:CreateServiceLinkedRole"}  # Amazon asks for it when replication is configured for the first time


def test_what_is_allowed_is_what_is_used(amazon: Emulator, tmp_path: Path) -> None:
    """Everything that publishes, changes, reads and prunes, once."""
    settings = registry_settings.publication(ROOT).repository
    for changes in (
        {"readers": ["444455556666"]},
        {"readers": [], "scan_on_push": False, "moving": [*settings.moving, "x"], "tags": {"project": "y"}},
        {"replicate_to": [THERE]},
    ):
        changed = Repository.model_validate(settings.model_dump() | changes)
        ecr_repositories.ensure(HERE, [NAME], changed, create=True, change=True)
    ecr.account(HERE)
    auth.authenticate(ecr.host(HERE), ecr.credentials(HERE))
    made, place = layouts.make(tmp_path / "layout", [b"layer"], {}), f"{ecr.host(HERE)}/{NAME}"
    registries.push(made.folder, place, made.digest)
    registries.verify(place, made.digest, made.manifest)
    registries.tag(place, made.digest, "a")
    registries.tags(place)
    ecr.lookup(HERE, NAME, ["a"])
    ecr.findings(HERE, NAME, made.digest, 0)
    amazon.say("ListTrainingJobs", {"TrainingJobSummaries": [job("a")]})
    amazon.say("DescribeTrainingJob", {"AlgorithmSpecification": {"TrainingInputMode": "File"}})
    amazon.say("ListModels", {"Models": [{"ModelName": "m", "ModelArn": "arn:aws:sagemaker:m", "CreationTime": 0}]})
    amazon.say("DescribeModel", {"ModelName": "m"})
    ecr.images_in_use(HERE)
    ecr.listing(HERE, NAME)
    ecr.delete(HERE, NAME, [made.digest])

    used = {f"{service}:{operation}" for service, operation in amazon.calls} - FREE
    for method, path in amazon.requests:
        if kind := re.search(r"/(manifests|blobs|tags)/", path):
            used |= {f"ecr:{action}" for action in IMPLIED[method, kind[1]]}
    statements = json.loads((ROOT / "docs/iam-policy.json").read_text())["Statement"]
    allowed = [action for statement in statements for action in statement["Action"]]
    assert len(allowed) == len(set(allowed))
    assert set(allowed) - UNSEEN == used


def job(name: str) -> dict[str, object]:
    arn = f"arn:aws:sagemaker:{HERE}:111122223333:training-job/{name}"
    return {"TrainingJobName": name, "TrainingJobArn": arn, "CreationTime": 0, "TrainingJobStatus": "InProgress"}


def test_all_that_can_be_is_bound_to_our_repositories() -> None:
    for statement in json.loads((ROOT / "docs/iam-policy.json").read_text())["Statement"]:
        services = {action.split(":")[0] for action in statement["Action"]}
        registry_wide = {"ecr:GetAuthorizationToken", "ecr:DescribeRegistry", "ecr:PutReplicationConfiguration"}
        if services == {"ecr"} and not set(statement["Action"]) <= registry_wide:
            assert statement["Resource"] == "arn:aws:ecr:*:111122223333:repository/trainwright/*"
        assert not [action for action in statement["Action"] if "*" in action]


def test_the_policy_for_other_accounts_is_the_one_that_is_set() -> None:
    ours = ecr_settings.with_readers("", ["444455556666"], f"arn:aws:ecr:{HERE}:111122223333:repository/{NAME}")
    assert json.loads((ROOT / "docs/iam-pull-policy.json").read_text()) == json.loads(ours)
