"""Define what a user wants of a graft, and what a check says about an image. Pure."""

from typing import Literal

from pydantic import Field

from trainwright.core.toml import Model
from trainwright.graft.found import Fabric, Settings, Target
from trainwright.lock.requirements import Asked
from trainwright.matrix.compat import Compat


class File(Model):
    """A requirements file of a team, whose packages go into the image's own Python."""

    path: str  # as the user gave it
    name: str  # what it adds to the graft's id
    asked: Asked


class Wanted(Model):
    """What is asked for, and what it is judged by."""

    target: Target
    fabric: Fabric
    architecture: str  # of this machine: amd64, arm64
    settings: Settings
    compat: Compat
    plugin: str = ""  # version of aws-ofi-nccl that a fabric would bring
    file: File | None = None
    forbidden: list[str] = Field(default=[])  # why licences do not allow the place that the graft is to be pushed to


class Trap(Model):
    """Something of an image that a graft refuses, or handles and names."""

    name: str
    state: Literal["refused", "handled"]
    found: str
    why: str
    fix: str = ""  # of a refusal: what helps; of what is handled: how


def refused(name: str, found: str, why: str, fix: str) -> Trap:
    return Trap(name=name, state="refused", found=found, why=why, fix=fix)


def handled(name: str, found: str, why: str, fix: str) -> Trap:
    return Trap(name=name, state="handled", found=found, why=why, fix=fix)
