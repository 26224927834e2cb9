"""Choose a kind of cluster: what it gives a job by default, what an option changes, and what it cannot give.

A kind is a row of dockerfiles/clusters.toml; a new one is a new row.
"""

import re
from pathlib import Path
from typing import Literal

from pydantic import ConfigDict, Field

from trainwright.core.errors import ConfigError, did_you_mean, nearest
from trainwright.core.toml import Model, load
from trainwright.matrix.instances import Instance

FILE = "dockerfiles/clusters.toml"
Family = Literal["slurm", "kubernetes", ""]
NAMES = {"slurm": "Slurm", "kubernetes": "Kubernetes"}
MPI_TYPE = re.compile(r"[a-z][a-z0-9_]*")  # as `srun --mpi=list` prints them
CLUSTER_DEFAULT = "default"  # an --mpi-type: srun is told none, and takes the cluster's own (MpiDefault)


class Cluster(Model):
    """One kind of cluster: its defaults, which options override. Without a row it is a host that nothing schedules."""

    family: Family = ""
    hyperpod: bool = False  # whether nodes are labelled with SageMaker's names of instance types
    gpus_per_node: bool = True  # Slurm: whether GPUs are requested; not possible where it counts none
    mpi_type: str = "pmix"  # Slurm: how srun starts the ranks of a gate
    huge_pages: bool = True  # Kubernetes: whether pods with EFA request huge pages
    efa_by: list[str] = Field(default=["device-plugin"])  # Kubernetes: how a pod can get interfaces; the default first
    no_compute_domain: str = ""  # Kubernetes: why it gives no IMEX channel; "" if it does
    annotations: dict[str, str] = Field(default={})  # Kubernetes: of each pod, so that nothing disturbs it
    node_labels: dict[str, str] = Field(default={})  # Kubernetes: of nodes that may take a pod
    zstd: bool = False  # whether its nodes are known to pull layers compressed with zstd: a job names the zstd twin
    evidence: str = ""

    @property
    def dra(self) -> bool:
        return self.efa_by[0] == "dra"


class Claims(Model):
    """Names and limits of devices that are claimed (DRA), and not counted."""

    efa_class: str
    compute_domain: str  # API group and version
    requires: dict[str, str]  # of what is claimed: efa, imex
    operators: dict[str, str]  # of --on: the operator's version that keeps a pod's claims
    refused: dict[str, str]  # --on whose operator drops a pod's claims: why


class Kueue(Model):
    """Names that Kueue reads."""

    queue: str  # label of a job
    priority: str  # label of a job: its WorkloadPriorityClass, which has nothing to do with a pod's PriorityClass
    topology: str  # annotation of its pods: all in one domain of this level
    group: str  # annotation of its pods: main pod and workers are one set
    teams: str  # how the namespaces of HyperPod's task governance begin; each has its LocalQueue


class Slurm(Model):
    hours: int
    pmi_hook: str  # the command that turns on enroot's hook for PMI


class Kubernetes(Model):
    shm_gib: int
    ttl_seconds: int
    script_bytes: int
    without_huge_pages: dict[str, str]  # environment of pods with EFA that request none


class Kinds(Model):
    """The part of clusters.toml that gates and training jobs share."""

    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)

    clusters: dict[str, Cluster]
    claims: Claims
    kueue: Kueue
    slurm: Slurm
    kubernetes: Kubernetes


class Asked(Model):
    """The options about the cluster; None and "" leave its default."""

    cluster: str = ""
    huge_pages: bool | None = None
    gpus_per_node: bool | None = None
    mpi_type: str = ""
    efa_by: str = ""
    zstd: bool | None = None


def load_kinds(root: Path) -> Kinds:
    return load(root / FILE, Kinds)


def refuse_stray(asked: Asked, on: str, family: str) -> None:
    """Refuse options that would have no effect on `on`; its `family` is "" for neither Slurm nor Kubernetes."""
    options = [
        ("--cluster", asked.cluster or None, family or " or ".join(NAMES)),
        ("--gpus-per-node", asked.gpus_per_node, "slurm"),
        ("--mpi-type", asked.mpi_type or None, "slurm"),
        ("--huge-pages", asked.huge_pages, "kubernetes"),
        ("--efa-by", asked.efa_by or None, "kubernetes"),
    ]
    for option, value, only in options:
        if value is not None and only != family:
            name = f"--no-{option[2:]}" if value is False else option
            why = " and ".join(NAMES[one] for one in only.split(" or "))
            raise ConfigError(f"{name} only applies to {why}", where=name, why=f"--on {on}", fix=f"leave {name} out")


