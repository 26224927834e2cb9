"""Bring the log of a SageMaker training job from CloudWatch into files, one for each host."""

from datetime import UTC, datetime
from pathlib import Path

from trainwright.core.errors import ConfigError
from trainwright.core.progress import Say
from trainwright.diagnose.job.streams import keyed
from trainwright.diagnose.watch import Watch
from trainwright.jobs.follow import Following
from trainwright.jobs.log_merge import Event


class _Bringing(Following):
    """Write each host's lines to a file, with CloudWatch's times: most lines of a job have none of their own."""

    def __init__(self, job: str, region: str, watch: Watch, say: Say, folder: Path) -> None:
        super().__init__(job, region, watch, say)
        self.folder, self.count = folder, 0
        self.files = dict[str, Path]()

    def lines(self, events: list[Event]) -> None:
        for event in events:
            host = self.host(event.stream).replace("/", "-")
            path = self.files.setdefault(host, self.folder / f"{host}.log")
            with path.open("ab") as file:
                file.writelines(_stamped(event.at, text) for text in event.text.splitlines() or [""])
            self.count += 1


def _stamped(at: int, text: str) -> bytes:
    """Return a line with a time (milliseconds since 1970), behind the label of its rank."""
    line = text.encode(errors="replace")
    rest = keyed(line, frozenset())[1]
    when = datetime.fromtimestamp(at / 1000, UTC).isoformat(timespec="milliseconds")
    return line[: len(line) - len(rest)] + when.encode() + b" " + rest + b"\n"


def bring(job: str, region: str, watch: Watch, say: Say, folder: Path) -> dict[str, str]:
    """Write what a job has logged so far into a folder; return what each file is called in answers.

    A job without a log, or whose log may not be read, leaves SageMaker's FailureReason. Raises ConfigError if there is
    neither, or no such job, and AwsError.
    """
    one = _Bringing(job, region, watch, say, folder)
    state = one.describe()
    one.begin(state)
    say(f"reading the log of {job} from CloudWatch")
    while one.read():  # a look again finds what came late
        say(f"{one.count} events of {len(one.files)} hosts")
    if not one.files:
        reason = str(state.get("FailureReason", ""))
        if not reason:
            why = one.denied or f"it is {state['TrainingJobStatus']}, and CloudWatch has no line of it"
            raise ConfigError(
                f"{job} has no log", where=f"sagemaker {region}", why=why, fix=f"trainwright attach {job}"
            )
        one.files["FailureReason"] = folder / "FailureReason.log"
        one.files["FailureReason"].write_text(f"{reason}\n")
    return {str(path): host for host, path in one.files.items()}
