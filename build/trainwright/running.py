"""A training job on this machine: a container for each host, the contract of SageMaker, a network of their own."""

import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import Field

from trainwright import containers, engine, jobs, launching, packing
from trainwright.containers import LABEL, Ended, Line
from trainwright.errors import ConfigError, JobError, NotRunError
from trainwright.host_settings import host as host_settings
from trainwright.model import Model

__all__ = ["LABEL", "Ended", "Job", "Outcome", "job", "refuse", "run"]
KEPT = ("model", "output", "checkpoints")  # of /opt/ml
WARNING = 30  # of the toolkit's own log: else it prints all that it knows of each host
SECRET_BYTES = 32


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
    packing.refuse_hiding(packing.modules(script.parent), script.parent)
    name = launching.subject(root, image, "docker").reference
    labels = engine.labels(name) if engine.image_id(name) else {}
    if not labels:
        raise NotRunError(f"the engine does not hold {name}", fix=f"docker pull {name}")
    prefix = "io.trainwright.version."
    components = {key.removeprefix(prefix): value for key, value in labels.items() if key.startswith(prefix)}
    kind = jobs.distribution(distribution, components, hosts * processes, processes)
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
    name = containers.new_name()
    line("", f"{name}: {job.hosts} {'host' if job.hosts == 1 else 'hosts'} of {job.image}")
    with containers.created(name, _common(job, output), contracts(job, name), line) as running:
        running.start()
        outcome = _until_all_end(running, line, job.grace)
        for host, container in running.containers.items() if output else ():
            containers.keep(container, [f"/opt/ml/{kept}" for kept in KEPT], Path(str(output), host))
    return outcome


def refuse(outcome: Outcome) -> None:
    """Raises JobError for a host that failed; the first one is the cause."""
    bad = [one for one in outcome.hosts if one.code]
    if bad:
        first = min(bad, key=lambda one: one.seconds)
        why = first.failure or "it left no failure file; its last words are above"
        raise JobError(f"{first.host} ended with exit code {first.code}", why=why)


def _common(job: Job, output: Path | None) -> containers.Common:
    volumes = {f"/opt/ml/input/data/{channel}": (folder, "ro") for channel, folder in job.channels.items()}
    if job.checkpoints:
        job.checkpoints.mkdir(parents=True, exist_ok=True)
        volumes["/opt/ml/checkpoints"] = (job.checkpoints, "rw")
    return containers.Common(
        image=job.image,
        code=jobs.CODE,
        source=job.source,
        shm=job.shm,
        volumes=volumes,
        gpus=job.gpus,
        apart=[output] if output else [],
    )


def contracts(job: Job, name: str) -> list[containers.Host]:
    """The contract of each host. The job's secret is a new one, in a file that no `docker inspect` shows."""
    names, secret = jobs.hosts(job.hosts), secrets.token_hex(SECRET_BYTES).encode()
    return [
        containers.Host(
            name=host,
            command=["train"],
            environment={"TRAINING_JOB_NAME": name, jobs.SECRET_FILE: jobs.SECRET, **job.environment},
            files=jobs.config(names, host, job.hyperparameters, sorted(job.channels), "local"),
            private={jobs.SECRET: secret},
        )
        for host in names
    ]


def _until_all_end(running: containers.Running, line: Line, grace: int) -> Outcome:
    ended, stopping, interrupted = dict[str, Ended](), False, False
    while len(ended) < len(running.containers):
        try:
            one = running.next()
        except KeyboardInterrupt:
            if interrupted:
                raise
            line("", f"SIGTERM to all hosts, SIGKILL after {grace} s; interrupt again to kill them now")
            interrupted = True
        else:
            ended |= {one.host: one} if one else {}
        if not stopping and (interrupted or any(one.code for one in ended.values())):
            stopping = True
            for host in running.containers.keys() - ended.keys():
                running.stop(host, grace)
    return Outcome(hosts=[ended[host] for host in running.containers], interrupted=interrupted)
