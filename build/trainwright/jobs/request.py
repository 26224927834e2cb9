"""Write a SageMaker training job as a request, from `dockerfiles/launch.toml` and the user's options. Nothing is sent.

Sources: botocore 1.44.5, CreateTrainingJob; sagemaker-training 5.1.4, which reads the hyperparameters.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import Field

from trainwright.core.errors import ConfigError
from trainwright.core.toml import Model, load
from trainwright.gate.launchers import S3
from trainwright.jobs import contract

FILE = "dockerfiles/launch.toml"
NAME = re.compile(r"[a-zA-Z0-9](-*[a-zA-Z0-9])*")
VARIABLE = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
SECRET = "TRAINWRIGHT_JOB_SECRET"
INPUT = "/opt/ml/input/data"
PLAIN = "plain"  # the name in docs/training.md for the `none` of `run`
OURS = {
    "sagemaker_program",
    "sagemaker_submit_directory",
    "sagemaker_job_name",
    "sagemaker_region",
}  # hyperparameters that describe the job itself
KEY = re.compile(r"[a-zA-Z0-9:/_-]*")  # of KMS
TAG = re.compile(r"[\w .:/=+@-]*")
UNSAFE = re.compile(r"[^A-Za-z0-9._+/-]")  # refused in a script's name by sagemaker-training 5.1.2 and later


class Defaults(Model):
    volume_gb: int
    max_run: int
    wait_factor: int
    log_level: int


class Begin(Model):
    token_bytes: int
    looks: int
    look_seconds: float


class Most(Model):
    name: int
    max_run: int
    keep_alive: int
    hyperparameters: int
    hyperparameter_name: int
    hyperparameter: int
    environment: int
    environment_name: int
    environment_value: int
    channels: int
    tags: int
    tag_name: int
    tag_value: int
    uri: int
    source_bytes: int


class Secrecy(Model):
    channel: str
    file: str
    bytes: int
    least: int
    encryption: str


class Source(Model):
    archive: str
    skip: list[str]
    credentials: list[str]


class Compiler(Model):
    families: list[str]


class Settings(Model):
    """The whole of launch.toml."""

    evidence: str
    defaults: Defaults
    begin: Begin
    most: Most
    secret: Secrecy
    source: Source
    training_compiler: Compiler


def load_settings(root: Path) -> Settings:
    return load(root / FILE, Settings)


class Submission(Model):
    """One training job. Times are seconds; `output` is s3://bucket[/prefix] without a slash at its end."""

    name: str
    token: str  # unique to this launch, because another user's job may have the same name
    image: str
    instance: str
    hosts: int
    role: str
    output: str
    program: str  # the script's path below the source
    hyperparameters: dict[str, Any]  # all except those that locate the source
    channels: dict[str, str] = Field(default={})
    environment: dict[str, str] = Field(default={})
    tags: dict[str, str] = Field(default={})
    spot: bool = False
    max_run: int
    max_wait: int | None = None
    keep_alive: int | None = None
    checkpoints: str = ""
    subnets: list[str] = Field(default=[])
    security_groups: list[str] = Field(default=[])
    encrypt_traffic: bool = False
    volume_gb: int
    kms_key: str = ""
    region: str = ""  # known after the image is resolved
    secret: bool = False  # whether its hosts share a secret, in a separate channel
    settings: Settings

    @property
    def prefix(self) -> str:
        """Return the prefix of all uploads of this launch; SageMaker writes output/ beside it."""
        return f"{self.output}/{self.name}/{self.token}"

    @property
    def source_uri(self) -> str:
        return f"{self.prefix}/source/{self.settings.source.archive}"

    @property
    def secret_uri(self) -> str:
        """Return the URI of the secret's object; its folder is the channel."""
        return f"{self.prefix}/secret/{self.settings.secret.file}"


