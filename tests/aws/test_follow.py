"""Test `trainwright attach`, run as a program against moto over HTTP: every end of a job, and late logs."""

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from aws.jobs import GROUP, REGION, Job, Jobs, Refusal, checkout

ROOT = Path(__file__).parents[2]
LIMIT = 60  # seconds that no run of these comes near
DOUBLE = "h:7:7 [0] NCCL WARN Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 1b000"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a checkout whose follow.toml has short intervals."""
    return checkout(tmp_path)


def start(jobs: Jobs, root: Path, *words: str, **environment: str) -> subprocess.Popen[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "TRAINWRIGHT_"))}
    settings = {
        "AWS_ENDPOINT_URL": jobs.endpoint,
        "AWS_ACCESS_KEY_ID": "AKIATEST",
        "AWS_SECRET_ACCESS_KEY": "c2VjcmV0",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": str(root / "none"),
        "AWS_SHARED_CREDENTIALS_FILE": str(root / "none"),
        "AWS_MAX_ATTEMPTS": "1",
        "PYTHONPATH": str(ROOT / "build"),
    }
    return subprocess.Popen(
        [sys.executable, "-m", "trainwright.cli", *words],
        cwd=root,
        env=clean | settings | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def attach(jobs: Jobs, root: Path, *words: str, **environment: str) -> subprocess.Popen[str]:
    return start(jobs, root, "attach", *words, "--region", REGION, **environment)


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    try:
        out, err = process.communicate(timeout=LIMIT)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        pytest.fail(f"it hung:\n{out}\n{err}")
    return process.returncode, out, err


def of_hosts(out: str) -> list[str]:
    return [re.sub(r" +\| ", " | ", line) for line in out.splitlines() if re.match(r"algo-\d+ +\| ", line)]


def said_once(job: Job, out: str) -> None:
    """Check that each log line was printed exactly once."""
    counts, wanted = Counter(of_hosts(out)), Counter(job.put_texts)
    assert {line: n for line, n in counts.items() if n != wanted[line]} == {}
    assert wanted - counts == {}


def until(condition: str, process: subprocess.Popen[str]) -> str:
    """Read the program's output until a line contains `condition`."""
    assert process.stdout
    said = ""
    for line in process.stdout:
        said += line
        if condition in line:
            return said
    pytest.fail(f"it ended without {condition!r}:\n{said}\n{process.stderr.read() if process.stderr else ''}")


def test_a_job_that_succeeds(jobs: Jobs, root: Path) -> None:
    job = jobs.create("good", instances=2)
    process = attach(jobs, root, "good")
    first = until("Starting: Preparing the instances", process)
    asked = time.monotonic()
    while ("logs", "FilterLogEvents") not in jobs.calls and time.monotonic() - asked < LIMIT:
        time.sleep(0.02)  # the log group is not there yet
    job.step("Downloading", "Downloading the training image")
    job.step("Training", "Training image download completed. Training in progress.")
    job.put("algo-1", [(2.0, "one"), (1.0, "two")])
    job.put("algo-2", [(0.5, "three")])
    job.end("Completed")
    code, out, err = ended(process)
    assert code == 0, err
    out = first + out
    said_once(job, out)
    for step in ("Downloading: Downloading the training image", "Training: Training image download completed."):
        assert out.count(f"job    | {step}") == 1
    assert re.search(r"Training: Training image .* in progress. \(6\d s in\)\n", out)
    assert re.search(r"good +Completed +5 min +5 min x 2 +s3://bucket/out/good/output/model.tar.gz", out)


