"""Run the hosts of a job as containers of this machine in a private network; follow them, and always remove them."""

import io
import queue
import secrets
import tarfile
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from pydantic import Field

from trainwright.core.errors import ConfigError
from trainwright.core.files import unpack
from trainwright.core.toml import Model
from trainwright.docker import engine

if TYPE_CHECKING:
    from docker import DockerClient

LABEL = "io.trainwright.run"
FAILURE = "/opt/ml/output/failure"
Line = Callable[[str, str], None]  # host, line of its output


class Host(Model):
    """One container; only root can read the `private` files, and `docker inspect` shows none of them."""

    name: str
    command: list[str]
    domain: str = ""  # what stands behind its name in its own /etc/hosts
    aliases: list[str] = Field(default=[])  # further names in the network
    environment: dict[str, str] = Field(default={})
    files: dict[str, bytes] = Field(default={})
    private: dict[str, bytes] = Field(default={})


class Common(Model):
    """Settings of all containers of a job; `volumes` and `tmpfs` map a path inside to the rest in Docker's notation."""

    image: str
    code: str  # where the source is inside
    source: Path  # a folder
    shm: str
    volumes: dict[str, tuple[Path, str]] = Field(default={})
    tmpfs: dict[str, str] = Field(default={})
    gpus: bool = False
    apart: list[Path] = Field(default=[])  # folders below the source that are left out


class Ended(Model):
    """The end of a host, with seconds since the first start; `failure` is what the host wrote into FAILURE."""

    host: str
    code: int
    seconds: float
    failure: str = ""


class Running:
    """The containers of one job, by host; each ends once, and its follower then reports the end to `next`."""

    def __init__(self, client: "DockerClient", name: str, common: Common, line: Line) -> None:
        self.name, self.containers = name, dict[str, Any]()
        self._client, self._common, self._line = client, common, line
        self._said, self._began = queue.Queue[Ended | Exception](), 0.0
        self.spared = False  # the containers stay in the engine, because their content has yet to be fetched

    @property
    def network(self) -> Any:
        return self._client.networks.get(self.name)

    def create(self, host: Host, *packed: IO[bytes]) -> None:
        """Create a container with the packed files, not started yet; also one that joins the others later."""
        container = self.containers[host.name] = _created(self._client, self._common, self.name, host)
        for archive in packed:
            archive.seek(0)
            container.put_archive("/", archive)
        container.put_archive("/", _contract(host))

    def start(self, *hosts: str) -> None:
        """Start these hosts, or all of them; their output arrives line by line."""
        self._began = self._began or time.monotonic()
        for host in hosts or self.containers:
            self.containers[host].start()
        for host in hosts or self.containers:
            threading.Thread(target=self._follow, args=(host,), daemon=True).start()

    def next(self, seconds: float | None = None) -> Ended | None:
        """Return the next host that ended, or None after so many seconds. Raises the problem that ended a follower."""
        try:
            one = self._said.get(timeout=seconds)
        except queue.Empty:
            return None
        if isinstance(one, Exception):
            raise one
        return one

    def stop(self, host: str, grace: int) -> threading.Thread:
        """Send SIGTERM, and SIGKILL after `grace` seconds; return the thread, which a caller may join."""
        stopping = threading.Thread(target=_stop, args=(self.containers[host], grace), daemon=True)
        stopping.start()
        return stopping

    def _follow(self, host: str) -> None:
        container = self.containers[host]
        try:
            for text in lines(container.logs(stream=True, follow=True)):
                self._line(host, text)
            code = container.wait()["StatusCode"]
            seconds = time.monotonic() - self._began
            self._said.put(Ended(host=host, code=code, seconds=seconds, failure=_failure(container)))
        except Exception as problem:  # `next` raises it
            self._said.put(problem)


def new_name() -> str:
    return f"trainwright-run-{secrets.token_hex(4)}"


@contextmanager
def created(name: str, common: Common, hosts: Sequence[Host], line: Line) -> Iterator[Running]:
    """Yield a container for each host, with its files, not yet started.

    All of it is removed from the engine in any case, unless the containers are spared. Raises EnvironmentProblem, and
    ConfigError if the source cannot be read.
    """
    with engine.told("the job cannot be run"), engine.patient() as client, ExitStack() as stack:
        running = Running(client, name, common, line)
        stack.callback(_remove_all, client, running)  # before the first one, because an interrupt may come at any time
        client.networks.create(name, labels={LABEL: name})
        with _packed(common) as source:
            for host in hosts:
                running.create(host, source)
        yield running


