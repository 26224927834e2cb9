"""Read vulnerabilities.toml: limits of snapshots, names of distributions, and accepted findings."""

from datetime import date
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from trainwright.core.toml import Model, load

FILE = "dockerfiles/vulnerabilities.toml"
Said = Annotated[str, Field(min_length=1)]


class Limits(Model):
    entry_bytes: int
    entries: int
    bytes: int
    tracker_bytes: int


class NumberedOtherwise(Model):
    """Packages whose version is not that of their source package."""

    binaries: list[str]
    sources: list[str]


class Accepted(Model):
    """One accepted finding; `id` is any name of the problem."""

    id: Said
    package: str = ""
    images: list[str] = Field(default=["*"])
    reason: Said
    until: date


class Settings(Model):
    """The whole of vulnerabilities.toml."""

    oldest_days: int
    fails_with: Literal["fixed", "any", "none"]
    limits: Limits
    suites: dict[str, dict[str, str]]
    numbered_otherwise: NumberedOtherwise
    accepted: list[Accepted] = Field(default=[])

    def suite(self, ecosystem: str) -> str:
        """Return the suite of an ecosystem such as Debian:12, or ""."""
        return next((s for known in self.suites.values() for s, name in known.items() if name == ecosystem), "")


def settings(root: Path) -> Settings:
    return load(root / FILE, Settings)
