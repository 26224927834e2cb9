"""Run a training job on this machine: one container per host, SageMaker's contract, and a separate network."""

import secrets
import shlex
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from pydantic import Field

from trainwright.core.errors import ConfigError, EnvironmentProblem, JobError, NotRunError
from trainwright.core.host_settings import host as host_settings
from trainwright.core.pairs import pairs
from trainwright.core.toml import Model
from trainwright.docker import engine
from trainwright.gate import run as gate_run
from trainwright.image.tags import GRAFT_LABEL, ID_LABEL, VERSION_LABEL
from trainwright.jobs import containers, contract, source
from trainwright.jobs.containers import LABEL, Ended, Line
from trainwright.resolve import pip_files

__all__ = ["LABEL", "Ended", "Job", "Outcome", "job", "refuse", "run"]
TARGET = "sagemaker"  # in the id of an image
CA = f"/run/trainwright/{pip_files.CA}"  # path in a job, not beside the secret, whose folder only root may read
KEPT = ("model", "output", "checkpoints")  # of /opt/ml
WARNING = 30  # level of the toolkit's log: below it, it prints everything about each host
SECRET_BYTES = 32
PROBE_BYTES = 1 << 20  # bytes written to --output as a test before the job


class Job(Model):
    """A job to run. `channels` are folders by name; `grace` seconds pass between SIGTERM and SIGKILL."""

    image: str
    hosts: int
    source: Path  # a folder, whose contents become /opt/ml/code
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
    """Return the job of a command line. Raises ConfigError, NotRunError for an image that was not built."""
    if not script.is_file():
        raise ConfigError(f"script {script} does not exist", where=str(Path.cwd()), fix="trainwright run IMAGE SCRIPT")
    source.refuse_hiding(source.modules(script.parent), script.parent)
    name = gate_run.subject(root, image, "docker").reference
    labels = engine.labels(name) if engine.image_id(name) else {}
    if not labels:
        raise NotRunError(f"the engine does not have the image {name}", fix=f"docker pull {name}")
    components = {
        key.removeprefix(VERSION_LABEL): value for key, value in labels.items() if key.startswith(VERSION_LABEL)
    }
    identity = labels.get(ID_LABEL, "")
    if identity and TARGET not in identity.split("-"):
        below = labels.get(GRAFT_LABEL, "")
        raise ConfigError(
            f"run starts a job by SageMaker's contract, which {identity} does not have",
            where=name,
            fix=f"trainwright graft {below} --target {TARGET}; docs/examples/ec2.sh starts what is for ec2"
            if below
            else "trainwright list   # its images for sagemaker; docs/examples/ec2.sh starts those for ec2",
        )
    kind = contract.distribution(distribution, components, hosts * processes, processes)
    settings = host_settings(root).job
    return Job(
        image=name,
        hosts=hosts,
        source=script.parent,
        hyperparameters={
            "sagemaker_program": script.name,
            "sagemaker_container_log_level": WARNING,
            "sagemaker_submit_directory": contract.CODE,
            **contract.DISTRIBUTIONS[kind],
            **({contract.PROCESSES: processes} if kind != "none" else {}),
            **contract.hyperparameters(words, options),
            **pairs("--hyperparameter", hyperparameters),
        },
        channels=_channels(channels),
        environment=pairs("--env", environment),
        checkpoints=checkpoints,
        gpus=gpus,
        shm=settings.shm,
        grace=settings.stop_seconds if grace is None else grace,
    )


def _channels(words: Sequence[str]) -> dict[str, Path]:
    """Parse channels. Raises ConfigError for an invalid name or a missing folder.

    Because Docker would create a missing folder, the job would otherwise train on no data.
    """
    found = {name: Path(folder) for name, folder in pairs("--channel", words).items()}
    for name, folder in found.items():
        if not contract.CHANNEL.fullmatch(name):
            raise ConfigError(
                f"{name!r} is not a channel name", where="--channel", why="only letters, digits, . _ and - are allowed"
            )
        if not folder.is_dir():
            raise ConfigError(f"the channel {name} is not a folder", where=str(folder), fix=f"--channel {name}=FOLDER")
    return found


def run(job: Job, line: Line, output: Path | None = None) -> Outcome:
    """Run to the end; as soon as one host fails, stop the others, as SageMaker does.

    `output` receives what each host left in KEPT; it must be new or empty, so that it contains nothing of another run.
    If it cannot be written at the end, the containers are kept; otherwise nothing remains in the engine, even after a
    failure. Raises EnvironmentProblem, ConfigError for an unreadable source or an output folder of another run.
    """
    if output:
        must_be_new(output)
    name = containers.new_name()
    common, hosts = _common(job, output), contracts(job, name)
    for note in pip_files.notes():
        line("", note)
    line("", f"{name}: {job.hosts} {'host' if job.hosts == 1 else 'hosts'} of {job.image}")
    with containers.created(name, common, hosts, line) as running:
        running.start()
        outcome = _until_all_end(running, line, job.grace)
        if output:
            _bring(running, outcome, output, line)
    return outcome


