"""The command `trainwright watch`."""

import sys
from typing import Annotated

import typer

from trainwright.commands.options import Json, app, find_root
from trainwright.core.errors import JobError
from trainwright.core.progress import counted


@app.command()
def watch(
    log: Annotated[str, typer.Argument(metavar="LOG", help="Log file, or - for standard input.")],
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Read on while the file grows; Ctrl-C ends it.")
    ] = False,
    hosts: Annotated[int, typer.Option(min=0, help="Number of hosts; with 1, network causes are ignored.")] = 0,
    stop_on_cause: Annotated[
        bool, typer.Option("--stop-on-cause", help="End at a cause that no job survives.")
    ] = False,
    stop_on_silence: Annotated[bool, typer.Option("--stop-on-silence", help="End when no new line comes.")] = False,
    as_json: Json = False,
) -> None:
    """Watch a growing log for known causes and silence. Suits Slurm and `kubectl logs -f`.

    Exits 9 at a cause that no program survives.
    """
    import time

    from trainwright.core import console
    from trainwright.diagnose import log_lines, tail
    from trainwright.diagnose import watch as diagnose_watch
    from trainwright.diagnose.log_lines import unprefixed

    root, piped = find_root(), log == log_lines.STANDARD_INPUT
    one = diagnose_watch.load_watch(root, hosts)
    say = console.log_printer(sys.stderr if as_json or piped else sys.stdout)
    written, stopped, silent = follow or piped, None, False
    passed = _pass_on if piped and not as_json else None  # otherwise a piped log would not be shown
    for line in tail.lines(log, follow, one.settings.poll.file_seconds, passed):
        now = time.monotonic()
        if line is None:
            said = one.tick(now)
        else:
            rank = unprefixed(line)[1]
            said = one.line(f"rank {rank}" if rank else "", line, now) + (one.tick(now) if written else [])
        for text in said:
            say(f"watch  | {text}")
        stopped, silent = one.stops() if stop_on_cause else None, stop_on_silence and one.silent
        if stopped or silent:
            break
    last = one.end()
    for text in last:
        say(f"watch  | {text}")
    cause, evidence = stopped or one.cause or (None, "")
    if as_json:
        found = cause.model_dump(include={"id", "what", "fix", "fatal", "stops"}) if cause else None
        console.data({"log": log, "lines": one.lines, "silent": one.silent, "cause": found, "evidence": evidence})
    elif not cause and not last:
        seen = f"no known cause in {counted(one.lines, 'line')}" if one.lines else "the log is empty"
        typer.echo(f"{log}: {seen}", err=True)
    if cause and cause.stops:
        raise JobError(f"a job fails: {cause.what}", where=log, why=f"{cause.id}: {evidence}", fix=cause.fix)
    if silent:
        raise JobError("a job is silent", where=log, fix="py-spy dump on each rank shows where it waits")


def _pass_on(piece: bytes) -> None:
    sys.stdout.buffer.write(piece)
    sys.stdout.buffer.flush()
