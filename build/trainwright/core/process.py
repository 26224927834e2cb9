"""Run programs: every error shows the whole command, and Ctrl-C leaves no orphan."""

import os
import shlex
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from trainwright.core.errors import EnvironmentProblem, TrainwrightError

GRACE_SECONDS = 10  # time for a child to clean up
KEPT_LINES = 500  # lines kept of the output that is passed on


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
    """Run a command and return its standard output as text. `show` passes its standard error through for progress;
    `out_to_err` sends its standard output to our standard error, because our standard output is for data. A variable of
    `env` that is None is removed.

    Raises `error` with the command and its last lines if its exit code is not in `accept`, EnvironmentProblem if it is
    not installed or cannot be run.
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
        raise EnvironmentProblem(f"{words[0]} is not installed", why=shlex.join(words), fix="make engine") from None
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
            why=last or f"exit code {child.returncode}{'; its output is above' if show else ', without output'}",
            fix=fix,
        )
    return out or ""


def pass_on(
    command: Sequence[str | Path],
    *,
    cwd: Path,
    error: type[TrainwrightError],
    what: str,
    fix: str,
    reason: Callable[[str], str],
) -> None:
    """Run a program and pass its output to our standard error; if that is a terminal, the program writes directly.

    Raises `error` with the command and `reason` of its last 500 lines if it fails; output to a terminal is not kept.
    """
    words = [str(word) for word in command]
    kept: deque[str] = deque(maxlen=KEPT_LINES)
    shown = sys.stderr.isatty()
    child = subprocess.Popen(
        words,
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr if shown else subprocess.PIPE,
        stderr=None if shown else subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    try:
        for line in child.stdout or ():
            sys.stderr.write(line)
            sys.stderr.flush()
            kept.append(line)
        child.wait()
    except BaseException:
        stop(child)
        raise
    if child.returncode:
        why = reason("".join(kept)) or f"exit code {child.returncode}; its output is above"
        raise error(what, where=shlex.join(words), why=why, fix=fix)


def logged(
    command: Sequence[str | Path], log: Path, *, cwd: Path, env: Mapping[str, str | None] | None = None, grace: float
) -> tuple[int, str]:
    """Run a program for hours: pass its output to our standard error and write it to `log`; return its exit code and
    its last 500 lines.

    Its processes form a session of their own. Whatever ends this function early ends all of them: by SIGINT, after
    `grace` seconds by SIGTERM, after as many again by SIGKILL.
    """
    kept: deque[str] = deque(maxlen=KEPT_LINES)
    with log.open("w") as file:
        ignored = signal.getsignal(signal.SIGINT) == signal.SIG_IGN  # as under nohup: a program inherits that
        if ignored:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
        try:
            child = subprocess.Popen(
                [str(word) for word in command],
                cwd=cwd,
                env=environment(env or {}),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                start_new_session=True,
            )
        finally:
            if ignored:
                signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            for line in child.stdout or ():
                for target in (sys.stderr, file):
                    target.write(line)
                    target.flush()
                kept.append(line)
            child.wait()
        except BaseException:
            _stop_session(child, grace)
            raise
    return child.returncode, "".join(kept)


def _stop_session(child: "subprocess.Popen[str]", grace: float) -> None:
    """End all processes of a session, and read on meanwhile, because a full pipe would keep them from cleaning up."""
    try:
        print(f"stopping; what runs has {grace:.0f} s to clean up", file=sys.stderr, flush=True)
        for number in (signal.SIGINT, signal.SIGTERM):
            with suppress(ProcessLookupError):
                os.killpg(child.pid, number)
            with suppress(subprocess.TimeoutExpired):
                child.communicate(timeout=grace)
                break
    finally:
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()


def environment(changes: Mapping[str, str | None]) -> dict[str, str]:
    """Return our environment with these changes; None removes a variable."""
    return {name: value for name, value in {**os.environ, **changes}.items() if value is not None}


def stop(child: "subprocess.Popen[str]") -> None:
    """Send SIGINT, wait, then kill."""
    child.send_signal(signal.SIGINT)
    try:
        child.wait(GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
