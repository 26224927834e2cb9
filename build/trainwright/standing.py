"""Define the record of an image's proof in dockerfiles/proofs/, and the proof's present state. Data only."""

from datetime import date
from typing import Annotated, Literal

from pydantic import Field

from trainwright.model import Model, Sha256

State = Literal["proved", "unproved", "blocked"]


class Where(Model):
    """The machine on which an image was tested, without a host name."""

    architecture: str  # the kernel's name for it: x86_64
    cpus: int
    engine: str  # its version
    gpu: str = "no GPU"


class Record(Model):
    """The file proofs/<id>.toml: the last time that an image was proved and pushed, and of which inputs."""

    key: Sha256
    proof: Sha256 | None = None  # of the code that proved it: see proving.py; None in older records
    digest: Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")]
    day: date  # UTC, of the first image test that counts
    size: int | None = None  # compressed bytes
    tests: dict[str, int]  # "image", "training", "cluster" to the number passed
    where: Where


class Standing(Model):
    """The state of an image's proof for exactly its present inputs, and what is known of it in any case."""

    id: str
    state: State
    reason: str
    key: str = ""  # of the present inputs; "" if they are incomplete
    record: Record | None = None  # of these inputs if it is proved, otherwise of earlier ones
    versions: dict[str, str] = Field(default={})  # component to version, as far as known
