"""Bring the log of a SageMaker training job from CloudWatch into files, one for each host."""

from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from trainwright.core.errors import ConfigError, NotRunError
from trainwright.core.progress import Say
from trainwright.diagnose.job.streams import keyed
from trainwright.diagnose.watch import Watch
from trainwright.jobs.follow import OVER, Following
from trainwright.jobs.log_merge import Event


class Brought(NamedTuple):
    """What a job left: the files of its hosts, with what they are called in answers, and what SageMaker says of it."""

    names: dict[str, str]
    reason: str  # FailureReason


class _Bringing(Following):
    """Write each host's lines to a file, with CloudWatch's times: most lines of a job have none of their own."""

    def __init__(self, job: str, region: str, watch: Watch, say: Say, folder: Path) -> None:
        super().__init__(job, region, watch, say)
        self.folder = folder
        self.files = dict[str, Path]()

    def lines(self, events: list[Event]) -> None:
        of_host = dict[str, list[bytes]]()
        for event in events:
            texts = event.text.replace("\r", "\n").rstrip("\n").split("\n")
            lines = of_host.setdefault(self.host(event.stream).replace("/", "-"), [])
            lines += [_stamped(event.at, text) for text in texts]
        for host, lines in of_host.items():
            with self.files.setdefault(host, self.folder / f"{host}.log").open("ab") as file:
                file.writelines(lines)


def _stamped(at: int, text: str) -> bytes:
    """Return a line with a time (milliseconds since 1970), behind the label of its rank."""
    line = text.encode(errors="replace")
    rest = keyed(line, frozenset())[1]
    when = datetime.fromtimestamp(at / 1000, UTC).isoformat(timespec="milliseconds")
    return line[: len(line) - len(rest)] + (when.encode() + b" " + rest if rest.strip() else b"") + b"\n"


def bring(job: str, region: str, watch: Watch, say: Say, folder: Path) -> Brought:
    """Write what a job has logged so far into a folder.

    Raises ConfigError for a job that does not exist, and for one without a log and a FailureReason. Raises NotRunError
    if the log may not be read and there is no FailureReason. Raises AwsError.
    """
    one = _Bringing(job, region, watch, say, folder)
    state = one.describe()
    one.begin(state)
    say(f"reading the log of {job} from CloudWatch")
    one.read()
    ended = state.get("TrainingEndTime")
    if state["TrainingJobStatus"] in OVER and ended:
        since = (datetime.now(UTC) - ended.astimezone(UTC)).total_seconds()
        if since < one.settings.log.longest_settle_seconds:
            one.settle()  # CloudWatch lags behind a job's end
    reason = str(state.get("FailureReason", ""))
    if not one.files and not reason:
        what, where, fix = f"{job} has no log", f"sagemaker {region}", f"trainwright attach {job} --region {region}"
        if one.denied:
            raise NotRunError(f"{job} is not diagnosed", where=where, why=one.denied, fix=fix)
        why = f"it is {state['TrainingJobStatus']}, and CloudWatch has no line of it"
        raise ConfigError(what, where=where, why=why, fix=fix)
    return Brought({str(path): host for host, path in one.files.items()}, reason)
