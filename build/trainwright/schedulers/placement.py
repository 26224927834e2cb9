"""Describe where a job may run and in whose name: queues, priorities, accounts, topology. Pure.

Facts: kubernetes-sigs/kueue pkg/controller/constants, apis/kueue/v1beta1/topology_types.go (labels and annotations);
command_constants.py of aws/sagemaker-hyperpod-cli; sbatch(1). EC2 user guide, Elastic Fabric Adapter: its traffic
cannot cross Availability Zones. kubernetes-sigs/kueue, concepts/dynamic_resource_allocation and issue 10504 (DRA).
"""

import re
from collections.abc import Sequence
from typing import Any

from pydantic import Field

from trainwright.core.errors import ConfigError
from trainwright.core.pairs import pairs
from trainwright.core.toml import Model
from trainwright.schedulers.clusters import NAMES, Cluster, Family, Kueue

OBJECT = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")  # DNS-1123
LABEL = re.compile(r"([a-z0-9]([a-z0-9.-]*[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
VALUE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.,@+:-]*")
NAMESPACE = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
ZONE = "topology.kubernetes.io/zone"  # label of a node
KUBERNETES = {
    "namespace": NAMESPACE,
    "queue": OBJECT,
    "topology": LABEL,
    "priority_class": OBJECT,
    "service_account": OBJECT,
    "pull_secret": OBJECT,
}
SLURM = {"partition": WORD, "account": WORD, "qos": WORD, "reservation": WORD}
OPTIONS: dict[Family, dict[str, re.Pattern[str]]] = {"kubernetes": KUBERNETES, "slurm": SLURM, "": {}}


class Placement(Model):
    """What was asked for; "" and {}: nothing."""

    namespace: str = ""
    queue: str = ""
    topology: str = ""
    priority_class: str = ""
    service_account: str = ""
    pull_secret: str = ""
    node_selector: dict[str, str] = Field(default={})
    partition: str = ""
    account: str = ""
    qos: str = ""
    reservation: str = ""


def make(on: str, family: Family, selectors: Sequence[str] = (), **said: str) -> Placement:
    """Return the placement. Raises ConfigError for an option of another kind of scheduler, and for an invalid value."""
    able = OPTIONS[family]
    for name, value in {"node_selector": next(iter(selectors), ""), **said}.items():
        if not value or (name == "node_selector" and family == "kubernetes"):
            continue
        if name not in able:
            raise _misplaced(name, on, family)
        if not able[name].fullmatch(value):
            raise ConfigError(
                f"{value!r} is not a valid value of {_option(name)}", where=_option(name), why=_why(able[name])
            )
    wanted = pairs("--node-selector", selectors)
    for name, value in wanted.items():
        if not (LABEL.fullmatch(name) and VALUE.fullmatch(value)):
            raise ConfigError(f"{name}={value} is not a label of a node", where="--node-selector", why=_why(LABEL))
    if said.get("topology") and not said.get("queue"):
        raise ConfigError(
            "--topology requires --queue",
            where="--topology",
            why="only Kueue places all pods of a job together; otherwise the first ones go where the others do not fit",
            fix="--queue NAME, a LocalQueue of the namespace: kubectl get localqueues",
        )
    return Placement(node_selector=wanted, **said)


def labels(placement: Placement, cluster: Cluster, kueue: Kueue) -> dict[str, str]:
    """Return the labels of a job's own object."""
    named = {kueue.queue: placement.queue} if placement.queue else {}
    return {**named, **({kueue.priority: placement.priority_class} if _by_label(placement, cluster) else {})}


def _by_label(placement: Placement, cluster: Cluster) -> bool:
    """Return whether the priority is Kueue's: HyperPod's task governance makes WorkloadPriorityClasses alone."""
    return bool(cluster.hyperpod and placement.queue and placement.priority_class)


def annotations(placement: Placement, cluster: Cluster, kueue: Kueue, job: str, groups: int) -> dict[str, str]:
    """Return the annotations of a job's pods; `groups` is the number of their kinds."""
    if not placement.topology:
        return cluster.annotations
    group = {kueue.group: job} if groups > 1 else {}
    return {**cluster.annotations, kueue.topology: placement.topology, **group}


def pod(placement: Placement, cluster: Cluster) -> dict[str, Any]:
    """Return the fields of a pod's specification."""
    priority = "" if _by_label(placement, cluster) else placement.priority_class
    return {
        **({"priorityClassName": priority} if priority else {}),
        **({"serviceAccountName": placement.service_account} if placement.service_account else {}),
        **({"imagePullSecrets": [{"name": placement.pull_secret}]} if placement.pull_secret else {}),
    }


def notes(placement: Placement, cluster: Cluster, kueue: Kueue, namespace: str, efa: int) -> list[str]:
    """Return what this job needs of its namespace and its nodes, and what the file cannot enforce.

    `namespace` is the job's, "" for kubectl's own; `efa` is the number of each node's interfaces, 0 for one node.
    """
    found = list[str]()
    if placement.queue:
        where = f"the namespace {namespace}" if namespace else "kubectl's current namespace"
        found.append(f"--queue {placement.queue} must be a LocalQueue of {where}, else the job stays suspended")
        if cluster.hyperpod and not namespace.startswith(kueue.teams):
            found[-1] += f"; a team's queue of task governance is in {kueue.teams}TEAM: --namespace {kueue.teams}TEAM"
        if efa and cluster.dra:
            found.append(
                "Kueue counts claimed interfaces only with a deviceClassMapping; without it, it may reject the job"
            )
    if efa and not placement.topology and ZONE not in placement.node_selector:
        found.append(f"EFA does not cross Availability Zones; in a cluster of several: --node-selector {ZONE}=NAME")
    return found


def sbatch(placement: Placement) -> list[str]:
    """Return the options of sbatch."""
    return [f"--{name}={value}" for name in SLURM if (value := getattr(placement, name))]


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _misplaced(name: str, on: str, family: Family) -> ConfigError:
    """Return the error of an option that has no effect on `on`; its fix names the options that have one."""
    others = [_option(one) for one in OPTIONS[family] if one != "namespace"]
    others += ["--node-selector"] if family == "kubernetes" else []
    return ConfigError(
        f"{_option(name)} only applies to {NAMES['slurm' if name in SLURM else 'kubernetes']}",
        where=_option(name),
        why=f"--on {on} is {NAMES[family]}" if family else f"--on {on}",
        fix=" or ".join(others) or f"leave {_option(name)} out",
    )


def _why(pattern: re.Pattern[str]) -> str:
    if pattern is LABEL:
        return "expected [PREFIX/]NAME of letters, digits, - _ and ., and a value of the same"
    if pattern is NAMESPACE:
        return "only lower-case letters, digits and - are allowed"
    letters = "lower-case letters, digits, - and ." if pattern is OBJECT else "letters, digits and _ . , @ + : -"
    return f"only {letters} are allowed"
