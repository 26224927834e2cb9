"""Test the request for a training job: Amazon's model accepts it, and we refuse what Amazon would refuse."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import botocore.session
import pytest
from botocore.validate import ParamValidator

Cli = Callable[..., Any]
ROOT = Path(__file__).parents[3]
BELOW = "123456789012.dkr.ecr.eu-west-1.amazonaws.com/trainwright/pytorch"
EFA, SINGLE = "pytorch-2.15-cu132-py313-sagemaker", "pytorch-2.15-cu132-py313-sagemaker-single-node"
CPU, HOROVOD = "pytorch-2.13-cpu-py311-sagemaker", "horovod-0.28-cpu-py311-sagemaker"
COMPILER = "pytorch-1.13-cu117-py39-sagemaker-training-compiler"
ROLE = "arn:aws:iam::123456789012:role/train"
PLACE = ["--role", ROLE, "--output", "s3://bucket/jobs/"]
MODEL: Any = botocore.session.get_session().get_service_model("sagemaker")
SHAPE = MODEL.operation_model("CreateTrainingJob").input_shape


def uri(identity: str = EFA) -> str:
    return f"{BELOW}:{identity}-0123456789ab"


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "job/train.py"
    path.parent.mkdir()
    path.write_text("print(1)")
    return path


@pytest.fixture
def asked(cli: Cli, script: Path) -> Callable[..., dict[str, Any]]:
    """Return a function that returns the JSON of `launch --dry-run` after checks against botocore's model."""

    def call(*words: str, image: str = EFA, instance: str = "ml.p5.48xlarge") -> dict[str, Any]:
        ended = cli(
            ROOT, "launch", uri(image), str(script), "--instance", instance, *PLACE, "--dry-run", "--json", *words
        )
        assert ended.code == 0, ended.err
        said: dict[str, Any] = json.loads(ended.out)
        conforms(said["request"])
        return said

    return call


def conforms(request: dict[str, Any]) -> None:
    """Check a request with botocore's validator, and limits that it ignores against the same model."""
    found = ParamValidator().validate(request, SHAPE)
    assert not found.has_errors(), found.generate_report()
    holds(request, SHAPE)


def holds(value: Any, shape: Any) -> None:
    limits = shape.metadata
    if shape.type_name == "structure":
        for name, one in value.items():
            holds(one, shape.members[name])
        return
    if shape.type_name in ("list", "map", "string"):
        assert limits.get("min", 0) <= len(value) <= limits.get("max", 1 << 30), (shape.name, value)
    if shape.type_name == "list":
        for one in value:
            holds(one, shape.member)
    if shape.type_name == "map":
        for name, one in value.items():
            holds(name, shape.key)
            holds(one, shape.value)
    if shape.type_name == "integer":
        assert limits.get("min", 0) <= value <= limits.get("max", 1 << 40), (shape.name, value)
    if shape.type_name == "string":
        assert value in limits.get("enum", [value]), (shape.name, value)
        pattern = limits.get("pattern", ".*").replace(r"\p{L}\p{Z}\p{N}", r"\w\s").replace(r"\p{Alnum}", "A-Za-z0-9")
        assert re.fullmatch(pattern, value), (shape.name, value)


def refused(cli: Cli, script: Path, *words: str, image: str = "", instance: str = "ml.p5.48xlarge") -> Any:
    ended = cli(ROOT, "launch", image or uri(), str(script), "--instance", instance, *PLACE, "--dry-run", *words)
    assert (ended.code, ended.out) == (2, ""), ended.err
    return ended


def test_two_hosts(asked: Callable[..., dict[str, Any]]) -> None:
    said = asked("--nodes", "2", "--epochs", "3", "--name", "one", "--channel", "training=s3://data/set")
    request, below = said["request"], said["uploads"][0]["uri"].removesuffix("/source/sourcedir.tar.gz")
    assert re.fullmatch("s3://bucket/jobs/one/[0-9a-f]{16}", below)
    assert request["HyperParameters"] == {
        "sagemaker_program": '"train.py"',
        "sagemaker_submit_directory": f'"{below}/source/sourcedir.tar.gz"',
        "sagemaker_container_log_level": "30",
        "sagemaker_job_name": '"one"',
        "sagemaker_region": '"eu-west-1"',
        "sagemaker_torch_distributed_enabled": "true",
        "epochs": '"3"',
    }
    channels = {row["ChannelName"]: row["DataSource"]["S3DataSource"]["S3Uri"] for row in request["InputDataConfig"]}
    assert channels == {"training": "s3://data/set", "secret": f"{below}/secret/"}
    assert request["Environment"] == {"TRAINWRIGHT_JOB_SECRET_FILE": "/opt/ml/input/data/secret/secret"}
    assert request["ResourceConfig"]["InstanceCount"] == 2
    assert [row["uri"] for row in said["uploads"]] == [
        f"{below}/source/sourcedir.tar.gz",
        f"{below}/secret/secret",
    ]
    assert said["region"] == "eu-west-1"
    assert not re.search("[0-9a-f]{17}", json.dumps(said).replace("0123456789ab", ""))


