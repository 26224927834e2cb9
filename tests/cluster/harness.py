"""A job of several hosts for a test: started, disturbed, awaited within bounds, and gone at the end whatever happens.

The containers are those of `trainwright run` (trainwright.containers); here is what a test does to them.
"""

import secrets
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from cluster import platforms

from trainwright.jobs import containers
from trainwright.jobs.containers import Ended, Host

SHM = "256m"


class Cluster:
    """The hosts of a job by name, the main one first."""

    def __init__(self) -> None:
        self.logs = dict[str, list[str]]()
        self.over = dict[str, Ended]()
        self.hosts: list[str] = []
        self.running: containers.Running
        self._said = threading.Condition()

    def hear(self, host: str, text: str) -> None:
        with self._said:
            self.logs.setdefault(host, []).append(text)
            self._said.notify_all()

    def start(self, *hosts: str) -> None:
        """These, or all of the job."""
        self.running.start(*(hosts or self.hosts))

    def said(self, host: str = "") -> str:
        """What a host printed until now; without a name what all did."""
        with self._said:
            return "\n".join(text for name, said in self.logs.items() if host in ("", name) for text in said)

    def wait_for(self, host: str, text: str, within: float) -> None:
        """Until a host has said this. Fails after so many seconds."""
        with self._said:
            heard = self._said.wait_for(lambda: any(text in line for line in self.logs.get(host, [])), within)
        if not heard:
            pytest.fail(f"{host} did not say {text!r} within {within} s:\n{self.said()}")

    def ended(self, within: float, hosts: Sequence[str] = ()) -> dict[str, Ended]:
        """Code, seconds since the start and failure file of each host, or of these, when all have ended.

        Fails after so many seconds.
        """
        until = time.monotonic() + within
        while missing := [host for host in hosts or self.hosts if host not in self.over]:
            one = self.running.next(max(0.0, until - time.monotonic()))
            if one is None:
                pytest.fail(f"{', '.join(missing)} did not end within {within} s:\n{self.said()}")
            self.over[one.host] = one
        return {host: self.over[host] for host in hosts or self.hosts}

    def kill(self, host: str) -> None:
        """As a host that loses its power: SIGKILL for all of it, and no word to anybody."""
        self.running.containers[host].kill()

    def stop(self, host: str, grace: int) -> threading.Thread:
        """`docker stop`: SIGTERM, and SIGKILL after so many seconds. It goes on beside the test."""
        return self.running.stop(host, grace)

    def pause(self, host: str) -> None:
        """As a host that hangs: its connections stay, and nothing answers."""
        self.running.containers[host].pause()

    def resume(self, host: str) -> None:
        self.running.containers[host].unpause()

    def cut(self, host: str) -> None:
        """Off the network, and out of its DNS; before or after the start."""
        self.running.network.disconnect(self.running.containers[host])

    def run(self, host: str, *command: str, environment: Mapping[str, str] | None = None) -> tuple[int, str]:
        """A command inside a host that runs: its exit code, and what it printed."""
        code, said = self.running.containers[host].exec_run(list(command), environment=dict(environment or {}))
        return int(code), said.decode(errors="replace")

    def add(self, host: Host) -> None:
        """A further container of the image in the job's network, as an outsider is; `start` it by its name."""
        self.running.create(host)

    def address(self, host: str) -> str:
        """In the job's network, of a container that runs."""
        container = self.running.containers[host]
        container.reload()
        return str(container.attrs["NetworkSettings"]["Networks"][self.running.name]["IPAddress"])

    def inspect(self, host: str) -> str:
        """All that `docker inspect` says of a host."""
        return str(self.running.containers[host].client.api.inspect_container(self.running.containers[host].id))

    def read(self, host: str, path: str) -> bytes:
        """A file of a host, which may have ended. Fails where there is none."""
        with containers.left(self.running.containers[host], path) as archive:
            file = archive.extractfile(Path(path).name) if archive else None
            return file.read() if file else pytest.fail(f"{host} has no {path}:\n{self.said(host)}")


@contextmanager
def cluster(
    image: str,
    folder: Path,
    count: int,
    script: str | Path,
    *,
    distribution: str = "torchrun",
    platform: str = "sagemaker",
    processes: int = 1,
    arguments: Mapping[str, object] | None = None,
    environment: Mapping[str, str] | None = None,
    secret: str | None = "fresh",
    volumes: Mapping[str, tuple[Path, str]] | None = None,
    tmpfs: Mapping[str, str] | None = None,
    begin: bool = True,
) -> Iterator[Cluster]:
    """`count` hosts that run a script (its text, or a file) under the launcher, each with the platform's contract.

    `folder` holds the source on this side.
    """
    (folder / "script.py").write_text(script.read_text() if isinstance(script, Path) else script)
    made = Cluster()
    name = containers.new_name()
    made.hosts = platforms.names(platform, count)
    common = containers.Common(
        image=image,
        code=platforms.code(platform),
        source=folder,
        shm=SHM,
        volumes=dict(volumes or {}),
        tmpfs=dict(tmpfs or {}),
    )
    secret = secrets.token_hex(32) if secret == "fresh" else secret
    given = (distribution, processes, arguments or {}, environment or {}, secret)
    hosts = platforms.hosts(platform, count, "script.py", *given)
    with containers.created(name, common, hosts, made.hear) as made.running:
        if begin:
            made.start()
        yield made
