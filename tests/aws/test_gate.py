"""Test the request of a gate for SageMaker, as a client sends it and a stand-in of the service stores it."""

import json
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto.server import ThreadedMotoServer

from trainwright.gate import run as gate_run

ROOT = Path(__file__).parents[2]


def test_a_training_job_is_created_as_it_was_emitted(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    what = gate_run.Subject(
        reference="123456789012.dkr.ecr.us-east-1.amazonaws.com/trainwright/pytorch@sha256:" + "a" * 64
    )
    run = gate_run.prepare(
        ROOT, what, "sagemaker", instance="p5.48xlarge", nodes=2, gpus=None, hosts=None, collectives=[], limit=None
    )
    text = gate_run.emit(ROOT, run, "sagemaker", "arn:aws:iam::123456789012:role/trainer", "s3://bucket/gate")
    asked = json.loads(text)
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        client = boto3.client("sagemaker", region_name="us-east-1", endpoint_url=f"http://{host}:{port}")
        client.create_training_job(**asked)
        kept: Any = client.describe_training_job(TrainingJobName=run.name)
    finally:
        server.stop()
    for name in ("AlgorithmSpecification", "ResourceConfig", "StoppingCondition"):
        assert kept[name].items() >= asked[name].items()
    assert kept["RoleArn"] == asked["RoleArn"]
