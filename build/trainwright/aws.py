"""Clients of Amazon's services; whatever fails in one is an AwsError."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from threading import Lock
from typing import TYPE_CHECKING, Any, Literal, overload

from trainwright import certificates
from trainwright.denials import Call, explain, no_job
from trainwright.errors import AwsError

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
    """A client that tries again as botocore's standard mode does: AWS_MAX_ATTEMPTS times. Raises AwsError."""
    with _making:  # several regions are asked at once, and neither a session nor its clients are made side by side
        return _client(service, region)


_making = Lock()


@cache
def _session() -> Any:
    """One for all regions: what it reads of an API's description serves the next client, too."""
    import boto3  # lazily: half a second

    return boto3.Session()


@cache
def _client(service: str, region: str) -> Any:
    from botocore.config import Config

    with told(Call(service, region=region)):
        # AWS_CA_BUNDLE is botocore's own; a company's CA is named once for all programs.
        verify = certificates.bundle() if os.environ.get(certificates.SETTING) else None
        config = Config(retries={"mode": "standard"})
        return _session().client(service, region_name=region, config=config, verify=verify)


def of(account: str) -> Any:
    """Whose registry a call to ECR is about; "" is the caller's own."""
    return {"registryId": account} if account else {}


def forget() -> None:
    """Clients are made anew: the environment says something else."""
    _client.cache_clear()
    _session.cache_clear()


def regions(given: str = "") -> list[str]:
    """Where to publish: `given` (comma-separated), else the one that AWS is configured for. Raises AwsError."""
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
        error = explain(
            Call("ecr"), "NoRegionError", "neither --region nor TRAINWRIGHT_REGIONS nor AWS_REGION says one"
        )
        error.where = "--region"  # of whatever command asks
        raise error
    return list(dict.fromkeys(found))


def training_job(region: str, name: str) -> dict[str, Any] | None:
    """What SageMaker says of a job; None where it knows none of that name. Raises AwsError."""
    try:
        with told(Call("sagemaker", "DescribeTrainingJob", region, name)):
            return dict(client("sagemaker", region).describe_training_job(TrainingJobName=name))
    except AwsError as error:
        if no_job(error):
            return None
        raise


@contextmanager
def told(call: Call) -> Iterator[None]:
    """What botocore raises, as an AwsError."""
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
