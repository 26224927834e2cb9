"""Test `trainwright launch` until the job ends, against moto over HTTP: objects, request, log, result."""

import os
import random
import re
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from aws.jobs import ACCOUNT_ARN, REGION, ROOT, Jobs, Refusal, checkout
from aws.test_follow import LIMIT, ended, said_once, start, until

IMAGE = (
    f"123456789012.dkr.ecr.{REGION}.amazonaws.com/trainwright/pytorch:pytorch-2.15-cu132-py313-sagemaker-0123456789ab"
)
TOKEN = "0123456789abcdef"
SOURCE, SECRET = f"jobs/one/{TOKEN}/source/sourcedir.tar.gz", f"jobs/one/{TOKEN}/secret/secret"
DOUBLE = "h:7:7 [0] NCCL WARN Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 1b000"
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"


@pytest.fixture
def s3(jobs: Jobs) -> Any:
    client = jobs.client("s3")
    client.create_bucket(Bucket="bucket")
    return client


@pytest.fixture
def root(tmp_path: Path) -> Path:
    checkout(tmp_path)
    (tmp_path / "code").mkdir()
    (tmp_path / "code/train.py").write_text("print(1)")
    return tmp_path


SOON = """\
from botocore.retries import standard
standard.ExponentialBackoff._DEFAULT_BACKOFF_CONFIG["throttling_base_scale"] = 0.02  # seconds before a second attempt
"""


def launch(jobs: Jobs, root: Path, *words: str, **environment: str) -> Any:
    given = ["--instance", "ml.p5.48xlarge", "--nodes", "2", "--name", "one", "--region", REGION]
    given += ["--role", ACCOUNT_ARN, "--output", "s3://bucket/jobs"]
    return start(jobs, root, "launch", IMAGE, "code/train.py", *given, *words, **environment)


def keys(s3: Any) -> list[str]:
    """List the keys in S3, each with the known token instead of the launch's own."""
    found = [row["Key"] for row in s3.list_objects_v2(Bucket="bucket").get("Contents", [])]
    return [re.sub("/[0-9a-f]{16}/", f"/{TOKEN}/", key) for key in found]


@pytest.mark.parametrize(("status", "code"), [("Completed", 0), ("Failed", 9), ("Stopped", 9)])
def test_from_the_command_to_the_end_of_the_job(jobs: Jobs, s3: Any, root: Path, status: str, code: int) -> None:
    """Its log comes late, out of order and in small pages; nothing twice, nothing lost; the exit code is the job's."""
    process, dice = launch(jobs, root), random.Random(status)
    first = until("Starting: Preparing the instances", process)
    assert keys(s3) == [SECRET, SOURCE]
    job = jobs.job("one")
    job.step("Training", "Training in progress")
    for turn in range(20):
        rows = [(dice.choice([0.0, 1.0, 2.5, 10.0]), f"line {turn}.{n}") for n in range(dice.randint(1, 4))]
        job.put(dice.choice(["algo-1", "algo-2"]), rows)
        jobs.tokens_end = turn == 7
        time.sleep(0.03)
    if status == "Failed":
        job.put("algo-2", [(3.5, OOM)])
    job.end(status, "AlgorithmError: ExecuteUserScriptError: ExitCode 1" if status == "Failed" else "")
    got, out, err = ended(process)
    assert got == code, err
    said_once(job, first + out)
    assert re.search(rf"\none +{status} +5 min +5 min x 2", out)
    assert ("watch  | out-of-memory: " in out) == ("out-of-memory: a GPU" in err) == (status == "Failed")
    assert ("ExitCode 1" in err) == (status == "Failed")
    assert ("one was stopped" in err) == (status == "Stopped")
    assert keys(s3) == [SOURCE]  # the secret goes with the job


def test_every_call_is_throttled_at_first(jobs: Jobs, s3: Any, root: Path) -> None:
    """Of S3, SageMaker and CloudWatch, from the first object to the last look at the log."""
    jobs.first = Refusal("ThrottlingException", 400)
    (root / "soon").mkdir()
    (root / "soon/sitecustomize.py").write_text(SOON)
    paths = os.pathsep.join([str(root / "soon"), str(ROOT / "build")])
    process = launch(jobs, root, "--stop-on-cause", AWS_MAX_ATTEMPTS="3", PYTHONPATH=paths)
    first = until("Starting: Preparing the instances", process)
    job = jobs.job("one")
    job.step("Training", "Training in progress")
    job.put("algo-1", [(1.0, f"line {n}") for n in range(7)])
    job.put("algo-2", [(2.0, DOUBLE)])
    first += until("stopping the job", process)
    deadline = time.monotonic() + LIMIT
    while ("sagemaker", "StopTrainingJob") not in jobs.calls and time.monotonic() < deadline:
        time.sleep(0.05)
    job.end("Stopped")
    code, out, err = ended(process)
    assert code == 9
    said_once(job, first + out)
    assert "--stop-on-cause stopped it: duplicate-gpu" in err
    assert jobs.calls.count(("sagemaker", "CreateTrainingJob")) == 1
    assert jobs.calls.count(("sagemaker", "StopTrainingJob")) == 1
    refused = {"PUT s3", "DELETE s3", "CreateTrainingJob", "DescribeTrainingJob", "FilterLogEvents", "StopTrainingJob"}
    assert refused == jobs.alike.keys()
    assert keys(s3) == [SOURCE]


def test_ctrl_c_leaves_the_job_and_its_secret(jobs: Jobs, s3: Any, root: Path) -> None:
    process = launch(jobs, root)
    until("Starting: Preparing the instances", process)
    process.send_signal(signal.SIGINT)
    code, _, err = ended(process)
    assert code == 130
    assert f"trainwright attach one --region {REGION}" in err
    assert keys(s3) == [SECRET, SOURCE]
    assert ("sagemaker", "StopTrainingJob") not in jobs.calls
    job = jobs.job("one")
    job.put("algo-1", [(0.0, "meanwhile")])
    job.end("Completed")
    code, out, err = ended(start(jobs, root, "attach", "one", "--region", REGION))
    assert code == 0, err
    said_once(job, out)
