"""Run as the parent of each rank that torchrun or mpirun starts, and record how the rank ended.

torchrun and mpirun report little about a failed rank, and then end all ranks by SIGTERM and, seconds later, SIGKILL.
This parent passes SIGTERM on, gives a rank under mpirun the environment of its own host instead of the main host's, and
writes a record into the launcher's folder on this host, which only this user can read.
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
NUMBERS = ("OMPI_COMM_WORLD_RANK", "RANK", "PMIX_RANK")  # PMIX_RANK last: torchrun's ranks may inherit it from srun
KILLED = (128 + signal.SIGTERM, 128 + signal.SIGKILL)


@dataclass(frozen=True)
class Record:
    """Describe how a rank ended: a shell's exit code, the time (seconds since 1970), and the end of its stderr."""

    rank: str
    code: int
    at: float
    words: str


def folder(job: str, alone: bool) -> Path:
    """Create the job's folder on this host. mpirun has one command line for all hosts, so its name is the same on all.

    Raises LauncherError if it cannot be created or another user can access it.
    """
    if alone:  # other jobs of one host may run beside this one, so each gets a name of its own
        return Path(tempfile.mkdtemp(prefix=f"trainwright-{os.getuid()}-"))
    name = sha256(job.encode()).hexdigest()[:16]
    path = Path(tempfile.gettempdir(), f"trainwright-{os.getuid()}-{name}")
    try:
        path.mkdir(mode=0o700, exist_ok=True)
        found = path.lstat()
    except OSError as problem:
        raise LauncherError(f"{path} cannot be created", problem.strerror or "", "check the free disk space") from None
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise LauncherError(f"other users can access {path}", "another user may have created it", "remove it")
    for old in path.iterdir():
        old.unlink()
    return path


def prepare(path: Path, environ: Mapping[str, str]) -> None:
    """Write the environment for the ranks of this host. Raises LauncherError if it cannot be written."""
    file = path / ENVIRONMENT
    try:
        file.touch(mode=0o600)
        file.write_text(json.dumps(dict(environ)))
    except OSError as problem:
        raise LauncherError(f"{file} cannot be written", problem.strerror or "", "check the free disk space") from None


def remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        for old in path.iterdir():
            old.unlink()
        path.rmdir()


def records(path: Path) -> list[Record]:
    """Return the records of failed ranks, the cause first: the earliest rank not ended by SIGTERM or SIGKILL."""
    found = list[Record]()
    for file in path.glob("rank-*.json"):
        with contextlib.suppress(OSError, ValueError, TypeError):
            found.append(Record(**json.loads(file.read_text())))
    return sorted(found, key=lambda one: (one.code in KILLED, one.at))


def running(path: Path) -> list[int]:
    """Return the pids of this job's rank parents (this module's processes) below this process."""
    mine = list[int]()
    for pid in processes.below(os.getpid()):
        with contextlib.suppress(OSError):
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            # mpirun and ssh have the same words on their command lines, but in other places.
            if words[1:5] == [b"-IB", starting.LAUNCHER.encode(), b"--rank", os.fsencode(path)]:
                mine.append(pid)
    return mine


def main(words: Sequence[str], settings: Mapping[str, int]) -> int:
    """Run a rank: `--rank FOLDER --keep A,B -- COMMAND...`. Returns its exit code; 0 while the job is being stopped."""
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
    if came:  # SIGTERM arrived before the rank was in the list
        processes.tell([started[0].pid])
    code = failures.exit_code(started[0].process.wait())
    if not code:
        return 0
    said = failures.last_words(started[0].tail(settings["drain_seconds"]), settings["failure_characters"])
    record = Record(number, code, time.time(), said)
    with contextlib.suppress(OSError):  # on a full disk only torchrun's and mpirun's own messages remain
        unfinished = path / f"unfinished-{os.getpid()}"
        unfinished.write_text(json.dumps(asdict(record)))
        unfinished.replace(path / f"rank-{number}-{os.getpid()}.json")
        # While the job is being stopped, other ranks may still save checkpoints: torchrun or mpirun would kill them
        # if this rank reported a failure.
        return 0 if (path / STOPPING).exists() else code
    return code
