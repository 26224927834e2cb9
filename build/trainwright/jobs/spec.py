"""Describe a training job in one form for every scheduler, from dockerfiles/clusters.toml and the command's options."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

from pydantic import Field

from trainwright.core.errors import ConfigError, did_you_mean, nearest
from trainwright.core.pairs import pairs
from trainwright.core.toml import Model, load
from trainwright.gate import spec
from trainwright.jobs import contract, schedulers
from trainwright.matrix.instances import Instance

FILE = "dockerfiles/clusters.toml"
WORDS = {"none": "plain"}  # the launcher's name for it; `run` calls it none
# DNS-1035; the pods' names, job-worker-999, have at most 63 characters (mpi-operator, pkg/apis/kubeflow/validation).
NAME = re.compile(r"[a-z]([a-z0-9-]{0,50}[a-z0-9])?")
NAMESPACE = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
CLAIM = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?(/[A-Za-z0-9_.@+=-]+)*")  # a claim, and a folder in it
FOLDER = re.compile(r"[A-Za-z0-9_./@+=-]+")  # pyxis splits mounts at : and ,
KEY = re.compile(r"(?!\.\.?$)[A-Za-z0-9._-]{1,253}")  # of a ConfigMap
LOST = "{folder} (SM_MODEL_DIR) is lost with its container: --model SOURCE keeps what a script saves there"
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class Folders(Model):
    code: str
    checkpoints: str
    model: str
    channel: str
    secret: str


class Slurm(Model):
    hours: int


class Kubernetes(Model):
    shm_gib: int
    ttl_seconds: int
    script_bytes: int


class HyperPod(Model):
    namespace: str
    namespace_prefix: str
    resume: str
    retries: str
    healthy: dict[str, str]


class Settings(Model):
    """The content of clusters.toml."""

    stop_seconds: int
    retries: int
    folders: Folders
    slurm: Slurm
    kubernetes: Kubernetes
    operators: dict[str, str]  # operator of each scheduler on Kubernetes
    hyperpod: HyperPod


class Mount(Model):
    """A mount.

    `source` is a claim, with or without a folder in it (Kubernetes), or a folder that all nodes share (Slurm).
    """

    name: str
    source: str
    target: str
    read_only: bool


class Script(Model):
    """The script that the launcher runs: from the Mount source `code`, from `text`, or else from the image."""

    path: str
    code: str = ""
    text: str | None = None


class Job(Model):
    """One job: what runs where. It is the only input of every scheduler."""

    name: str
    on: str
    image: str
    nodes: Annotated[int, Field(ge=1)]
    instance: str  # EC2's name; "": any
    sagemaker: str  # SageMaker's name; "" if SageMaker cannot train on it
    gpus: int  # of each node
    efa: int  # interfaces of each node, as scheduled
    distribution: str
    processes: Annotated[int, Field(ge=1)]  # of each node
    script: Script
    words: list[str]
    mounts: list[Mount]
    environment: dict[str, str]
    namespace: str  # "": kubectl's current namespace
    hours: int | None  # None: not set
    settings: Settings
    devices: spec.Kubernetes

    @property
    def kubernetes(self) -> bool:
        return on_kubernetes(self.on)

    @property
    def hyperpod(self) -> bool:
        return schedulers.named(self.on).HYPERPOD

    @property
    def title(self) -> str:
        """Return a description of the job, for the head of its file."""
        ranks = f"{self.processes} {'process' if self.processes == 1 else 'processes'} each"
        hosts = self.instance or ("host" if self.nodes == 1 else "hosts")
        return f"{self.script.path} ({self.distribution}) on {self.nodes} {hosts}" + f", {ranks}" * self.kubernetes

    @property
    def lost(self) -> list[str]:
        """Return a note on results that will be lost, or []."""
        return [] if self.keeps_model else [LOST.format(folder=self.settings.folders.model)]

    @property
    def has_code(self) -> bool:
        return bool(self.script.code) or self.script.text is not None

    @property
    def variables(self) -> dict[str, str]:
        """Return the environment, with SM_MODEL_DIR and the SM_CHANNEL_* that SageMaker's toolkit sets for a script."""
        prefix = f"{self.settings.folders.channel}/"
        channels = [mount.target for mount in self.mounts if mount.target.startswith(prefix)]
        named = {f"SM_CHANNEL_{target.removeprefix(prefix).upper()}": target for target in channels}
        return {"SM_MODEL_DIR": self.settings.folders.model, **named, **self.environment}

    @property
    def secret(self) -> str:
        """Return the name of the Kubernetes Secret that holds the job's secret."""
        return f"{self.name}-secret"

    @property
    def keeps_model(self) -> bool:
        return self.settings.folders.model in {mount.target for mount in self.mounts}

    @property
    def launcher(self) -> list[str]:
        words = ["trainwright-launch", "--distribution", WORDS.get(self.distribution, self.distribution)]
        return words if self.distribution == "none" else [*words, "--processes", str(self.processes)]


