"""Test `trainwright diagnose --job`, run as a program against moto over HTTP."""

import json
from pathlib import Path

import pytest
from aws.jobs import REGION, Jobs, Refusal, checkout
from aws.test_follow import ended, start

RAISED = [
    "Traceback (most recent call last):",
    '  File "/opt/ml/code/train.py", line 7, in main',
    "    step(batch)",
    "ValueError: 3 channels expected",
]
CLOSED = "RuntimeError: [/src/gloo/transport/tcp/pair.cc:553] Connection closed by peer [10.0.0.2]:31662."


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return checkout(tmp_path)


@pytest.mark.parametrize("refusal", [None, Refusal("ThrottlingException", 400)])
def test_the_host_that_failed_first_is_named(jobs: Jobs, root: Path, refusal: Refusal | None) -> None:
    job = jobs.create("train-1", instances=2)
    job.put("algo-1", [(9.0, "step 1"), (2.0, f"[rank0]: {CLOSED}")])
    job.put(
        "algo-2", [(9.0, "step 1"), *((5.0 - number / 10, f"[rank1]: {line}") for number, line in enumerate(RAISED))]
    )
    job.end("Failed", FailureReason="AlgorithmError: ExecuteUserScriptError")
    jobs.first = refusal
    code, out, err = ended(start(jobs, root, "diagnose", "--job", "train-1", "--region", REGION, "--json"))
    assert code == 0, err
    (row,) = json.loads(out)
    assert (row["cause"], row["job"]["failed_first"], row["job"]["host"]) == ("exception", [1], "algo-2")
    assert "algo-2:" in row["evidence"]
    assert "reading the log of train-1 from CloudWatch" in err
    assert jobs.used == {"sagemaker:DescribeTrainingJob", "logs:FilterLogEvents"}


def test_without_a_log_sagemakers_reason_is_read(jobs: Jobs, root: Path) -> None:
    jobs.create("dark").end("Failed", FailureReason="CapacityError: Unable to provision requested ML compute capacity")
    code, out, _ = ended(start(jobs, root, "diagnose", "--job", "dark", "--region", REGION))
    assert code == 0
    assert "SageMaker's FailureReason: capacity" in out


def test_sagemakers_reason_counts_where_the_log_says_nothing(jobs: Jobs, root: Path) -> None:
    job = jobs.create("quiet")
    job.put("algo-1", [(3.0, "Traceback (most recent call last):"), (2.9, " "), (2.0, "Training completed")])
    job.end("Failed", FailureReason="InternalServerError: We encountered an internal error. Please try again.")
    code, out, err = ended(start(jobs, root, "diagnose", "--job", "quiet", "--region", REGION, "--json"))
    assert code == 0, err
    assert [row["cause"] for row in json.loads(out)] == ["service-error"]


def test_a_running_job_is_read_once(jobs: Jobs, root: Path) -> None:
    job = jobs.create("runs")
    job.put("algo-1", [(1.0, f"line {number}") for number in range(9)])
    code, out, err = ended(start(jobs, root, "diagnose", "--job", "runs", "--region", REGION))
    assert code == 7, err
    assert "of its 9 lines none reports an error" in out


def test_bad_input(jobs: Jobs, root: Path) -> None:
    jobs.create("young")
    for words, said in (
        (["--job", "young"], "young has no log"),
        (["--job", "yuong"], "training job 'yuong' does not exist"),
        ([], "diagnose requires either logs or --job"),
        (["a.log", "--job", "young"], "diagnose requires either logs or --job"),
    ):
        code, out, err = ended(start(jobs, root, "diagnose", *words, "--region", REGION))
        assert (code, out) == (2, "")
        assert said in err
