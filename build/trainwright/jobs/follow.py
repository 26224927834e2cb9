"""Follow a running SageMaker training job: its log from CloudWatch, its status transitions, and how it ends."""

import math
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from email.utils import parsedate_to_datetime
from functools import partial
from typing import Any, Literal, TypeVar

from trainwright.core.errors import AwsError, ConfigError, did_you_mean
from trainwright.core.progress import Say
from trainwright.core.toml import Model
from trainwright.diagnose.causes import Cause
from trainwright.diagnose.watch import Watch, minutes
from trainwright.image import training_compiler
from trainwright.jobs.log_merge import Event, Merged
from trainwright.registry.aws import client, told, training_job
from trainwright.registry.aws_errors import Call

T = TypeVar("T")
OVER = ("Completed", "Failed", "Stopped")
JOB, WATCH = "job", "watch"  # speakers besides the hosts
SILENCE = "silence"  # what a job was stopped for
NO_LOG = {"ResourceNotFoundException"}  # the account has no job yet, or this job has no log yet
TOKEN = {"InvalidParameterException", "InvalidNextTokenException"}  # it expires after 24 hours


class Ended(Model):
    """The end of a job, from DescribeTrainingJob, and its reason, from the log."""

    job: str
    region: str
    status: Literal["Completed", "Failed", "Stopped"]
    secondary: str = ""  # for example MaxRuntimeExceeded
    reason: str = ""  # SageMaker's FailureReason
    seconds: int | None = None  # TrainingTimeInSeconds
    billable_seconds: int | None = None  # of each instance
    instances: int = 1
    spot: bool = False
    interruptions: int = 0
    model: str = ""  # S3 address of the model
    cause: Cause | None = None
    evidence: str = ""
    stopped_for: str = ""  # the reason if the follower stopped it
    training_compiler: str = ""  # on, off or unknown; "" if it was not requested

    @property
    def saved(self) -> float | None:
        """Return the share that spot saved: (1 - billable / training), as in the API reference."""
        if not self.spot or not self.seconds or self.billable_seconds is None:
            return None
        return max(0.0, 1 - self.billable_seconds / self.seconds)


def follow(
    job: str,
    region: str,
    *,
    watch: Watch,
    say: Say,
    stop_on_cause: bool,
    stop_on_silence: bool = False,
    since: int | None = None,
) -> Ended:
    """Report a job from its beginning, or from `since` (milliseconds since 1970), until it has ended.

    Throttling, failures of Amazon's and a lost network are retried. Ctrl-C is passed on while the job runs. Raises
    AwsError, and ConfigError if the job does not exist; no exception stops the job.
    """
    return Following(job, region, watch, say).run(stop_on_cause, stop_on_silence, since)


