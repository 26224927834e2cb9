"""Test `trainwright launch` against moto over real HTTP: objects in S3, the request, and what a failure leaves."""

import io
import json
import re
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import boto3
import layouts
import pytest
from aws.conftest import REGIONS
from aws.emulator import Emulator
from aws.jobs import checkout

from trainwright.core.errors import AwsError, ConfigError
from trainwright.image import inputs, tags
from trainwright.jobs import begin, launch, submit
from trainwright.matrix import matrix
from trainwright.matrix.matrix import Recipe
from trainwright.registry import auth, aws, ecr, ecr_repositories
from trainwright.registry import client as registries
from trainwright.registry import settings as registry_settings

ROOT = Path(__file__).parents[2]
HERE = REGIONS[0]
ROLE = "arn:aws:iam::123456789012:role/train"
IMAGE = f"123456789012.dkr.ecr.{HERE}.amazonaws.com/trainwright/pytorch:pytorch-2.15-cu132-py313-sagemaker-0123456789ab"
TOKEN = "0123456789abcdef"
SOURCE, SECRET = f"jobs/one/{TOKEN}/source/sourcedir.tar.gz", f"jobs/one/{TOKEN}/secret/secret"
SLOW = "<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"
DENIED = "<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"
ATTEMPTS = 3  # botocore's standard mode


@pytest.fixture
def s3(amazon: Emulator, trust: Path) -> Any:
    client: Any = boto3.client("s3", region_name=HERE, verify=str(trust / "ca.pem"))
    client.create_bucket(Bucket="bucket")
    amazon.calls.clear()
    return client


@pytest.fixture
def job(s3: Any, tmp_path: Path) -> Callable[..., launch.Job]:
    script = tmp_path / "job/train.py"
    script.parent.mkdir()
    script.write_text("print(1)")

    def prepare(**changes: Any) -> launch.Job:
        given = {"instance": "p5.48xlarge", "hosts": 2, "role": ROLE, "output": "s3://bucket/jobs", "name": "one"}
        return tokened(launch.prepare(ROOT, IMAGE, script, ["--epochs", "3"], **{**given, **changes}))

    return prepare


def tokened(prepared: launch.Job, token: str = TOKEN) -> launch.Job:
    """Return the job with a known token, and without a pause between two looks."""
    settings = prepared.submission.settings
    quick = settings.model_copy(update={"begin": settings.begin.model_copy(update={"look_seconds": 0.01})})
    submission = prepared.submission.model_copy(update={"token": token, "settings": quick})
    return prepared.model_copy(update={"submission": submission})


def missing(amazon: Emulator, times: int = 1) -> None:
    amazon.refuse("DescribeTrainingJob", "ValidationException", "Requested resource not found.", times=times)


def keys(s3: Any) -> list[str]:
    """List the keys in S3, each with the known token instead of the launch's own."""
    found = [row["Key"] for row in s3.list_objects_v2(Bucket="bucket").get("Contents", [])]
    return [re.sub("/[0-9a-f]{16}/", f"/{TOKEN}/", key) for key in found]


def read(s3: Any, key: str) -> bytes:
    content: bytes = s3.get_object(Bucket="bucket", Key=key)["Body"].read()
    return content


def silent(line: str) -> None:
    raise AssertionError(line)


def operations(amazon: Emulator) -> list[str]:
    return [operation for _, operation in amazon.calls]


# --- a job -----------------------------------------------------------------------------------------------------------


