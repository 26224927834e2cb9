"""Decide whether a matrix image can train on a SageMaker instance type. Pure: uses only what is declared of both."""

from collections.abc import Iterable, Mapping

from trainwright.core.errors import ConfigError
from trainwright.graft import recipe as graft_recipe
from trainwright.matrix import instances
from trainwright.matrix.instances import Instance
from trainwright.matrix.matrix import Recipe

ALLOW_TCP = "TRAINWRIGHT_ALLOW_TCP"  # preflight reads it as the user's consent
OPTION = "--instance"


def instance(name: str, table: Mapping[str, Instance], sagemaker: Iterable[str]) -> tuple[str, Instance | None]:
    """Return SageMaker's name for a type (`p5.48xlarge`, `ml.p5.48xlarge`), and its row or None.

    `sagemaker`: the names that its API accepts; most have neither GPU nor EFA, and no row. Raises ConfigError.
    """
    bare = name.removeprefix("ml.")
    if row := table.get(bare):
        if not row.sagemaker:
            there = [other for other, one in table.items() if one.sagemaker]
            meant = next((f"ml.{one}" for one in instances.alike(bare, there)), "")
            raise ConfigError(
                f"SageMaker has no training jobs on {bare}",
                where=OPTION,
                why=f"did you mean {meant!r}?" if meant else "docs/training.md describes training on EC2",
                fix=f"{OPTION} {meant or '<another type>'}",
            )
        return row.sagemaker, row
    names = list(sagemaker)
    if f"ml.{bare}" in names:
        return f"ml.{bare}", None
    raise instances.unknown(bare, {one.removeprefix("ml."): None for one in names} or table, OPTION)


def fit(recipe: Recipe, name: str, row: Instance | None, hosts: int, allow_tcp: bool) -> list[str]:
    """Return what trains() returns, for SageMaker. Raises ConfigError, also for an image without `train`."""
    if recipe.variant.target != "sagemaker":
        raise ConfigError(
            f"{recipe.id} is not for SageMaker",
            why="it has no `train` command, which SageMaker runs",
            fix=f"trainwright graft {recipe.base.reference} --target sagemaker"
            if graft_recipe.is_graft(recipe)
            else f"trainwright uri {_twin(recipe.id)}",
        )
    return trains(recipe, name, row, hosts, "" if allow_tcp else "--allow-tcp")


def trains(recipe: Recipe, name: str, row: Instance | None, hosts: int, tcp: str) -> list[str]:
    """Return notes for the user on this image and type, one sentence each.

    `tcp` is the option with which a user accepts TCP between hosts that have EFA; "" if TCP is accepted already.

    Raises ConfigError if the image cannot train there, or if preflight would refuse the job on its hosts, after minutes
    of paid time.
    """
    find = f"trainwright list --instance {name.removeprefix('ml.')}" if row else "trainwright list"
    machine = row.architecture if row else instances.architecture(name.removeprefix("ml."))
    if recipe.base.architecture != machine:
        raise ConfigError(
            f"{recipe.id} is for {recipe.base.architecture}, but {name} is {machine}", where=OPTION, fix=find
        )
    gpus = row.count if row else 0
    if _cuda(recipe) and not gpus:
        types = " or ".join(recipe.variant.instances) or "one of dockerfiles/instances.toml with GPUs"
        raise ConfigError(f"{recipe.id} requires NVIDIA GPUs, {name} has none", where=OPTION, fix=f"{OPTION} {types}")
    said = []
    if row is None:
        said.append(unknown(name))
    if gpus and not _cuda(recipe):
        said.append(f"{recipe.id} trains on CPUs: the {gpus} GPUs of {name} are paid for but not used")
    elif gpus and recipe.variant.instances and name.removeprefix("ml.") not in recipe.variant.instances:
        said.append(f"{recipe.id} is declared for {', '.join(recipe.variant.instances)}, not for {name}")
    return said + _efa(recipe, name, row, hosts, tcp, find)


def unknown(name: str) -> str:
    return f"the devices of {name} are unknown: {instances.FILE} does not describe it"


def _efa(recipe: Recipe, name: str, row: Instance | None, hosts: int, tcp: str, find: str) -> list[str]:
    """Return the note on missing EFA parts, as preflight judges them (rootfs `preflight/efa.py`). Images made by others
    are not judged, because their contents are unknown.
    """
    if not row or not row.efa or hosts < 2 or recipe.made_by_others:
        return []
    needed = ["libfabric", *(["aws-ofi-nccl"] if "nccl" in recipe.pins else [])]
    missing = " and ".join(one for one in needed if one not in recipe.pins)
    if not missing:
        return []
    what = (
        f"{recipe.id} has no {missing}: {hosts} hosts on {name} would use TCP instead of {row.efa} EFA interfaces each"
    )
    if "nccl" in recipe.pins and row.count and tcp:
        raise ConfigError(
            what, where=OPTION, why="preflight rejects that on the hosts", fix=f"{find}; or accept slow training: {tcp}"
        )
    return [what]


def _cuda(recipe: Recipe) -> bool:
    return recipe.variant.accelerator.startswith("cu")


def _twin(identity: str) -> str:
    return identity.replace("-ec2", "-sagemaker")
