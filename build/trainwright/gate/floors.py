"""Define how fast is fast enough: rows of dockerfiles/floors.toml, as fractions of what the hardware can do."""

from datetime import date
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, field_validator

from trainwright.core.toml import Model, load
from trainwright.matrix.instances import Instance

FILE = "dockerfiles/floors.toml"
GBIT = 8  # bits in a byte: Gbit/s to GB/s


class Floor(Model):
    """One row: the busbw that an instance type must reach."""

    instances: list[str]
    nodes: Annotated[list[int], Field(min_length=1, max_length=2)]  # least, most
    collectives: list[str]
    algorithm: Literal["any", "ring"] = "any"
    size: int  # bytes: this size and all above
    ceiling: Literal["net", "nvlink"]
    fraction: Annotated[float, Field(gt=0, le=2)]
    confirmed: bool = False  # on that hardware, with a trainwright image
    evidence: str
    date: date

    @field_validator("nodes")
    @classmethod
    def _in_order(cls, nodes: list[int]) -> list[int]:
        if nodes != sorted(nodes):
            raise ValueError("nodes must be [least] or [least, most], and least may not be above most")
        return nodes


class Tcp(Model):
    """The busbw, in GB/s, that NCCL reaches over sockets."""

    least: float
    most: float
    evidence: str


class Comparison(Model):
    """The rule that decides whether one image is slower than another one."""

    least_runs: int  # of each image
    difference: float  # as a fraction: a loss of this size must be excluded before the images are called equal
    ignored: float  # as a fraction: a smaller loss is ignored, however certain it is
    level: float  # of error: of a false alarm, and of an undetected loss


class Floors(Model):
    """The whole of floors.toml."""

    large: int  # bytes: from this size on a message shows the network's speed, unless a floor states another size
    tolerance: float  # as a fraction: how much slower than a baseline a run may be
    too_good: float  # times a ceiling: a result that no run on that hardware reaches
    comparison: Comparison
    nvlink: dict[str, float]  # GB/s of one GPU, one way
    tcp: Tcp
    floors: list[Floor]


def load_floors(root: Path) -> Floors:
    return load(root / FILE, Floors)


def ceiling(kind: str, instance: Instance, table: Floors) -> float | None:
    """Return GB/s of a node's network, or of a GPU's NVLink, or None if no source states it."""
    if kind == "net":
        return instance.net_gbits / GBIT if instance.net_gbits else None
    return table.nvlink.get(instance.gpu)


def rows(table: Floors, name: str, nodes: int, collective: str, algorithm: str) -> list[Floor]:
    """Return the rows that apply, each from its own size on; a row for a ring applies only if a ring was forced."""
    return [
        floor
        for floor in table.floors
        if name in floor.instances
        and floor.nodes[0] <= nodes <= (floor.nodes[1:] or [nodes])[0]
        and collective in floor.collectives
        and floor.algorithm in ("any", algorithm)
    ]
