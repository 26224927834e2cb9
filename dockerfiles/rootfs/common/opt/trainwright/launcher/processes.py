"""Start, read, signal, kill and reap the processes of this host.

SIGTERM goes to the script's own process only: if data-loader workers died first, the script could not save its
checkpoint. For a shell that does not catch SIGTERM, the signal goes to the program that the shell runs.
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


def run(words: Sequence[str], seconds: float) -> tuple[int, str]:
    """Run a short program. Returns its exit code and its output; raises LauncherError if it does not end in time."""
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
        fix = "check load and disks: uptime; df -h /run /tmp"
        raise LauncherError(f"{words[0]} did not end within {seconds:g} s", why, fix) from None
    except OSError as problem:
        fix = "use an image that has it"
        raise LauncherError(f"{words[0]} cannot be started", problem.strerror or "", fix) from None
    return done.returncode, done.stdout.decode(errors="replace").strip()


def _prctl(option: int, value: int) -> None:
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def become_subreaper() -> None:
    """Become the parent of orphaned descendants, even if this process is not PID 1 (prctl, PR_SET_CHILD_SUBREAPER)."""
    _prctl(SET_SUBREAPER, 1)


class Child:
    """Run a command; pass its stderr on at once and keep the end of it."""

    def __init__(
        self,
        command: Sequence[str],
        environ: Mapping[str, str],
        tail_bytes: int,
        *,
        script: bool = True,
        dies: bool = False,
    ) -> None:
        """Start the command.

        `tail_bytes`: how much of its stderr is kept. `script`: it is the user's script, not torchrun or mpirun.
        `dies`: kill it when this process ends; only safe in a process without threads.
        Raises LauncherError if the command cannot be started.
        """
        prctl = ctypes.CDLL(None).prctl
        begin = (lambda: prctl(SET_DEATH_SIGNAL, int(signal.SIGKILL), 0, 0, 0)) if dies else None
        try:
            self.process = subprocess.Popen(
                command,
                env=environ,
                stderr=subprocess.PIPE,
                preexec_fn=begin,
                start_new_session=not dies,  # Ctrl-C at a terminal reaches the launcher only, which passes it on
            )
        except OSError as problem:
            why = f"{problem.strerror}: {problem.filename or command[0]}"
            fix = "check the script's name, and that it is executable"
            raise LauncherError(f"{command[0]} cannot be started", why, fix) from None
        self.is_script = script
        self._kept, self._limit = bytearray(), tail_bytes
        self._reader = threading.Thread(target=self._listen, daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        return self.process.pid

    def ended(self) -> int | None:
        """Return the exit code as Popen has it, or None while the command runs."""
        return self.process.poll()

    def tail(self, drain_seconds: float) -> str:
        """Return the end of its stderr after at most `drain_seconds`: a process it left may hold the pipe open."""
        self._reader.join(drain_seconds)
        return bytes(self._kept).decode(errors="replace")

    def _listen(self) -> None:
        assert self.process.stderr
        into = sys.stderr.fileno()
        while chunk := os.read(self.process.stderr.fileno(), CHUNK):
            self._kept += chunk
            del self._kept[: -self._limit]
            with contextlib.suppress(OSError):  # the reader of stderr has closed it; the job goes on
                view = memoryview(chunk)
                while view:
                    view = view[os.write(into, view) :]


def stat(pid: int) -> tuple[int, str]:
    """Return the parent's pid and the state of a process, or (0, "") if it does not exist."""
    with contextlib.suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
        return int(fields[1]), fields[0]
    return 0, ""


def _pids() -> list[int]:
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]


def children() -> dict[int, list[int]]:
    """Map each visible process to the pids of its running children."""
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
    """Return the pids that SIGTERM must reach to end a script: its own, or the children of a shell without a trap."""
    known = children()
    if _name(pid) not in SHELLS or _catches(pid, signal.SIGTERM) or not known.get(pid):
        return [pid]
    return [target for child in known[pid] for target in targets(child)]


def tell(pids: Iterable[int], number: int = signal.SIGTERM) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def kill_below(spared: Iterable[int] = ()) -> None:
    """Send SIGKILL to all descendants of this process; twice, because some may start others meanwhile."""
    kept = set(spared)
    for _ in range(2):
        tell((pid for pid in below(os.getpid()) if pid not in kept), signal.SIGKILL)


def reap(known: Iterable[int]) -> None:
    """Reap orphans that this process has adopted. `known`: pids that their own Popen waits for."""
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
