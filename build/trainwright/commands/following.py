"""The commands that follow what runs elsewhere, and how the end of a job of SageMaker is told."""

import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from trainwright.commands.options import Json, app, find_root
from trainwright.errors import AwsError, ConfigError, JobError, printable

if TYPE_CHECKING:
    from trainwright.following import Ended

COLOURS = (36, 33, 35, 32, 34)  # of a terminal, one host after the other
BOLD, RED = 1, 31
COLOUR = re.compile(r"(\x1b\[[0-9;]{0,40}m)")  # all that a log may tell a terminal
UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
LIMITS = {  # of DescribeTrainingJob's SecondaryStatus
    "MaxRuntimeExceeded": "a longer MaxRuntimeInSeconds; with checkpoints the next job goes on where this one was",
    "MaxWaitTimeExceeded": "a longer MaxWaitTimeInSeconds, or without spot: it waited for capacity as well as trained",
}

StopOnCause = Annotated[bool, typer.Option("--stop-on-cause", help="Stop the job at a cause that nothing survives.")]
StopOnSilence = Annotated[bool, typer.Option("--stop-on-silence", help="Stop the job when no host speaks any more.")]
OneRegion = Annotated[str, typer.Option(envvar="AWS_REGION", metavar="NAME", help="Of the job; else the account's.")]


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
    from trainwright import aws

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
    from trainwright import beginning

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
            beginning.clear(region, job, secret, say)
        elif secret:
            say(f"its secret lies in {secret} until attach has seen the job end")


@app.command()
def watch(
    log: Annotated[str, typer.Argument(metavar="LOG", help="A file, or - for what comes through a pipe.")],
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on while the file grows; Ctrl-C ends it.")] = False,
    hosts: Annotated[int, typer.Option(min=0, help="Of the job; on one, no network between hosts is a cause.")] = 0,
    stop_on_cause: Annotated[
        bool, typer.Option("--stop-on-cause", help="End at a cause that nothing survives.")
    ] = False,
    stop_on_silence: Annotated[bool, typer.Option("--stop-on-silence", help="End when no line comes.")] = False,
    as_json: Json = False,
) -> None:
    """Known causes and silence in a log while it is written, as of Slurm or `kubectl logs -f`; 9: a job fails there."""
    import time

    from trainwright import causes, judging, report, tailing, watching
    from trainwright.nccl_tests import unprefixed

    root, piped = find_root(), log == judging.STANDARD_INPUT
    one = watching.Watch(causes.load_causes(root), watching.load_settings(root), hosts)
    say = printer(sys.stderr if as_json or piped else sys.stdout)
    written, ended_by = follow or piped, ""
    passed = _pass_on if piped and not as_json else None  # what comes through a pipe is seen by nobody else
    for line in tailing.lines(log, follow, one.settings.poll.file_seconds, passed):
        now = time.monotonic()
        if line is None:
            said = one.tick(now)
        else:
            rank = unprefixed(line)[1]
            said = one.line(f"rank {rank}" if rank else "", line, now) + (one.tick(now) if written else [])
        for text in said:
            say(f"watch  | {text}")
        ended_by = "cause" if stop_on_cause and one.stops() else "silence" if stop_on_silence and one.silent else ""
        if ended_by:
            break
    for text in one.end():
        say(f"watch  | {text}")
    cause, evidence = one.cause or (None, "")
    if as_json:
        found = cause.model_dump(include={"id", "what", "fix", "fatal", "stops"}) if cause else None
        report.data({"log": log, "lines": one.lines, "silent": one.silent, "cause": found, "evidence": evidence})
    elif not cause:
        typer.echo(f"{log}: no known cause in {one.lines} lines", err=True)
    if end := one.stops(final=True):
        cause, evidence = end
        raise JobError(f"a job fails: {cause.what}", where=log, why=f"{cause.id}: {evidence}", fix=cause.fix)
    if ended_by == "silence":
        raise JobError("a job is silent", where=log, fix="py-spy dump on each rank shows where it waits")


def _pass_on(piece: bytes) -> None:
    sys.stdout.buffer.write(piece)
    sys.stdout.buffer.flush()


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
    from trainwright import causes, following, report, watching

    watch = watching.Watch(causes.load_causes(root), watching.load_settings(root))
    again = f"trainwright attach {job} --region {region}"
    try:
        ended = following.follow(
            job,
            region,
            watch=watch,
            say=printer(sys.stderr if as_json else sys.stdout),
            stop_on_cause=stop_on_cause,
            stop_on_silence=stop_on_silence,
            since=since,
        )
    except KeyboardInterrupt:
        typer.echo(f"\nthe job goes on; follow it again: {report.pasteable(again)}", err=True)
        typer.echo(f"stop it: aws sagemaker stop-training-job --training-job-name {job} --region {region}", err=True)
        raise typer.Exit(130) from None
    except AwsError as error:
        error.fix = f"{error.fix}\n{again}".lstrip()
        raise
    if as_json:
        report.data({**ended.model_dump(mode="json"), "saved": ended.saved})
    else:
        typer.echo("")
        report.show([_row(ended)], as_json=False)
    refuse(ended)


def _row(ended: "Ended") -> dict[str, str]:
    from trainwright.watching import minutes

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


def printer(to: TextIO) -> Callable[[str], None]:
    """Prints `name | text`; on a terminal each host has a colour of its own, and what the watch says stands out."""
    coloured = to.isatty() and not os.environ.get("NO_COLOR")

    def say(line: str) -> None:
        line = "".join(part if COLOUR.fullmatch(part) else printable(part) for part in COLOUR.split(line))
        name, bar, text = line.partition(" | ")
        if coloured and bar:
            number = name.strip().rpartition("-")[2]
            colour = (
                COLOURS[int(number) % len(COLOURS)]
                if re.fullmatch("[0-9]{1,9}", number)
                else RED
                if "watch" in name
                else BOLD
            )
            after = "\033[0m" if "\033[" in text else ""  # a host's own colours end with its line
            line = f"\033[{colour}m{name} |\033[0m {text}{after}"
        to.write(f"{line}\n")
        to.flush()

    return say