def test_late_shuffled_paged_and_restarted_events_are_said_once(jobs: Jobs, root: Path) -> None:
    """Events of three hosts, up to ten seconds late, where the polls look back for three; and a token that runs out."""
    job, dice = jobs.create("late", instances=3), random.Random(8)
    job.step("Training", "Training in progress")
    process, number = attach(jobs, root, "late"), 0
    for turn in range(40):
        for host in dice.sample(("algo-1", "algo-2", "algo-3"), 2):
            rows = []
            for _ in range(dice.randint(1, 4)):
                number += 1
                rows.append((dice.choice([0.0, 0.1, 1.0, 2.5, 3.5, 10.0]), f"line {number}"))
            job.put(host, rows)
        jobs.tokens_end = jobs.tokens_end or turn % 10 == 5
        time.sleep(0.05)
    job.end("Completed")
    time.sleep(0.5)
    job.put("algo-1", [(0.3, "after the end"), (10.0, "after the end, and late")])
    code, out, err = ended(process)
    assert code == 0, err
    said_once(job, out)
    assert jobs.ended_tokens >= 1
    assert number > 150


def test_a_job_that_fails_says_why_and_what_to_do(jobs: Jobs, root: Path) -> None:
    job = jobs.create("bad")
    job.step("Training", "Training in progress")
    job.put("algo-1", [(1.0, "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB")])
    process = attach(jobs, root, "bad")
    out = until("fix:", process)
    assert "watch  | out-of-memory: " in out  # at once, while the job goes on
    reason = "AlgorithmError: ExecuteUserScriptError: ExitCode 1"
    job.end("Failed", reason)
    code, more, err = ended(process)
    assert code == 9
    assert "error: bad failed" in err
    assert reason in err
    assert "out-of-memory: " in err
    assert "\n  fix:" in err
    assert (out + more).count("watch  | out-of-memory: ") == 1
    said_once(job, out + more)


def test_a_failure_that_no_line_explains(jobs: Jobs, root: Path) -> None:
    job = jobs.create("dark")
    job.put("algo-1", [(0.0, "step 1"), (0.0, "nothing more was said")])
    job.end("Failed", "AlgorithmError: exit code: 1")
    code, out, err = ended(attach(jobs, root, "dark", "--json"))
    assert code == 9
    said = json.loads(out)
    assert (said["status"], said["cause"], said["reason"]) == ("Failed", None, "AlgorithmError: exit code: 1")
    said_once(job, err)  # with --json the log is not where the data is


def test_a_job_that_was_stopped(jobs: Jobs, root: Path) -> None:
    job = jobs.create("stopped")
    job.end("Stopped", secondary="MaxRuntimeExceeded")
    code, _, err = ended(attach(jobs, root, "stopped"))
    assert code == 9
    assert "stopped was stopped (MaxRuntimeExceeded)" in err
    assert "raise MaxRuntimeInSeconds" in err
    assert "CloudTrail" not in err
    jobs.create("by-hand").end("Stopped")
    assert "StopTrainingJob was called" in ended(attach(jobs, root, "by-hand"))[2]


def test_a_spot_job_that_was_interrupted(jobs: Jobs, root: Path) -> None:
    """Its hosts get new streams; lines of both are said, and what was saved."""
    job = jobs.create("spot", spot=True)
    job.step("Training", "Training in progress")
    job.put("algo-1", [(1.0, "step 1")], stream=1600000000)
    process = attach(jobs, root, "spot")
    first = until("step 1", process)
    job.step("Interrupted", "Training job interrupted: spot capacity was reclaimed")
    job.step("Starting", "Preparing the instances for training")
    job.step("Training", "Training in progress")
    job.put("algo-1", [(0.0, "step 1 again")], stream=1600009999)
    job.end("Completed", BillableTimeInSeconds=90)
    code, out, err = ended(process)
    assert code == 0, err
    said_once(job, first + out)
    assert out.count("Training: Training in progress") == out.count("Starting: Preparing the instances") == 1
    assert "algo-1 has started again: spot/algo-1-1600009999" in out
    assert re.search(r"spot +Completed +5 min +90 s x 1 +70% +1 ", out)