def load_settings(root: Path) -> Settings:
    return load(root / FILE, Settings)


def on_kubernetes(on: str) -> bool:
    return schedulers.named(on).KUBERNETES


def make(
    settings: Settings,
    devices: spec.Kubernetes,
    row: Instance,
    *,
    on: str,
    image: str,
    components: Mapping[str, str],
    instance: str,
    nodes: int,
    script: Script,
    words: Sequence[str] = (),
    name: str = "",
    processes: int | None = None,
    distribution: str = "",
    data: Sequence[str] = (),
    checkpoints: str = "",
    model: str = "",
    environment: Sequence[str] = (),
    namespace: str = "",
    hours: int | None = None,
) -> Job:
    """Make a job. `components` describes the image, empty if unknown; `row` describes `instance`, which may be "".

    Raises ConfigError.
    """
    check_on(on)
    if on_kubernetes(on) and schedulers.named(on).HYPERPOD and instance and not row.sagemaker:
        raise ConfigError(f"HyperPod does not offer {instance}", where="--instance", why="SageMaker cannot train on it")
    kind = _distribution(on, distribution, components, nodes * (processes or row.count or 1))
    return Job(
        name=_name(name or Path(script.path).stem.lower().replace("_", "-"), nodes),
        on=on,
        image=image,
        nodes=nodes,
        instance=instance,
        sagemaker=row.sagemaker,
        gpus=row.count,
        efa=min(row.efa, devices.efa.get(instance, row.efa)) if nodes > 1 else 0,
        distribution=kind,
        processes=_processes(processes, kind, instance, row.count),
        script=script,
        words=list(words),
        mounts=_mounts(settings.folders, on, script, data, checkpoints, model),
        environment=_environment(environment),
        namespace=_namespace(settings.hyperpod, on, namespace),
        hours=hours,
        settings=settings,
        devices=devices,
    )


def check_on(on: str) -> None:
    if on not in schedulers.NAMES:
        fix = f"--on {nearest(on, schedulers.NAMES, 'slurm')}"
        raise ConfigError(f"unknown scheduler {on!r}", where="--on", why=did_you_mean(on, schedulers.NAMES), fix=fix)


def _name(name: str, nodes: int) -> str:
    if not NAME.fullmatch(name) or len(f"{name}-worker-{nodes}") > 63:
        why = "expected a lower-case letter, then at most 51 lower-case letters, digits and -, for pod names"
        raise ConfigError(f"{name!r} is not a job name", where="--name", why=why, fix="--name train")
    return name


def _distribution(on: str, asked: str, components: Mapping[str, str], ranks: int) -> str:
    able = schedulers.named(on).STARTS
    asked = {word: kind for kind, word in WORDS.items()}.get(asked, asked)
    if asked and asked not in contract.DISTRIBUTIONS:
        raise ConfigError(f"unknown distribution {asked!r}", why=did_you_mean(asked, contract.DISTRIBUTIONS))
    if asked and asked not in able:
        others = [other for other in schedulers.NAMES if asked in schedulers.named(other).STARTS]
        raise ConfigError(
            f"--on {on} does not start {asked}",
            where="--distribution",
            why=f"it starts {' or '.join(able)}",
            fix=" or ".join(f"--on {other}" for other in others),
        )
    if not asked and on_kubernetes(on):
        asked = able[0]
    if not components:
        return asked or ("none" if ranks == 1 else able[0])
    return contract.distribution(asked, components, ranks)


