"""Emulate SageMaker's jobs and their logs for tests: moto over HTTP, and in front of it what moto lacks.

Moto completes a job as soon as it is created, and returns all of CloudWatch's events in one page. Here a test sets how
a job goes on, pages are small, some are empty, tokens expire, and every call may be refused at first. PutLogEvents puts
events, as late and as disordered as the test wants; moto stores them and gives them their ids.
"""

import base64
import json
import re
import shutil
import socket
import time
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import boto3
from aws.emulator import Answer, Emulator, Handler, says
from botocore.config import Config

ROOT = Path(__file__).parents[2]
GROUP = "/aws/sagemaker/TrainingJobs"
REGION = "us-east-1"
ACCOUNT_ARN = "arn:aws:iam::123456789012:role/trains"
TEST = "trainwright-test"  # who asks: not the program under test
FAST = {  # of follow.toml: seconds, where a job here takes three
    "logs_seconds": 0.05,
    "status_seconds": 0.1,
    "first_wait_seconds": 0.02,
    "longest_wait_seconds": 0.1,
    "patience_seconds": 20,
    "look_back_seconds": 3,
    "margin_seconds": 1.5,
    "settle_seconds": 1.2,
    "longest_settle_seconds": 6,
    "sweep_seconds": 20,
}


def checkout(folder: Path, **changes: float) -> Path:
    """Make a checkout without proofs and locks, whose follow.toml has short intervals."""
    ignored = shutil.ignore_patterns("proofs", "locks")
    shutil.copytree(ROOT / "dockerfiles", folder / "dockerfiles", ignore=ignored)
    settings = folder / "dockerfiles/follow.toml"
    text = settings.read_text()
    for key, value in (FAST | changes).items():
        text, count = re.subn(rf"^{key} = \S+", f"{key} = {value}", text, flags=re.MULTILINE)
        assert count == 1, key
    settings.write_text(text)
    return folder


class Refusal(NamedTuple):
    code: str
    status: int


class Jobs(Emulator):
    def __init__(self) -> None:
        super().__init__("127.0.0.1:1", "127.0.0.1", None, None, [REGION])
        self.states: dict[str, dict[str, Any]] = {}  # of a job: what DescribeTrainingJob says otherwise than moto
        self.page = 3  # events
        self.first: Refusal | None = None  # what every call is refused with, every other time
        self.hangs_up = False  # on whoever asks
        self.used = set[str]()  # by the program under test: actions as IAM calls them
        self.alike = Counter[str]()
        self.tokens_end = False  # once, a token is no longer good
        self.ended_tokens = 0

    @property
    def endpoint(self) -> str:
        return f"http://{self.address(REGION)}"

    def client(self, service: str) -> Any:
        return boto3.client(
            service,  # type: ignore[call-overload]
            region_name=REGION,
            endpoint_url=self.endpoint,
            aws_access_key_id="AKIATEST",
            aws_secret_access_key="secret",
            config=Config(user_agent_extra=TEST),
        )

    # --- what a test does --------------------------------------------------------------------------------------------

    def create(self, name: str, instances: int = 1, spot: bool = False, **hyperparameters: str) -> "Job":
        self.client("sagemaker").create_training_job(
            TrainingJobName=name,
            HyperParameters=hyperparameters,
            AlgorithmSpecification={"TrainingImage": "image", "TrainingInputMode": "File"},
            RoleArn=ACCOUNT_ARN,
            OutputDataConfig={"S3OutputPath": "s3://bucket/out"},
            ResourceConfig={"InstanceType": "ml.c5.xlarge", "InstanceCount": instances, "VolumeSizeInGB": 30},
            StoppingCondition={"MaxRuntimeInSeconds": 3600},
            EnableManagedSpotTraining=spot,
        )
        return Job(self, name)

    def job(self, name: str) -> "Job":
        """Return the job of this name, which the program under test has created."""
        return Job(self, name)

    # --- what is answered --------------------------------------------------------------------------------------------

    def control(self, request: Handler) -> Answer:
        operation = request.headers.get("X-Amz-Target", "").rpartition(".")[2]
        own = request.headers.get("User-Agent", "").find(TEST) >= 0
        if operation and not own:
            scope = request.headers.get("Authorization", "").partition("Credential=")[2].split("/")
            self.used.add(f"{scope[3]}:{operation}")
        if self.hangs_up and not own:
            request.connection.shutdown(socket.SHUT_RDWR)
        if self.first and not own and self._refused(operation or f"{request.command} s3"):
            if not operation:
                return Answer(503, {"Content-Type": "text/xml"}, b"<Error><Code>SlowDown</Code></Error>")
            return says(self.first.status, {"__type": self.first.code, "message": "by order of the test"})
        if operation == "StopTrainingJob":  # moto has none
            return self._stop(request)
        answer = self._filter(request) if operation == "FilterLogEvents" else super().control(request)
        if operation == "CreateTrainingJob" and answer.status == 200:
            arn = json.loads(answer.body)["TrainingJobArn"]
            self.states[arn.rpartition("/")[2]] = _started()
        if operation == "DescribeTrainingJob" and answer.status == 200:
            body = json.loads(answer.body)
            answer = says(200, body | self.states.get(body["TrainingJobName"], {}))
        return answer

    def _refused(self, operation: str) -> bool:
        with self.lock:
            self.alike[operation] += 1
            return self.alike[operation] % 2 == 1

    def _stop(self, request: Handler) -> Answer:
        name = json.loads(b"".join(request.content()))["TrainingJobName"]
        with self.lock:
            self.calls.append(("sagemaker", "StopTrainingJob"))
            if self.said.get("StopTrainingJob"):
                return self.said["StopTrainingJob"].pop(0)
            self.states[name] = {**self.states[name], "TrainingJobStatus": "Stopping", "SecondaryStatus": "Stopping"}
        return says(200, {})

    def _filter(self, request: Handler) -> Answer:
        content = b"".join(request.content())
        asked = json.loads(content)
        with self.lock:
            self.calls.append(("logs", "FilterLogEvents"))
            if self.said.get("FilterLogEvents"):
                return self.said["FilterLogEvents"].pop(0)
        kind, _, token = asked.pop("nextToken", "").partition("#")
        if kind and self.tokens_end:
            self.tokens_end, self.ended_tokens = False, self.ended_tokens + 1
            return says(400, {"__type": "InvalidParameterException", "message": "The specified nextToken is invalid."})
        if kind == "empty":  # moto knows nothing of prefixes, nor of a token that starts nothing
            return says(200, {"events": [], "searchedLogStreams": [], "nextToken": f"on#{token}"})
        prefix = asked.pop("logStreamNamePrefix")
        asked |= {"limit": self.page, **({"nextToken": base64.b64decode(token).decode()} if token else {})}
        sent = {name: value for name, value in request.headers.items() if name != "Content-Length"}
        answer = self.asked(request.path, "POST", sent, json.dumps(asked).encode())
        if answer.status != 200:
            return answer
        body = json.loads(answer.body)
        body["events"] = [row for row in body["events"] if row["logStreamName"].startswith(prefix)]
        if following := body.pop("nextToken", ""):
            body["nextToken"] = f"empty#{base64.b64encode(following.encode()).decode()}"
        return says(200, body)


