"""What became of an image: what drifted, what was proved, what it is, what would be done. Data only."""

from typing import Annotated, Any, Literal

from pydantic import Field

from trainwright.model import Action, Model


class Drift(Model):
    """A locked package that could not be had any more, and what was taken instead."""

    package: str
    locked: str
    used: str


class Check(Model):
    """The state of one proof; 'not run' is never counted as passed."""

    state: Literal["passed", "failed", "not run"]
    detail: str = ""
    code: str = ""  # sha256 of the code that checked, where another run of it would be another proof


class Proof(Model):
    """What was proved of this very image: `image` is the engine's id of what was tested."""

    image: str
    probe: Check
    tests: Check
    gate: Check = Check(state="not run")  # nccl-tests on GPU hosts, or who waived that
    scan: Check = Check(state="not run")  # of the registry, under publish.toml
    sbom: Check = Check(state="not run")  # of these three, what the registry holds beside the image, signed
    provenance: Check = Check(state="not run")
    signature: Check = Check(state="not run")


class Image(Model):
    """out/<id>/image.json: what this image is and what of it has been proved."""

    schema_: Annotated[Literal[1], Field(alias="schema")] = 1
    id: str
    key: str
    digest: str | None = None  # of the pushed manifest
    uri: str | None = None  # repository@digest
    uris: list[str] = Field(default=[])  # the same in every place that it was pushed to
    tags: list[str] = Field(default=[])
    size: int | None = None  # compressed bytes: the sum of config and layers as pushed
    versions: dict[str, str] = Field(default={})  # as the probe read them out of the finished image
    packages: dict[str, str] = Field(default={})  # of the distribution, likewise
    drift: list[Drift] = Field(default=[])
    proof: Proof | None = None

    def to_json(self) -> dict[str, Any]:
        return self.model_dump(by_alias=True)


class PlanEntry(Model):
    """What would happen to one image, and why."""

    id: str
    action: Action
    reason: str
    key: str
    warnings: list[str] = Field(default=[])  # of compat.toml: what goes together, and not without doubt
