"""Run programs side by side: each with a limit of its own, none left behind, whatever happens.

One loop that never waits for a single program: so a hang of one, and an interrupt during it, end all of them.
"""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

POLL_SECONDS = 0.1
AGAIN_SECONDS, KILL_SECONDS = 3.0, 20.0  # after SIGINT: SIGTERM, then SIGKILL
TOO_LATE = 124  # exit code of a program that was stopped


@dataclass(frozen=True)
class Step:
    """One program: bash with this text; its output goes to the log."""

    text: str
    log: Path
    limit: float  # seconds


@dataclass
class Job:
    """Steps one after the other; the rest is left out once `goes_on` says so."""

    steps: Sequence[Step]
    codes: list[int] = field(default_factory=list)
    child: "subprocess.Popen[bytes] | None" = None
    begun: float = 0.0
    ending: float | None = None  # when it was first asked to end
    asked: int = 0

    @property
    def over(self) -> bool:
        return self.child is None and len(self.codes) == len(self.steps)

    def start(self) -> None:
        step = self.steps[len(self.codes)]
        step.log.parent.mkdir(parents=True, exist_ok=True)
        with step.log.open("wb") as log:
            self.child = subprocess.Popen(
                ["bash", "-c", step.text],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.begun, self.ending, self.asked = time.monotonic(), None, 0

    def end(self) -> None:
        """Ask it to end, the harder the longer it takes.

        What a shell starts in the background ignores SIGINT, and a trap cannot change that; hence SIGTERM, too.
        """
        now = time.monotonic()
        self.ending = now if self.ending is None else self.ending
        due = ((0.0, signal.SIGINT), (AGAIN_SECONDS, signal.SIGTERM), (KILL_SECONDS, signal.SIGKILL))
        while self.child and self.asked < len(due) and now - self.ending >= due[self.asked][0]:
            if due[self.asked][1] == signal.SIGKILL:
                kill_session(self.child.pid)
            else:
                with suppress(ProcessLookupError):
                    os.killpg(self.child.pid, due[self.asked][1])
            self.asked += 1

    def look(self) -> None:
        """Note an end, stop what is too late, and start what comes next."""
        if self.child is None:
            if len(self.codes) < len(self.steps):
                self.start()
            return
        code = self.child.poll()
        if code is None:
            if self.ending is not None or time.monotonic() - self.begun > self.steps[len(self.codes)].limit:
                self.end()
            return
        kill_session(self.child.pid)  # what it left
        self.codes.append(TOO_LATE if self.ending is not None else code)
        self.child = None


def side_by_side(jobs: Sequence[Job], most: int, done: Callable[[int], None] | None = None) -> None:
    """Run all jobs, at most so many at once; call `done` with the place of each that is over.

    On an interrupt every program is asked to end, its group is killed after a while, and the interrupt is raised again.
    """
    waiting, running = list(range(len(jobs))), list[int]()
    try:
        while waiting or running:
            while waiting and len(running) < most:
                running.append(waiting.pop(0))
            for place in list(running):
                jobs[place].look()
                if jobs[place].over:
                    running.remove(place)
                    if done:
                        done(place)
            time.sleep(POLL_SECONDS)
    except BaseException:
        _end_all([jobs[place] for place in running])
        raise


def _end_all(jobs: Sequence[Job]) -> None:
    with _no_second_interrupt():
        left = [job for job in jobs if job.child]
        while left:
            for job in left:
                job.end()
                if job.child and job.child.poll() is not None:
                    kill_session(job.child.pid)  # what it left
                    job.child = None
            left = [job for job in left if job.child]
            time.sleep(POLL_SECONDS)


def kill_session(leader: int) -> None:
    """Kill every process of a session. Its leader may have given its children groups of their own."""
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, ValueError, IndexError):
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            if int(fields[3]) == leader and int(entry.name) != os.getpid():
                os.kill(int(entry.name), signal.SIGKILL)
    with suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)


@contextmanager
def _no_second_interrupt() -> Iterator[None]:
    """Let a second Ctrl-C pass: it must not end the tidying."""
    try:
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    except ValueError:  # not the main thread, which gets no interrupt
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