def request(job: Submission) -> dict[str, Any]:
    """Return the arguments of CreateTrainingJob. They hold the location of the secret, not the secret."""
    channels = dict(job.channels)
    if job.secret:
        channels[job.settings.secret.channel] = job.secret_uri.rpartition("/")[0] + "/"
    stopping = {"MaxRuntimeInSeconds": job.max_run}
    resources = {"InstanceType": job.instance, "InstanceCount": job.hosts, "VolumeSizeInGB": job.volume_gb}
    asked: dict[str, Any] = {
        "TrainingJobName": job.name,
        "RoleArn": job.role,
        "AlgorithmSpecification": {"TrainingImage": job.image, "TrainingInputMode": "File"},
        "HyperParameters": encoded(hyperparameters(job)),
        "OutputDataConfig": {"S3OutputPath": job.output, **({"KmsKeyId": job.kms_key} if job.kms_key else {})},
        "ResourceConfig": resources | ({"KeepAlivePeriodInSeconds": job.keep_alive} if job.keep_alive else {}),
        "StoppingCondition": stopping | ({"MaxWaitTimeInSeconds": job.max_wait} if job.max_wait else {}),
    }
    if channels:
        asked["InputDataConfig"] = [channel(name, uri) for name, uri in channels.items()]
    if found := environment(job):
        asked["Environment"] = found
    if job.checkpoints:
        asked["CheckpointConfig"] = {"S3Uri": job.checkpoints}
    if job.spot:
        asked["EnableManagedSpotTraining"] = True
    if job.encrypt_traffic:
        asked["EnableInterContainerTrafficEncryption"] = True
    if job.subnets:
        asked["VpcConfig"] = {"SecurityGroupIds": job.security_groups, "Subnets": job.subnets}
    if job.tags:
        asked["Tags"] = [{"Key": key, "Value": value} for key, value in job.tags.items()]
    return asked


def hyperparameters(job: Submission) -> dict[str, Any]:
    return {
        "sagemaker_program": job.program,
        "sagemaker_submit_directory": job.source_uri,
        "sagemaker_container_log_level": job.settings.defaults.log_level,
        "sagemaker_job_name": job.name,
        "sagemaker_region": job.region,
        **job.hyperparameters,
    }


def environment(job: Submission) -> dict[str, str]:
    """Return the containers' environment, which holds the path of the secret's file, but not the secret."""
    place = f"{INPUT}/{job.settings.secret.channel}/{job.settings.secret.file}"
    return {**job.environment, **({contract.SECRET_FILE: place} if job.secret else {})}


def encoded(values: Mapping[str, Any]) -> dict[str, str]:
    """Encode each value as JSON in a string, as the SDKs send it and the toolkit reads it."""
    return {name: json.dumps(value) for name, value in values.items()}


def channel(name: str, uri: str) -> dict[str, Any]:
    source = {"S3DataType": "S3Prefix", "S3Uri": uri, "S3DataDistributionType": "FullyReplicated"}
    return {"ChannelName": name, "InputMode": "File", "DataSource": {"S3DataSource": source}}


def distribution(asked: str, processes: int | None) -> dict[str, Any]:
    """Return the hyperparameters of the ranks' launcher; without `processes`, the image chooses by its host."""
    if asked in ("", PLAIN):
        return {}
    return {**contract.DISTRIBUTIONS[asked], **({contract.PROCESSES: processes} if processes else {})}


def bucket_and_key(uri: str) -> tuple[str, str]:
    bucket, _, key = uri.removeprefix("s3://").partition("/")
    return bucket, key


# --- what is refused -------------------------------------------------------------------------------------------------


def check(job: Submission) -> None:
    """Validate the job before anything is uploaded. Raises ConfigError for values that SageMaker does not accept."""
    most, secret = job.settings.most, job.settings.secret
    if len(job.name) > most.name or not NAME.fullmatch(job.name):
        raise ConfigError(
            f"{job.name!r} is not a training job name",
            where="--name",
            why=f"only letters, digits and single hyphens between them are allowed, at most {most.name} characters",
            fix="--name <another one>, or leave it out: the script's name is used",
        )
    if UNSAFE.search(job.program) or ".." in job.program.split("/"):
        raise ConfigError(
            f"the image cannot start a script named {job.program!r}",
            why="only letters, digits and . _ + / - are allowed",
            fix="rename it",
        )
    places = {"--checkpoints": job.checkpoints, **{f"--channel {name}=": one for name, one in job.channels.items()}}
    for option, uri in places.items():
        if uri and (not S3.fullmatch(uri) or len(uri) > most.uri):
            fix = f"{option}{'' if option.endswith('=') else ' '}s3://<bucket>/<prefix>"
            raise ConfigError(f"{uri!r} is not an S3 URI", where=option.partition(" ")[0], fix=fix)
    for name in job.channels:
        if not contract.CHANNEL.fullmatch(name):
            raise ConfigError(
                f"{name!r} is not a channel name", where="--channel", why="only letters, digits, . _ and - are allowed"
            )
        if job.secret and name == secret.channel:
            raise ConfigError(
                f"the channel {name} is reserved for the job's secret",
                where="--channel",
                why=f"its {job.hosts} hosts authenticate each other with it",
                fix="give the channel another name",
            )
    if taken := sorted(OURS & job.hyperparameters.keys()):
        raise ConfigError(
            f"{taken[0]} is reserved for the location of this job's script",
            where="--hyperparameter",
            why="the hosts would run another script than the uploaded one",
            fix="use SCRIPT, --source and --name instead",
        )
    _check_environment(job)
    _check_times(job)
    _check_words(job)
    asked = request(job)
    for what, option, found, allowed in (
        ("hyperparameters", "--hyperparameter", asked["HyperParameters"], most.hyperparameters),
        ("channels", "--channel", asked.get("InputDataConfig", []), most.channels),
        ("variables", "--env", asked.get("Environment", {}), most.environment),
        ("tags", "--tag", job.tags, most.tags),
    ):
        if len(found) > allowed:
            raise ConfigError(f"SageMaker accepts at most {allowed} {what}, not {len(found)}", where=option)
    _check_lengths("hyperparameter", asked["HyperParameters"], most.hyperparameter_name, most.hyperparameter)
    _check_lengths("variable", asked.get("Environment", {}), most.environment_name, most.environment_value)
    _check_lengths("tag", job.tags, most.tag_name, most.tag_value)


