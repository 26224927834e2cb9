"""How fast is fast enough: rows of dockerfiles/floors.toml, as fractions of what the hardware can do."""

from datetime import date
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from trainwright.config import load
from trainwright.instances import Instance
from trainwright.model import Model

FILE = "dockerfiles/floors.toml"
GBIT = 8  # bits in a byte: Gbit/s to GB/s


class Floor(Model):
    """One row: what busbw an instance type must reach."""

    instances: list[str]
    nodes: Annotated[list[int], Field(min_length=1, max_length=2)]  # least, most
    collectives: list[str]
    algorithm: Literal["any", "ring"] = "any"
    size: int  # bytes, and all above
    ceiling: Literal["net", "nvlink"]
    fraction: Annotated[float, Field(gt=0, le=2)]
    confirmed: bool = False  # on that hardware, with an image of ours
    evidence: str
    date: date


class Tcp(Model):
    """What NCCL reaches over sockets, GB/s of busbw."""

    least: float
    most: float
    evidence: str


class Comparison(Model):
    """When one image is slower than another one."""

    least_runs: int  # of each
    difference: float  # a loss of that must be excluded before they are called equal, as a fraction
    ignored: float  # a loss below it is none, however sure it is
    level: float  # of error: of a false alarm, and of a loss that goes unnoticed


class Floors(Model):
    """The whole of floors.toml."""

    large: int  # bytes: from there on a message tells how fast the network is, where no floor says another size
    tolerance: float  # what a run may be slower than a baseline, as a fraction
    too_good: float  # times a ceiling: what no run on that hardware reaches
    comparison: Comparison
    nvlink: dict[str, float]  # GB/s of one GPU, one way
    tcp: Tcp
    floors: list[Floor]


def load_floors(root: Path) -> Floors:
    return load(root / FILE, Floors)


def ceiling(kind: str, instance: Instance, table: Floors) -> float | None:
    """GB/s of a node's network, or of a GPU's NVLink; None where no source says it."""
    if kind == "net":
        return instance.net_gbits / GBIT if instance.net_gbits else None
    return table.nvlink.get(instance.gpu)


def rows(table: Floors, name: str, nodes: int, collective: str, algorithm: str) -> list[Floor]:
    """What applies, each by its own size; a row for a ring only where a ring was forced."""
    return [
        floor
        for floor in table.floors
        if name in floor.instances
        and floor.nodes[0] <= nodes <= (floor.nodes[1:] or [nodes])[0]
        and collective in floor.collectives
        and floor.algorithm in ("any", algorithm)
    ]
