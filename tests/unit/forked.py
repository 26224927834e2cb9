"""Run the command line in a process of its own, forked from this one: no interpreter starts and nothing is imported.

It has descriptors, signals, limits and a working directory of its own, as another process has, but the modules of this
one and all that a test replaced in them. What is about the start of the program itself needs `trainwright`.
"""

import os
import signal
import subprocess
import sys
import traceback
import warnings
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import IO, NoReturn

import state

from trainwright import cli

ENDS = 60  # seconds: by then a command hangs


class Forked:
    """A command that runs. It has the part of subprocess.Popen that tests use."""

    def __init__(self, words: Iterable[object], cwd: Path, before: Callable[[], object] = lambda: None) -> None:
        """Start a command; `before` is called first in the new process."""
        ours, theirs = [0] * 3, [0] * 3
        theirs[0], ours[0] = os.pipe()
        ours[1], theirs[1] = os.pipe()
        ours[2], theirs[2] = os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        self.returncode: int | None = None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # threads of this process do not exist in the new one
            self.pid = os.fork()
        if self.pid == 0:
            _run([str(word) for word in words], cwd, before, theirs, ours)
        for descriptor in theirs:
            os.close(descriptor)
        self.stdin, self.stdout, self.stderr = (os.fdopen(one, mode) for one, mode in zip(ours, "wrr", strict=True))

    def wait(self) -> int:
        if self.returncode is None:
            self.returncode = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self.returncode

    def poll(self) -> int | None:
        """Return the exit code, or None while the command runs."""
        if self.returncode is None and (ended := os.waitpid(self.pid, os.WNOHANG))[0]:
            self.returncode = os.waitstatus_to_exitcode(ended[1])
        return self.returncode

    def terminate(self) -> None:
        os.kill(self.pid, signal.SIGTERM)

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)

    def send_signal(self, which: int) -> None:
        os.kill(self.pid, which)

    def communicate(self, given: bytes = b"") -> tuple[bytes, bytes]:
        """Return standard output and standard error of the command, once it ended."""
        said: list[bytes] = [b"", b""]

        def read(number: int, stream: IO[str]) -> None:
            said[number] = stream.buffer.read()  # type: ignore[attr-defined]  # of a text stream

        readers = [Thread(target=read, args=pair) for pair in enumerate((self.stdout, self.stderr))]
        for reader in readers:
            reader.start()
        with suppress(BrokenPipeError):
            self.stdin.buffer.write(given)  # type: ignore[attr-defined]
            self.stdin.close()
        for reader in readers:
            reader.join(ENDS)
        if any(reader.is_alive() for reader in readers):
            self.kill()
        self.wait()
        self.stdout.close()
        self.stderr.close()
        return said[0], said[1]


def run(
    words: Iterable[object], cwd: Path, before: Callable[[], object] = lambda: None
) -> "subprocess.CompletedProcess[str]":
    """Run a command to its end."""
    child = Forked(words, cwd, before)
    out, err = child.communicate()
    return subprocess.CompletedProcess("trainwright", child.wait(), out.decode(), err.decode())


def _run(words: list[str], cwd: Path, before: Callable[[], object], own: list[int], others: list[int]) -> NoReturn:
    """Be the new process: it ends here, whatever happens, and never goes on with tests."""
    code = 1
    try:
        for descriptor in others:
            os.close(descriptor)
        for number, descriptor in enumerate(own):
            os.dup2(descriptor, number)
            os.close(descriptor)
        sys.stdin, sys.stdout, sys.stderr = (
            open(number, mode, encoding="utf-8", closefd=False)  # noqa: SIM115  # as long as the process lives
            for number, mode in enumerate("rww")
        )
        os.chdir(cwd)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        state.forget()
        sys.argv = ["trainwright", *words]
        before()
        try:
            cli.main()
        except SystemExit as ended:
            code = int(ended.code or 0)
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:
        traceback.print_exc()
        with suppress(OSError):
            sys.stderr.flush()
    finally:
        os._exit(code)
