"""Read which hosts share a rack: Slurm's topology.conf, EC2's DescribeInstanceTopology, or the labels of nodes."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trainwright.core.errors import ConfigError
from trainwright.core.toml import read

LAYER = "topology.k8s.aws/network-node-layer-"  # a label of EKS; 3 is nearest to the node
HOST = "kubernetes.io/hostname"
BRACKETS = re.compile(r"([^\[,]*)\[([^\]]+)\]([^,]*)|([^,\[]+)")


def racks(file: Path, hosts: Sequence[str]) -> tuple[tuple[int, ...], list[str]]:
    """Return the rack of each host, and the names of the racks. Raises ConfigError for a host that the file lacks."""
    text = read(file, str(file))
    named = _of_json(file, text) if text.lstrip().startswith(("{", "[")) else _of_slurm(text)
    short = {name.partition(".")[0]: rack for name, rack in named.items()}
    found = []
    for host in hosts:
        plain = host.rpartition("@")[2]
        rack = named.get(plain) or short.get(plain.partition(".")[0])
        if rack is None:
            raise ConfigError(
                f"the topology does not have {plain}",
                where=str(file),
                why=f"it names {len(named)} hosts: {', '.join(sorted(named)[:5])}",
                fix="the file of this cluster, or leave --racks out",
            )
        found.append(rack)
    names = list(dict.fromkeys(found))
    return tuple(names.index(rack) for rack in found), names


def _of_slurm(text: str) -> dict[str, str]:
    """Return the leaf switch of each node of a topology.conf."""
    found = {}
    for line in text.splitlines():
        pairs = (word.partition("=") for word in line.partition("#")[0].split())
        words = {name.lower(): value for name, _, value in pairs}
        name = words.get("switchname") or words.get("blockname")
        if name and "nodes" in words:
            found.update(dict.fromkeys(expanded(words["nodes"]), name))
    return found


def expanded(text: str) -> list[str]:
    """Return the names of a hostlist such as a[01-03,7],b."""
    found = []
    for before, inside, after, plain in BRACKETS.findall(text):
        if plain:
            found.append(plain)
            continue
        for part in inside.split(","):
            first, _, last = part.partition("-")
            if not (first.isdigit() and (last or first).isdigit()):
                raise ConfigError(f"{text!r} is not a list of hosts", why="expected names such as node[01-16]")
            found += [f"{before}{number:0{len(first)}}{after}" for number in range(int(first), int(last or first) + 1)]
    return found


def _of_json(file: Path, text: str) -> dict[str, str]:
    try:
        data = json.loads(text)
        if "Instances" in data:
            return {name: one["NetworkNodes"][-1] for one in data["Instances"] for name in _ec2_names(one)}
        return dict(filter(None, map(_of_node, data["items"])))
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError) as error:
        raise ConfigError(
            "the topology cannot be read",
            where=str(file),
            why=repr(error),
            fix="aws ec2 describe-instance-topology, kubectl get nodes --output json, or Slurm's topology.conf",
        ) from None


def _ec2_names(one: dict[str, Any]) -> list[str]:
    return [str(one["InstanceId"]), *([str(one["PrivateDnsName"])] if one.get("PrivateDnsName") else [])]


def _of_node(node: dict[str, Any]) -> tuple[str, str] | None:
    labels = node["metadata"].get("labels", {})
    layers = sorted(name for name in labels if name.startswith(LAYER))
    rack = labels[layers[-1]] if layers else labels.get("topology.kubernetes.io/rack")
    return (str(labels.get(HOST, node["metadata"]["name"])), str(rack)) if rack else None
