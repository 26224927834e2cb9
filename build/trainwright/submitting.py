"""What `trainwright launch` asks of Amazon: objects in S3, a secret, and the one call that begins a training job.

Everything here raises AwsError.
"""

import base64
import hashlib
import time
from functools import cache
from typing import Any

from trainwright import aws, submissions
from trainwright.aws import client, told
from trainwright.denials import Call
from trainwright.errors import AwsError


def instance_types() -> list[str]:
    """The names that SageMaker's API takes for training jobs, out of botocore's own model: no network."""
    return [*_types("sagemaker", "TrainingInstanceType")]


def known_types() -> list[str]:
    """The names of all instance types that EC2's API knew when this botocore was made: no network."""
    return [*_types("ec2", "InstanceType")]


@cache
def _types(service: str, name: str) -> tuple[str, ...]:
    """The model of an API is megabytes of JSON."""
    import botocore.session

    shape: Any = botocore.session.get_session().get_service_model(service).shape_for(name)
    return tuple(shape.enum)


def put(region: str, uri: str, content: bytes, encryption: str = "", kms_key: str = "") -> None:
    """One object, whole or not at all, under the checksum that S3 verifies. `encryption`: aws:kms; "": the bucket's."""
    bucket, key = submissions.bucket_and_key(uri)
    checksum = base64.b64encode(hashlib.sha256(content).digest()).decode()
    asked = {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": kms_key} if kms_key else {}
    if encryption and not kms_key:
        asked = {"ServerSideEncryption": encryption}
    with told(Call("s3", "PutObject", region, uri)):
        client("s3", region).put_object(Bucket=bucket, Key=key, Body=content, ChecksumSHA256=checksum, **asked)


def remove(region: str, uri: str) -> None:
    """No error where it is not there."""
    bucket, key = submissions.bucket_and_key(uri)
    with told(Call("s3", "DeleteObject", region, uri)):
        client("s3", region).delete_object(Bucket=bucket, Key=key)


def secret_value(region: str, name: str) -> str:
    """What Secrets Manager holds under a name or an ARN; "" for one that is no text."""
    with told(Call("secretsmanager", "GetSecretValue", region, name)):
        return str(client("secretsmanager", region).get_secret_value(SecretId=name).get("SecretString", ""))


def create(region: str, asked: dict[str, Any]) -> str:
    """The ARN of the job that was begun."""
    with told(Call("sagemaker", "CreateTrainingJob", region, asked["TrainingJobName"])):
        return str(client("sagemaker", region).create_training_job(**asked)["TrainingJobArn"])


def begun(region: str, asked: dict[str, Any], looks: int, seconds: float) -> tuple[bool | None, str]:
    """Whether this very job was begun although the call that should begin it failed, and its ARN.

    The answer may have been lost, and the next attempt of botocore then hears that the name is taken. A job that is
    not there yet is looked for `looks` times, so many `seconds` apart. None: nobody can say.
    """
    for look in range(looks):
        time.sleep(seconds if look else 0)
        try:
            found = aws.training_job(region, asked["TrainingJobName"])
        except AwsError:
            return None, ""
        if found is not None:
            # Where the script lies is of one launch alone: whoever else took the name has another place.
            where = "sagemaker_submit_directory"
            same = found.get("HyperParameters", {}).get(where) == asked["HyperParameters"][where]
            return same, str(found.get("TrainingJobArn", ""))
    return False, ""
