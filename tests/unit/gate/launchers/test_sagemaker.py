"""Test the training job: valid for the API's own model, and the same run."""

import base64
import gzip
import json
import re
import subprocess
from pathlib import Path
from typing import Any

import botocore.session
import pytest
from botocore.validate import ParamValidator
from hosts import GOOD, Host
from unit.gate.launchers.conftest import IMAGE, KEY, KEYS, OUTPUT, ROLE, SCRIPT, Make

from trainwright.core.errors import ConfigError
from trainwright.gate import launchers, run
from trainwright.gate.spec import Run


def request(run: Run, key: str = KEY) -> dict[str, Any]:
    at = launchers.place(ROLE, OUTPUT, ["subnet-0a1b2c3d"], ["sg-0a1b2c3d"])
    return launchers.sagemaker(run, SCRIPT, "ml.p5.48xlarge", at, key)


def wrong(asked: dict[str, Any]) -> str:
    """Return the errors that botocore's model of the API finds in a request, also against patterns and enumerations."""
    model = botocore.session.get_session().get_service_model("sagemaker").operation_model("CreateTrainingJob")
    assert model.input_shape
    found = [ParamValidator().validate(asked, model.input_shape).generate_report()]

    def walk(value: Any, shape: Any, where: str) -> None:
        if shape.type_name == "structure":
            for name, one in value.items():
                walk(one, shape.members[name], f"{where}.{name}")
        elif shape.type_name == "list":
            for one in value:
                walk(one, shape.member, where)
        elif shape.type_name == "map":
            for name, one in value.items():
                walk(name, shape.key, where)
                walk(one, shape.value, where)
        elif shape.type_name == "string":
            if shape.enum and value not in shape.enum:
                found.append(f"{where}: {value} is none of its values")
            if len(value) > shape.metadata.get("max", len(value)):
                found.append(f"{where}: {len(value)} characters")
            pattern = shape.metadata.get("pattern")
            if pattern and not re.fullmatch(pattern, value, re.DOTALL):
                found.append(f"{where}: {value!r} is not {pattern}")

    walk(asked, model.input_shape, "")
    return "\n".join(filter(None, found))


def test_a_training_job_is_what_the_api_takes(make: Make) -> None:
    asked = request(make())
    assert wrong(asked) == ""
    arguments = asked["AlgorithmSpecification"]["ContainerArguments"]
    assert len(arguments) <= 100
    assert max(map(len, arguments)) <= 256
    assert asked["ResourceConfig"] == {"InstanceType": "ml.p5.48xlarge", "InstanceCount": 2, "VolumeSizeInGB": 50}
    assert asked["StoppingCondition"]["MaxRuntimeInSeconds"] >= make().seconds


def test_a_training_job_lies_where_it_was_put(make: Make) -> None:
    assert request(make())["VpcConfig"] == {"Subnets": ["subnet-0a1b2c3d"], "SecurityGroupIds": ["sg-0a1b2c3d"]}
    anywhere = launchers.place(ROLE, OUTPUT, [], [])
    assert "VpcConfig" not in launchers.sagemaker(make(), SCRIPT, "ml.p5.48xlarge", anywhere, KEY)


@pytest.mark.parametrize(
    ("role", "output", "subnets", "groups", "said"),
    [
        ("foo", OUTPUT, [], [], "--role"),
        (ROLE.replace("123456789012", "1234"), OUTPUT, [], [], "--role"),
        (ROLE.replace("role/", "user/"), OUTPUT, [], [], "--role"),
        (ROLE, "bucket/gate", [], [], "--output"),
        (ROLE, OUTPUT, ["vpc-1"], ["sg-1"], "--subnet"),
        (ROLE, OUTPUT, ["subnet-1"], ["default"], "--security-group"),
        (ROLE, OUTPUT, ["subnet-1"], ["sg-1"] * 6, "6 values are too many"),
        (ROLE, OUTPUT, ["subnet-1"], [], "must be given together"),
    ],
)
def test_a_place_that_no_training_job_takes_is_refused(
    role: str, output: str, subnets: list[str], groups: list[str], said: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        launchers.place(role, output, subnets, groups)
    assert said in f"{refused.value.what} {refused.value.where}"


@pytest.mark.parametrize("role", [ROLE, "arn:aws-us-gov:iam::123456789012:role/service-role/a.b@c", f"{ROLE}/x+y=z"])
def test_roles_of_every_partition_are_taken(role: str) -> None:
    assert launchers.place(role, OUTPUT, [], []).role == role


@pytest.mark.parametrize(
    ("path", "value"),
    [("TrainingJobName", "with blanks"), ("ResourceConfig.InstanceType", "ml.p55.48xlarge"), ("RoleArn", "trainer")],
)
def test_the_model_of_the_api_says_no_to_what_is_wrong(make: Make, path: str, value: str) -> None:
    asked: Any = request(make())
    *folders, name = path.split(".")
    part = asked
    for folder in folders:
        part = part[folder]
    part[name] = value
    assert name in wrong(asked)


def test_the_arguments_of_a_training_job_are_the_script(make: Make) -> None:
    arguments = request(make())["AlgorithmSpecification"]["ContainerArguments"]
    count = int(arguments[2])
    assert gzip.decompress(base64.b64decode("".join(arguments[3 : 3 + count]))).decode() == SCRIPT


def test_a_training_job_of_one_host_runs(make: Make, cluster: Host, tmp_path: Path) -> None:
    """The very request, as the platform starts it."""
    config = tmp_path / "resourceconfig.json"
    config.write_text(
        json.dumps({"current_host": "algo-1", "hosts": ["algo-1"], "instance_groups": [{"hosts": ["algo-1"]}]})
    )
    cluster.prints("all_reduce_perf", GOOD)
    asked = request(make(nodes=1, collectives=["all_reduce"]), key="")
    assert "GATE_KEY" not in asked["Environment"]
    specification = asked["AlgorithmSpecification"]
    done = subprocess.run(
        [*specification["ContainerEntrypoint"], *specification["ContainerArguments"]],
        env={**cluster.environment, **asked["Environment"], "GATE_RESOURCES": str(config)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout
    assert f"gate: image {IMAGE}" in done.stdout


@KEYS
def test_a_key_is_made_for_one_job_and_fits_into_its_environment() -> None:
    first, second = run.ephemeral_key(), run.ephemeral_key()
    assert first != second
    assert re.fullmatch(r"[A-Za-z0-9+/=]{100,512}", first)
