"""Simulate the hosts of a job for tests of the watch, with real sockets and processes that can be killed or stopped.

A host's name is an address of the loopback network here, so that names resolve as they would in a cluster.
"""

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import trust
import watch
from meeting import Event, Meeting
from worlds import World

LAUNCHER = Path(watch.__file__).parent
HOSTS = ("127.0.0.1", "127.0.0.2", "127.0.0.3")
MAIN, SECOND, THIRD = HOSTS
SECRET = "0123456789abcdef" * 4
Cluster = Callable[..., list[Meeting]]


def world(host: str, hosts: tuple[str, ...] = HOSTS, job: str = "job") -> World:
    return World("test", job, hosts, host, 1, "lo")


def secret() -> trust.Secret | None:
    return trust.take({trust.VARIABLE: SECRET})


def verdicts(meetings: list[Meeting], seconds: float = 60) -> list[Event | None]:
    """Return the cause that each host was told, skipping earlier "ended" events."""
    found = []
    for meeting in meetings:
        end = time.monotonic() + seconds
        while (event := meeting.heard(max(end - time.monotonic(), 0))) and event.kind == "ended":
            pass
        found.append(event)
    return found


class process:
    """A host in a separate process, which is ready when it prints "up"."""

    def __init__(self, code: str) -> None:
        words = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(LAUNCHER)!r})\n{code}"]
        self.running = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)

    def __enter__(self) -> subprocess.Popen[str]:
        assert self.running.stdout
        assert self.running.stdout.readline() == "up\n"
        return self.running

    def __exit__(self, *_: object) -> None:
        self.running.kill()
        self.running.communicate()


def member(host: str, settings: dict[str, Any], then: str = "meeting.heard(60)") -> process:
    return process(f"""
import time, trust, watch
from worlds import World
print("up", flush=True)
secret = trust.take({{"{trust.VARIABLE}": "{SECRET}"}})
meeting = watch.join(World("test", "job", {HOSTS!r}, {host!r}, 1, "lo"), {settings!r}, secret, {{}})
{then}
""")


@contextmanager
def answering(answer: Callable[[socket.socket], object]) -> Iterator[int]:
    """Serve a port on loopback; call `answer` for each connection in a thread, then close it."""

    def take() -> None:
        with suppress(OSError):
            while True:
                sock, _ = server.accept()
                threading.Thread(target=serve, args=(sock,), daemon=True).start()

    def serve(sock: socket.socket) -> None:
        with sock, suppress(OSError):
            answer(sock)

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=take, daemon=True).start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)


@contextmanager
def on_the_way(port: int, change: Callable[[bytes, bool], bytes]) -> Iterator[int]:
    """Serve a port that relays lines to `port` and back, each changed by `change(line, back)`."""

    def relay(near: socket.socket) -> None:
        with socket.create_connection((MAIN, port)) as far:
            back = threading.Thread(target=pass_on, args=(far, near, True), daemon=True)
            back.start()
            pass_on(near, far, False)
            back.join()

    def pass_on(source: socket.socket, target: socket.socket, back: bool) -> None:
        with suppress(OSError), source.makefile("rb") as lines:
            for line in lines:
                target.sendall(change(line, back))
        with suppress(OSError):
            target.shutdown(socket.SHUT_WR)

    with answering(relay) as relayed:
        yield relayed