def _created(client: "DockerClient", common: Common, name: str, host: Host) -> Any:
    import docker

    return client.containers.create(
        common.image,
        command=host.command,
        name=f"{name}-{host.name}",
        hostname=host.name,
        domainname=host.domain,
        network=name,
        networking_config={name: client.api.create_endpoint_config(aliases=[host.name, *host.aliases])},
        environment=host.environment,
        volumes=[f"{folder.absolute()}:{place}:{mode}" for place, (folder, mode) in common.volumes.items()],
        tmpfs=common.tmpfs,
        shm_size=common.shm,
        labels={LABEL: name},
        device_requests=[docker.types.DeviceRequest(count=-1, capabilities=[["gpu"]])] if common.gpus else None,
    )


def _remove_all(client: "DockerClient", running: Running) -> None:
    mine = {"label": f"{LABEL}={running.name}"}
    for container in [] if running.spared else client.containers.list(all=True, filters=mine):
        container.remove(force=True, v=True)
    for network in client.networks.list(filters=mine):
        network.remove()


def _stop(container: Any, grace: int) -> None:
    import docker

    with suppress(docker.errors.APIError):  # it has ended meanwhile
        container.stop(timeout=grace)


def lines(pieces: Iterable[bytes]) -> Iterator[str]:
    """Yield whole lines from pieces of output; the carriage returns of a progress bar end lines, too."""
    rest = b""
    for piece in pieces:
        *whole, rest = (rest + piece.replace(b"\r\n", b"\n").replace(b"\r", b"\n")).split(b"\n")
        yield from (text.decode(errors="replace") for text in whole)
    if rest:
        yield rest.decode(errors="replace")


def _failure(container: Any) -> str:
    with left(container, FAILURE) as archive:
        file = archive.extractfile("failure") if archive else None
        return file.read().decode(errors="replace").strip() if file else ""


def keep(container: Any, places: Sequence[str], folder: Path) -> None:
    """Copy what is at these paths of a container into a folder; leave out links that lead outside that folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for place in places:
        with left(container, place) as archive:
            if archive:
                unpack(archive, folder)


@contextmanager
def left(container: Any, path: str) -> Iterator[tarfile.TarFile | None]:
    """Yield an archive of a path of a container, or None if the path does not exist."""
    import docker

    with tempfile.TemporaryFile() as packed:
        try:
            for piece in container.get_archive(path)[0]:
                packed.write(piece)
        except docker.errors.NotFound:
            yield None
            return
        packed.seek(0)
        with tarfile.open(fileobj=packed) as archive:
            yield archive


@contextmanager
def _packed(common: Common) -> Iterator[IO[bytes]]:
    """Yield an archive of the source as it is laid out in a container, without .git and the `apart` folders.

    `apart` is, for example, the output of an earlier run. Raises ConfigError if the source cannot be read.
    """
    apart = {folder.absolute() for folder in common.apart}

    def wanted(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
        path = common.source / Path(f"/{entry.name}").relative_to(common.code)
        if path.name == ".git" or path.absolute() in apart:
            return None
        return entry.replace(uid=0, gid=0, uname="root", gname="root", deep=False)

    with tempfile.TemporaryFile() as packed:
        try:
            with tarfile.open(fileobj=packed, mode="w") as archive:
                archive.add(common.source, common.code, filter=wanted)
        except OSError as error:
            raise ConfigError("the source cannot be read", where=str(common.source), why=str(error)) from None
        yield packed


def _contract(host: Host) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for folder in {str(Path(path).parent) for path in host.private}:
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o700
            archive.addfile(entry)
        for files, mode in ((host.files, 0o644), (host.private, 0o400)):
            for path, content in files.items():
                entry = tarfile.TarInfo(path)
                entry.size, entry.mode = len(content), mode
                archive.addfile(entry, io.BytesIO(content))
    return packed.getvalue()
