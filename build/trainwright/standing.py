"""What is known of the proof of an image: as dockerfiles/proofs/ records it, and as it stands today. Data only."""

from datetime import date
from typing import Annotated, Literal

from pydantic import Field

from trainwright.model import Model, Sha256

State = Literal["proved", "unproved", "blocked"]


class Where(Model):
    """What an image was tested on; no host is named."""

    architecture: str  # as the kernel says: x86_64
    cpus: int
    engine: str  # its version
    gpu: str = "no GPU"


class Record(Model):
    """proofs/<id>.toml: the last time that an image was proved and pushed, and of which inputs."""

    key: Sha256
    proof: Sha256 | None = None  # of the code that proved it: see proving.py; None in records of before
    digest: Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")]
    day: date  # UTC, on which the first of the image tests that count ran
    size: int | None = None  # compressed bytes
    tests: dict[str, int]  # "image", "training", "cluster": how many of them passed
    where: Where


class Standing(Model):
    """Whether an image is proved with exactly its present inputs; and what is known of it in any case."""

    id: str
    state: State
    reason: str
    key: str = ""  # of the present inputs; "" where they are not complete
    record: Record | None = None  # of these inputs where it is proved, of earlier ones where it is not
    versions: dict[str, str] = Field(default={})  # component to version, as far as it is known