def must_be_new(output: Path) -> None:
    """Check that the output folder is writable and empty. Raises ConfigError, EnvironmentProblem.

    Because training takes hours, this is checked before it starts.
    """
    make_folder("--output", output)
    if any(output.iterdir()):
        raise ConfigError(
            f"--output {output} is not empty",
            where=str(output.absolute()),
            why="files of an earlier run would look like results of this one",
            fix="name another folder, or move that one away",
        )
    try:
        with tempfile.TemporaryFile(dir=output) as file:
            file.write(bytes(PROBE_BYTES))
    except OSError as error:
        raise _not_written("--output", output, error) from None


def make_folder(option: str, folder: Path) -> None:
    """Create the folder. Raises EnvironmentProblem."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _not_written(option, folder, error) from None


def _not_written(option: str, folder: Path, error: OSError) -> EnvironmentProblem:
    return EnvironmentProblem(
        f"{option} {folder} cannot be written",
        where=str(folder.absolute()),
        why=str(error.strerror or error),
        fix=f"name another folder with {option}, or see: df -h {shlex.quote(str(folder))}",
    )


def _bring(running: containers.Running, outcome: Outcome, output: Path, line: Line) -> None:
    """Copy what each host left into `output`. If that fails, keep the containers and name them.

    Raises EnvironmentProblem.
    """
    try:
        for host, container in running.containers.items():
            containers.keep(container, [f"/opt/ml/{kept}" for kept in KEPT], output / host)
    except BaseException as problem:
        running.spared = True
        names = [f"{running.name}-{host}" for host in running.containers]
        ended = ", ".join(f"{one.host} ended with {one.code}" for one in outcome.hosts)
        line("", f"{ended}; their output is in their containers, which are kept: {' '.join(names)}")
        if not isinstance(problem, OSError | tarfile.TarError):
            raise
        raise EnvironmentProblem(
            f"the output cannot be written to {output}; the containers are kept",
            where=str(output.absolute()),
            why=str(getattr(problem, "strerror", "") or problem),
            fix=f"docker cp {names[0]}:/opt/ml FOLDER, and so on for each; then docker rm -v {' '.join(names)}",
        ) from None


def refuse(outcome: Outcome) -> None:
    """Raise JobError for a failed host: the first one whose failure file names that host itself.

    A host that ends because another one failed has the other one's name in its failure file (failures.text).
    """
    bad = [one for one in outcome.hosts if one.code]
    if bad:
        own = [one for one in bad if one.failure.startswith(f"{one.host}:")]
        first = min(own or bad, key=lambda one: one.seconds)
        why = first.failure or "it left no failure file; its last output is above"
        raise JobError(f"{first.host} ended with exit code {first.code}", why=why)


def _common(job: Job, output: Path | None) -> containers.Common:
    volumes = {f"/opt/ml/input/data/{channel}": (folder, "ro") for channel, folder in job.channels.items()}
    if job.checkpoints:
        make_folder("--checkpoints", job.checkpoints)
        volumes["/opt/ml/checkpoints"] = (job.checkpoints, "rw")
    return containers.Common(
        image=job.image,
        code=contract.CODE,
        source=job.source,
        shm=job.shm,
        volumes=volumes,
        gpus=job.gpus,
        apart=[output] if output else [],
    )


def contracts(job: Job, name: str) -> list[containers.Host]:
    """Return the contract of each host. The job's new secret is in a file that `docker inspect` does not show.

    So are pip's settings for the job's requirements.txt; the CAs of this host are readable by every user. Raises the
    errors of pip_files.contents().
    """
    names, secret = contract.hosts(job.hosts), secrets.token_hex(SECRET_BYTES).encode()
    settings, folder = pip_files.contents(CA), PurePosixPath(contract.SECRET).parent
    paths = {file: CA if file == pip_files.CA else str(folder / file) for file in settings}
    private = {contract.SECRET: secret, **{paths[file]: settings[file] for file in settings}}
    public = {CA: private.pop(CA)} if CA in private else {}
    told = {"TRAINING_JOB_NAME": name, contract.SECRET_FILE: contract.SECRET, **pip_files.environment(paths)}
    return [
        containers.Host(
            name=host,
            command=["train"],
            environment={**told, **job.environment},
            files={**contract.config(names, host, job.hyperparameters, sorted(job.channels), "local"), **public},
            private=private,
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