@pytest.mark.parametrize(
    "refusal",
    [Refusal("ThrottlingException", 400), Refusal("InternalFailure", 500), Refusal("ServiceUnavailableException", 503)],
    ids=lambda refusal: refusal.code,
)
def test_every_call_is_refused_at_first(jobs: Jobs, root: Path, refusal: Refusal) -> None:
    """With botocore's own attempts switched off: what is waited for here is waited for by following."""
    job = jobs.create("slow")
    job.step("Training", "Training in progress")
    job.put("algo-1", [(1.0, f"line {n}") for n in range(12)])
    jobs.first = refusal
    process = attach(jobs, root, "slow", "--stop-on-cause")
    first = until("line 11", process)
    jobs.first = None
    job.put("algo-1", [(0.0, DOUBLE)])
    jobs.first = refusal
    second = until("stopping the job", process)
    deadline = time.monotonic() + LIMIT
    while ("sagemaker", "StopTrainingJob") not in jobs.calls and time.monotonic() < deadline:
        time.sleep(0.05)
    job.end("Stopped")
    code, out, err = ended(process)
    assert code == 9
    said_once(job, first + second + out)
    assert "--stop-on-cause stopped it: duplicate-gpu" in err
    assert jobs.calls.count(("sagemaker", "StopTrainingJob")) == 1
    assert {"DescribeTrainingJob", "FilterLogEvents", "StopTrainingJob"} <= jobs.alike.keys()


def test_a_job_that_was_stopped_for_a_cause_is_not_said_to_have_outlived_it(jobs: Jobs, root: Path) -> None:
    job = jobs.create("resumed")
    job.step("Training", "Training in progress")
    process = attach(jobs, root, "resumed", "--stop-on-cause")
    job.put("algo-1", [(0.0, "NVRM: Xid (PCI:0000:01:00): 48, pid=99, An uncorrectable double bit error (DBE)")])
    said = until("stopping the job", process)
    job.put("algo-1", [(0.0, "[Auto Resume] Info: JobID: 7 Retrying step. Attempt number: 1")])
    job.end("Stopped")
    code, out, err = ended(process)
    assert code == 9
    assert "no failure is established" not in said + out
    assert "--stop-on-cause stopped it: ecc" in err


def test_throttling_that_does_not_end_is_an_error_and_the_job_goes_on(jobs: Jobs, tmp_path: Path) -> None:
    root = checkout(tmp_path, patience_seconds=0.5)
    jobs.create("endless")
    jobs.refuse("FilterLogEvents", "ThrottlingException", "Rate exceeded", times=10_000)
    code, _, err = ended(attach(jobs, root, "endless"))
    assert code == 9
    assert "throttles" in err
    assert f"trainwright attach endless --region {REGION}" in err


def test_a_network_that_is_gone_for_a_while_costs_no_line(jobs: Jobs, root: Path) -> None:
    job = jobs.create("cut-off")
    job.step("Training", "Training in progress")
    job.put("algo-1", [(0.0, "before")])
    process = attach(jobs, root, "cut-off")
    first = until("before", process)
    jobs.hangs_up = True
    first += until("retrying for up to", process)
    job.put("algo-1", [(4.0, "meanwhile, and late"), (0.0, "meanwhile")])
    time.sleep(0.5)
    jobs.hangs_up = False
    job.end("Completed")
    code, out, err = ended(process)
    assert code == 0, err
    said_once(job, first + out)


def test_a_job_that_may_not_be_stopped_is_an_error_that_names_the_action(jobs: Jobs, root: Path) -> None:
    job = jobs.create("kept")
    job.step("Training", "Training in progress")
    job.put("algo-1", [(0.0, DOUBLE)])
    who, arn = "arn:aws:sts::1:assumed-role/b/me", "arn:aws:sagemaker:us-east-1:1:training-job/kept"
    said = f"User: {who} is not authorized to perform: sagemaker:StopTrainingJob on resource: {arn} because no policy"
    jobs.refuse("StopTrainingJob", "AccessDeniedException", said)
    code, _, err = ended(attach(jobs, root, "kept", "--stop-on-cause"))
    assert code == 9
    assert f"{who} may not sagemaker:StopTrainingJob" in err
    assert f"trainwright attach kept --region {REGION}" in err


