"""Test ECR's tokens, batches of tags, scans and deletion against moto and a real registry, over TLS."""

import hashlib
import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import httpx
import pytest
from aws.conftest import REGIONS
from aws.emulator import ACCOUNT, Emulator

from trainwright.core.errors import AwsError
from trainwright.registry import aws, ecr

HERE, THERE = REGIONS
NAME = "trainwright/pytorch"
MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
Push = Callable[..., str]


@pytest.fixture
def push(amazon: Emulator) -> Push:
    """Return a function that pushes a small image to a repository with immutable tags and returns its digest."""

    def pushed(content: str, *tags: str, region: str = HERE) -> str:
        with suppress(aws.client("ecr", region).exceptions.RepositoryAlreadyExistsException):
            aws.client("ecr", region).create_repository(repositoryName=NAME, imageTagMutability="IMMUTABLE")
        config = json.dumps({"architecture": "amd64", "comment": content}).encode()
        digest = f"sha256:{hashlib.sha256(config).hexdigest()}"
        with registry(region) as client:
            begun = client.post(f"/v2/{NAME}/blobs/uploads/").raise_for_status()
            client.put(begun.headers["Location"] + f"&digest={digest}", content=config).raise_for_status()
            kind = "application/vnd.docker.container.image.v1+json"
            manifest = {
                "schemaVersion": 2,
                "mediaType": MANIFEST,
                "config": {"mediaType": kind, "digest": digest, "size": len(config)},
                "layers": [],
            }
            body = json.dumps(manifest).encode()
            own = f"sha256:{hashlib.sha256(body).hexdigest()}"
            for name in (own, *tags):
                answer = client.put(f"/v2/{NAME}/manifests/{name}", content=body, headers={"Content-Type": MANIFEST})
                answer.raise_for_status()
        return own

    return pushed


def registry(region: str) -> httpx.Client:
    user, password = ecr.credentials(region)()
    return httpx.Client(base_url=f"https://{ecr.host(region)}", auth=(user, password), headers={"Accept": MANIFEST})


def test_who_and_where(amazon: Emulator) -> None:
    assert ecr.account(HERE) == ACCOUNT
    assert [ecr.host(region) for region in REGIONS] == [amazon.address(region) for region in REGIONS]
    assert aws.regions() == [HERE]
    assert aws.regions(f"{THERE}, {HERE},{THERE}") == [THERE, HERE]


def test_a_token_is_asked_for_once_and_again_when_it_was_refused(amazon: Emulator) -> None:
    ask = ecr.credentials(HERE)
    ecr.host(HERE)
    first = ask()
    assert amazon.calls == [("ecr", "GetAuthorizationToken")]  # the one that said the host serves as credentials, too
    assert httpx.get(f"https://{ecr.host(HERE)}/v2/", auth=first).status_code == 200
    amazon.expire_tokens()
    assert httpx.get(f"https://{ecr.host(HERE)}/v2/", auth=first).status_code == 403
    assert httpx.get(f"https://{ecr.host(HERE)}/v2/", auth=ask()).status_code == 200
    assert len(amazon.calls) == 2


def test_a_token_that_has_expired_already_is_no_endless_loop(amazon: Emulator) -> None:
    """moto's is of 2015, and a clock may be wrong: one call for each time that somebody asks."""
    amazon.token_seconds = -3600
    ask = ecr.credentials(HERE)
    ask(), ask()
    assert len(amazon.calls) == 2


def test_no_token_no_entry(amazon: Emulator, push: Push) -> None:
    push("one")
    answer = httpx.get(f"https://{ecr.host(HERE)}/v2/{NAME}/tags/list")
    assert answer.status_code == 401
    assert answer.headers["WWW-Authenticate"].startswith("Basic ")


def test_twenty_tags_are_one_call(amazon: Emulator, push: Push) -> None:
    tags = {f"x-{number:012x}": push(str(number), f"x-{number:012x}") for number in range(3)}
    same = push("0", "x-latest")
    amazon.calls.clear()
    wanted = [f"x-{number:012x}" for number in range(19)] + ["x-latest"]
    found = ecr.lookup(HERE, NAME, wanted)
    assert amazon.calls == [("ecr", "BatchGetImage")]
    assert found == dict.fromkeys(wanted, "") | tags | {"x-latest": same}
    assert list(found) == wanted


def test_more_tags_than_one_call_takes(amazon: Emulator, push: Push) -> None:
    digest = push("one", "x-250")
    amazon.calls.clear()
    found = ecr.lookup(HERE, NAME, [f"x-{number}" for number in range(251)])
    assert len(amazon.calls) == 3
    assert {tag for tag, held in found.items() if held} == {"x-250"}
    assert found["x-250"] == digest