def _processes(asked: int | None, kind: str, instance: str, gpus: int) -> int:
    if kind == "none" and (asked or 1) > 1:
        why = "distribution none starts one process on each node"
        raise ConfigError(
            f"{asked} processes are too many", where="--processes", why=why, fix="--distribution torchrun"
        )
    if gpus and (asked or 0) > gpus:
        raise ConfigError(f"{asked} processes are too many", where="--processes", why=f"{instance} has {gpus} GPUs")
    return asked or (1 if kind in ("none", "tensorflow") else gpus or 1)


def _mounts(
    folders: Folders, on: str, script: Script, data: Sequence[str], checkpoints: str, model: str
) -> list[Mount]:
    found = [Mount(name="code", source=script.code, target=folders.code, read_only=on_kubernetes(on))]
    found = found if script.code else []
    named = [word if "=" in word else f"training={word}" for word in data]
    for channel, source in pairs("--channel", named).items():
        if not contract.CHANNEL.fullmatch(channel):
            raise ConfigError(
                f"{channel!r} is not a channel name",
                where="--channel",
                why="only letters, digits, . _ and - are allowed",
            )
        name = f"data-{re.sub('[^a-z0-9]', '-', channel.lower())}"
        if name in {mount.name for mount in found}:
            raise ConfigError(f"the channel {channel} is given twice", where="--channel", fix="--channel NAME=SOURCE")
        found.append(Mount(name=name, source=source, target=f"{folders.channel}/{channel}", read_only=True))
    if checkpoints:
        found.append(Mount(name="checkpoints", source=checkpoints, target=folders.checkpoints, read_only=False))
    if model:
        found.append(Mount(name="model", source=model, target=folders.model, read_only=False))
    for mount in found:
        option = f"--{mount.name.partition('-')[0]}"
        if on_kubernetes(on) and (not CLAIM.fullmatch(mount.source) or ".." in mount.source.split("/")):
            why = "Kubernetes requires a PersistentVolumeClaim, or CLAIM/FOLDER"
            raise ConfigError(f"{mount.source!r} is not a claim", where=option, why=why)
        if not FOLDER.fullmatch(mount.source):
            why = "pyxis accepts only letters, digits and / . _ @ + = -"
            raise ConfigError(f"{mount.source!r} is not a folder that can be mounted", where=option, why=why)
    return found


def _environment(words: Sequence[str]) -> dict[str, str]:
    found = dict[str, str]()
    for name, value in pairs("--env", words).items():
        if not VARIABLE.fullmatch(name):
            raise ConfigError(f"{name!r} is not a variable name", where="--env", fix="--env NAME=VALUE")
        if name in ("TRAINWRIGHT_JOB_SECRET", contract.SECRET_FILE):
            why = "everybody who reads the emitted file would see it; the file sets its location itself"
            raise ConfigError("the job's secret must not be in --env", where="--env", why=why, fix="leave it out")
        found[name] = value
    return found


def _namespace(hyperpod: HyperPod, on: str, asked: str) -> str:
    if asked and not on_kubernetes(on):
        raise ConfigError(
            "--namespace only applies to Kubernetes", where="--namespace", why=f"--on {on} has no namespaces"
        )
    if asked and not NAMESPACE.fullmatch(asked):
        raise ConfigError(
            f"{asked!r} is not a namespace",
            where="--namespace",
            why="only lower-case letters, digits and - are allowed",
        )
    if not schedulers.named(on).HYPERPOD:
        return asked
    if asked and asked != hyperpod.namespace and not asked.startswith(hyperpod.namespace_prefix):
        raise ConfigError(
            f"HyperPod does not resume jobs in the namespace {asked}",
            where="--namespace",
            why=f"it resumes only jobs in {hyperpod.namespace} and in namespaces beginning {hyperpod.namespace_prefix}",
            fix=f"--namespace {hyperpod.namespace}, or --on pytorchjob: without auto-resume",
        )
    return asked or hyperpod.namespace