class Following:
    """A job that is followed, by follow() or to bring its log."""

    def __init__(self, job: str, region: str, watch: Watch, say: Say) -> None:
        self.job, self.region, self.watch = job, region, watch
        self.say: Callable[[str, str], None] = lambda who, text: say(f"{who:<6} | {text}")
        self.settings = watch.settings
        self.transitions: dict[tuple[str, datetime], str] = {}
        self.streams: dict[str, str] = {}  # each host's latest
        self.denied = self.stopped_for = ""
        self.answered = False  # whether Amazon answered at least once
        self.compiler: training_compiler.State = "unknown"
        self.merged: Merged

    def run(self, stop_on_cause: bool, stop_on_silence: bool, since: int | None) -> Ended:
        poll = self.settings.poll
        state = self.describe()
        self.watch.hosts = self.watch.hosts or int(state.get("ResourceConfig", {}).get("InstanceCount", 0))
        self.begin(state, since)
        looked = time.monotonic()
        while state["TrainingJobStatus"] not in OVER:
            self.tell(state)
            self.read()
            self.heed(state, stop_on_cause, stop_on_silence)
            time.sleep(poll.logs_seconds)
            if time.monotonic() - looked >= poll.status_seconds:
                state, looked = self.describe(), time.monotonic()
        self.rest(state)
        reason = str(state.get("FailureReason", ""))
        for line in reason.splitlines():
            self.heard(self.watch.note(line))
        self.watch.failed = state["TrainingJobStatus"] == "Failed" or self.stopped_for not in ("", SILENCE)
        self.heard(self.watch.end())
        return self.ended(state, reason)

    def begin(self, state: dict[str, Any], since: int | None = None) -> None:
        """Look at the log from the job's beginning, or from `since` (milliseconds since 1970)."""
        log = self.settings.log
        created = int(state["CreationTime"].timestamp() * 1000) - _ms(log.look_back_seconds)
        self.merged = Merged(
            max(created, since or 0), _ms(log.look_back_seconds), _ms(log.margin_seconds), log.late_events
        )

    # --- what is said ------------------------------------------------------------------------------------------------

    def heard(self, lines: list[str]) -> None:
        for line in lines:
            self.say(WATCH, line)

    def tell(self, state: dict[str, Any]) -> None:
        """Report each status transition of SageMaker's once, and again if its message grows."""
        for step in state.get("SecondaryStatusTransitions", []):
            key, text = (step["Status"], step["StartTime"]), step.get("StatusMessage", "")
            if self.transitions.get(key) != text:
                self.transitions[key] = text
                after = (step["StartTime"] - state["CreationTime"]).total_seconds()
                when = f" ({minutes(after)} in)" if after >= 1 else ""
                self.say(JOB, (f"{step['Status']}: {text}" if text else step["Status"]) + when)

    def heed(self, state: dict[str, Any], stop_on_cause: bool, stop_on_silence: bool) -> None:
        """Report what silence means, and stop the job if that was requested."""
        training = state.get("SecondaryStatus") == "Training" and not self.denied
        self.heard(self.watch.tick(time.monotonic(), training))
        why = ""
        if stop_on_cause and (found := self.watch.stops()):
            why = f"{found[0].id}: {found[0].what}"
        elif stop_on_silence and self.watch.silent:
            why = SILENCE
        if why and not self.stopped_for:
            self.stopped_for = why
            self.say(WATCH, f"stopping the job: {why}")
            self.stop()

    def lines(self, events: list[Event]) -> None:
        for event in events:
            host, stream = self.host(event.stream), event.stream
            before = self.streams.setdefault(host, stream)
            if before < stream:
                self.say(JOB, f"{host} has started again: {stream}")
                self.streams[host] = stream
            for text in event.text.replace("\r", "\n").rstrip("\n").split("\n"):  # progress bars write \r
                self.say(host, text)
                if self.compiler != "on":
                    self.compiler = training_compiler.state([text])
                self.heard(self.watch.line(host, text, time.monotonic()))

    def host(self, stream: str) -> str:
        """Return the host of a stream: algo-1 for <job>/algo-1-1600000000."""
        return stream.removeprefix(f"{self.job}/").rpartition("-")[0] or stream

    # --- what is asked -----------------------------------------------------------------------------------------------

    def describe(self) -> dict[str, Any]:
        """Return DescribeTrainingJob's answer. Raises ConfigError if the job does not exist."""
        call = Call("sagemaker", "DescribeTrainingJob", self.region, self.job)
        said = self.patient(call, partial(training_job, self.region, self.job))
        if said is None:
            raise self.unknown(call)
        return said

    def unknown(self, call: Call) -> ConfigError:
        try:
            with told(Call("sagemaker", "ListTrainingJobs", self.region)):
                said = client("sagemaker", self.region).list_training_jobs(MaxResults=100)
            names = [row["TrainingJobName"] for row in said["TrainingJobSummaries"]]
            why = did_you_mean(self.job, names) if names else f"{self.region} has no training jobs"
        except AwsError:
            why = ""  # without permission to list, no names are suggested
        what = f"training job {self.job!r} does not exist in {self.region}"
        return ConfigError(what, where=str(call), why=why, fix="trainwright attach JOB --region REGION")

    def stop(self) -> None:
        sagemaker = client("sagemaker", self.region)
        call = Call("sagemaker", "StopTrainingJob", self.region, self.job)
        try:
            self.patient(call, lambda: sagemaker.stop_training_job(TrainingJobName=self.job))
        except AwsError as error:
            if error.code != "ValidationException":  # it has already ended
                raise

    def patient(self, call: Call, ask: Callable[[], T], until: float = math.inf) -> T:
        """Call `ask`, and retry while it is throttled or fails on Amazon's side.

        Raises AwsError for other errors and on timeout.

        Network errors are retried only after at least one answer. `until` is a time of the monotonic clock.
        """
        poll, began, wait = self.settings.poll, time.monotonic(), self.settings.poll.first_wait_seconds
        end = min(began + poll.patience_seconds, until)
        while True:
            try:
                with told(call):
                    answer = ask()
            except AwsError as error:
                network = error.code.endswith("Error") and not self.answered
                if not error.passes or network or time.monotonic() + wait > end:
                    raise
                if wait == poll.first_wait_seconds:
                    self.say(JOB, f"{error.what} ({error.where}): retrying for up to {minutes(end - began)}")
                time.sleep(wait)
                wait = min(2 * wait, poll.longest_wait_seconds)
            else:
                self.answered = True
                return answer

    # --- the log -----------------------------------------------------------------------------------------------------

    def pages(self, start: Callable[[], int], until: float = math.inf) -> Iterator[tuple[list[Event], int]]:
        """Yield each page, and when it was answered by CloudWatch's clock; an empty page with a token is not the last.

        Raises AwsError. `until` is the time of the monotonic clock at which to stop.
        """
        logs, token, begin = client("logs", self.region), "", start()
        call = Call("logs", "FilterLogEvents", self.region, f"log-group:{self.settings.log.group}")
        while True:
            words: dict[str, Any] = {
                "logGroupName": self.settings.log.group,
                "logStreamNamePrefix": f"{self.job}/",
                "startTime": begin,
                "interleaved": True,  # Amazon always interleaves; the tests' stand-in does so only with this
            }
            if token:
                words["nextToken"] = token
            try:
                said = self.patient(call, partial(logs.filter_log_events, **words), until)
            except AwsError as error:
                if token and error.code in TOKEN:
                    token, begin = "", self.merged.again()
                    continue
                raise
            yield [_event(row) for row in said["events"]], _clock(said)
            token = said.get("nextToken", "")
            if not token or time.monotonic() > until:
                return

    def read(self) -> int:
        """Report the new events; return their number."""
        if self.denied:
            return 0
        new, begun = 0, False
        try:
            for page, now in self.pages(lambda: self.merged.start):
                if not begun:
                    self.merged.begin(now)
                    begun = True
                self.lines(events := self.merged.fresh(page))
                new += len(events)
        except AwsError as error:
            if error.code in NO_LOG:
                return 0
            if not error.denied:
                raise
            self.denied = f"the log is not shown: {error.what}"  # following the job goes on without its log
            self.say(JOB, self.denied)
            self.say(JOB, f"  fix: {error.fix}")
            return 0
        self.merged.complete()
        return new

    def rest(self, state: dict[str, Any]) -> None:
        """Report the rest of an ended job's log; an AwsError or Ctrl-C here does not hide how the job ended."""
        try:
            self.tell(state)
            self.read()
            self.settle()
        except (AwsError, KeyboardInterrupt) as problem:
            why = f"{problem.what} ({problem.where})" if isinstance(problem, AwsError) else "interrupted"
            self.denied = f"the rest of the log could not be read: {why}"
            self.say(JOB, self.denied)

    def settle(self) -> None:
        """Read until the log is quiet, because CloudWatch lags behind a job's end; then sweep for late events."""
        log, began = self.settings.log, time.monotonic()
        quiet = began
        while not self.denied and (now := time.monotonic()) - began < log.longest_settle_seconds:
            if now - quiet >= log.settle_seconds:
                break
            time.sleep(min(self.settings.poll.logs_seconds, log.settle_seconds))
            if self.read():
                quiet = time.monotonic()
        self.sweep()

    def sweep(self) -> None:
        late, until = 0, time.monotonic() + self.settings.log.sweep_seconds
        try:
            for page, _ in [] if self.denied else self.pages(self.merged.sweep, until):
                self.lines(events := self.merged.swept(page))
                late += len(events)
        except AwsError as error:
            if error.code not in NO_LOG:
                raise
        if late:
            self.say(JOB, f"{late} lines above arrived more than {minutes(self.settings.log.look_back_seconds)} late")
        if not self.denied and (self.merged.overflowed or time.monotonic() > until):
            self.say(JOB, "very late lines may be missing above: the log is too long to be read again completely")

    # --- the end -----------------------------------------------------------------------------------------------------

    def ended(self, state: dict[str, Any], reason: str) -> Ended:
        cause, evidence = self.watch.cause or (None, "")
        whole = not self.denied and self.merged.since <= int(state["CreationTime"].timestamp() * 1000)
        compiler = self.compiler if self.compiler == "on" else training_compiler.state([], ended=whole)
        failed = state["TrainingJobStatus"] != "Completed"
        return Ended(
            job=self.job,
            region=self.region,
            status=state["TrainingJobStatus"],
            secondary=state.get("SecondaryStatus", ""),
            reason=reason,
            seconds=state.get("TrainingTimeInSeconds"),
            billable_seconds=state.get("BillableTimeInSeconds"),
            instances=int(state.get("ResourceConfig", {}).get("InstanceCount", 1)),
            spot=bool(state.get("EnableManagedSpotTraining")),
            interruptions=sum(name == "Interrupted" for name, _ in self.transitions),
            model=state.get("ModelArtifacts", {}).get("S3ModelArtifacts", "") if not failed else "",
            cause=cause if failed else None,
            evidence=evidence if failed else "",
            stopped_for=self.stopped_for,
            training_compiler=compiler if training_compiler.asked(state.get("HyperParameters", {})) else "",
        )


def _ms(seconds: float) -> int:
    return int(seconds * 1000)


def _event(row: dict[str, Any]) -> Event:
    at = int(row["timestamp"])
    return Event(str(row["eventId"]), row["logStreamName"], at, int(row.get("ingestionTime", at)), row["message"])


def _clock(said: dict[str, Any]) -> int:
    """Return the time of the answer by CloudWatch's clock, which has whole seconds, else the time by our clock."""
    date = said.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("date", "")
    try:
        return int(parsedate_to_datetime(date).timestamp() * 1000)
    except (TypeError, ValueError):
        return int(time.time() * 1000)
