"""The command `trainwright attach`."""

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trainwright.commands.options import Json, OneRegion, StopOnCause, StopOnSilence, app, find_root
from trainwright.core.errors import AwsError, ConfigError, JobError

if TYPE_CHECKING:
    from trainwright.jobs.follow import Ended

UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
LIMITS = {  # of DescribeTrainingJob's SecondaryStatus
    "MaxRuntimeExceeded": "a longer MaxRuntimeInSeconds; with checkpoints the next job goes on where this one was",
    "MaxWaitTimeExceeded": "a longer MaxWaitTimeInSeconds, or without spot: it waited for capacity as well as trained",
}


@app.command()
def attach(
    job: Annotated[str, typer.Argument(metavar="JOB", help="Name of a training job of SageMaker.")],
    region: OneRegion = "",
    since: Annotated[
        str, typer.Option(metavar="WHEN", help="30m, 2h, 1d ago, or 2026-11-22T10:00:00; else from the beginning.")
    ] = "",
    stop_on_cause: StopOnCause = False,
    stop_on_silence: StopOnSilence = False,
    as_json: Json = False,
) -> None:
    """Follow a training job of SageMaker: its log, what it waits for, known causes; ends as the job does (0, or 9)."""
    from trainwright.registry import aws

    where, at = aws.regions(region)[0], _moment(since) if since else None
    with ended(where, job):
        followed(
            find_root(),
            job,
            where,
            stop_on_cause=stop_on_cause,
            stop_on_silence=stop_on_silence,
            since=at,
            as_json=as_json,
        )


@contextmanager
def ended(region: str, job: str, secret: str = "") -> Iterator[None]:
    """Once whatever follows a job says that it has ended, the secret that `launch` laid down for it is removed.

    `secret`: where it lies, for who knows; else the job is asked.
    """
    from trainwright.jobs import begin

    def say(line: str) -> None:
        typer.echo(line, err=True)

    over = False
    try:
        yield
        over = True
    except JobError:
        over = True
        raise
    finally:
        if over:
            begin.clear(region, job, secret, say)
        elif secret:
            say(f"its secret lies in {secret} until attach has seen the job end")


def followed(
    root: Path,
    job: str,
    region: str,
    *,
    stop_on_cause: bool = False,
    stop_on_silence: bool = False,
    since: int | None = None,
    as_json: bool = False,
) -> None:
    """All of `attach`, and of `launch` once the job is there: returns where the job completed.

    Raises JobError for one that failed or was stopped, AwsError and ConfigError as following does, and Exit(130) after
    Ctrl-C. In any case but the first the job is left as it is, and the command that follows it again is said.
    """
    from trainwright.core import console
    from trainwright.diagnose import causes
    from trainwright.diagnose import watch as diagnose_watch
    from trainwright.jobs import follow

    watch = diagnose_watch.Watch(causes.load_causes(root), diagnose_watch.load_settings(root))
    again = f"trainwright attach {job} --region {region}"
    try:
        ended = follow.follow(
            job,
            region,
            watch=watch,
            say=console.log_printer(sys.stderr if as_json else sys.stdout),
            stop_on_cause=stop_on_cause,
            stop_on_silence=stop_on_silence,
            since=since,
        )
    except KeyboardInterrupt:
        typer.echo(f"\nthe job goes on; follow it again: {console.pasteable(again)}", err=True)
        typer.echo(f"stop it: aws sagemaker stop-training-job --training-job-name {job} --region {region}", err=True)
        raise typer.Exit(130) from None
    except AwsError as error:
        error.fix = f"{error.fix}\n{again}".lstrip()
        raise
    if as_json:
        console.data({**ended.model_dump(mode="json"), "saved": ended.saved})
    else:
        typer.echo("")
        console.show([_row(ended)], as_json=False)
    refuse(ended)


def _row(ended: "Ended") -> dict[str, str]:
    from trainwright.diagnose.watch import minutes

    row = {
        "job": ended.job,
        "status": ended.status,
        "trained": "" if ended.seconds is None else minutes(ended.seconds),
        "billed": "" if ended.billable_seconds is None else f"{minutes(ended.billable_seconds)} x {ended.instances}",
    }
    if ended.saved is not None:
        row["spot saved"] = f"{ended.saved:.0%}"
    if ended.interruptions:
        row["interrupted"] = str(ended.interruptions)
    if ended.training_compiler:
        row["training compiler"] = ended.training_compiler
    return {**row, "model": ended.model} if ended.model else row


def refuse(ended: "Ended") -> None:
    """Raises JobError unless the job completed: SageMaker's reason, and what its log says of it."""
    if ended.status == "Completed":
        return
    what = f"{ended.job} was stopped" if ended.status == "Stopped" else f"{ended.job} failed"
    if ended.secondary not in ("", ended.status):
        what += f" ({ended.secondary})"
    why = [ended.reason]
    if ended.stopped_for:
        why.append(
            f"--stop-on-cause stopped it: {ended.stopped_for}" if ended.cause else "--stop-on-silence stopped it"
        )
    elif ended.status == "Stopped" and not ended.reason and ended.secondary not in LIMITS:
        why.append("somebody called StopTrainingJob: CloudTrail knows who")
    if ended.cause:
        why += [f"{ended.cause.id}: {ended.cause.what}", ended.evidence]
    raise JobError(
        what,
        where=f"sagemaker {ended.region}",
        why="\n".join(filter(None, why)),
        fix=ended.cause.fix if ended.cause else _unexplained(ended),
    )


def _unexplained(ended: "Ended") -> str:
    if ended.secondary in LIMITS:
        return LIMITS[ended.secondary]
    console = f"https://{ended.region}.console.aws.amazon.com/sagemaker/home"
    return f"read the last lines above; {console}#/jobs/{ended.job} has its metrics" if not ended.stopped_for else ""


def _moment(text: str) -> int:
    """Milliseconds since 1970. Raises ConfigError."""
    from datetime import UTC, datetime, timedelta

    try:
        if found := re.fullmatch(r"(\d+)([smhd])", text):
            at = datetime.now(UTC) - timedelta(seconds=int(found[1]) * UNITS[found[2]])
        else:
            at = datetime.fromisoformat(text)
        return max(0, int(at.timestamp() * 1000))  # CloudWatch has nothing of before 1970
    except (ValueError, OverflowError):  # also of a year that no calendar here has
        fix = "--since 30m, or --since 2026-11-22T10:00:00"
        raise ConfigError(f"--since {text!r} is no time", fix=fix) from None
