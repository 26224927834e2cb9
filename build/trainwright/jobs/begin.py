"""Begin a prepared training job: upload its inputs to S3, and remove them again if no job was created."""

import re
import secrets
from collections.abc import Sequence

from trainwright.core.errors import AwsError, ConfigError
from trainwright.core.progress import Say
from trainwright.jobs import contract, submit
from trainwright.jobs.launch import Job
from trainwright.registry import aws

ARN = re.compile(r"arn:[a-z-]+:secretsmanager:([a-z0-9-]+):")


def begin(job: Job, say: Say) -> str:
    """Upload the inputs, begin the job and return its ARN. On failure or Ctrl-C, remove or report the uploads.

    Raises AwsError; ConfigError for an invalid secret and for a job name that is taken.
    """
    submission, asked, tried, asking = job.submission, job.request, list[str](), False
    _free(job)
    secret = _secret(job) if submission.secret else b""
    try:
        tried.append(submission.source_uri)
        submit.put(job.region, submission.source_uri, job.source, kms_key=submission.kms_key)
        if secret:
            tried.append(submission.secret_uri)
            encryption = submission.settings.secret.encryption
            submit.put(job.region, submission.secret_uri, secret, encryption, submission.kms_key)
        asking = True
        return submit.create(job.region, asked)
    except BaseException as problem:
        if not asking and _refused(problem):
            tried.pop()  # S3 stored nothing, and credentials without write permission may lack delete permission, too
        unsure = asking and not _refused(problem)
        begun, arn = _begun(job) if unsure else (False, "")
        if begun and isinstance(problem, AwsError):
            return arn  # the job exists; only the response was lost
        if begun is False:
            forget(job.region, tried, say)
        else:
            say(f"{'the job was started' if begun else 'it is unknown whether the job was started'}: {submission.name}")
            say(f"check it: trainwright attach {submission.name} --region {job.region}")
            for uri in () if begun else tried:
                say(f"if it was not started, remove: aws s3 rm {uri}")
        raise


def _free(job: Job) -> None:
    """Raise ConfigError, before any upload, if the name is taken. A denied lookup is ignored: later calls report it."""
    name = job.submission.name
    try:
        taken = aws.training_job(job.region, name)
    except AwsError as error:
        if error.denied:
            return
        raise
    if taken:
        raise ConfigError(
            f"training job {name} exists already",
            where="--name",
            why=f"{taken.get('TrainingJobStatus', '')}: the name of a training job cannot be reused",
            fix=f"--name <another one>, or leave it out; see it: trainwright attach {name} --region {job.region}",
        )


def _begun(job: Job) -> tuple[bool | None, str]:
    """Return what submit.begun() returns; on failure or Ctrl-C (None, ""), so that leftovers are still reported."""
    policy = job.submission.settings.begin
    try:
        return submit.begun(job.region, job.request, policy.looks, policy.look_seconds)
    except BaseException:
        return None, ""


def _refused(problem: BaseException) -> bool:
    """Return whether AWS refused the request, so that no job exists. A name in use may be this job's own."""
    return isinstance(problem, AwsError) and not problem.passes and problem.code != "ResourceInUse"


def forget(region: str, uris: Sequence[str], say: Say) -> None:
    """Remove objects from S3; report the command for each one that cannot be removed. Raises no AwsError."""
    left = list(uris)
    try:
        while left:
            try:
                submit.remove(region, left[0])
            except AwsError as error:
                say(f"it was not removed ({error.what}): aws s3 rm {left[0]} --region {region}")
            left.pop(0)
    except KeyboardInterrupt:
        for uri in left:
            say(f"it was not removed: aws s3 rm {uri} --region {region}")
        raise


def _secret(job: Job) -> bytes:
    """Return the secret that only this job's hosts share. Raises AwsError; ConfigError if the launcher refuses it."""
    policy = job.submission.settings.secret
    if not job.secret_name:
        return secrets.token_hex(policy.bytes).encode()
    named = ARN.match(job.secret_name)
    value = submit.secret_value(named[1] if named else job.region, job.secret_name).strip()
    if len(value) < policy.least or not value.isascii():
        raise ConfigError(
            f"the value of {job.secret_name} in Secrets Manager is not valid as a job secret",
            where="--secret",
            why=f"expected ASCII text of at least {policy.least} characters; it has {len(value)}",
            fix=f"aws secretsmanager put-secret-value --secret-id {job.secret_name} "
            f'--secret-string "$(openssl rand -hex {policy.bytes})"',
        )
    return value.encode()


def left_secret(region: str, name: str) -> str:
    """Return the URI of the secret that `launch` uploaded for a job that has ended, or "". Raises AwsError."""
    said = aws.training_job(region, name) or {}
    if said.get("TrainingJobStatus") not in ("Completed", "Failed", "Stopped"):
        return ""
    output = str(said.get("OutputDataConfig", {}).get("S3OutputPath", "")).rstrip("/")
    place = str(said.get("Environment", {}).get(contract.SECRET_FILE, ""))
    own = re.compile(re.escape(f"{output}/{name}/") + r"([0-9a-f]+/)?secret/")  # before tokens
    rows = said.get("InputDataConfig", [])
    uris = [str(row.get("DataSource", {}).get("S3DataSource", {}).get("S3Uri", "")) for row in rows]
    laid = next(filter(own.fullmatch, uris), "")
    return laid + place.rpartition("/")[2] if laid and place else ""


def clear(region: str, name: str, secret: str, say: Say) -> None:
    """Remove the secret of a job that has ended; if `secret` is "", look its URI up in the job. Raises no AwsError."""
    try:
        uri = secret or left_secret(region, name)
    except AwsError as error:
        say(f"cannot check whether a secret of {name} is left in S3: {error.what}")
        return
    if uri:
        forget(region, [uri], say)