def test_a_job_is_begun(job: Callable[..., launch.Job], s3: Any, amazon: Emulator) -> None:
    prepared = job(channel=["training=s3://data/set"], tag=["team=vision"])
    assert operations(amazon) == []  # all that can be checked is checked before
    arn = begin.begin(prepared, silent)
    assert arn == f"arn:aws:sagemaker:{HERE}:123456789012:training-job/one"
    assert operations(amazon) == ["DescribeTrainingJob", "PutObject", "PutObject", "CreateTrainingJob"]
    kept = aws.training_job(HERE, "one")
    assert kept is not None
    for name in ("HyperParameters", "ResourceConfig", "OutputDataConfig", "StoppingCondition"):  # moto drops the rest
        assert kept[name].items() >= prepared.request[name].items()
    assert kept["AlgorithmSpecification"]["TrainingImage"] == IMAGE
    assert [row["ChannelName"] for row in kept["InputDataConfig"]] == ["training", "secret"]
    assert keys(s3) == [SECRET, SOURCE]
    with tarfile.open(fileobj=io.BytesIO(read(s3, SOURCE)), mode="r:gz") as archive:
        assert archive.getnames() == ["train.py"]
    secret = read(s3, SECRET).decode()
    assert re.fullmatch("[0-9a-f]{64}", secret)
    assert s3.head_object(Bucket="bucket", Key=SECRET)["ServerSideEncryption"] == "aws:kms"
    assert secret not in json.dumps(kept, default=str)
    assert f'"s3://bucket/{SOURCE}"' == kept["HyperParameters"]["sagemaker_submit_directory"]


def test_each_job_has_a_secret_of_its_own(job: Callable[..., launch.Job], s3: Any) -> None:
    begin.begin(job(), silent)
    begin.begin(job(name="two"), silent)
    assert read(s3, SECRET) != read(s3, SECRET.replace("one", "two"))


def test_one_host_leaves_no_secret(job: Callable[..., launch.Job], s3: Any) -> None:
    begin.begin(job(hosts=1), silent)
    assert keys(s3) == [SOURCE]


def test_a_key_of_ones_own(job: Callable[..., launch.Job], s3: Any) -> None:
    begin.begin(job(kms_key="alias/train"), silent)
    for key in (SOURCE, SECRET):
        said = s3.head_object(Bucket="bucket", Key=key)
        assert (said["ServerSideEncryption"], said["SSEKMSKeyId"]) == ("aws:kms", "alias/train")


def test_a_secret_of_secrets_manager_is_handed_over_the_same_way(
    job: Callable[..., launch.Job], s3: Any, trust: Path
) -> None:
    manager: Any = boto3.client("secretsmanager", region_name=HERE, verify=str(trust / "ca.pem"))
    manager.create_secret(Name="team/train", SecretString="f" * 64 + "\n")
    manager.create_secret(Name="short", SecretString="abc")
    begin.begin(job(secret="secretsmanager:team/train"), silent)
    assert read(s3, SECRET) == b"f" * 64
    with pytest.raises(ConfigError, match="is not valid as a job secret") as raised:
        begin.begin(job(name="two", secret="secretsmanager:short"), silent)
    assert "abc" not in raised.value.why
    with pytest.raises(AwsError, match="the secret does not exist"):
        begin.begin(job(name="two", secret="secretsmanager:none"), silent)
    assert keys(s3) == [SECRET, SOURCE]


def test_a_dry_run_sends_nothing(job: Callable[..., launch.Job], amazon: Emulator, tmp_path: Path) -> None:
    words = ["--role", ROLE, "--output", "s3://bucket/jobs", "--instance", "p5.48xlarge", "--nodes", "2", "--dry-run"]
    ended = cli("launch", IMAGE, str(tmp_path / "job/train.py"), *words)
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout)["ResourceConfig"]["InstanceCount"] == 2
    assert operations(amazon) == []


def cli(*words: str, root: Path = ROOT) -> "subprocess.CompletedProcess[str]":
    """Run the command line in a separate process."""
    command = [sys.executable, "-m", "trainwright.cli", *words]
    return subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=120)


def test_without_waiting_it_says_how_to_follow(job: Callable[..., launch.Job], s3: Any, tmp_path: Path) -> None:
    words = ["--role", ROLE, "--output", "s3://bucket/jobs", "--instance", "p5.48xlarge", "--nodes", "2", "--no-wait"]
    ended = cli("launch", IMAGE, str(tmp_path / "job/train.py"), *words, "--name", "one", "--json")
    assert ended.returncode == 0, ended.stderr
    said = json.loads(ended.stdout)
    assert said["follow"] == f"trainwright attach one --region {HERE}"
    assert re.fullmatch(SECRET.replace(TOKEN, "[0-9a-f]{16}"), said["secret"].removeprefix("s3://bucket/"))
    assert keys(s3) == [SECRET, SOURCE]