def test_one_host_has_no_secret(asked: Callable[..., dict[str, Any]]) -> None:
    request = asked(image=CPU, instance="m5.xlarge")["request"]
    assert "InputDataConfig" not in request
    assert "Environment" not in request
    assert not [name for name in request["HyperParameters"] if name.endswith("_enabled")]


def test_all_at_once(asked: Callable[..., dict[str, Any]]) -> None:
    words = "--spot --checkpoints s3://bucket/kept --max-run 3600 --subnet subnet-0a --subnet subnet-0b "
    words += "--security-group sg-0 --encrypt-traffic --volume 100 --kms-key alias/train --tag team=vision "
    words += "--env NCCL_DEBUG=INFO --hosts 4 --processes 8 --distribution mpi"
    request = asked(*words.split())["request"]
    assert request["StoppingCondition"] == {"MaxRuntimeInSeconds": 3600, "MaxWaitTimeInSeconds": 7200}
    assert request["EnableManagedSpotTraining"] is True
    assert request["CheckpointConfig"] == {"S3Uri": "s3://bucket/kept"}
    assert request["VpcConfig"] == {"SecurityGroupIds": ["sg-0"], "Subnets": ["subnet-0a", "subnet-0b"]}
    assert request["EnableInterContainerTrafficEncryption"] is True
    assert request["ResourceConfig"]["VolumeSizeInGB"] == 100
    assert request["OutputDataConfig"] == {"S3OutputPath": "s3://bucket/jobs", "KmsKeyId": "alias/train"}
    assert request["Tags"] == [{"Key": "team", "Value": "vision"}]
    assert request["Environment"]["NCCL_DEBUG"] == "INFO"
    assert request["HyperParameters"]["sagemaker_mpi_enabled"] == "true"
    assert request["HyperParameters"]["sagemaker_mpi_num_of_processes_per_host"] == "8"
    pool = asked("--keep-alive", "1800")["request"]["ResourceConfig"]
    assert pool["KeepAlivePeriodInSeconds"] == 1800


@pytest.mark.parametrize(
    ("image", "instance", "words", "expected"),
    [
        (EFA, "p5.48xlarge", [], "sagemaker_torch_distributed_enabled"),  # it has eight GPUs
        (EFA, "p5.48xlarge", ["--distribution", "plain"], ""),
        (CPU, "m5.xlarge", ["--nodes", "2"], "sagemaker_torch_distributed_enabled"),
        (HOROVOD, "m5.xlarge", ["--nodes", "2"], "sagemaker_mpi_enabled"),
        ("tensorflow-2.21-cpu-py313-sagemaker", "m5.xlarge", ["--nodes", "2"], "sagemaker_multi_worker"),
        (COMPILER, "p3dn.24xlarge", ["--training-compiler"], "sagemaker_training_compiler_enabled"),
    ],
)
def test_what_starts_the_ranks(
    asked: Callable[..., dict[str, Any]], image: str, instance: str, words: list[str], expected: str
) -> None:
    said = asked(*words, image=image, instance=instance)
    found = said["request"]["HyperParameters"]
    on = [name for name, value in found.items() if name.endswith("_enabled") and value == "true"]
    assert len(on) == bool(expected)
    if on and "--training-compiler" not in words:
        number = "8 ranks" if instance == "p5.48xlarge" else "1 rank"
        assert f"starts {number} on each host" in said["notes"][-1]
    assert all(name.startswith(expected) for name in on)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--spot"], "--checkpoints s3://"),
        (["--spot", "--checkpoints", "s3://bucket/c", "--keep-alive", "60"], "a spot job cannot keep a warm pool"),
        (["--keep-alive", "21601"], "a warm pool is kept for 1 to 21600 s"),
        (["--max-run", "2419201"], "a job may run for 1 to 2419200 s"),
        (["--max-wait", "90000"], "--max-wait requires --spot"),
        (
            ["--spot", "--checkpoints", "s3://bucket/c", "--max-run", "100", "--max-wait", "99"],
            "--max-wait 100, or more",
        ),
        (["--subnet", "subnet-0a"], "must be given together"),
        (["--kms-key", "a key"], "is not a KMS key"),
        (["--tag", "a*=b"], "is not a valid tag"),
        (["--tag", "AWS:team=b"], "the prefix aws: belongs to AWS"),
        (["--hyperparameter", "a\nb=1"], "it contains a line break"),
        (["--checkpoints", "/tmp/kept"], "is not an S3 URI"),
        (["--channel", "training=/tmp/data"], "is not an S3 URI"),
        (["--channel", "a b=s3://bucket/c"], "is not a channel name"),
        (["--nodes", "2", "--channel", "secret=s3://bucket/c"], "reserved for the job's secret"),
        (["--env", "TRAINWRIGHT_JOB_SECRET=x"], "DescribeTrainingJob and the console show it"),
        (["--env", "A-B=x"], "is not a variable name"),
        (["--name", "a--b-"], "is not a training job name"),
        (["--name", "a" * 64], "is not a training job name"),
        (["--tag", "a"], "--tag a is not NAME=VALUE"),
        (["--secret", "secretsmanager:x"], "--secret requires several hosts"),
        (["--nodes", "2", "--secret", "x"], "is not a location of a secret"),
        (["--hyperparameter", f"a={'x' * 2499}"], "2501 characters, SageMaker accepts 2500"),
        (["--hyperparameter", "sagemaker_program=x.py"], "reserved for the location of this job's script"),
        (["--spot", "--checkpoints", "s3://bucket/c", "--max-wait", "0"], "--max-wait 0 is less"),
        (["--distribution", "torchrn"], "did you mean 'torchrun'"),
        (["--distribution", "tensorflow"], "this image does not support tensorflow"),
        (["--distribution", "plain", "--processes", "2"], "plain starts one on each host"),
        (["--node", "2"], "did you mean --nodes?"),
        (["--region", "us-east-1"], "pulls from Amazon ECR in its own region"),
        (["--training-compiler"], "does not extend a container of the Training Compiler"),
        (["--training-compiler-debug"], "requires --training-compiler"),
        ([word for n in range(101) for word in ("--hyperparameter", f"h{n}=1")], "SageMaker accepts at most 100 "),
        ([word for n in range(21) for word in ("--channel", f"c{n}=s3://bucket/c")], "SageMaker accepts at most 20 "),
        ([word for n in range(51) for word in ("--tag", f"t{n}=1")], "SageMaker accepts at most 50 "),
    ],
)
def test_what_sagemaker_refuses_is_refused_here(cli: Cli, script: Path, words: list[str], said: str) -> None:
    assert said in refused(cli, script, *words).err


