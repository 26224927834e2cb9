"""Describe a run of nccl-tests once for every launcher, from `dockerfiles/gate.toml` and the user's options."""

import re
from collections import Counter
from pathlib import Path
from typing import Annotated

from pydantic import Field

from trainwright.core.errors import ConfigError, did_you_mean
from trainwright.core.toml import Model, load
from trainwright.gate.floors import Floors
from trainwright.gate.nccl_tests import NAMES
from trainwright.matrix.instances import Instance, interfaces, unknown
from trainwright.schedulers.clusters import Cluster, Kinds, node_type
from trainwright.schedulers.dra import Claim
from trainwright.schedulers.kubernetes import System, environment, requests
from trainwright.schedulers.placement import Placement

FILE = "dockerfiles/gate.toml"
SCRIPT = "scripts/gate.sh"  # the script that every launcher starts
HOST = re.compile(r"(?:[A-Za-z_][\w.-]*@)?[A-Za-z0-9][A-Za-z0-9.-]*")
MOST_NAME = 32  # characters taken from the subject, so that a name with its time and a launcher's suffix stays below 63


class Sweep(Model):
    """The tests to run, their message sizes, and their time limits."""

    collectives: list[str]
    least: int  # bytes
    most: int
    factor: int
    iterations: int
    warmup: int
    limit: Annotated[int, Field(gt=0)]  # seconds
    grace: int
    wait: int


class Docker(Model):
    shm_size: str
    ulimits: list[str]
    devices: list[str]  # globs


class Ssh(Model):
    port: int


class Kubernetes(Model):
    hugepages: str
    shm: str
    tolerations: list[str]  # keys of taints
    system: System


class SageMaker(Model):
    volume_gb: int


class Against(Model):
    runs: int  # of each image


class Settings(Model):
    """The whole of gate.toml."""

    run: Sweep
    environment: dict[str, str]
    environment_efa: dict[str, str]
    environment_slurm: dict[str, str]
    docker: Docker
    ssh: Ssh
    kubernetes: Kubernetes
    sagemaker: SageMaker
    against: Against


class Run(Model):
    """One run and its hosts, the only input of every launcher."""

    name: str
    image: str  # reference; "": the hosts' own installation
    instance: str  # "": not given
    nodes: Annotated[int, Field(ge=1)]
    gpus: Annotated[int, Field(ge=1)]  # of each node
    requests: dict[str, str] = Field(default={})  # CPUs and memory of a pod; {}: not known
    efa: int  # interfaces of each node: as requested, else as the instance type has
    nics: int | None = None  # the requested number, if several nodes are judged and it differs from the instance type's
    architecture: str = ""  # of the instance type; "": not given
    node_type: str = ""  # the instance type as the nodes of Kubernetes are labelled
    cluster: Cluster
    claims: list[Claim] = Field(default=[])  # of each pod of Kubernetes
    remarks: list[str] = Field(default=[])  # what the cluster must have
    placement: Placement = Placement()
    kinds: Kinds | None = None  # clusters.toml; None where nothing schedules
    sweep: Sweep
    environment: dict[str, str]
    hosts: list[str] = Field(default=[])
    settings: Settings

    @property
    def ranks(self) -> int:
        return self.nodes * self.gpus

    @property
    def seconds(self) -> int:
        """Return the longest time that the run can take, in seconds."""
        sweep = self.sweep
        tests = len(sweep.collectives) + (self.cluster.family == "slurm")  # under srun a short one comes before them
        return sweep.wait + 60 + tests * (sweep.limit + sweep.grace + 30)

    @property
    def words(self) -> list[str]:
        """Return the arguments of scripts/gate.sh, except those that name hosts: the launcher adds them."""
        sweep = self.sweep
        words = ["--name", self.name]
        if self.image:
            words += ["--image", self.image]
        words += ["--collectives", ",".join(sweep.collectives)]
        for name in ("least", "most", "factor", "iterations", "warmup", "limit", "grace", "wait"):
            words += [f"--{name}", str(getattr(sweep, name))]
        return [*words, "--gpus", str(self.gpus)]

    @property
    def variables(self) -> list[str]:
        return [f"{name}={value}" for name, value in self.environment.items()]


