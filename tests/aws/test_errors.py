"""Test that every error of Amazon's that botocore raises, and every failure to ask Amazon, becomes an AwsError."""

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from aws.conftest import REGIONS
from aws.emulator import Emulator

from trainwright.core.errors import AwsError
from trainwright.registry import aws, ecr, ecr_repositories, settings

ROOT = Path(__file__).parents[2]
HERE = REGIONS[0]
NAME = "trainwright/pytorch"
Call = Callable[[], object]


def ensure() -> object:
    return ecr_repositories.ensure(HERE, [NAME], settings.publication(ROOT).repository, create=True, change=True)


def look() -> object:
    return ecr.lookup(HERE, NAME, ["a"])


CALLS: dict[str, Call] = {
    "BatchGetImage": look,
    "BatchDeleteImage": lambda: ecr.delete(HERE, NAME, ["sha256:" + "0" * 64]),
    "CreateRepository": ensure,
    "DescribeRepositories": ensure,
    "PutLifecyclePolicy": ensure,
    "GetAuthorizationToken": lambda: ecr.host(HERE),
    "GetCallerIdentity": lambda: ecr.account(HERE),
    "DescribeImageScanFindings": lambda: ecr.findings(HERE, NAME, "sha256:" + "0" * 64, 0),
    "ListTrainingJobs": lambda: ecr.images_in_use(HERE),
}


def raised(call: Call) -> AwsError:
    with pytest.raises(AwsError) as found:
        call()
    assert found.value.exit_code == 9
    assert found.value.what
    assert found.value.where
    assert found.value.fix
    return found.value


@pytest.mark.parametrize("operation", CALLS)
def test_a_missing_permission_is_named_whatever_was_called(operation: str, amazon: Emulator) -> None:
    if operation == "BatchDeleteImage":
        ensure()
    service = {"GetCallerIdentity": "sts", "ListTrainingJobs": "sagemaker"}.get(operation, "ecr")
    arn, who = f"arn:aws:{service}:{HERE}:111122223333:repository/{NAME}", "arn:aws:sts::111122223333:assumed-role/b/me"
    said = f"User: {who} is not authorized to perform: {service}:{operation} on resource: {arn} because no policy"
    if service == "sts":
        told = f"<Error><Type>Sender</Type><Code>AccessDenied</Code><Message>{said}</Message></Error>"
        amazon.say_text(operation, f"<ErrorResponse>{told}</ErrorResponse>", 403)
    else:
        amazon.refuse(operation, "AccessDeniedException", said)
    error = raised(CALLS[operation])
    assert error.what == f"{who} may not {service}:{operation}"
    assert arn in error.where
    assert f"allow {service}:{operation} on {arn}" in error.fix


@pytest.mark.parametrize(
    ("operation", "code", "said"),
    [
        ("BatchGetImage", "ExpiredTokenException", "have expired"),
        ("BatchGetImage", "ExpiredToken", "have expired"),
        ("BatchGetImage", "UnrecognizedClientException", "does not know these credentials"),
        ("BatchGetImage", "InvalidSignatureException", "secret key or the clock is wrong"),
        ("BatchGetImage", "RepositoryNotFoundExceptionOfAnotherName", "refused BatchGetImage"),
        ("CreateRepository", "LimitExceededException", "a quota of the account is used up"),
        ("CreateRepository", "TooManyTagsException", "too many tags"),
        ("CreateRepository", "InvalidParameterException", "rejected a value of publish.toml"),
        ("CreateRepository", "KmsException", "KMS key cannot be used"),
        ("PutLifecyclePolicy", "ValidationException", "rejected the request"),
        ("DescribeImageScanFindings", "ImageNotFoundException", "the image does not exist"),
        ("DescribeImageScanFindings", "RepositoryNotFoundException", "the repository does not exist"),
    ],
)
def test_what_amazon_says_is_told(operation: str, code: str, said: str, amazon: Emulator) -> None:
    amazon.refuse(operation, code, "because I say so", times=3)  # botocore takes a quota for throttling, at first
    error = raised(CALLS[operation])
    assert said in error.what
    assert "because I say so" in error.why
    assert f":{operation}" in error.where
    assert HERE in error.where


