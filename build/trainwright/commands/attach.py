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
    "MaxRuntimeExceeded": "raise MaxRuntimeInSeconds; with checkpoints the next job resumes where this one stopped",
    "MaxWaitTimeExceeded": "raise MaxWaitTimeInSeconds, or do not use spot: the limit includes the wait for capacity",
}


@app.command()
def attach(
    job: Annotated[str, typer.Argument(metavar="JOB", help="Name of a SageMaker training job.")],
    region: OneRegion = "",
    since: Annotated[
        str, typer.Option(metavar="WHEN", help="Start of the log: 30m, 2h, 1d ago, or 2026-11-22T10:00:00.")
    ] = "",
    stop_on_cause: StopOnCause = False,
    stop_on_silence: StopOnSilence = False,
    as_json: Json = False,
) -> None:
    """Follow a SageMaker training job. Shows its log, what it waits for and known causes; exits 9 if it fails."""
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
    """Remove the secret that `launch` uploaded for a job once the block shows that the job has ended.

    `secret` is its location, if the caller knows it; else it is looked up in the job.
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
            say(f"its secret stays in {secret} until `trainwright attach` sees the job end")


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
    """Follow a job for `attach`, and for `launch` after the start; return if the job completed.

    Raises JobError if it failed or was stopped, AwsError and ConfigError as follow() does, and Exit(130) after Ctrl-C.
    After an error the job is left as it is, and the command that follows it again is printed.
    """
    from trainwright.core import console
    from trainwright.diagnose import watch as diagnose_watch
    from trainwright.jobs import follow

    watch = diagnose_watch.load_watch(root)
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
        typer.echo(f"\nthe job keeps running; follow it again: {console.pasteable(again)}", err=True)
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
    """Raise JobError unless the job completed, with SageMaker's reason and the cause that the log shows."""
    from trainwright.jobs.follow import SILENCE

    if ended.status == "Completed":
        return
    what = f"{ended.job} was stopped" if ended.status == "Stopped" else f"{ended.job} failed"
    if ended.secondary not in ("", ended.status):
        what += f" ({ended.secondary})"
    why = [ended.reason]
    if ended.stopped_for:
        silent = ended.stopped_for == SILENCE
        why.append("--stop-on-silence stopped it" if silent else f"--stop-on-cause stopped it: {ended.stopped_for}")
    elif ended.status == "Stopped" and not ended.reason and ended.secondary not in LIMITS:
        why.append("StopTrainingJob was called; CloudTrail shows by whom")
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
    """Parse the value of --since (`30m`, or an ISO time) into milliseconds since 1970. Raises ConfigError."""
    from datetime import UTC, datetime, timedelta

    try:
        if found := re.fullmatch(r"(\d+)([smhd])", text):
            at = datetime.now(UTC) - timedelta(seconds=int(found[1]) * UNITS[found[2]])
        else:
            at = datetime.fromisoformat(text)
        return max(0, int(at.timestamp() * 1000))  # CloudWatch has no events from before 1970
    except (ValueError, OverflowError):  # also for a year that datetime does not support
        fix = "--since 30m, or --since 2026-11-22T10:00:00"
        raise ConfigError(f"--since {text!r} is not a time", fix=fix) from None
