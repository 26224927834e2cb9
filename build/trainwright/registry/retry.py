"""Run work with registries: retries, parallel requests, and a Ctrl-C that ends all of it."""

import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar
from weakref import WeakSet

from tenacity import RetryCallState, Retrying, retry_if_exception, stop_after_attempt, wait_exponential_jitter

from trainwright.core import project, project_files
from trainwright.core.errors import RegistryError
from trainwright.registry.settings import FILE, Transfer, publication

T = TypeVar("T")
R = TypeVar("R")

AGAIN = "run the same command again: layers that the registry already holds are not sent again"

_sockets: WeakSet[socket.socket] = WeakSet()
_watching = threading.Lock()
_here = threading.local()  # .stop: the Event of the work that a thread belongs to


class Refused(RegistryError):
    """An answer that a retry would not change."""

    status = 0
    codes = ""  # the registry's error codes and messages


class Broken(RegistryError):
    """A failure that a retry may fix."""

    pause = 0.0  # seconds that the registry asks for


class Wrong(Broken):
    """An answer with wrong bytes: its sender is reachable and can be asked again."""


def transfer() -> Transfer:
    """Return attempts, seconds and bytes, from the checkout or project of the current folder, else the installed ones.

    Raises ConfigError.
    """
    here = Path.cwd()
    for folder in (here, *here.parents):
        if (folder / project_files.FILE).exists():
            return publication(project.find(here)).transfer
        if (folder / FILE).exists():
            return publication(folder).transfer
    return publication(project.installed()).transfer


def tried(work: Callable[[], R], on: type[Broken] = Broken, but: tuple[type[Broken], ...] = ()) -> R:
    """Return the result of `work`, retried with growing pauses while it raises `on` and none of `but`."""
    limits, stop = transfer(), getattr(_here, "stop", None)
    growing = wait_exponential_jitter(
        multiplier=limits.wait_seconds, max=limits.wait_most_seconds, jitter=limits.wait_seconds
    )

    def pause(state: RetryCallState) -> float:
        error = state.outcome.exception() if state.outcome else None
        return max(growing(state), getattr(error, "pause", 0.0))

    def worth_it(error: BaseException) -> bool:
        return isinstance(error, on) and not isinstance(error, but) and not stopped()

    return Retrying(
        retry=retry_if_exception(worth_it),
        stop=stop_after_attempt(limits.attempts),
        wait=pause,
        sleep=stop.wait if stop else time.sleep,
        reraise=True,
    )(work)


def side_by_side(work: Callable[[T], R], items: Sequence[T]) -> list[R]:
    """Run `work` on each item, in as many threads as [transfer] allows; the first failure, or Ctrl-C, ends all."""
    if len(items) < 2:
        return [work(item) for item in items]
    stop = threading.Event()
    workers = min(transfer().workers, len(items))
    with ThreadPoolExecutor(workers, "registry", initializer=setattr, initargs=(_here, "stop", stop)) as pool:
        jobs = [pool.submit(work, item) for item in items]
        try:
            for job in wait(jobs, return_when=FIRST_EXCEPTION).done:
                job.result()
        except BaseException as error:
            stop.set()
            pool.shutdown(wait=False, cancel_futures=True)
            if isinstance(error, KeyboardInterrupt):
                hang_up()
            raise
        return [job.result() for job in jobs]


def stopped() -> bool:
    """Return whether the work that this thread belongs to has ended."""
    stop = getattr(_here, "stop", None)
    return bool(stop and stop.is_set())


def end_if_stopped() -> None:
    if stopped():
        raise Broken("stopped", why="another part of this operation failed or was interrupted")


def watch(event: str, info: Mapping[str, Any]) -> None:
    """Record every connection for hang_up(), because closing one in another thread does not wake a waiting reader."""
    if event in ("connection.connect_tcp.complete", "connection.start_tls.complete"):
        with _watching:
            _sockets.add(info["return_value"].get_extra_info("socket"))
        end_if_stopped()  # after Ctrl-C, no connection may be opened again


def hang_up() -> None:
    with _watching:
        for connection in _sockets:
            with suppress(OSError):
                socket.socket.shutdown(connection, socket.SHUT_RDWR)
