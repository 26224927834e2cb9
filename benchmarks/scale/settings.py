"""What benchmarks/scale/scale.toml says."""

from datetime import date
from pathlib import Path

from trainwright.core.toml import Model, load

FILE = Path(__file__).with_name("scale.toml")


class Change(Model):
    """One pin of the matrix that is written anew."""

    id: str
    old: str
    new: str


class Seconds(Model):
    what: str
    cold: int
    source: str


class Warm(Model):
    seconds: int
    source: str


class Price(Model):
    id: str
    usd: float
    unit: str
    source: str
    checked_on: date


class Limit(Model):
    """Where something ends: `of` names the number of a measurement that must not exceed `most`."""

    id: str
    of: str
    most: float
    source: str
    checked_on: date
    instead: str


class Settings(Model):
    sizes: list[int]
    regions: list[str]
    round_trip_seconds: float
    originals: list[str]
    own_pin: str
    changes: list[Change]
    seconds: list[Seconds]
    warm: Warm
    prices: list[Price]
    limits: list[Limit]


def settings() -> Settings:
    return load(FILE, Settings)
