"""Load instance types as data: their GPUs and networks, and the architectures that a set of them needs."""

import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated

from pydantic import Field

from trainwright.core.errors import ConfigError
from trainwright.core.toml import Model, load

FILE = "dockerfiles/instances.toml"
NEAR = 3  # names that an error shows
ARM = re.compile(r"[a-z]+\d+[a-z]*g|a1\.")  # AWS's own processors, by AWS's rule for names: g behind the generation


class Instance(Model):
    """One instance type. None: no source states the value."""

    gpu: str = ""  # "" without GPUs
    count: int = 0  # GPUs
    sm: Annotated[str, Field(pattern=r"^(|\d{2,3})$")] = ""  # compute capability without its dot
    memory_gib: int = 0  # of one GPU
    nvlink: bool = False
    net_gbits: float | None = None  # of all its network cards together
    efa: int  # interfaces
    efa_or: list[int] = Field(default=[])  # other numbers of interfaces that give the same bandwidth
    imex: bool = False  # whether NCCL requires an IMEX channel for NVLink between hosts (NCCL src/mnnvl.cc)
    vcpus: int = 0  # of the instance; 0: no source states it
    ram_gib: int = 0  # of the instance, not of its GPUs
    gpudirect: bool = False  # whether aws-ofi-nccl requires GPUDirect RDMA
    sagemaker: str = ""  # its name for training jobs; "" if unsupported
    architecture: str = "amd64"
    note: str = ""
    source: str = ""  # "": the table's source

    @property
    def most_efa(self) -> int:
        return max(self.efa, *self.efa_or, 0)


class Refused(Model):
    """Families of instances whose accelerators no image here has software for."""

    families: list[str]
    devices: str
    lacks: str
    instead: str  # where such software is


class Instances(Model):
    """The content of instances.toml."""

    source: str
    refused: list[Refused] = Field(default=[])
    instances: dict[str, Instance]


def load_instances(root: Path) -> dict[str, Instance]:
    return load(root / FILE, Instances).instances


def refused_families(root: Path) -> dict[str, Refused]:
    """Map each family of instance types whose accelerators no image here has software for to the row about it."""
    rows = load(root / FILE, Instances).refused
    return {family: row for row in reversed(rows) for family in row.families}


def refused(root: Path, name: str) -> Refused | None:
    """Return the row about an instance type whose accelerators no image here has software for."""
    return refused_families(root).get(family_of(name))


def family_of(name: str) -> str:
    return name.removeprefix("ml.").partition(".")[0]


def refuse(root: Path, name: str, where: str = "--instance") -> None:
    """Refuse an instance type whose accelerators no image here has software for. Raises ConfigError.

    Because it would be paid for while the job trains on its CPUs, an image for CPUs is refused, too.
    """
    if row := refused(root, name):
        raise ConfigError(
            f"{name.removeprefix('ml.')} has {row.devices}, which no image of this project can use",
            where=where,
            why=f"these images hold no {row.lacks}",
            fix=f"choose an instance with NVIDIA GPUs or for CPUs; {row.instead}",
        )


def architectures(names: Iterable[str], table: Mapping[str, Instance]) -> list[str]:
    """Return the compute capabilities of these instance types, lowest first. Raises ConfigError if one is unknown."""
    names = list(names)
    for name in names:
        if name not in table:
            raise unknown(name, table)
    return sorted({table[name].sm for name in names} - {""}, key=int)


def interfaces(name: str, row: Instance | None, asked: int | None) -> int:
    """Return the EFA interfaces of each host: as requested, else as the type has. Raises ConfigError for too many."""
    has = row.efa if row else 0
    if row and asked and asked > row.most_efa:
        raise ConfigError(
            f"{asked} EFA interfaces were requested, but {name or 'a host without --instance'} has {row.most_efa}",
            where="--efa",
            fix=f"--efa {row.most_efa}, or fewer" if row.most_efa else "leave --efa out",
        )
    return asked or has


def architecture(name: str) -> str:
    """Return the CPU architecture of a type without a row, by its name. GB200 is an exception, and has a row."""
    return "arm64" if ARM.match(name) else "amd64"


def alike(name: str, table: Iterable[str]) -> list[str]:
    """Return at most three similar types: of the same letters before the generation, and of the same architecture.

    Because a user of hpc7g does not want a GPU, types of other letters match only if no type has these letters,
    and then only if the name is close, as for a misspelling.
    """
    same = [one for one in table if architecture(one) == architecture(name)]
    kin = [one for one in same if _letters(one) == _letters(name)]
    family = name.partition(".")[0]
    first = [one for one in kin if one.startswith(f"{family}.")] or [one for one in kin if one.startswith(family)]
    if first:
        return get_close_matches(name, first, n=NEAR, cutoff=0)
    return get_close_matches(name, kin or same, n=NEAR, cutoff=0.6 if kin else 0.9)


def _letters(name: str) -> str:
    return re.split(r"\d", name)[0]


def unknown(name: str, table: Iterable[str], where: str = "") -> ConfigError:
    """Return the error for an unknown instance type; `where` is the option, or file:line of the row, that names it."""
    near = alike(name, table)
    row = f'add [instances."{name}"] to {FILE}, with its GPUs and network, and the source'
    correct = f"{where} {near[0]}" if where.startswith("--") and near else f"name another one: grep '^\"' {FILE}"
    return ConfigError(
        f"unknown instance type {name!r}",
        where=where,
        why=f"did you mean {' or '.join(map(repr, near))}?" if near else f"{FILE} has no similar name",
        fix=f"{correct}, or {row}" if where.startswith("--") else f"correct the row, or {row}",
    )