def _check_environment(job: Submission) -> None:
    for name in job.environment:
        if not VARIABLE.fullmatch(name):
            raise ConfigError(
                f"{name!r} is not a variable name",
                where="--env",
                why="only letters, digits and _ are allowed, and no digit at the start",
            )
        if name in (SECRET, contract.SECRET_FILE):
            raise ConfigError(
                f"{name} must not be in the environment of a training job",
                where="--env",
                why="DescribeTrainingJob and the console show it to everybody with access to jobs"
                if name == SECRET
                else "it is set to the path of this job's secret",
                fix="leave it out: a job of several hosts gets a new secret; --secret secretsmanager:NAME uses yours",
            )


def _check_times(job: Submission) -> None:
    most = job.settings.most
    if not 0 < job.max_run <= most.max_run:
        raise ConfigError(f"a job may run for 1 to {most.max_run} s, not {job.max_run}", where="--max-run")
    if job.keep_alive is not None and not 0 < job.keep_alive <= most.keep_alive:
        raise ConfigError(
            f"a warm pool is kept for 1 to {most.keep_alive} s, not {job.keep_alive}", where="--keep-alive"
        )
    if job.keep_alive and job.spot:
        raise ConfigError(
            "a spot job cannot keep a warm pool", where="--keep-alive", fix="leave out --spot or --keep-alive"
        )
    if job.max_wait and not job.spot:
        raise ConfigError("--max-wait requires --spot", where="--max-wait", fix="add --spot, or leave --max-wait out")
    if job.max_wait is not None and job.max_wait < job.max_run:
        raise ConfigError(
            f"--max-wait {job.max_wait} is less than --max-run {job.max_run}",
            where="--max-wait",
            fix=f"--max-wait {job.max_run}, or more",
        )
    if job.spot and not job.checkpoints:
        raise ConfigError(
            "--spot requires --checkpoints: otherwise each interruption starts the job from the beginning",
            where="--spot",
            fix="--checkpoints s3://<bucket>/<prefix>; docs/examples/checkpoint.py shows what the script must do",
        )


def _check_words(job: Submission) -> None:
    """Check against the API's patterns: KmsKeyId, TagKey and TagValue, HyperParameterKey. Raises ConfigError."""
    if not KEY.fullmatch(job.kms_key):
        raise ConfigError(
            f"{job.kms_key!r} is not a KMS key", where="--kms-key", fix="--kms-key <id, ARN, or alias/NAME>"
        )
    for name, value in job.tags.items():
        if not (TAG.fullmatch(name) and TAG.fullmatch(value)):
            raise ConfigError(
                f"{name}={value} is not a valid tag",
                where="--tag",
                why="only letters, digits, spaces and _ . : / = + - @ are allowed",
            )
        if name.lower().startswith("aws:"):
            raise ConfigError(f"the tag {name} is reserved", where="--tag", why="the prefix aws: belongs to AWS")
    for name in job.hyperparameters:
        if "\n" in name or "\r" in name:
            raise ConfigError(f"{name!r} is not a name", where="--hyperparameter", why="it contains a line break")


def _check_lengths(what: str, values: Mapping[str, str], name_most: int, value_most: int) -> None:
    for name, value in values.items():
        if len(name) > name_most or len(value) > value_most:
            of, length, most = (
                ("name", len(name), name_most) if len(name) > name_most else ("value", len(value), value_most)
            )
            raise ConfigError(
                f"the {of} of the {what} {name[:40]} is too long",
                why=f"it has {length} characters, SageMaker accepts {most}",
                fix="put it into a file beside the script, or in a channel",
            )