def refuse_without_efa(asked: Asked, efa: int, nodes: int) -> None:
    """Refuse options about EFA for pods that request no interface, because they would have no effect."""
    options = (("--efa-by", asked.efa_by or None), ("--huge-pages", asked.huge_pages))
    given = [f"--no-{name[2:]}" if value is False else name for name, value in options if value is not None]
    if given and not efa:
        fix = f"leave {given[0]} out, or {'--nodes 2' if nodes == 1 else 'an --instance with EFA'}, or --efa NUMBER"
        why = "the pods request no EFA interface"
        raise ConfigError(f"{given[0]} has no effect without EFA", where=given[0], why=why, fix=fix)


def choose(kinds: Kinds, asked: Asked, on: str, family: Family, hyperpod: bool = False) -> Cluster:
    """Return the cluster with the options applied. Raises ConfigError for one that `on` cannot run on.

    The default is the row of the scheduler's own name, else that of its family. `hyperpod`: `on` is for HyperPod alone.
    """
    refuse_stray(asked, on, family)
    able = [name for name, row in kinds.clusters.items() if row.family == family and (row.hyperpod or not hyperpod)]
    name = asked.cluster or (on if on in kinds.clusters else family)
    row = kinds.clusters.get(name)
    if row is None:
        fix = f"--cluster {nearest(name, able, able[0])}"
        raise ConfigError(f"unknown cluster {name!r}", where="--cluster", why=did_you_mean(name, able), fix=fix)
    if name not in able:
        why = f"--on {on} runs on {', '.join(able)}"
        raise ConfigError(f"--cluster {name} does not run --on {on}", where="--cluster", why=why, fix="leave it out")
    if asked.mpi_type and not MPI_TYPE.fullmatch(asked.mpi_type):
        why = f"srun --mpi=list prints the valid ones; {CLUSTER_DEFAULT} is the cluster's own"
        raise ConfigError(f"{asked.mpi_type!r} is not an MPI type", where="--mpi-type", why=why, fix="--mpi-type pmix")
    if asked.efa_by and asked.efa_by not in row.efa_by:
        _refuse_efa_by(kinds, name, row, asked.efa_by)
    given = {
        "huge_pages": asked.huge_pages,
        "gpus_per_node": asked.gpus_per_node,
        "mpi_type": asked.mpi_type or None,
        "efa_by": [asked.efa_by] if asked.efa_by else None,
        "zstd": asked.zstd,
    }
    return row.model_copy(update={key: value for key, value in given.items() if value is not None})


def _refuse_efa_by(kinds: Kinds, name: str, row: Cluster, by: str) -> None:
    others = [other for other, one in kinds.clusters.items() if by in one.efa_by and one.family == row.family]
    if not others:
        words = sorted({way for one in kinds.clusters.values() for way in one.efa_by})
        fix = f"--efa-by {nearest(by, words, words[0])}"
        raise ConfigError(f"unknown way to EFA {by!r}", where="--efa-by", why=did_you_mean(by, words), fix=fix)
    fix = f"leave --efa-by out, or --cluster {' or '.join(others)}"
    why = f"its pods get EFA interfaces by {' or '.join(row.efa_by)} ({row.evidence})"
    raise ConfigError(f"--cluster {name} does not give EFA by {by}", where="--efa-by", why=why, fix=fix)


def node_type(cluster: Cluster, instance: str, row: Instance | None) -> str:
    """Return the instance type as the cluster labels its nodes. Raises ConfigError if HyperPod does not offer it."""
    if not (cluster.hyperpod and instance):
        return instance
    if not (row and row.sagemaker):
        raise ConfigError(f"HyperPod does not offer {instance}", where="--instance", why="SageMaker cannot train on it")
    return row.sagemaker
