"""Import the launcher's modules from one flat folder, as in an image, and let hosts meet in threads."""

import socket
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "dockerfiles/rootfs/common/opt/trainwright/launcher"))

import trust
import watch
from meeting import Meeting
from meetings import HOSTS, Cluster, secret, world


@pytest.fixture
def settings() -> dict[str, Any]:
    """Return settings in the form of settings.json, with short intervals and a free port."""
    with socket.create_server(("", 0)) as server:
        port = server.getsockname()[1]
    return {
        "watch_port": port,
        "join_seconds": 300,
        "retry_seconds": 0.05,
        "report_seconds": 0.2,
        "greeting_seconds": 1,
        "heartbeat_seconds": 0.2,
        "silent_seconds": 2,
        "farewell_seconds": 2,
        "tell_seconds": 5,
        "greeting_bytes": 4096,
        "line_bytes": 1 << 20,
        "strangers": 8,
        "failure_characters": 64,
    }


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(16) as executor:
        yield executor


@pytest.fixture
def opened() -> Iterator[list[Meeting]]:
    meetings: list[Meeting] = []
    yield meetings
    closing = [threading.Thread(target=meeting.close) for meeting in meetings]
    for thread in closing:
        thread.start()
    for thread in closing:
        thread.join()
    own = [thread for thread in threading.enumerate() if thread.name.startswith("trainwright")]
    for thread in own:
        thread.join(60)  # a resolver that waits for an answer cannot be interrupted
    left = [thread.name for thread in own if thread.is_alive()]
    assert not left


@pytest.fixture
def start(pool: ThreadPoolExecutor, opened: list[Meeting], settings: dict[str, Any]) -> Callable[..., Future[Meeting]]:
    """Return a function that lets a host join, in a thread."""

    def one(host: str, key: trust.Secret | None = None, **changed: Any) -> Future[Meeting]:
        def enter() -> Meeting:
            where = changed.pop("world", world(host))
            meeting = watch.join(where, {**settings, **changed}, key, {"host": host})
            opened.append(meeting)
            return meeting

        return pool.submit(enter)

    return one


@pytest.fixture(params=["secret", "no secret"])
def cluster(request: pytest.FixtureRequest, start: Callable[..., Future[Meeting]]) -> Cluster:
    """Return a function that lets all hosts join; tests run with a secret and without."""

    def met(hosts: tuple[str, ...] = HOSTS, **changed: Any) -> list[Meeting]:
        key = secret() if request.param == "secret" else None
        joining = [start(host, key, world=world(host, hosts), **changed) for host in hosts]
        return [future.result(60) for future in joining]

    return met
