"""A training job on this machine: a container for each host, the contract of SageMaker, a network of their own."""

import io
import queue
import secrets
import tarfile
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from pydantic import Field

from trainwright import engine, jobs, launching
from trainwright.errors import ConfigError, JobError, NotRunError
from trainwright.host_settings import host as host_settings
from trainwright.model import Model

if TYPE_CHECKING:
    from docker import DockerClient

LABEL = "io.trainwright.run"
KEPT = ("model", "output", "checkpoints")  # of /opt/ml
WARNING = 30  # of the toolkit's own log: else it prints all that it knows of each host
Line = Callable[[str, str], None]  # host, what it said


class Job(Model):
    """What is run. `channels` are folders by name; `grace` seconds pass between SIGTERM and SIGKILL."""

    image: str
    hosts: int
    source: Path  # a folder: what lies in it is /opt/ml/code
    hyperparameters: dict[str, Any] = Field(default={})
    channels: dict[str, Path] = Field(default={})
    environment: dict[str, str] = Field(default={})
    checkpoints: Path | None = None
    gpus: bool = False
    shm: str
    grace: int


class Ended(Model):
    """How a host ended. `failure` is what it wrote into /opt/ml/output/failure."""

    host: str
    code: int
    seconds: float
    failure: str = ""


class Outcome(Model):
    hosts: list[Ended]
    interrupted: bool = False


def job(
    root: Path,
    image: str,
    script: Path,
    words: Sequence[str],
    options: Sequence[str] = (),
    *,
    hosts: int = 1,
    processes: int = 1,
    distribution: str = "",
    hyperparameters: Sequence[str] = (),
    channels: Sequence[str] = (),
    environment: Sequence[str] = (),
    checkpoints: Path | None = None,
    gpus: bool = False,
    grace: int | None = None,
) -> Job:
    """What was asked for on a command line. Raises ConfigError, NotRunError for an image that was not built."""
    if not script.is_file():
        raise ConfigError(f"there is no script {script}", where=str(Path.cwd()), fix="trainwright run IMAGE SCRIPT")
    name = launching.subject(root, image, "docker").reference
    labels = engine.labels(name) if engine.image_id(name) else {}
    if not labels:
        raise NotRunError(f"the engine does not hold {name}", fix=f"docker pull {name}")
    prefix = "io.trainwright.version."
    components = {key.removeprefix(prefix): value for key, value in labels.items() if key.startswith(prefix)}
    kind = jobs.distribution(distribution, components, hosts * processes)
    if kind == "mpi" and hosts > 1:
        why = "mpirun starts ranks over ssh, and the containers of a job have no trust in each other yet"
        raise ConfigError("mpi runs on one host here", why=why, fix=f"--hosts 1 --processes {hosts * processes}")
    if kind == "none" and processes > 1:
        raise ConfigError(f"nothing starts {processes} processes", why="the distribution is none: one for each host")
    settings = host_settings(root).job
    return Job(
        image=name,
        hosts=hosts,
        source=script.parent,
        hyperparameters={
            "sagemaker_program": script.name,
            "sagemaker_container_log_level": WARNING,
            "sagemaker_submit_directory": jobs.CODE,
            **jobs.DISTRIBUTIONS[kind],
            **({jobs.PROCESSES: processes} if kind != "none" else {}),
            **jobs.hyperparameters(words, options),
            **_pairs("--hyperparameter", hyperparameters),
        },
        channels=_channels(channels),
        environment=_pairs("--env", environment),
        checkpoints=checkpoints,
        gpus=gpus,
        shm=settings.shm,
        grace=settings.stop_seconds if grace is None else grace,
    )


def _channels(words: Sequence[str]) -> dict[str, Path]:
    """Raises ConfigError. Docker would make a folder that is not there, and the job would train on nothing."""
    found = {name: Path(folder) for name, folder in _pairs("--channel", words).items()}
    for name, folder in found.items():
        if not jobs.CHANNEL.fullmatch(name):
            raise ConfigError(f"{name!r} is no name of a channel", where="--channel", why="letters, digits, . _ and -")
        if not folder.is_dir():
            raise ConfigError(f"the channel {name} is no folder", where=str(folder), fix=f"--channel {name}=FOLDER")
    return found


def _pairs(option: str, words: Sequence[str]) -> dict[str, str]:
    for word in words:
        if "=" not in word:
            raise ConfigError(f"{option} {word} has no value", fix=f"{option} NAME=VALUE")
    return {name: value for name, _, value in (word.partition("=") for word in words)}


def run(job: Job, line: Line, output: Path | None = None) -> Outcome:
    """Run to the end; as soon as one host fails, the others are stopped, as SageMaker does.

    Nothing of it is left in the engine, whatever happens. `output` gets what each host left in KEPT.
    Raises EnvironmentProblem, ConfigError for a source that cannot be read.
    """
    name = f"trainwright-run-{secrets.token_hex(4)}"
    line("", f"{name}: {job.hosts} {'host' if job.hosts == 1 else 'hosts'} of {job.image}")
    with engine.told("the job cannot be run"), engine.patient() as client, ExitStack() as left:
        left.callback(_remove_all, client, name)  # before the first one: an interrupt may come at any time
        client.networks.create(name, labels={LABEL: name})
        containers = dict[str, Any]()
        for host in jobs.hosts(job.hosts):
            containers[host] = _created(client, job, name, host)
            contract = jobs.config(jobs.hosts(job.hosts), host, job.hyperparameters, sorted(job.channels), "local")
            with _packed(contract, job.source, output) as packed:
                containers[host].put_archive("/", packed)
        outcome = _until_all_end(containers, line, job.grace)
        for host in containers if output else ():
            _keep(containers[host], Path(str(output), host))
    return outcome


