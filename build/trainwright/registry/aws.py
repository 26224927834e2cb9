"""Create clients of AWS services; every failure of a call becomes an AwsError."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from threading import Lock
from typing import TYPE_CHECKING, Any, Literal, overload

from trainwright.core import certificates
from trainwright.core.errors import AwsError
from trainwright.registry.aws_errors import Call, explain, no_job

if TYPE_CHECKING:
    from mypy_boto3_ecr import ECRClient
    from mypy_boto3_sagemaker import SageMakerClient
    from mypy_boto3_sts import STSClient


@overload
def client(service: Literal["ecr"], region: str) -> "ECRClient": ...
@overload
def client(service: Literal["sagemaker"], region: str) -> "SageMakerClient": ...
@overload
def client(service: Literal["sts"], region: str) -> "STSClient": ...
@overload
def client(service: Literal["s3", "secretsmanager", "logs"], region: str) -> Any: ...  # their stubs are not locked


def client(service: str, region: str) -> Any:
    """Return a client that retries as botocore's standard mode does, AWS_MAX_ATTEMPTS times. Raises AwsError."""
    with _making:  # regions are queried concurrently; creating sessions and clients is not thread-safe
        return _client(service, region)


_making = Lock()


@cache
def _session() -> Any:
    """Return one session for all regions, so that clients share the API descriptions it has loaded."""
    import boto3  # imported lazily: it takes half a second

    return boto3.Session()


@cache
def _client(service: str, region: str) -> Any:
    from botocore.config import Config

    with told(Call(service, region=region)):
        # botocore reads AWS_CA_BUNDLE itself; TRAINWRIGHT_CA names a corporate CA once for all programs.
        verify = certificates.bundle() if os.environ.get(certificates.SETTING) else None
        config = Config(retries={"mode": "standard"})
        return _session().client(service, region_name=region, config=config, verify=verify)


def of(account: str) -> Any:
    """Return the `registryId` argument of an ECR call for this account; "" is the caller's own account."""
    return {"registryId": account} if account else {}


def forget() -> None:
    """Clear the cached clients and session after the environment has changed."""
    _client.cache_clear()
    _session.cache_clear()


def regions(given: str = "") -> list[str]:
    """Return the regions to publish to: `given` (comma-separated), else the configured ones. Raises AwsError."""
    found = [
        word
        for word in re.split(
            r"[,\s]+", given or os.environ.get("TRAINWRIGHT_REGIONS") or os.environ.get("AWS_REGION", "")
        )
        if word
    ]
    if not found:
        import botocore.session

        with told(Call("ecr")):
            found = [str(botocore.session.get_session().get_config_variable("region") or "")]
    if not found[0]:
        error = explain(Call("ecr"), "NoRegionError", "neither --region nor TRAINWRIGHT_REGIONS nor AWS_REGION is set")
        error.where = "--region"  # the option of the command that asked
        raise error
    return list(dict.fromkeys(found))


def training_job(region: str, name: str) -> dict[str, Any] | None:
    """Return SageMaker's description of a job, or None if no job has that name. Raises AwsError."""
    try:
        with told(Call("sagemaker", "DescribeTrainingJob", region, name)):
            return dict(client("sagemaker", region).describe_training_job(TrainingJobName=name))
    except AwsError as error:
        if no_job(error):
            return None
        raise


@contextmanager
def told(call: Call) -> Iterator[None]:
    """Convert botocore's exceptions to AwsError."""
    from botocore.exceptions import BotoCoreError, ClientError
    from botocore.parsers import ResponseParserError

    try:
        yield
    except ClientError as error:
        said, meta = error.response.get("Error", {}), error.response.get("ResponseMetadata", {})
        call = call if call.operation else call._replace(operation=error.operation_name)
        code, status = str(said.get("Code", "")), int(meta.get("HTTPStatusCode", 0))
        attempts = int(meta.get("RetryAttempts", 0)) + 1
        raise explain(call, code, str(said.get("Message", "")), status, attempts) from None
    except (BotoCoreError, ResponseParserError) as error:
        raise explain(call, type(error).__name__, str(error)) from None