@pytest.mark.parametrize(("status", "code"), [("Completed", 0), ("Failed", 9), ("Stopped", 9)])
def test_a_job_that_ends_takes_its_secret_with_it(
    job: Callable[..., launch.Job], s3: Any, amazon: Emulator, tmp_path: Path, status: str, code: int
) -> None:
    missing(amazon)
    ends(amazon, status)
    words = ["--role", ROLE, "--output", "s3://bucket/jobs", "--instance", "p5.48xlarge", "--nodes", "2"]
    ended = cli("launch", IMAGE, str(tmp_path / "job/train.py"), *words, "--name", "one", root=checkout(tmp_path))
    assert ended.returncode == code, ended.stderr
    assert keys(s3) == [SOURCE]


def test_who_attaches_later_takes_it(job: Callable[..., launch.Job], s3: Any, amazon: Emulator, tmp_path: Path) -> None:
    """The job itself says where it lies; of one that still runs, or is not ours, nothing is taken."""
    begin.begin(job(), silent)
    ends(amazon, "InProgress")
    assert begin.left_secret(HERE, "one") == ""
    ends(amazon, "Completed")
    assert begin.left_secret(HERE, "one") == f"s3://bucket/{SECRET}"
    ends(amazon, "Completed", InputDataConfig=[])
    assert begin.left_secret(HERE, "one") == ""
    amazon.refuse("DescribeTrainingJob", "AccessDeniedException", "no")
    said = list[str]()
    begin.clear(HERE, "one", "", said.append)
    assert "cannot check whether a secret" in said[0]
    ends(amazon, "Completed")
    ends(amazon, "Completed")
    ended = cli("attach", "one", root=checkout(tmp_path))
    assert ended.returncode == 0, ended.stderr
    assert keys(s3) == [SOURCE]


