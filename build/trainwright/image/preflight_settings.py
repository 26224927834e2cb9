"""Render /opt/trainwright/preflight.json: an image's requirements of its host, checked before a job starts."""

import json
from collections.abc import Mapping
from typing import Any

from trainwright.core.toml import Model, load
from trainwright.matrix.compat import floor
from trainwright.matrix.matrix import Intent, once_per_intent

FILE = "dockerfiles/preflight.toml"


class Seconds(Model):
    probe: float
    peers: float
    retry: float
    say: float


class Least(Model):
    """A limit below which a job does not start."""

    least: int


class Limit(Least):
    """A limit with a warning below `wanted`."""

    wanted: int


class Gdrcopy(Model):
    module: str


class Preflight(Model):
    """The content of preflight.toml."""

    local: list[str]
    seconds: Seconds
    memlock: Least
    nofile: Limit
    processes: Limit
    shm: Limit
    gdrcopy: Gdrcopy
    tcp: dict[str, list[str]]  # variable to the values that select TCP between hosts


def settings(intent: Intent, pins: Mapping[str, str]) -> dict[str, Any]:
    """Return the input of the checks in an image. `pins` maps components to versions. Raises ConfigError."""
    said = load(intent.root / FILE, Preflight)
    return {
        "schema": 1,
        **said.model_dump(),
        "driver": floor(intent.compat, "cuda", pins.get("cuda", ""), "driver"),  # "" without CUDA
        "instances": {name: [one.efa, one.count] for name, one in sorted(intent.instances.items())},
    }


def text(intent: Intent, pins: Mapping[str, str]) -> str:
    """Render one line for each setting, because most are instance types. `pins` maps components to versions."""
    return _text(intent, pins.get("cuda", ""))


@once_per_intent
def _text(intent: Intent, cuda: str) -> str:
    rows = [f"{json.dumps(name)}: {json.dumps(value)}" for name, value in settings(intent, {"cuda": cuda}).items()]
    return "{\n" + ",\n".join(rows) + "\n}\n"
