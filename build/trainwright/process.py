"""Run a program: the whole command in every error, and no orphan after Ctrl-C."""

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from trainwright.errors import EnvironmentProblem, TrainwrightError

GRACE_SECONDS = 10  # what a child gets to put its things away


def run(
    command: Sequence[str | Path],
    *,
    error: type[TrainwrightError],
    what: str = "",
    fix: str = "",
    cwd: Path | None = None,
    env: Mapping[str, str | None] | None = None,
    stdin: str | None = None,
    accept: Collection[int] = (0,),
    show: bool = False,
    out_to_err: bool = False,
) -> str:
    """Standard output of a command, as text. `show` lets its standard error through as it comes, for progress;
    `out_to_err` its standard output likewise, to our standard error: that of ours is for data. A variable of `env`
    that is None is taken away.

    Raises `error` with command and last words when it ends with another code than `accept` has,
    EnvironmentProblem when it is not there.
    """
    words = [str(word) for word in command]
    try:
        child = subprocess.Popen(
            words,
            cwd=cwd,
            env=environment(env or {}),
            stdin=subprocess.PIPE if stdin is not None else subprocess.DEVNULL,
            stdout=sys.stderr if out_to_err else subprocess.PIPE,
            stderr=None if show else subprocess.PIPE,
            text=True,
            errors="replace",
        )
    except FileNotFoundError:
        raise EnvironmentProblem(
            f"{words[0]} is not on this machine", why=shlex.join(words), fix="make engine"
        ) from None
    except OSError as problem:
        raise EnvironmentProblem(f"{words[0]} cannot be run", where=shlex.join(words), why=str(problem)) from None
    try:
        out, err = child.communicate(stdin)
    except KeyboardInterrupt:
        stop(child)
        raise
    if child.returncode not in accept:
        last = "\n".join((err or out or "").strip().splitlines()[-15:])
        raise error(
            what or f"{Path(words[0]).name} failed with exit code {child.returncode}",
            where=shlex.join(words),
            why=last or f"exit code {child.returncode}{'; its output is above' if show else ', and no word'}",
            fix=fix,
        )
    return out or ""


def environment(changes: Mapping[str, str | None]) -> dict[str, str]:
    """Ours, with these changes; None takes a variable away."""
    return {name: value for name, value in {**os.environ, **changes}.items() if value is not None}


def stop(child: "subprocess.Popen[str]") -> None:
    """Ask, wait, then insist."""
    child.send_signal(signal.SIGINT)
    try:
        child.wait(GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