def ends(amazon: Emulator, status: str, **changes: Any) -> None:
    """Make moto end every job at once with this status."""
    source = {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": f"s3://bucket/{SECRET.removesuffix('secret')}"}}
    said = {
        "TrainingJobName": "one",
        "TrainingJobStatus": status,
        "SecondaryStatus": status,
        "CreationTime": 1.6e9,
        "OutputDataConfig": {"S3OutputPath": "s3://bucket/jobs"},
        "Environment": {"TRAINWRIGHT_JOB_SECRET_FILE": "/opt/ml/input/data/secret/secret"},
        "InputDataConfig": [{"ChannelName": "secret", "DataSource": source}],
    }
    amazon.say("DescribeTrainingJob", said | changes)


def test_an_image_by_its_id_goes_by_digest(s3: Any, amazon: Emulator, tmp_path: Path) -> None:
    """What Amazon ECR holds under the key of its present inputs; before that, one error and the fix."""
    intent = matrix.load_intent(ROOT)
    variant = next(one for one in intent.variants if one.id == "pytorch-2.13-cpu-py311-sagemaker")
    (tmp_path / "train.py").write_text("print(1)")
    words = [
        "--role",
        ROLE,
        "--output",
        "s3://bucket/jobs",
        "--instance",
        "m5.xlarge",
        "--registry",
        "ecr",
        "--dry-run",
    ]
    ended = cli("launch", variant.id, str(tmp_path / "train.py"), *words)
    assert (ended.returncode, ended.stdout) == (7, "")
    assert f"make build push ONLY={variant.id} REGISTRY=ecr" in ended.stderr
    settings = registry_settings.publication(ROOT).repository
    name = tags.repository(variant.framework)
    ecr_repositories.ensure(HERE, [name], settings, create=True, change=True)
    auth.authenticate(ecr.host(HERE), ecr.credentials(HERE))
    made, place = layouts.make(tmp_path / "layout", [b"layer"], {}), f"{ecr.host(HERE)}/{name}"
    registries.push(made.folder, place, made.digest)
    tag = inputs.load(Recipe(intent, variant)).tag
    registries.tag(place, made.digest, tag)
    ended = cli("launch", variant.id, str(tmp_path / "train.py"), *words)
    assert json.loads(ended.stdout)["AlgorithmSpecification"]["TrainingImage"] == f"{place}@{made.digest}", ended.stderr
    ended = cli("uri", variant.id, "--region", HERE)
    assert (ended.stdout, ended.stderr) == (f"{place}:{tag}\n", "")
    elsewhere = cli("uri", variant.id, "--region", REGIONS[1])
    assert (elsewhere.returncode, elsewhere.stdout) == (7, "")


# --- what goes wrong -------------------------------------------------------------------------------------------------


def fails(prepared: launch.Job, said: list[str] | None = None) -> AwsError:
    with pytest.raises(AwsError) as raised:
        begin.begin(prepared, silent if said is None else said.append)
    assert raised.value.exit_code == 9
    return raised.value


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("operation", ["PutObject", "CreateTrainingJob"])
def test_throttling_that_passes_is_waited_for(
    job: Callable[..., launch.Job], amazon: Emulator, operation: str, times: int
) -> None:
    throttle(amazon, operation, times)
    assert begin.begin(job(), silent).endswith("training-job/one")
    assert operations(amazon).count(operation) == times + (2 if operation == "PutObject" else 1)


def throttle(amazon: Emulator, operation: str, times: int = ATTEMPTS) -> None:
    for _ in range(times):
        if operation.endswith("Object"):
            amazon.say_text(operation, SLOW, 503)
        else:
            amazon.refuse(operation, "ThrottlingException", "Rate exceeded")


@pytest.mark.parametrize("operation", ["PutObject", "CreateTrainingJob"])
def test_throttling_that_stays_is_one_error_and_leaves_nothing(
    job: Callable[..., launch.Job], s3: Any, amazon: Emulator, operation: str
) -> None:
    throttle(amazon, operation)
    error = fails(job())
    assert f"throttles the account after {ATTEMPTS} attempts" in error.what
    assert keys(s3) == []
    assert aws.training_job(HERE, "one") is None


def test_secrets_manager_that_throttles_comes_before_everything(
    job: Callable[..., launch.Job], s3: Any, amazon: Emulator
) -> None:
    throttle(amazon, "GetSecretValue")
    assert "secretsmanager:GetSecretValue" in fails(job(secret="secretsmanager:x")).where
    assert operations(amazon) == ["DescribeTrainingJob"] + ["GetSecretValue"] * ATTEMPTS
    assert keys(s3) == []


def test_what_cannot_be_removed_is_named(job: Callable[..., launch.Job], s3: Any, amazon: Emulator) -> None:
    amazon.refuse("CreateTrainingJob", "ValidationException", "Could not assume role")
    throttle(amazon, "DeleteObject")
    said = list[str]()
    error = fails(job(), said)
    assert "--role" in error.fix
    assert said == [
        f"it was not removed (Amazon still throttles the account after {ATTEMPTS} attempts): "
        f"aws s3 rm s3://bucket/{SOURCE} --region {HERE}"
    ]
    assert keys(s3) == [SOURCE]


def test_nobody_can_say_whether_it_was_begun(job: Callable[..., launch.Job], s3: Any, amazon: Emulator) -> None:
    """Then nothing is removed: the job may need it."""
    throttle(amazon, "CreateTrainingJob")
    missing(amazon)  # before the job
    throttle(amazon, "DescribeTrainingJob")
    said = list[str]()
    fails(job(), said)
    assert said[0] == "it is unknown whether the job was started: one"
    assert f"if it was not started, remove: aws s3 rm s3://bucket/{SECRET}" in said
    assert keys(s3) == [SECRET, SOURCE]


def test_an_answer_that_is_lost_loses_no_job(job: Callable[..., launch.Job], s3: Any, amazon: Emulator) -> None:
    """The job is there, and botocore's next attempt hears that its name is taken."""
    prepared = job()
    amazon.refuse("CreateTrainingJob", "InternalFailure", "", 500)
    submit.create(HERE, prepared.request)
    missing(amazon)  # before it
    amazon.refuse("CreateTrainingJob", "ResourceInUse", "Training job names must be unique")
    assert begin.begin(prepared, silent).endswith("training-job/one")
    assert keys(s3) == [SECRET, SOURCE]


def test_a_job_that_is_not_seen_at_once_is_looked_for_again(
    job: Callable[..., launch.Job], s3: Any, amazon: Emulator
) -> None:
    """One "not found" may only be too early, and the objects of a job that runs are not removed."""
    prepared = job()
    submit.create(HERE, prepared.request)
    missing(amazon, 3)  # before it, and twice after it
    amazon.refuse("CreateTrainingJob", "InternalFailure", "", 500, times=ATTEMPTS)
    assert begin.begin(prepared, silent).endswith("training-job/one")
    assert keys(s3) == [SECRET, SOURCE]
    missing(amazon, 5)
    amazon.refuse("CreateTrainingJob", "InternalFailure", "", 500, times=ATTEMPTS)
    fails(prepared)
    assert keys(s3) == []


@pytest.mark.parametrize("late", [False, True])
def test_a_name_that_is_taken_costs_the_first_job_nothing(
    job: Callable[..., launch.Job], s3: Any, amazon: Emulator, late: bool
) -> None:
    """Same output, same name, same role: the first job keeps its script and its secret. `late`: taken meanwhile."""
    begin.begin(job(), silent)
    before = [read(s3, key) for key in (SOURCE, SECRET)]
    again = tokened(job(), "f" * 16)
    amazon.calls.clear()
    if late:
        missing(amazon)
        amazon.refuse("CreateTrainingJob", "ResourceInUse", "Training job names must be unique")
    with pytest.raises((AwsError, ConfigError), match=r"training job .* exists already") as raised:
        begin.begin(again, silent)
    assert "--name" in raised.value.where + raised.value.fix
    assert ("PutObject" in operations(amazon)) == late
    assert keys(s3) == [SECRET, SOURCE]
    assert [read(s3, key) for key in (SOURCE, SECRET)] == before


def test_each_launch_has_a_place_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("")
    given: dict[str, Any] = {"instance": "p5.48xlarge", "hosts": 2, "role": ROLE, "output": "s3://bucket/jobs"}
    one, two = (launch.prepare(ROOT, IMAGE, tmp_path / "train.py", [], name="one", **given) for _ in range(2))
    assert not {row["uri"] for row in one.uploads} & {row["uri"] for row in two.uploads}


def test_who_may_not_look_for_the_name_begins_all_the_same(job: Callable[..., launch.Job], amazon: Emulator) -> None:
    amazon.refuse("DescribeTrainingJob", "AccessDeniedException", "no")
    assert begin.begin(job(), silent).endswith("training-job/one")


@pytest.mark.parametrize(
    ("operation", "code", "message", "what", "fix"),
    [
        (
            "CreateTrainingJob",
            "AccessDeniedException",
            f"User: arn:aws:iam::1:user/a is not authorized to perform: iam:PassRole on resource: {ROLE}",
            "may not iam:PassRole",
            f"allow iam:PassRole on {ROLE}; docs/iam-launch-policy.json",
        ),
        (
            "CreateTrainingJob",
            "ResourceLimitExceeded",
            "The account-level service limit 'ml.p5.48xlarge for training job usage' is 0 Instances, with current "
            "utilization of 1 Instances and a request delta of 2 Instances.",
            "a quota of the account is used up: ml.p5.48xlarge for training job usage",
            "--desired-value 3",
        ),
        ("CreateTrainingJob", "ResourceLimitExceeded", "No.", "Amazon did not say", "list-service-quotas"),
        ("CreateTrainingJob", "ValidationException", "No S3 objects found", "rejected the request", "--channel"),
        ("CreateTrainingJob", "ValidationException", "Cannot find image", "rejected the request", "the image"),
        ("CreateTrainingJob", "ValidationException", "Something", "rejected the request", "--dry-run"),
        ("PutObject", "", DENIED, "may not s3:PutObject", "docs/iam-launch-policy.json"),
        ("PutObject", "", DENIED.replace("AccessDenied", "NoSuchBucket"), "the bucket does not exist", "aws s3 mb"),
    ],
)
def test_what_amazon_refuses(
    job: Callable[..., launch.Job],
    s3: Any,
    amazon: Emulator,
    operation: str,
    code: str,
    message: str,
    what: str,
    fix: str,
) -> None:
    if code:
        amazon.refuse(operation, code, message)
    else:
        amazon.say_text(operation, message, 403 if "Denied" in message else 404)
    error = fails(job())
    assert what in error.what
    assert fix in error.fix
    assert keys(s3) == []


def test_a_bucket_that_is_not_there_is_one_error(job: Callable[..., launch.Job], amazon: Emulator) -> None:
    """And nobody hears of objects that were left in it."""
    error = fails(job(output="s3://elsewhere/jobs"))
    assert error.what == "the bucket does not exist"
    assert operations(amazon) == ["DescribeTrainingJob", "PutObject"]


@pytest.mark.parametrize("at", ["put", "create"])
def test_ctrl_c_leaves_nothing(
    job: Callable[..., launch.Job], s3: Any, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    """In the middle of a call: after the first object was laid down, and before Amazon hears of the job."""
    real, calls = getattr(submit, at), list[object]()

    def interrupted(*words: object, **more: object) -> object:
        calls.append(words)
        if at == "create" or len(calls) > 1:
            raise KeyboardInterrupt
        return real(*words, **more)

    monkeypatch.setattr(submit, at, interrupted)
    with pytest.raises(KeyboardInterrupt):
        begin.begin(job(), silent)
    assert keys(s3) == []


def test_ctrl_c_after_the_job_was_begun_leaves_it_whole(
    job: Callable[..., launch.Job], s3: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, said = submit.create, list[str]()

    def interrupted(region: str, asked: dict[str, Any]) -> str:
        real(region, asked)
        raise KeyboardInterrupt

    monkeypatch.setattr(submit, "create", interrupted)
    with pytest.raises(KeyboardInterrupt):
        begin.begin(job(), said.append)
    assert said == ["the job was started: one", f"check it: trainwright attach one --region {HERE}"]
    assert keys(s3) == [SECRET, SOURCE]


@pytest.mark.parametrize("problem", [KeyboardInterrupt, ValueError])
def test_a_second_ctrl_c_says_what_is_left(
    job: Callable[..., launch.Job], s3: Any, monkeypatch: pytest.MonkeyPatch, problem: type[BaseException]
) -> None:
    """While the job is looked for: then nobody can say, and the secret in S3 is not left without a word."""
    looks, said = list[str](), list[str]()

    def interrupted(*_: object) -> Any:
        raise KeyboardInterrupt

    def looked(*_: object) -> None:
        looks.append("")
        if len(looks) > 1:  # the first is for the name, before anything
            raise problem

    monkeypatch.setattr(submit, "create", interrupted)
    monkeypatch.setattr(aws, "training_job", looked)
    with pytest.raises(KeyboardInterrupt):
        begin.begin(job(), said.append)
    assert f"if it was not started, remove: aws s3 rm s3://bucket/{SECRET}" in said
    assert keys(s3) == [SECRET, SOURCE]


# --- docs/iam-launch-policy.json -------------------------------------------------------------------------------------

UNSEEN = {  # Amazon asks for these where nobody calls them: for --role, --tag, and a --kms-key of one's own
    "iam:PassRole",
    "sagemaker:AddTags",
    "kms:GenerateDataKey",
}


def test_the_policy_allows_what_is_used(job: Callable[..., launch.Job], s3: Any, amazon: Emulator, trust: Path) -> None:
    manager: Any = boto3.client("secretsmanager", region_name=HERE, verify=str(trust / "ca.pem"))
    manager.create_secret(Name="team/train", SecretString="f" * 64)
    amazon.calls.clear()
    begin.begin(job(secret="secretsmanager:team/train"), silent)
    begin.left_secret(HERE, "one")
    begin.forget(HERE, [f"s3://bucket/{SECRET}"], silent)
    used = {f"{service}:{operation}" for service, operation in amazon.calls}
    statements = json.loads((ROOT / "docs/iam-launch-policy.json").read_text())["Statement"]
    ours = [action for row in statements if row["Sid"].startswith("Launch") for action in row["Action"]]
    assert len(ours) == len(set(ours))
    assert set(ours) - UNSEEN == used
    assert not [action for row in statements for action in row["Action"] if "*" in action]
    (passing,) = [row for row in statements if "iam:PassRole" in row["Action"]]
    assert passing["Condition"] == {"StringEquals": {"iam:PassedToService": "sagemaker.amazonaws.com"}}
