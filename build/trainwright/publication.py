"""publish.toml: how images are published. Nothing of it is an input of an image."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from trainwright.config import load
from trainwright.model import Model
from trainwright.scanning import ScanPolicy

FILE = "dockerfiles/publish.toml"

Count = Annotated[int, Field(ge=1)]
Seconds = Annotated[float, Field(gt=0)]
AccountId = Annotated[str, Field(pattern=r"^\d{12}$")]
# A wildcard filter of ECR: at most two `*`, anything else as it stands; at most five in a repository.
Filter = Annotated[str, Field(pattern=r"^[0-9a-zA-Z._-]*(\*[0-9a-zA-Z._-]*){0,2}$", min_length=1, max_length=128)]


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
    stored_bytes_per_second: Count  # by a registry, at the end of an upload: it is silent meanwhile
    remember_days: Count  # what a push that was never ended had sent


class Repository(Model):
    """What a repository of Amazon ECR is to be like; a plain registry has no such settings."""

    moving: Annotated[
        list[Filter], Field(min_length=1, max_length=5)
    ]  # tags that may move: aliases, signatures, caches
    scan_on_push: bool
    encryption: Literal["AES256", "KMS", "KMS_DSSE"]
    kms_key: str = ""  # ARN, id or alias; "" with KMS is the account's own key for ECR
    tags: dict[str, str] = Field(default={})  # of the repository, for people and bills
    readers: list[AccountId] = Field(default=[])  # accounts that may pull
    replicate_to: list[str] = Field(default=[])  # regions that Amazon copies to; what was pushed before is not copied
    untagged_days: Count  # after so long an image without any tag expires
    cache_days: Count  # after so long a build cache expires
    caches: Filter  # the tags of build caches, and of nothing else

    @model_validator(mode="after")
    def _sane(self) -> "Repository":
        if self.kms_key and self.encryption == "AES256":
            raise ValueError("kms_key belongs to encryption KMS or KMS_DSSE")
        if self.caches not in self.moving:
            raise ValueError(
                f"caches = {self.caches!r} has to stand in moving, too: a cache is written again and again"
            )
        return self

    @field_validator("caches")
    @classmethod
    def _narrow(cls, pattern: str) -> str:
        if pattern.startswith("*"):  # an id may end as a cache's name does, and what this names expires
            raise ValueError("a pattern of caches begins with what only caches begin with")
        return pattern


class Signature(Model):
    """Who vouches for what is published."""

    required: Literal["never", "release", "always"]  # of what: nothing, what gets a release's tag, all
    transparency_log: bool  # whether each signature is also told to Rekor, for everybody and for ever
    attempts: Count  # to sign what another publisher has overwritten meanwhile
    wait_seconds: Seconds  # before the second one; doubled each time, with jitter
    builder: Annotated[str, Field(pattern=r"^[a-z][a-z0-9+.-]*:")]  # URI of who builds and signs: SLSA's builder.id


class Caching(Model):
    """How BuildKit keeps in a registry what the steps of a build made."""

    export: Annotated[str, Field(pattern=r"^[\w-]+=[\w-]+(,[\w-]+=[\w-]+)*$")]  # attributes of its cache exporter


class Prune(Model):
    """What is taken out of a registry."""

    days: Count  # since it was pushed: what is younger is kept


class Publication(Model):
    """The whole of publish.toml."""

    transfer: Transfer
    repository: Repository
    scan: ScanPolicy
    signature: Signature
    cache: Caching
    prune: Prune


def publication(root: Path) -> Publication:
    """The checkout's. Raises ConfigError."""
    return load(root / FILE, Publication)


class Place(Model):
    """One repository in one registry: where images of one framework go."""

    host: str  # host[:port]
    path: str
    region: str = ""  # of Amazon ECR; "" is a plain registry
    account: str = ""  # whose registry that is; "" is the caller's

    @property
    def repository(self) -> str:
        return f"{self.host}/{self.path}"

    def __str__(self) -> str:
        return self.region or self.host