@pytest.mark.parametrize(
    ("image", "instance", "words", "said"),
    [
        ("registry.example.com/a:b", "p5.48xlarge", [], "SageMaker does not pull from registry.example.com"),
        ("pytorch-2.15-cu132-py313-sagemakr", "p5.48xlarge", [], "did you mean"),
        (uri(SINGLE), "p5.48xlarge", ["--nodes", "2"], "--allow-tcp"),
        (f"{BELOW}:other", "p5.48xlarge", [], "the launcher of 8 ranks is unknown"),
        (uri("pytorch-2.15-cu132-py313-sagemaker-arm64"), "p5.48xlarge", [], "is for arm64"),
        (f"{uri(CPU)}-zstd", "p5.48xlarge", [], "SageMaker does not pull the zstd twin of an image"),
        (f"{BELOW}:{CPU}-zstd-latest", "p5.48xlarge", [], "its tag is the same without -zstd"),
    ],
)
def test_images_that_cannot(cli: Cli, script: Path, image: str, instance: str, words: list[str], said: str) -> None:
    assert said in refused(cli, script, *words, image=image, instance=instance).err


def test_tcp_is_the_users_word(asked: Callable[..., dict[str, Any]]) -> None:
    said = asked("--nodes", "2", "--allow-tcp", image=SINGLE)
    assert said["request"]["Environment"]["TRAINWRIGHT_ALLOW_TCP"] == "1"
    assert "would use TCP" in said["notes"][0]


@pytest.mark.parametrize("missing", ["--role", "--output"])
def test_role_and_output_may_be_settings(cli: Cli, script: Path, monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    at = PLACE.index(missing)
    rest, value = PLACE[:at] + PLACE[at + 2 :], PLACE[at + 1]
    words = ["launch", uri(CPU), str(script), "--instance", "m5.xlarge", "--dry-run", *rest]
    assert "a training job requires a role and an output" in cli(ROOT, *words).err
    monkeypatch.setenv(f"TRAINWRIGHT_JOB_{missing[2:].upper()}", value)
    assert cli(ROOT, *words).code == 0


def test_a_folder_of_several_modules(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "job/model").mkdir(parents=True)
    (tmp_path / "job/model/train.py").write_text("")
    words = ["--source", str(tmp_path / "job"), *PLACE, "--instance", "m5.xlarge", "--dry-run", "--json"]
    said = json.loads(cli(ROOT, "launch", uri(CPU), "model/train.py", *words).out)
    assert said["request"]["HyperParameters"]["sagemaker_program"] == '"model/train.py"'
    outside = cli(ROOT, "launch", uri(CPU), str(ROOT / "README.md"), *words)
    assert (outside.code, outside.out) == (2, "")
    assert "is not in" in outside.err


def test_credentials_beside_the_script_stay_here(asked: Callable[..., dict[str, Any]], script: Path) -> None:
    for name in (".env", ".env.local", ".aws/credentials", ".netrc", ".ssh/id_ed25519", "keys/id_rsa", ".kept"):
        (script.parent / name).parent.mkdir(exist_ok=True)
        (script.parent / name).write_text("x")
    said = asked()
    assert said["files"] == [".kept", "train.py"]
    assert "hidden files are uploaded too: .kept" in said["notes"]
