"""Describe a training job in one form for every scheduler, from dockerfiles/clusters.toml and the command's options."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from posixpath import join, normpath
from typing import Annotated

from pydantic import ConfigDict, Field, field_validator

from trainwright.core.errors import ConfigError, did_you_mean, nearest
from trainwright.core.pairs import pairs
from trainwright.core.toml import Model, load
from trainwright.gate import spec
from trainwright.jobs import contract, schedulers
from trainwright.matrix import instances
from trainwright.matrix.instances import Instance
from trainwright.schedulers import clusters, dra
from trainwright.schedulers import kubernetes as objects
from trainwright.schedulers import placement as placements
from trainwright.schedulers.clusters import FILE, Asked, Cluster, Family, Kinds
from trainwright.schedulers.dra import Claim

WORDS = {"none": "plain"}  # the launcher's name for it; `run` calls it none
# DNS-1035; the pods' names, job-worker-999, have at most 63 characters (mpi-operator, pkg/apis/kubeflow/validation).
NAME = re.compile(r"[a-z]([a-z0-9-]{0,50}[a-z0-9])?")
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


class HyperPod(Model):
    namespace: str
    namespace_prefix: str
    resume: str
    retries: str


class Settings(Kinds):
    """The content of clusters.toml."""

    model_config = ConfigDict(extra="forbid")

    stop_seconds: int
    retries: int
    folders: Folders
    operators: dict[str, str]  # operator of each scheduler on Kubernetes
    hyperpod: HyperPod

    @field_validator("operators")
    @classmethod
    def _complete(cls, operators: dict[str, str]) -> dict[str, str]:
        missing = [name for name in schedulers.NAMES if schedulers.named(name).KUBERNETES and name not in operators]
        if missing:
            raise ValueError(f"{', '.join(missing)} missing: each scheduler on Kubernetes has an operator")
        return operators


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
    requirements: str = ""  # the path of requirements.txt below the folder of the code; "": none
    beside: dict[str, str] = Field(default={})  # files that are sent with `text`


class Job(Model):
    """One job: what runs where. It is the only input of every scheduler."""

    name: str
    on: str
    image: str
    nodes: Annotated[int, Field(ge=1)]
    instance: str  # EC2's name; "": any
    node_type: str  # the same as the cluster labels its nodes
    gpus: int  # of each node
    efa: int  # interfaces of each node, as scheduled
    requests: dict[str, str]  # CPUs and memory of a pod; {}: not known
    cluster: Cluster
    claims: list[Claim]  # of each pod of Kubernetes
    distribution: str
    processes: Annotated[int, Field(ge=1)]  # of each node
    script: Script
    words: list[str]
    mounts: list[Mount]
    environment: dict[str, str]
    namespace: str  # "": kubectl's current namespace
    hours: int | None  # None: not set
    placement: placements.Placement
    settings: Settings
    devices: spec.Kubernetes

    @property
    def kubernetes(self) -> bool:
        return on_kubernetes(self.on)

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
    def notes(self) -> list[str]:
        """Return what the job needs that its file cannot enforce, and the results that will be lost."""
        if not self.kubernetes:
            return self.lost
        efa = self.efa if self.nodes > 1 else 0
        needs = placements.notes(self.placement, self.cluster, self.settings.kueue, self.namespace, efa)
        return [*needs, *self.lost]

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
    hours: int | None = None,
    placement: placements.Placement | None = None,
    token: str = "",
    here: str = "",
    efa: int | None = None,
    asked: Asked | None = None,
) -> Job:
    """Make a job. `components` describes the image, empty if unknown; `row` describes `instance`, which may be "".

    `token` separates the submissions on Kubernetes, whose objects have a name each; `here` is the folder of relative
    paths.

    Raises ConfigError.
    """
    check_on(on)
    family: Family = "kubernetes" if on_kubernetes(on) else "slurm"
    cluster = clusters.choose(settings, asked or Asked(), on, family, schedulers.named(on).HYPERPOD)
    placement = placement or placements.Placement()
    kind = _distribution(on, distribution, components, nodes * (processes or row.count or 1))
    mark = token if on_kubernetes(on) else ""
    name = _name(name or Path(script.path).stem.lower().replace("_", "-"), nodes, mark)
    if efa and not on_kubernetes(on):
        why = f"--on {on}: a job has its nodes alone, with all of their interfaces"
        raise ConfigError("--efa only applies to Kubernetes", where="--efa", why=why, fix="leave --efa out")
    given = instances.interfaces(instance, row, efa) if nodes > 1 or efa else 0
    clusters.refuse_without_efa(asked or Asked(), given, nodes)
    claimed = dra.needed(settings.claims, cluster, on, name, nodes, given, row.imex) if on_kubernetes(on) else []
    return Job(
        name=name,
        on=on,
        image=image,
        nodes=nodes,
        instance=instance,
        node_type=clusters.node_type(cluster, instance, row) if on_kubernetes(on) else instance,
        gpus=row.count,
        requests=objects.requests(row, devices.system),
        efa=given,
        cluster=cluster,
        claims=claimed,
        distribution=kind,
        processes=_processes(processes, kind, instance, row.count),
        script=script,
        words=list(words),
        mounts=_mounts(settings.folders, on, script, data, checkpoints, model, here),
        environment=_environment(environment),
        namespace=_namespace(settings.hyperpod, on, placement.namespace),
        hours=hours,
        placement=placement,
        settings=settings,
        devices=devices,
    )


def check_on(on: str) -> None:
    if on not in schedulers.NAMES:
        fix = (
            "--on pytorchjob or --on mpijob" if on == "kubernetes" else f"--on {nearest(on, schedulers.NAMES, 'slurm')}"
        )
        raise ConfigError(f"unknown scheduler {on!r}", where="--on", why=did_you_mean(on, schedulers.NAMES), fix=fix)


def _name(name: str, nodes: int, token: str) -> str:
    end = f"-{token}" if token else ""
    if not NAME.fullmatch(name + end) or not NAME.fullmatch(name) or len(f"{name}{end}-worker-{nodes}") > 63:
        most = min(51, 63 - len(f"-worker-{nodes}") - 1) - len(end)
        why = f"expected a lower-case letter, then at most {most} lower-case letters, digits and -, for pod names"
        raise ConfigError(f"{name!r} is not a job name", where="--name", why=why, fix="--name train")
    return name + end


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
    folders: Folders, on: str, script: Script, data: Sequence[str], checkpoints: str, model: str, here: str
) -> list[Mount]:
    """Return the mounts; a folder of Slurm is absolute, so that the file means the same wherever it is submitted."""
    found = [Mount(name="code", source=script.code, target=folders.code, read_only=True)]
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
    if not on_kubernetes(on):
        found = [one.model_copy(update={"source": normpath(join(here, one.source))}) for one in found]
    for mount in found:
        option = "--channel" if mount.name.startswith("data-") else f"--{mount.name}"
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