def test_a_repository_that_is_not_there_holds_no_tag(amazon: Emulator) -> None:
    assert ecr.lookup(HERE, NAME, ["a", "b"]) == {"a": "", "b": ""}


def test_an_answer_that_names_another_tag_of_the_image(amazon: Emulator, push: Push) -> None:
    """moto does so: what was not answered is asked again, alone."""
    digest = push("one", "a", "b")
    image = {"repositoryName": NAME, "registryId": ACCOUNT, "imageId": {"imageDigest": digest, "imageTag": "b"}}
    amazon.say("BatchGetImage", {"images": [image, image], "failures": []})
    assert ecr.lookup(HERE, NAME, ["a", "b"]) == {"a": digest, "b": digest}
    amazon.say("BatchGetImage", {"images": [image], "failures": []})
    assert ecr.lookup(HERE, NAME, ["a"]) == {"a": digest}


def test_what_nobody_answers_is_no_empty_tag(amazon: Emulator, push: Push) -> None:
    push("one", "a")
    amazon.say("BatchGetImage", {"images": [], "failures": []})
    with pytest.raises(AwsError, match="does not mention"):
        ecr.lookup(HERE, NAME, ["a"])
    failure = {"imageId": {"imageTag": "a"}, "failureCode": "KmsError", "failureReason": "the key is gone"}
    amazon.say("BatchGetImage", {"images": [], "failures": [failure]})
    with pytest.raises(AwsError, match="cannot be looked up") as raised:
        ecr.lookup(HERE, NAME, ["a"])
    assert raised.value.why == "the key is gone"


def test_regions_hold_their_own_images(amazon: Emulator, push: Push) -> None:
    digest = push("one", "a", region=THERE)
    push("two")
    assert ecr.lookup(THERE, NAME, ["a"]) == {"a": digest}
    assert ecr.lookup(HERE, NAME, ["a"]) == {"a": ""}


def test_what_is_deleted_is_gone_from_the_registry_too(amazon: Emulator, push: Push) -> None:
    one, two = push("one", "a", "b"), push("two", "c")
    assert ecr.delete(HERE, NAME, [one, one, "sha256:" + "0" * 64]) == [one, "sha256:" + "0" * 64]
    assert ecr.lookup(HERE, NAME, ["a", "b", "c"]) == {"a": "", "b": "", "c": two}
    with registry(HERE) as client:
        held = [client.get(f"/v2/{NAME}/manifests/{name}").status_code for name in (one, "a", two, "c")]
    assert held == [404, 404, 200, 200]


def test_what_cannot_be_deleted_is_said(amazon: Emulator, push: Push) -> None:
    one = push("one", "a")
    failure = {
        "imageId": {"imageDigest": one},
        "failureCode": "ImageReferencedByManifestList",
        "failureReason": "it is part of a list",
    }
    amazon.say("BatchDeleteImage", {"imageIds": [], "failures": [failure]})
    with pytest.raises(AwsError, match="not deleted: 1 image of trainwright/pytorch") as raised:
        ecr.delete(HERE, NAME, [one])
    assert "it is part of a list" in raised.value.why


# --- scans -----------------------------------------------------------------------------------------------------------


def scan(status: str, **found: Any) -> dict[str, Any]:
    return {"imageScanStatus": {"status": status, "description": f"{status.lower()}!"}, "imageScanFindings": found}


def finding(name: str) -> dict[str, Any]:
    facts = [{"key": "package_name", "value": "openssl"}, {"key": "package_version", "value": "3.0"}]
    return {"name": name, "severity": "HIGH", "attributes": facts}


def test_a_scan_that_was_never_begun_is_none_and_not_clean(amazon: Emulator, push: Push) -> None:
    found = ecr.findings(HERE, NAME, push("one"), 0)
    assert (found.state, found.findings) == ("none", [])
    assert "no scan was started" in found.why


def test_findings_of_a_scan_that_was_waited_for(amazon: Emulator, push: Push, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ecr, "POLL_SECONDS", 0.01)
    digest = push("one")
    amazon.say("DescribeImageScanFindings", scan("IN_PROGRESS"), times=2)
    amazon.say("DescribeImageScanFindings", {**scan("COMPLETE", findings=[finding("CVE-1")]), "nextToken": "more"})
    amazon.say("DescribeImageScanFindings", scan("COMPLETE", findings=[finding("CVE-2")]))
    found = ecr.findings(HERE, NAME, digest, 30)
    assert found.state == "complete"
    assert [str(row) for row in found.findings] == [f"CVE-{n} (HIGH) in openssl 3.0" for n in (1, 2)]