def _started() -> dict[str, Any]:
    now = time.time()
    return {
        "TrainingJobStatus": "InProgress",
        "SecondaryStatus": "Starting",
        "CreationTime": now - 60,
        "SecondaryStatusTransitions": [
            {"Status": "Starting", "StartTime": now, "StatusMessage": "Preparing the instances for training"}
        ],
    }


class Job:
    def __init__(self, jobs: Jobs, name: str) -> None:
        self.jobs, self.name = jobs, name
        self.logs = jobs.client("logs")
        self.put_texts: list[str] = []
        jobs.states.setdefault(name, _started())

    @property
    def state(self) -> dict[str, Any]:
        return self.jobs.states[self.name]

    def step(self, status: str, message: str) -> None:
        """Set the job's next secondary status and its message."""
        steps = [*self.state["SecondaryStatusTransitions"]]
        steps.append({"Status": status, "StartTime": time.time(), "StatusMessage": message})
        self.jobs.states[self.name] = {**self.state, "SecondaryStatus": status, "SecondaryStatusTransitions": steps}

    def end(self, status: str, reason: str = "", secondary: str = "", **more: Any) -> None:
        self.step(secondary or status, {"Completed": "Training job completed"}.get(status, status))
        why = {"FailureReason": reason} if reason else {}
        times = {"TrainingTimeInSeconds": 300, "BillableTimeInSeconds": 300}
        self.jobs.states[self.name] = {**self.state, "TrainingJobStatus": status, **why, **times, **more}

    def put(self, host: str, rows: Iterable[tuple[float, str]], stream: int = 1) -> None:
        """Put log lines of a host, each this many seconds old."""
        name, now = f"{self.name}/{host}-{stream}", time.time()
        for make, words in (
            (self.logs.create_log_group, {"logGroupName": GROUP}),
            (self.logs.create_log_stream, {"logGroupName": GROUP, "logStreamName": name}),
        ):
            with suppress(self.logs.exceptions.ResourceAlreadyExistsException):
                make(**words)
        rows = sorted(rows, key=lambda row: -row[0])  # a request has to be in order, one after the other need not
        events = [{"timestamp": int((now - ago) * 1000), "message": text} for ago, text in rows]
        self.put_texts += [f"{host} | {row['message']}" for row in events]
        self.logs.put_log_events(logGroupName=GROUP, logStreamName=name, logEvents=events)