def test_tags_and_images_that_are_there_already(amazon: Emulator) -> None:
    """Nothing of ours calls PutImage; whoever does is told in the same way."""
    from trainwright.registry.aws import told
    from trainwright.registry.aws_errors import Call as Asked

    for code in ("ImageTagAlreadyExistsException", "ImageAlreadyExistsException", "RepositoryPolicyNotFoundException"):
        amazon.refuse("PutImage", code, "there")

        def put() -> None:
            with told(Asked("ecr", region=HERE, resource=NAME)):
                aws.client("ecr", HERE).put_image(repositoryName=NAME, imageManifest="{}")

        assert raised(put).where == f"ecr:PutImage {NAME} {HERE}"


def test_throttled_once_is_tried_again(amazon: Emulator) -> None:
    amazon.refuse("BatchGetImage", "ThrottlingException", "slow down", times=1)
    assert look() == {"a": ""}
    assert amazon.calls.count(("ecr", "BatchGetImage")) == 2


@pytest.mark.parametrize(
    ("code", "status", "said"),
    [
        ("ThrottlingException", 400, "throttles the account after 3 attempts"),
        ("ServerException", 500, "Amazon still fails after 3 attempts"),
    ],
)
def test_throttled_or_broken_for_good(code: str, status: int, said: str, amazon: Emulator) -> None:
    amazon.refuse("BatchGetImage", code, "x", status, times=9)
    assert said in raised(look).what
    assert amazon.calls.count(("ecr", "BatchGetImage")) == 3


def test_no_credentials_and_half_of_them(amazon: Emulator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    assert "incomplete" in raised(look).what
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    aws.forget()
    assert raised(look).what == "no AWS credentials were found"
    assert amazon.calls == []


def test_a_profile_that_is_none(amazon: Emulator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "nobody")
    assert raised(look).what == "the AWS profile does not exist"


def test_no_region(amazon: Emulator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_REGION")
    error = raised(aws.regions)
    assert error.what == "no AWS region is set"
    assert "--region" in error.fix
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    assert aws.regions() == ["eu-west-1"]
    monkeypatch.setenv("TRAINWRIGHT_REGIONS", "us-west-2,us-east-2")
    assert aws.regions() == ["us-west-2", "us-east-2"]


def test_a_region_that_is_none(amazon: Emulator) -> None:
    assert raised(lambda: ecr.host("not a region")).what == "this is not an AWS region"


def test_nobody_answers(amazon: Emulator, monkeypatch: pytest.MonkeyPatch) -> None:
    """A region that does not exist has no address either."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"https://127.0.0.1:{probe.getsockname()[1]}")
        monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
        error = raised(look)
    assert "no network, or no such region" in error.what


def test_a_certificate_that_nobody_vouches_for(amazon: Emulator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRAINWRIGHT_CA")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    error = raised(look)
    assert error.what == "Amazon's certificate is not trusted here"
    assert "TRAINWRIGHT_CA" in error.fix


def test_an_answer_that_is_none(amazon: Emulator) -> None:
    """Something else listens there."""
    amazon.say("BatchGetImage", {"hello": "world"}, status=404)
    assert raised(look).what == "Amazon refused BatchGetImage"
    amazon.say_text("GetCallerIdentity", "<html>Please log in<br></html>", 200)
    assert raised(lambda: ecr.account(HERE)).what == "the answer did not come from Amazon"


def test_no_secret_is_told(amazon: Emulator) -> None:
    amazon.refuse("BatchGetImage", "InvalidSignatureException", "x")
    error = raised(look)
    assert os.environ["AWS_SECRET_ACCESS_KEY"] not in str(error.as_dict())
