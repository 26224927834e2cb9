"""What stands over each rank that torchrun or mpirun starts: on every host, in the same way.

Both say of a rank that failed little more than that it did, and both would send SIGTERM to all of them, and SIGKILL
after seconds. This parent hands on SIGTERM, gives the rank its own host's environment where mpirun brings the main
host's, and writes down how the rank ended. Its folder is the launcher's on this host, and only that user's.
"""

import contextlib
import json
import os
import signal
import stat
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path

import failures
import processes
import starting
from errors import LauncherError

ENVIRONMENT, STOPPING = "environment.json", "stopping"
NUMBERS = ("OMPI_COMM_WORLD_RANK", "RANK", "PMIX_RANK")  # torchrun's ranks may have the last one from srun
KILLED = (128 + signal.SIGTERM, 128 + signal.SIGKILL)


@dataclass(frozen=True)
class Record:
    """How a rank ended: its exit code as a shell has it, seconds since 1970, and its last words."""

    rank: str
    code: int
    at: float
    words: str


def folder(job: str, alone: bool) -> Path:
    """Of a job on a host: the same name on all, as mpirun's command line is. LauncherError for another user's."""
    if alone:  # another job of one host may run beside it
        return Path(tempfile.mkdtemp(prefix=f"trainwright-{os.getuid()}-"))
    name = sha256(job.encode()).hexdigest()[:16]
    path = Path(tempfile.gettempdir(), f"trainwright-{os.getuid()}-{name}")
    try:
        path.mkdir(mode=0o700, exist_ok=True)
        found = path.lstat()
    except OSError as problem:
        raise LauncherError(f"{path} cannot be made", problem.strerror or "", "look at the disk's space") from None
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise LauncherError(f"{path} is not this user's alone", "another user may have made it", "remove it")
    for old in path.iterdir():
        old.unlink()
    return path


def prepare(path: Path, environ: Mapping[str, str]) -> None:
    """What ranks of this host find in their environment. Raises LauncherError where it cannot be written."""
    file = path / ENVIRONMENT
    try:
        file.touch(mode=0o600)
        file.write_text(json.dumps(dict(environ)))
    except OSError as problem:
        raise LauncherError(f"{file} cannot be written", problem.strerror or "", "look at the disk's space") from None


def remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        for old in path.iterdir():
            old.unlink()
        path.rmdir()


def records(path: Path) -> list[Record]:
    """Of the ranks that failed, the cause first: the earliest that was not ended by another one."""
    found = list[Record]()
    for file in path.glob("rank-*.json"):
        with contextlib.suppress(OSError, ValueError, TypeError):
            found.append(Record(**json.loads(file.read_text())))
    return sorted(found, key=lambda one: (one.code in KILLED, one.at))


def running(path: Path) -> list[int]:
    """This module's own processes, of this job, below this one."""
    mine = list[int]()
    for pid in processes.below(os.getpid()):
        with contextlib.suppress(OSError):
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            # mpirun and ssh name all of these words, too, but behind others, or in one.
            if words[1:5] == [b"-IB", starting.LAUNCHER.encode(), b"--rank", os.fsencode(path)]:
                mine.append(pid)
    return mine


def main(words: Sequence[str], settings: Mapping[str, int]) -> int:
    """`--rank FOLDER --keep A,B -- COMMAND...`"""
    path, keep, command = Path(words[1]), words[3].split(","), list(words[5:])
    environ = dict(os.environ)
    number = next((environ[name] for name in NUMBERS if name in environ), str(os.getpid()))
    if NUMBERS[0] in environ:
        with contextlib.suppress(OSError, ValueError):
            environ = starting.of_rank(environ, json.loads((path / ENVIRONMENT).read_text()), keep)
    started, came = list[processes.Child](), list[int]()

    def hand_on(number: int, _: object) -> None:
        came.append(number)
        for child in started:
            processes.tell(processes.targets(child.pid))

    signal.signal(signal.SIGTERM, hand_on)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    started.append(processes.Child(command, environ, settings["tail_bytes"], dies=True))
    if came:  # before there was anybody to tell
        processes.tell([started[0].pid])
    code = failures.exit_code(started[0].process.wait())
    if not code:
        return 0
    said = failures.last_words(started[0].tail(settings["drain_seconds"]), settings["failure_characters"])
    record = Record(number, code, time.time(), said)
    with contextlib.suppress(OSError):  # a full disk: torchrun's and mpirun's own words are left
        unfinished = path / f"unfinished-{os.getpid()}"
        unfinished.write_text(json.dumps(asdict(record)))
        unfinished.replace(path / f"rank-{number}-{os.getpid()}.json")
        # Where the job is being stopped, the other ranks may still be saving: who starts them must not see a failure.
        return 0 if (path / STOPPING).exists() else code
    return code
