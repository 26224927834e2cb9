"""Hold the results for an image (drift, proofs, contents, planned action) and the record of its proof. Data only."""

from datetime import date
from typing import Annotated, Any, Literal

from pydantic import Field

from trainwright.core.toml import Model
from trainwright.matrix.model import Action, Sha256

GRAFT = "graft.json"  # in out/<id>/ of an image that is a graft, beside image.json


class Drift(Model):
    """A locked package that is no longer available, and its replacement."""

    package: str
    locked: str
    used: str


class Check(Model):
    """The state of one proof; 'not run' never counts as passed."""

    state: Literal["passed", "failed", "not run"]
    detail: str = ""
    code: str = ""  # digest of what the result depends on: the checking code, or a signature's key and repositories


class Proof(Model):
    """The proofs of one exact image: `image` is the engine's id of the tested image."""

    image: str
    probe: Check
    tests: Check
    gate: Check = Check(state="not run")  # nccl-tests on GPU hosts, or the name of the person who waived them
    scan: Check = Check(state="not run")  # of the registry, under the policy of publish.toml
    sbom: Check = Check(state="not run")  # these three: signed attachments beside the image in the registry
    provenance: Check = Check(state="not run")
    signature: Check = Check(state="not run")


class Image(Model):
    """out/<id>/image.json: the image's identity and contents, and its proofs."""

    schema_: Annotated[Literal[1], Field(alias="schema")] = 1
    id: str
    key: str
    digest: str | None = None  # of the pushed manifest
    uri: str | None = None  # repository@digest
    uris: list[str] = Field(default=[])  # the same image in every place that it was pushed to
    tags: list[str] = Field(default=[])
    size: int | None = None  # compressed bytes: the sum of config and layers as pushed
    versions: dict[str, str] = Field(default={})  # as the probe read them from the finished image
    packages: dict[str, str] = Field(default={})  # of the distribution, read in the same way
    drift: list[Drift] = Field(default=[])
    proof: Proof | None = None

    def to_json(self) -> dict[str, Any]:
        return self.model_dump(by_alias=True)


class PlanEntry(Model):
    """The action planned for one image, and the reason."""

    id: str
    action: Action
    reason: str
    key: str
    warnings: list[str] = Field(default=[])  # unmet rules of compat.toml that only warn


State = Literal["proved", "unproved", "blocked", "error"]


class Where(Model):
    """The machine on which an image was tested, without a host name."""

    architecture: str  # the kernel's name for it: x86_64
    cpus: int
    engine: str  # its version
    gpu: str = "no GPU"


class Record(Model):
    """The file proofs/<id>.toml: the last time that an image was proved and pushed, and of which inputs."""

    key: Sha256
    proof: Sha256 | None = None  # of the code that proved it: see build/proof_code.py; None in older records
    digest: Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")]
    day: date  # UTC, of the first image test that counts
    size: int | None = None  # compressed bytes
    overlay: Sha256 | None = None  # of a project's files that this image is made of; None without any
    overridden: list[str] | None = None  # rules of compat.toml that would judge it otherwise, and a project overrides
    tests: dict[str, int]  # "image", "training", "cluster" to the number passed
    where: Where


class Standing(Model):
    """The state of an image's proof for exactly its present inputs, and what is known of it in any case."""

    id: str
    state: State
    reason: str
    key: str = ""  # of the present inputs; "" if they are incomplete
    error: dict[str, Any] | None = None  # what is wrong with its inputs, as TrainwrightError.as_dict() has it
    overridden: list[str] = Field(default=[])  # as in its record, for its present inputs
    record: Record | None = None  # of these inputs if it is proved, otherwise of earlier ones
    versions: dict[str, str] = Field(default={})  # component to version, as far as known