def refuse(outcome: Outcome) -> None:
    """Raises JobError for a host that failed; the first one is the cause."""
    bad = [one for one in outcome.hosts if one.code]
    if bad:
        first = min(bad, key=lambda one: one.seconds)
        why = first.failure or "it left no failure file; its last words are above"
        raise JobError(f"{first.host} ended with exit code {first.code}", why=why)


def _created(client: "DockerClient", job: Job, name: str, host: str) -> Any:
    import docker

    places = {f"/opt/ml/input/data/{channel}": (folder, "ro") for channel, folder in job.channels.items()}
    if job.checkpoints:
        job.checkpoints.mkdir(parents=True, exist_ok=True)
        places["/opt/ml/checkpoints"] = (job.checkpoints, "rw")
    return client.containers.create(
        job.image,
        command=["train"],
        name=f"{name}-{host}",
        hostname=host,
        network=name,
        networking_config={name: client.api.create_endpoint_config(aliases=[host])},
        environment={"TRAINING_JOB_NAME": name, **job.environment},
        volumes=[f"{folder.absolute()}:{place}:{mode}" for place, (folder, mode) in places.items()],
        shm_size=job.shm,
        labels={LABEL: name},
        device_requests=[docker.types.DeviceRequest(count=-1, capabilities=[["gpu"]])] if job.gpus else None,
    )


def _remove_all(client: "DockerClient", name: str) -> None:
    mine = {"label": f"{LABEL}={name}"}
    for container in client.containers.list(all=True, filters=mine):
        container.remove(force=True, v=True)
    for network in client.networks.list(filters=mine):
        network.remove()


def _until_all_end(containers: Mapping[str, Any], line: Line, grace: int) -> Outcome:
    said, ended, stopping, interrupted = queue.Queue[Ended | Exception](), dict[str, Ended](), False, False
    began = time.monotonic()

    def follow(host: str, container: Any) -> None:
        try:
            for text in _lines(container.logs(stream=True, follow=True)):
                line(host, text)
            code = container.wait()["StatusCode"]
            said.put(Ended(host=host, code=code, seconds=time.monotonic() - began, failure=_failure(container)))
        except Exception as problem:  # it is raised where somebody waits
            said.put(problem)

    for container in containers.values():
        container.start()
    for host, container in containers.items():
        threading.Thread(target=follow, args=(host, container), daemon=True).start()
    while len(ended) < len(containers):
        try:
            one = said.get()
        except KeyboardInterrupt:
            if interrupted:
                raise
            line("", f"SIGTERM to all hosts, SIGKILL after {grace} s; interrupt again to kill them now")
            interrupted = True
        else:
            if isinstance(one, Exception):
                raise one
            ended[one.host] = one
        if not stopping and (interrupted or any(one.code for one in ended.values())):
            stopping = True
            for host in containers.keys() - ended.keys():
                threading.Thread(target=_stop, args=(containers[host], grace), daemon=True).start()
    return Outcome(hosts=[ended[host] for host in containers], interrupted=interrupted)


def _stop(container: Any, grace: int) -> None:
    import docker

    with suppress(docker.errors.APIError):  # it has ended meanwhile
        container.stop(timeout=grace)


def _lines(pieces: Iterable[bytes]) -> Iterator[str]:
    """Whole lines of what comes in pieces; a progress bar's carriage returns are line ends, too."""
    rest = b""
    for piece in pieces:
        *whole, rest = (rest + piece.replace(b"\r\n", b"\n").replace(b"\r", b"\n")).split(b"\n")
        yield from (text.decode(errors="replace") for text in whole)
    if rest:
        yield rest.decode(errors="replace")


def _failure(container: Any) -> str:
    with _left(container, "/opt/ml/output/failure") as archive:
        file = archive.extractfile("failure") if archive else None
        return file.read().decode(errors="replace").strip() if file else ""


def _keep(container: Any, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name in KEPT:
        with _left(container, f"/opt/ml/{name}") as archive:
            if archive:
                archive.extractall(folder, filter=_inside)


def _inside(entry: tarfile.TarInfo, folder: str) -> tarfile.TarInfo | None:
    """What may be unpacked here; a link to elsewhere in its container means nothing here."""
    try:
        return tarfile.data_filter(entry, folder)
    except tarfile.FilterError:
        return None


@contextmanager
def _left(container: Any, path: str) -> Iterator[tarfile.TarFile | None]:
    """What lies at a path of a container; None where nothing does."""
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
def _packed(files: Mapping[str, bytes], source: Path, output: Path | None) -> Iterator[IO[bytes]]:
    """What lies in a container before it starts; what an earlier run left beside the script is no source.

    Raises ConfigError for a source that cannot be read.
    """

    def wanted(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
        path = source / Path(f"/{entry.name}").relative_to(jobs.CODE)
        if path.name == ".git" or (output and path.absolute() == output.absolute()):
            return None
        return entry.replace(uid=0, gid=0, uname="root", gname="root", deep=False)

    with tempfile.TemporaryFile() as packed:
        try:
            with tarfile.open(fileobj=packed, mode="w") as archive:
                archive.add(source, jobs.CODE, filter=wanted)
                for path, content in files.items():
                    entry = tarfile.TarInfo(path)
                    entry.size, entry.mode = len(content), 0o644
                    archive.addfile(entry, io.BytesIO(content))
        except OSError as error:
            raise ConfigError("the source cannot be read", where=str(source), why=str(error)) from None
        packed.seek(0)
        yield packed
