"""Processes of a host: started, listened to, told to end, killed, and buried. A few of them, for as long as a job runs.

SIGTERM goes to the script's own process and to nothing below it: a data loader's workers that die first would take the
checkpoint with them. A shell hands it on to what it runs, unless it catches the signal itself.
"""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from errors import LauncherError

SHELLS = {"sh", "bash", "dash", "ash", "ksh", "zsh"}
SET_DEATH_SIGNAL, SET_SUBREAPER = 1, 36  # prctl(2)
CHUNK = 65536


def said(words: Sequence[str], seconds: float) -> tuple[int, str]:
    """What a program that answers at once ends with, and all that it says. Raises LauncherError where it does not."""
    try:
        done = subprocess.run(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=seconds,
        )
    except subprocess.TimeoutExpired:
        why = "the host is overloaded, or one of its file systems hangs"
        raise LauncherError(f"{words[0]} did not end within {seconds:g} s", why, "uptime; df -h /run /tmp") from None
    except OSError as problem:
        raise LauncherError(f"there is no {words[0]}", problem.strerror or "", "an image that has it") from None
    return done.returncode, done.stdout.decode(errors="replace").strip()


def _prctl(option: int, value: int) -> None:
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def adopt() -> None:
    """What loses its parent comes to this process, not only where it is PID 1."""
    _prctl(SET_SUBREAPER, 1)


class Child:
    """A started command. What it says on stderr goes on as it comes; the last of it is kept."""

    def __init__(
        self,
        command: Sequence[str],
        environ: Mapping[str, str],
        tail_bytes: int,
        *,
        script: bool = True,
        dies: bool = False,
    ) -> None:
        """`script`: no torchrun or mpirun. `dies`: with this process, however that ends; for one without threads.

        Raises LauncherError where the command cannot be started.
        """
        prctl = ctypes.CDLL(None).prctl
        begin = (lambda: prctl(SET_DEATH_SIGNAL, int(signal.SIGKILL), 0, 0, 0)) if dies else None
        try:
            self.process = subprocess.Popen(
                command,
                env=environ,
                stderr=subprocess.PIPE,
                preexec_fn=begin,
                start_new_session=not dies,  # an interrupt at a terminal comes through the launcher alone
            )
        except OSError as problem:
            why = f"{problem.strerror}: {problem.filename or command[0]}"
            raise LauncherError(f"{command[0]} cannot be started", why, "look at the script's name and mode") from None
        self.is_script = script
        self._kept, self._limit = bytearray(), tail_bytes
        self._reader = threading.Thread(target=self._listen, daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        return self.process.pid

    def ended(self) -> int | None:
        """The exit code as Popen has it; None while it runs."""
        return self.process.poll()

    def tail(self, drain_seconds: float) -> str:
        """Its last words; something that it left running may hold the pipe, and is not waited for any longer."""
        self._reader.join(drain_seconds)
        return bytes(self._kept).decode(errors="replace")

    def _listen(self) -> None:
        assert self.process.stderr
        into = sys.stderr.fileno()
        while chunk := os.read(self.process.stderr.fileno(), CHUNK):
            self._kept += chunk
            del self._kept[: -self._limit]
            with contextlib.suppress(OSError):  # nobody listens any more; the job goes on
                view = memoryview(chunk)
                while view:
                    view = view[os.write(into, view) :]


def stat(pid: int) -> tuple[int, str]:
    """Parent and state; (0, "") where there is no such process."""
    with contextlib.suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
        return int(fields[1]), fields[0]
    return 0, ""


def _pids() -> list[int]:
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]


def children() -> dict[int, list[int]]:
    """Parent to what it has started, of all processes that can be seen; what has ended already is left out."""
    found = dict[int, list[int]]()
    for entry in _pids():
        parent, state = stat(entry)
        if state not in ("", "Z", "X"):
            found.setdefault(parent, []).append(entry)
    return found


def below(pid: int) -> list[int]:
    known, found = children(), list[int]()
    queue = list(known.get(pid, []))
    while queue:
        found.append(queue.pop())
        queue += known.get(found[-1], [])
    return found


def _catches(pid: int, number: int) -> bool:
    with contextlib.suppress(OSError, StopIteration, ValueError):
        rows = Path(f"/proc/{pid}/status").read_text().splitlines()
        caught = next(row.split()[1] for row in rows if row.startswith("SigCgt:"))
        return bool(int(caught, 16) >> (number - 1) & 1)
    return False


def _name(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/exe").readlink().name
    return ""


def targets(pid: int) -> list[int]:
    """Who is told to end, so that a script ends: itself, or what a shell runs that does not catch SIGTERM itself."""
    known = children()
    if _name(pid) not in SHELLS or _catches(pid, signal.SIGTERM) or not known.get(pid):
        return [pid]
    return [target for child in known[pid] for target in targets(child)]


def tell(pids: Iterable[int], number: int = signal.SIGTERM) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def kill_below(spared: Iterable[int] = ()) -> None:
    """SIGKILL to all that this process has started, and what that has; twice, as some may have been starting more."""
    kept = set(spared)
    for _ in range(2):
        tell((pid for pid in below(os.getpid()) if pid not in kept), signal.SIGKILL)


def bury(known: Iterable[int]) -> None:
    """Wait for what others left to this process; who has a Popen is waited for there."""
    try:
        if not os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            return
    except ChildProcessError:
        return
    mine = set(known)
    for entry in _pids():
        if entry not in mine and stat(entry) == (os.getpid(), "Z"):
            with contextlib.suppress(ChildProcessError):
                os.waitpid(entry, os.WNOHANG)