def test_since_leaves_out_what_was_before(jobs: Jobs, root: Path) -> None:
    job = jobs.create("long")
    job.put("algo-1", [(50.0, "early"), (5.0, "recent")])
    job.end("Completed")
    code, out, _ = ended(attach(jobs, root, "long", "--since", "20s"))
    assert (code, of_hosts(out)) == (0, ["algo-1 | recent"])
    for since in ("yesterday", "99999999999d", "0001-01-01T00:00:00"):
        code, _, err = ended(attach(jobs, root, "long", "--since", since))
        assert code == 2
        assert f"--since '{since}' is not a time" in err
        assert "Traceback" not in err


def test_credentials_that_expire_end_it_with_the_command_to_go_on(jobs: Jobs, root: Path) -> None:
    job = jobs.create("expires")
    job.step("Training", "Training in progress")
    job.put("algo-1", [(0.0, "hello")])
    process = attach(jobs, root, "expires")
    until("hello", process)
    jobs.refuse("FilterLogEvents", "ExpiredTokenException", "The security token included in the request is expired")
    code, _, err = ended(process)
    assert code == 9
    assert "the AWS credentials have expired" in err
    assert f"trainwright attach expires --region {REGION}" in err
    assert not jobs.calls.count(("sagemaker", "StopTrainingJob"))


def test_a_log_that_fails_after_the_end_does_not_hide_the_result(jobs: Jobs, root: Path) -> None:
    job = jobs.create("done")
    job.put("algo-1", [(0.0, "hello")])
    process = attach(jobs, root, "done")
    first = until("hello", process)
    job.end("Completed")
    first += until("Completed: Training job completed", process)
    time.sleep(0.5)  # it may have said so before the job itself did; the log has to be quiet for longer
    jobs.refuse("FilterLogEvents", "ExpiredTokenException", "The security token has expired", times=99)
    code, out, err = ended(process)
    assert code == 0, err
    assert "the rest of the log could not be read: the AWS credentials have expired" in out
    assert re.search(r"done +Completed", out)


def test_the_look_over_the_whole_log_is_bounded_where_amazon_throttles_it(jobs: Jobs, tmp_path: Path) -> None:
    root = checkout(tmp_path, patience_seconds=3600, longest_settle_seconds=0, sweep_seconds=0.5)
    jobs.create("done").end("Completed")
    jobs.say("FilterLogEvents", {"events": []})
    jobs.refuse("FilterLogEvents", "ThrottlingException", "Rate exceeded", times=10_000)
    code, out, err = ended(attach(jobs, root, "done"))
    assert code == 0, err
    assert "the rest of the log could not be read: Amazon still throttles" in out


def test_ctrl_c_after_the_end_gives_the_result(jobs: Jobs, tmp_path: Path) -> None:
    root = checkout(tmp_path, settle_seconds=30, longest_settle_seconds=50)
    job = jobs.create("done")
    process = attach(jobs, root, "done")
    first = until("Starting: Preparing", process)
    job.end("Completed")
    first += until("Completed: Training job completed", process)
    time.sleep(1)  # it may have said so before the job itself did
    process.send_signal(signal.SIGINT)
    code, out, err = ended(process)
    assert (code, "the job keeps running" in err) == (0, False), err
    assert "the rest of the log could not be read: interrupted" in out


def test_a_log_that_may_not_be_read_is_said_and_the_job_is_followed(jobs: Jobs, root: Path) -> None:
    job = jobs.create("closed")
    who, arn = "arn:aws:sts::1:assumed-role/b/me", "arn:aws:logs:us-east-1:1:log-group:/aws/sagemaker/TrainingJobs"
    said = f"User: {who} is not authorized to perform: logs:FilterLogEvents on resource: {arn} because no policy"
    jobs.refuse("FilterLogEvents", "AccessDeniedException", said, times=99)
    process = attach(jobs, root, "closed")
    first = until("fix:", process)
    assert f"{who} may not logs:FilterLogEvents" in first
    assert f"allow logs:FilterLogEvents on {arn}" in first
    job.end("Completed")
    code, _, err = ended(process)
    assert code == 0, err
    assert jobs.calls.count(("logs", "FilterLogEvents")) == 1


