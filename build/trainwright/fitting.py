"""Whether an image of the matrix can train on an instance type of SageMaker. Pure: what is declared of both."""

from collections.abc import Iterable, Mapping

from trainwright import instances
from trainwright.errors import ConfigError
from trainwright.instances import Instance
from trainwright.model import Variant

ALLOW_TCP = "TRAINWRIGHT_ALLOW_TCP"  # what preflight takes for the user's word
OPTION = "--instance"


def instance(name: str, table: Mapping[str, Instance], sagemaker: Iterable[str]) -> tuple[str, Instance | None]:
    """SageMaker's name for a type (`p5.48xlarge`, `ml.p5.48xlarge`), and what is known of it.

    `sagemaker`: the names that its API takes; most of those have neither GPU nor EFA, and no row. Raises ConfigError.
    """
    bare = name.removeprefix("ml.")
    if row := table.get(bare):
        if not row.sagemaker:
            there = [other for other, one in table.items() if one.sagemaker]
            meant = next((f"ml.{one}" for one in instances.alike(bare, there)), "")
            raise ConfigError(
                f"SageMaker has no training jobs on {bare}",
                where=OPTION,
                why=f"did you mean {meant!r}?" if meant else "docs/training.md says how to train on EC2",
                fix=f"{OPTION} {meant or '<another type>'}",
            )
        return row.sagemaker, row
    names = list(sagemaker)
    if f"ml.{bare}" in names:
        return f"ml.{bare}", None
    raise instances.unknown(bare, {one.removeprefix("ml."): None for one in names} or table, OPTION)


def fit(variant: Variant, architecture: str, name: str, row: Instance | None, hosts: int, allow_tcp: bool) -> list[str]:
    """As trains() says, for a training job of SageMaker. Raises ConfigError, also for an image without `train`."""
    if variant.target != "sagemaker":
        raise ConfigError(
            f"{variant.id} is not for SageMaker",
            why="it has no `train`, which SageMaker runs",
            fix=f"trainwright uri {_twin(variant.id)}",
        )
    return trains(variant, architecture, name, row, hosts, "" if allow_tcp else "--allow-tcp")


def trains(variant: Variant, architecture: str, name: str, row: Instance | None, hosts: int, tcp: str) -> list[str]:
    """What a person should know of this image on this type, one sentence each. `tcp`: the option by which a person
    takes TCP between hosts that have EFA; "": that was said.

    Raises ConfigError for what cannot train, and where preflight would refuse the job on its hosts, after minutes of
    them were paid for.
    """
    find = f"trainwright list --instance {name.removeprefix('ml.')}" if row else "trainwright list"
    machine = row.architecture if row else instances.architecture(name.removeprefix("ml."))
    if architecture != machine:
        raise ConfigError(f"{variant.id} is of {architecture}, {name} is {machine}", where=OPTION, fix=find)
    gpus = row.count if row else 0
    if _cuda(variant) and not gpus:
        types = " or ".join(variant.instances) or "one of dockerfiles/instances.toml with GPUs"
        raise ConfigError(
            f"{variant.id} trains on GPUs of NVIDIA, {name} has none", where=OPTION, fix=f"{OPTION} {types}"
        )
    said = []
    if row is None:
        said.append(unknown(name))
    if gpus and not _cuda(variant):
        said.append(f"{variant.id} trains on CPUs: the {gpus} GPUs of {name} are paid for, and not used")
    elif gpus and variant.instances and name.removeprefix("ml.") not in variant.instances:
        said.append(f"{variant.id} is made for {', '.join(variant.instances)}; on {name} nobody has vouched for it")
    return said + _efa(variant, name, row, hosts, tcp, find)


def unknown(name: str) -> str:
    return f"nothing is known of {name} beside its name: no row of {instances.FILE}"


def _efa(variant: Variant, name: str, row: Instance | None, hosts: int, tcp: str, find: str) -> list[str]:
    """As preflight judges it (rootfs preflight/efa.py). Of an image that others made nobody knows what it lacks."""
    if not row or not row.efa or hosts < 2 or made_by_others(variant):
        return []
    needed = ["libfabric", *(["aws-ofi-nccl"] if "nccl" in variant.pins else [])]
    missing = " and ".join(one for one in needed if one not in variant.pins)
    if not missing:
        return []
    what = f"{variant.id} has no {missing}: {hosts} hosts on {name} would talk TCP beside {row.efa} EFA interfaces each"
    if "nccl" in variant.pins and row.count and tcp:
        raise ConfigError(
            what, where=OPTION, why="preflight refuses that on the hosts", fix=f"{find}; or {tcp}: slow training"
        )
    return [what]


def made_by_others(variant: Variant) -> bool:
    python = variant.pins.get("python")
    return python is not None and python.provider == "base"


def _cuda(variant: Variant) -> bool:
    return variant.accelerator.startswith("cu")


def _twin(identity: str) -> str:
    return identity.replace("-ec2", "-sagemaker")
