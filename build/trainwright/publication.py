"""publish.toml: how images are published. Nothing of it is an input of an image."""

from pathlib import Path
from typing import Annotated

from pydantic import Field

from trainwright.config import load
from trainwright.model import Model

FILE = "dockerfiles/publish.toml"

Count = Annotated[int, Field(ge=1)]
Seconds = Annotated[float, Field(gt=0)]


class Transfer(Model):
    """How bytes travel to a registry and back."""

    attempts: Count  # of one request
    wait_seconds: Seconds  # before the second attempt
    wait_most_seconds: Seconds
    patience_seconds: Seconds  # a registry that asks (Retry-After) to be left alone for longer is given up
    chunk_bytes: Count
    workers: Count
    connect_seconds: Seconds
    silence_seconds: Seconds
    remember_days: Count  # what a push that was never ended had sent


class Publication(Model):
    """The whole of publish.toml."""

    transfer: Transfer


def publication(root: Path) -> Publication:
    """The checkout's. Raises ConfigError."""
    return load(root / FILE, Publication)