def load_settings(root: Path) -> Settings:
    return load(root / FILE, Settings)


def name_of(subject: str, stamp: str) -> str:
    """Return a name that is valid for Kubernetes, Slurm and SageMaker. `stamp` separates runs."""
    plain = re.sub(r"[^a-z0-9]+", "-", subject.rpartition("/")[2].partition("@")[0].lower()).strip("-")
    return f"gate-{plain[:MOST_NAME].strip('-') or 'hosts'}-{stamp}"


def each_once(hosts: list[str], where: str) -> None:
    """Raise ConfigError if a host is named twice."""
    if twice := [host for host, many in Counter(hosts).items() if many > 1]:
        raise ConfigError("a host is named twice", where=where, why=", ".join(twice), fix="name each host once")


def make(
    settings: Settings,
    instances: dict[str, Instance],
    floors: Floors,
    *,
    name: str,
    image: str = "",
    instance: str = "",
    nodes: int = 1,
    gpus: int | None = None,
    collectives: list[str] | None = None,
    hosts: list[str] | None = None,
    limit: int | None = None,
    efa: int | None = None,
    cluster: Cluster | None = None,
    kinds: Kinds | None = None,
    placement: Placement | None = None,
) -> Run:
    """Validate the options and return the run. `gpus` None: all that the instance type has. Raises ConfigError."""
    instance = instance.removeprefix("ml.")
    if instance and instance not in instances:
        raise unknown(instance, instances, "--instance")
    row = instances.get(instance)
    if row and not row.count:
        raise ConfigError(f"{instance} has no GPU", where="--instance", why="nccl-tests runs on NVIDIA GPUs")
    if row and gpus and gpus > row.count:
        raise ConfigError(f"{gpus} GPUs were requested, but {instance} has {row.count}", where="--gpus")
    gpus = gpus or (row.count if row else None)
    if not gpus:
        raise ConfigError("the number of GPUs per host is unknown", fix="--instance TYPE, or --gpus NUMBER")
    given = interfaces(instance, row, efa)
    wanted = list(dict.fromkeys(collectives or settings.run.collectives))
    for collective in wanted:
        if collective not in NAMES:
            why = did_you_mean(collective, NAMES)
            raise ConfigError(f"unknown collective {collective!r}", where="--collective", why=why)
    for host in hosts or []:
        if not HOST.fullmatch(host):
            raise ConfigError(f"{host!r} is not a host name", where="--hosts", why="expected one [user@]name per line")
    each_once(hosts or [], "--hosts")
    if hosts and nodes != len(hosts):
        raise ConfigError(f"{len(hosts)} hosts are named, but --nodes is {nodes}", where="--hosts")
    asked = [floor.size for floor in floors.floors if instance in floor.instances]
    sweep = settings.run.model_copy(
        update={
            "collectives": wanted,
            "most": max([settings.run.most, *asked]),
            "limit": limit or settings.run.limit,
        }
    )
    cluster = cluster or Cluster()
    over_efa = nodes > 1 and row is not None and row.efa > 0
    return Run(
        name=name,
        image=image,
        instance=instance,
        nodes=nodes,
        gpus=gpus,
        requests=requests(row, settings.kubernetes.system, gpus) if row else {},
        efa=given,
        nics=efa if row and nodes > 1 and efa != row.efa else None,
        architecture=row.architecture if row else "",
        node_type=node_type(cluster, instance, row),
        cluster=cluster,
        kinds=kinds,
        placement=placement or Placement(),
        sweep=sweep,
        environment={
            **settings.environment,
            **(settings.environment_efa if over_efa else {}),
            **(environment(kinds, cluster, given) if kinds and over_efa and cluster.family == "kubernetes" else {}),
            **(settings.environment_slurm if cluster.family == "slurm" else {}),
        },
        hosts=hosts or [],
        settings=settings,
    )


def read_hosts(text: str) -> list[str]:
    """Return the hosts of a hostfile, one per line, as for mpirun: text after the name, and comments, are ignored."""
    lines = (line.partition("#")[0].split() for line in text.splitlines())
    return [words[0].partition(":")[0] for words in lines if words]
