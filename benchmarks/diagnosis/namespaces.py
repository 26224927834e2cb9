"""Hosts of a job as namespaces of this machine: each has an address, a /dev/shm and a disk. Needs root."""

import ctypes
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

NEW_MOUNTS, NEW_NAMES, NEW_NET = 0x00020000, 0x04000000, 0x40000000
RECURSIVE, PRIVATE = 0x4000, 0x40000  # MS_REC, MS_PRIVATE
SHM, DISK = "64m", "64m"
SMALL = "8m"
ADDRESS = "10.77.0.{}"


def _unshare(flags: int) -> None:
    if ctypes.CDLL(None, use_errno=True).unshare(flags):
        raise OSError(ctypes.get_errno(), "unshare: this needs root")


def _mount(target: str, kind: str = "", data: str = "", flags: int = 0) -> None:
    """Mount as mount(2) does: Debian 12 has the program `mount` in a package of its own, which images lack."""
    words = [word.encode() or None for word in ("none", target, kind)]
    if ctypes.CDLL(None, use_errno=True).mount(*words, ctypes.c_ulong(flags), data.encode() or None):
        raise OSError(ctypes.get_errno(), f"mount {target}")


def _run(*words: str) -> None:
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)


class Switch:
    """A network with nothing else on it."""

    def __init__(self) -> None:
        ready, done = os.pipe(), os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            _unshare(NEW_NET)
            _run("ip", "link", "add", "br0", "type", "bridge")
            _run("ip", "link", "set", "br0", "up")
            os.write(ready[1], b".")
            os.close(done[1])
            os.read(done[0], 1)
            os._exit(0)
        os.read(ready[0], 1)
        self._done = done
        for end in (*ready, done[0]):
            os.close(end)

    def _inside(self, *words: str) -> None:
        _run("nsenter", f"--net=/proc/{self.pid}/ns/net", *words)

    def plug(self, number: int, pid: int) -> None:
        """Connect the namespace of a process; its end is called eth0."""
        self._inside("ip", "link", "add", f"v{number}", "type", "veth", "peer", "name", "eth0", "netns", str(pid))
        self._inside("ip", "link", "set", f"v{number}", "master", "br0", "up")

    def cut(self, number: int) -> None:
        """Cut a host's cable."""
        self._inside("ip", "link", "set", f"v{number}", "down")

    def close(self) -> None:
        os.close(self._done[1])
        os.waitpid(self.pid, 0)


class Host:
    """A host; `starts` runs in it, as a process group of its own, once the network is there."""

    def __init__(self, number: int, switch: Switch, starts: "Callable[[], None]", shm: str, disk: str) -> None:
        self.number, self.name = number, f"node-{number}"
        born, go = os.pipe(), os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                os.setsid()
                _unshare(NEW_MOUNTS | NEW_NAMES | NEW_NET)
                os.write(born[1], b".")
                os.read(go[0], 1)
                self._set_up(shm, disk)
                starts()
            except BaseException as error:
                print(f"{self.name}: {error!r}", file=sys.stderr, flush=True)
                os._exit(70)
            os._exit(0)
        os.read(born[0], 1)
        switch.plug(number, self.pid)
        self._go, self._network = go[1], str(Path(f"/proc/{self.pid}/ns/net").readlink())
        for end in (*born, go[0]):
            os.close(end)

    def go(self) -> None:
        os.write(self._go, b".")
        os.close(self._go)

    def kill(self) -> None:
        """End all its processes, as if the power failed: those of its network, also in sessions of their own."""
        for process in Path("/proc").glob("[0-9]*"):
            try:
                if str((process / "ns/net").readlink()) == self._network:
                    os.kill(int(process.name), signal.SIGKILL)
            except OSError:  # it has ended
                continue

    def _set_up(self, shm: str, disk: str) -> None:
        socket.sethostname(self.name)
        address = ADDRESS.format(self.number + 1)
        _run("ip", "link", "set", "lo", "up")
        _run("ip", "address", "add", f"{address}/24", "dev", "eth0")
        _run("ip", "link", "set", "eth0", "up")
        _mount("/", flags=RECURSIVE | PRIVATE)
        for folder, size in (("/dev/shm", shm), ("/mnt", disk)):
            _mount(folder, "tmpfs", f"size={size}")
        for folder in ("/mnt/checkpoints", "/mnt/data"):
            Path(folder).mkdir()
