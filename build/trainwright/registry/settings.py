"""Load publish.toml, the settings for publishing images. None of them is an input of an image."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from trainwright.core.toml import Model, load
from trainwright.registry.scanning import ScanPolicy

FILE = "dockerfiles/publish.toml"

Count = Annotated[int, Field(ge=1)]
Seconds = Annotated[float, Field(gt=0)]
AccountId = Annotated[str, Field(pattern=r"^\d{12}$")]
# A wildcard filter of ECR: at most two `*`, everything else literal; at most five filters in a repository.
Filter = Annotated[str, Field(pattern=r"^[0-9a-zA-Z._-]*(\*[0-9a-zA-Z._-]*){0,2}$", min_length=1, max_length=128)]


class Transfer(Model):
    """The limits and retries of transfers to and from a registry."""

    attempts: Count  # per request
    wait_seconds: Seconds  # before the second attempt
    wait_most_seconds: Seconds
    patience_seconds: Seconds  # a registry whose Retry-After is longer is given up
    chunk_bytes: Count
    workers: Count
    connect_seconds: Seconds
    silence_seconds: Seconds
    stored_bytes_per_second: Count  # by a registry, at the end of an upload, while it is silent
    remember_days: Count  # the state of a push that did not finish


class Repository(Model):
    """The settings of an Amazon ECR repository; a plain registry has no such settings."""

    moving: Annotated[list[Filter], Field(min_length=1, max_length=5)]  # mutable tags: aliases, signatures, caches
    scan_on_push: bool
    encryption: Literal["AES256", "KMS", "KMS_DSSE"]
    kms_key: str = ""  # ARN, id or alias; "" with KMS is the account's own key for ECR
    tags: dict[str, str] = Field(default={})  # of the repository, for people and billing
    readers: list[AccountId] = Field(default=[])  # accounts that may pull
    replicate_to: list[str] = Field(default=[])  # regions that Amazon copies to; earlier pushes are not copied
    untagged_days: Count  # after this time an image without any tag expires
    cache_days: Count  # after this time a build cache expires
    caches: Filter  # the tags of build caches alone

    @model_validator(mode="after")
    def _sane(self) -> "Repository":
        if self.kms_key and self.encryption == "AES256":
            raise ValueError("kms_key requires encryption KMS or KMS_DSSE")
        if self.caches not in self.moving:
            raise ValueError(f"moving must also contain caches = {self.caches!r}, because a cache is overwritten")
        return self

    @field_validator("caches")
    @classmethod
    def _narrow(cls, pattern: str) -> str:
        if pattern.startswith("*"):  # an id may end as a cache's name does, and matching tags expire
            raise ValueError("caches must begin with a prefix that only caches have, not with *")
        return pattern


class Places(Model):
    """Who can pull from a registry that is neither on loopback nor Amazon ECR: globs of its host[:port]."""

    public: list[str] = Field(default=[])
    private: list[str] = Field(default=[])  # comes first


class Signature(Model):
    """The signing policy for published images."""

    required: Literal["never", "release", "always"]  # what must be signed: nothing, release tags, everything
    transparency_log: bool  # whether each signature is recorded in Rekor, publicly and permanently
    attempts: Count  # to sign again after another publisher has overwritten the signature
    wait_seconds: Seconds  # before the second attempt; doubled each time, with jitter
    builder: Annotated[str, Field(pattern=r"^[a-z][a-z0-9+.-]*:")]  # URI of the builder and signer: SLSA's builder.id


class Caching(Model):
    """The form in which BuildKit stores a build's step cache in a registry."""

    export: Annotated[str, Field(pattern=r"^[\w-]+=[\w-]+(,[\w-]+=[\w-]+)*$")]  # attributes of its cache exporter


class Twin(Model):
    """The zstd twin of each published image: the same configuration, with layers that are smaller and unpack sooner."""

    zstd_twin: bool  # whether `push` makes one if the user does not say
    on_loopback: bool  # whether it also does so for a registry on this machine, from which no host pulls
    level: Annotated[int, Field(ge=1, le=22)]  # of zstd
    threads: Annotated[int, Field(ge=0)]  # for each layer; 0 is one for each processor; does not change the bytes


class Prune(Model):
    """The rules for removing images from a registry."""

    days: Count  # since the push; younger images are kept


class Publication(Model):
    """The whole of publish.toml."""

    transfer: Transfer
    repository: Repository
    places: Places = Field(default=Places())
    scan: ScanPolicy
    signature: Signature
    cache: Caching
    twin: Twin
    prune: Prune


def publication(root: Path) -> Publication:
    """Load the checkout's publish.toml. Raises ConfigError."""
    return load(root / FILE, Publication)


class Place(Model):
    """One repository in one registry, for the images of one framework."""

    host: str  # host[:port]
    path: str
    region: str = ""  # of Amazon ECR; "" is a plain registry
    account: str = ""  # the registry's owner; "" is the caller's account

    @property
    def repository(self) -> str:
        return f"{self.host}/{self.path}"

    def __str__(self) -> str:
        return self.region or self.host