def test_findings_of_inspector(amazon: Emulator, push: Push) -> None:
    packages = [{"name": "openssl", "version": "3.0"}, {"name": "libssl", "version": "3.0"}]
    details = {"vulnerabilityId": "CVE-1", "vulnerablePackages": packages}
    row = {"severity": "CRITICAL", "packageVulnerabilityDetails": details}
    amazon.say("DescribeImageScanFindings", scan("ACTIVE", enhancedFindings=[row]))
    found = ecr.findings(HERE, NAME, push("one"), 1)
    assert [(row.id, row.severity, row.package) for row in found.findings] == [
        ("CVE-1", "CRITICAL", "openssl"),
        ("CVE-1", "CRITICAL", "libssl"),
    ]


@pytest.mark.parametrize(
    ("status", "state"),
    [
        ("IN_PROGRESS", "pending"),
        ("PENDING", "pending"),
        ("FAILED", "failed"),
        ("UNSUPPORTED_IMAGE", "unsupported"),
        ("SCAN_ELIGIBILITY_EXPIRED", "none"),
        ("FINDINGS_UNAVAILABLE", "none"),
        ("SOMETHING_NEW", "none"),
    ],
)
def test_what_is_no_finished_scan_says_nothing_of_the_image(
    status: str, state: str, amazon: Emulator, push: Push
) -> None:
    """Whatever stands beside it."""
    amazon.say("DescribeImageScanFindings", scan(status, findings=[finding("CVE-1")]))
    found = ecr.findings(HERE, NAME, push("one"), 0)
    assert (found.state, found.findings) == (state, [])
    assert found.why.startswith(f"{status.lower()}!")


def test_the_wait_for_a_scan_has_an_end(amazon: Emulator, push: Push, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ecr, "POLL_SECONDS", 0.01)
    amazon.say("DescribeImageScanFindings", scan("IN_PROGRESS"), times=50)
    found = ecr.findings(HERE, NAME, push("one"), 0.2)
    assert (found.state, found.why) == ("pending", "in_progress!, after 0.2 s")
    assert 1 < len([call for call in amazon.calls if call[1] == "DescribeImageScanFindings"]) < 20


# --- SageMaker -------------------------------------------------------------------------------------------------------


def test_images_that_jobs_and_models_use(amazon: Emulator) -> None:
    sagemaker = aws.client("sagemaker", HERE)
    host = f"{ACCOUNT}.dkr.ecr.{HERE}.amazonaws.com"

    def job(name: str, image: str) -> None:
        sagemaker.create_training_job(
            TrainingJobName=name,
            AlgorithmSpecification={"TrainingImage": image, "TrainingInputMode": "File"},
            RoleArn=f"arn:aws:iam::{ACCOUNT}:role/a",
            OutputDataConfig={"S3OutputPath": "s3://bucket/x"},
            ResourceConfig={"InstanceType": "ml.p5.48xlarge", "InstanceCount": 1, "VolumeSizeInGB": 1},
            StoppingCondition={"MaxRuntimeInSeconds": 60},
        )

    from moto.sagemaker.models import sagemaker_backends

    job("running", f"{host}/a@sha256:1")
    job("ended", f"{host}/b@sha256:2")
    jobs = sagemaker_backends[ACCOUNT][HERE].training_jobs
    jobs["running"].training_job_status, jobs["ended"].training_job_status = "InProgress", "Completed"
    role = f"arn:aws:iam::{ACCOUNT}:role/a"
    for number in range(4):
        sagemaker.create_model(
            ModelName=f"m{number}", PrimaryContainer={"Image": f"{host}/m:{number}"}, ExecutionRoleArn=role
        )
    gone = 'Could not find model "arn:aws:sagemaker:m0".'
    amazon.refuse("DescribeModel", "ValidationException", gone)
    first = {"ModelName": "m0", "ModelArn": "arn:aws:sagemaker:m0", "CreationTime": 0}
    amazon.say("ListModels", {"Models": [first], "NextToken": "more"})  # moto has one page of all
    used = ecr.images_in_use(HERE)
    assert len([call for call in amazon.calls if call[1] == "ListModels"]) == 2
    assert f"{host}/a@sha256:1" in used
    assert f"{host}/b@sha256:2" not in used
    assert {f"{host}/m:{number}" for number in range(4)} < used  # m0 was gone, and is there on the second page
    sagemaker_backends[ACCOUNT].reset()
