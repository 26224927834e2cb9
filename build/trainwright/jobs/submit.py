"""Make the AWS calls of `trainwright launch`: objects in S3, a secret, and the call that creates a training job.

Every function that calls AWS raises AwsError, except `begun`.
"""

import base64
import hashlib
import time
from functools import cache
from typing import Any

from trainwright.core.errors import AwsError
from trainwright.jobs import request
from trainwright.registry import aws
from trainwright.registry.aws import client, told
from trainwright.registry.aws_errors import Call


def instance_types() -> list[str]:
    """Return the names that SageMaker's API accepts for training jobs, from botocore's model; use no network."""
    return [*_types("sagemaker", "TrainingInstanceType")]


def known_types() -> list[str]:
    """Return the names of all instance types in EC2's API as of this botocore; use no network."""
    return [*_types("ec2", "InstanceType")]


@cache
def _types(service: str, name: str) -> tuple[str, ...]:
    """Return the values of an enum in an API's model, cached because the model is megabytes of JSON."""
    import botocore.session

    shape: Any = botocore.session.get_session().get_service_model(service).shape_for(name)
    return tuple(shape.enum)


def put(region: str, uri: str, content: bytes, encryption: str = "", kms_key: str = "") -> None:
    """Put one object, whole or not at all, with a checksum for S3. `encryption`: aws:kms; "": the bucket's own."""
    bucket, key = request.bucket_and_key(uri)
    checksum = base64.b64encode(hashlib.sha256(content).digest()).decode()
    asked = {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": kms_key} if kms_key else {}
    if encryption and not kms_key:
        asked = {"ServerSideEncryption": encryption}
    with told(Call("s3", "PutObject", region, uri)):
        client("s3", region).put_object(Bucket=bucket, Key=key, Body=content, ChecksumSHA256=checksum, **asked)


def remove(region: str, uri: str) -> None:
    """Delete an object; a missing object is not an error."""
    bucket, key = request.bucket_and_key(uri)
    with told(Call("s3", "DeleteObject", region, uri)):
        client("s3", region).delete_object(Bucket=bucket, Key=key)


def secret_value(region: str, name: str) -> str:
    """Return the text that Secrets Manager holds under a name or an ARN, or "" if it is not text."""
    with told(Call("secretsmanager", "GetSecretValue", region, name)):
        return str(client("secretsmanager", region).get_secret_value(SecretId=name).get("SecretString", ""))


def create(region: str, asked: dict[str, Any]) -> str:
    """Create a training job and return its ARN."""
    with told(Call("sagemaker", "CreateTrainingJob", region, asked["TrainingJobName"])):
        return str(client("sagemaker", region).create_training_job(**asked)["TrainingJobArn"])


def begun(region: str, asked: dict[str, Any], looks: int, seconds: float) -> tuple[bool | None, str]:
    """Return whether this very job was created although the call that creates it failed, and its ARN; None: unknown.

    The answer may have been lost, and botocore's next attempt then gets the error that the name is taken. A job that is
    not there yet is looked up `looks` times, `seconds` apart.
    """
    for look in range(looks):
        time.sleep(seconds if look else 0)
        try:
            found = aws.training_job(region, asked["TrainingJobName"])
        except AwsError:
            return None, ""
        if found is not None:
            # The script's location is unique to one launch, so another job of this name has another location.
            where = "sagemaker_submit_directory"
            same = found.get("HyperParameters", {}).get(where) == asked["HyperParameters"][where]
            return same, str(found.get("TrainingJobArn", ""))
    return False, ""
