"""Read baselines, dockerfiles/baselines/<name>.toml: the recorded speed of an image, to compare later runs with."""

import re
from datetime import date
from pathlib import Path
from typing import Annotated

from pydantic import Field

from trainwright.core.errors import ConfigError, did_you_mean
from trainwright.core.toml import Model, load

FOLDER = "dockerfiles/baselines"  # written after a run; not an input of a build
NAME = re.compile(r"[A-Za-z0-9][\w.-]*")
Speed = Annotated[float, Field(gt=0)]  # GB/s of busbw


class Point(Model):
    """One message size of one collective: the median over the logs."""

    collective: str
    algorithm: str  # "any" is the tuner's choice
    size: int  # bytes
    out_of_place: Speed
    in_place: Speed


class Baseline(Model):
    """The whole of baselines/<name>.toml."""

    name: str
    instance: str
    nodes: int
    digest: str  # of the image; "" if the logs do not name it
    day: date
    proved: bool  # whether the judge passed every log
    logs: dict[str, str]  # name to sha256
    tolerance: Annotated[float, Field(gt=0, lt=1)] | None = None  # a fraction; None: that of floors.toml
    points: list[Point]

    def points_of(self, collective: str, algorithm: str, least: int = 1) -> list[Point]:
        """Return the points of a collective and an algorithm, from `least` bytes on."""
        said = (collective, algorithm)
        return [point for point in self.points if (point.collective, point.algorithm) == said and point.size >= least]


def names(root: Path) -> list[str]:
    return sorted(path.stem for path in (root / FOLDER).glob("*.toml"))


def read(root: Path, name: str, tolerance: float | None = None) -> Baseline:
    """Read the baseline with this name. Raises ConfigError if it is missing or invalid."""
    path = root / FOLDER / f"{name}.toml"
    known = names(root)
    if name not in known:
        fix = f"trainwright baseline record {name} LOG..."
        raise ConfigError(f"unknown baseline {name!r}", where="--baseline", why=did_you_mean(name, known), fix=fix)
    return load(path, Baseline).model_copy(update={"tolerance": tolerance} if tolerance else {})