@pytest.mark.parametrize("refusal", ["ValidationException", "ResourceNotFound"])
def test_a_job_that_is_not_there(jobs: Jobs, root: Path, refusal: str) -> None:
    """As Amazon says it, and as its model of the API has it."""
    jobs.create("train-gpt-2")
    jobs.refuse("DescribeTrainingJob", refusal, "Requested resource not found.")
    code, _, err = ended(attach(jobs, root, "train-gtp-2"))
    assert code == 2
    assert "training job 'train-gtp-2' does not exist in us-east-1" in err
    assert "did you mean 'train-gpt-2'?" in err


def test_ctrl_c_leaves_the_job_and_says_how_to_go_on(jobs: Jobs, root: Path) -> None:
    job = jobs.create("going")
    job.step("Training", "Training in progress")
    job.put("algo-1", [(0.0, "hello")])
    process = attach(jobs, root, "going")
    until("hello", process)
    process.send_signal(signal.SIGINT)
    code, _, err = ended(process)
    assert code == 130
    assert f"trainwright attach going --region {REGION}" in err
    assert "Traceback" not in err
    assert not jobs.calls.count(("sagemaker", "StopTrainingJob"))


@pytest.mark.parametrize("stop", [False, True])
def test_silence_warns_and_stops_only_where_that_was_asked_for(jobs: Jobs, tmp_path: Path, stop: bool) -> None:
    root = checkout(tmp_path, job_seconds=0.5)
    job = jobs.create("quiet")
    job.step("Training", "Training in progress")
    job.put("algo-1", [(0.0, "hello")])
    process = attach(jobs, root, "quiet", *(["--stop-on-silence"] if stop else []))
    until("silence: no host has logged anything", process)
    time.sleep(0.5)
    assert jobs.calls.count(("sagemaker", "StopTrainingJob")) == int(stop)
    job.end("Stopped" if stop else "Completed")
    code, out, err = ended(process)
    assert (code, "--stop-on-silence stopped it" in err) == ((9, True) if stop else (0, False))
    assert "silence" not in out.replace("stopping the job: silence", "")


def test_what_the_training_compiler_says_is_in_the_end(jobs: Jobs, root: Path) -> None:
    job = jobs.create("compiled", sagemaker_training_compiler_enabled="true")
    job.put("algo-1", [(0.0, "Found configuration for Training Compiler")])
    job.end("Completed")
    assert json.loads(ended(attach(jobs, root, "compiled", "--json"))[1])["training_compiler"] == "on"
    jobs.create("not-compiled", sagemaker_training_compiler_enabled="true").end("Completed")
    assert json.loads(ended(attach(jobs, root, "not-compiled", "--json"))[1])["training_compiler"] == "off"


def test_the_policy_allows_what_following_uses(jobs: Jobs, root: Path) -> None:
    job = jobs.create("kept")
    job.step("Training", "Training in progress")
    job.put("algo-1", [(0.0, DOUBLE)])
    process = attach(jobs, root, "kept", "--stop-on-cause")
    until("stopping the job", process)
    deadline = time.monotonic() + LIMIT
    while ("sagemaker", "StopTrainingJob") not in jobs.calls and time.monotonic() < deadline:
        time.sleep(0.05)
    job.end("Stopped")
    ended(process)
    jobs.refuse("DescribeTrainingJob", "ValidationException", "Requested resource not found.")
    assert ended(attach(jobs, root, "none"))[0] == 2
    statements = json.loads((ROOT / "docs/iam-launch-policy.json").read_text())["Statement"]
    allowed = [action for row in statements if row["Sid"].startswith("Follow") for action in row["Action"]]
    assert sorted(allowed) == sorted(jobs.used)
    assert {row["Resource"] for row in statements if "logs:FilterLogEvents" in row["Action"]} == {
        f"arn:aws:logs:*:111122223333:log-group:{GROUP}:*"
    }
