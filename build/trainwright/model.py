"""The nouns: what the matrix declares, what the lock established, what an image is. Data only."""

from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Provider = Literal["python", "distro"]
Action = Literal["skip", "reuse", "build"]


class Model(BaseModel):
    """Frozen, and an unknown key is an error rather than a silent no-op."""

    model_config = ConfigDict(frozen=True, extra="forbid")


# --- intent: matrix.toml -----------------------------------------------------------------------------------


class Row(Model):
    """A cross product of axes that shares one set of pins."""

    release: str  # major.minor, as in the image id
    accelerators: list[str]
    pythons: list[str]
    targets: list[str]
    bases: list[str]
    pins: dict[str, str]


class Framework(Model):
    default: str
    rows: list[Row]


class Target(Model):
    pins: dict[str, str]


class Matrix(Model):
    """The whole of matrix.toml."""

    common: Target
    targets: dict[str, Target]
    frameworks: dict[str, Framework]


# --- intent: components.toml -------------------------------------------------------------------------------


class Component(Model):
    """Where one component comes from, and its licence; scripts/probe.py asks the finished image for its version."""

    provider: Provider
    licence: str
    summary: str
    requirement: str = ""  # provider python: a requirement with {version} and {accelerator}
    index: dict[str, str] = {}  # provider python: accelerator to the framework's own wheel index
    packages: list[str] = []  # provider distro: packages of the distribution, the first carries the version


class Base(Model):
    """What an image starts from: bootstrapped packages, or a registry image by digest."""

    provider: Literal["packages", "image"]
    distribution: str  # debian
    suite: str  # bookworm
    architecture: str = "amd64"  # the distribution's name for it
    archives: dict[str, list[str]]  # archive ("debian", "debian-security") to its suites
    snapshots: dict[str, str] = {}  # archive to the address of its snapshot service
    glibc: str  # decides which manylinux wheels fit
    packages: list[str] = []
    reference: Annotated[str, Field(pattern=r"^(|.+@sha256:[0-9a-f]{64})$")] = ""  # provider image


class Components(Model):
    """The whole of components.toml."""

    components: dict[str, Component]
    bases: dict[str, Base]
    python_tools: dict[str, str]  # wheels the build itself needs: name to version
    sdist_build: dict[str, str]  # what source distributions are built with: name to version


# --- one image ---------------------------------------------------------------------------------------------


class Variant(Model):
    """One cell of the matrix: one image."""

    id: str
    framework: str
    release: str
    accelerator: str
    python: str
    target: str
    base: str
    default: bool
    pins: dict[str, str]


# --- facts: locks/ -----------------------------------------------------------------------------------------

Group = Literal["framework", "toolkit", "tools", "sdist-build"]
GROUPS: tuple[Group, ...] = get_args(Group)


class PythonFile(Model):
    """One wheel or source distribution, chosen for the variant's Python and platform."""

    name: str
    version: str
    file: str
    sha256: Sha256
    size: int  # bytes
    group: Group
    needs: list[str] = []  # names of its own requirements, so that a missing entry is noticed


class Lock(Model):
    """locks/<id>.toml: what the intent resolved to."""

    intent: Sha256  # of the intent it was resolved from; another one means stale
    entries: Sha256  # over group, name and version of every file: one that is missing is noticed whoever needs it
    python: list[PythonFile]


class Package(Model):
    """One package of the distribution, as the signed index describes it."""

    name: str
    version: str
    architecture: str
    archive: str
    filename: str  # path below the archive
    size: int  # bytes
    sha256: Sha256 | Literal[""]  # empty: it came with the base image, whose digest covers it


class Drift(Model):
    """A locked package that could not be had any more, and what was taken instead."""

    package: str
    locked: str
    used: str


class Check(Model):
    """The state of one proof; 'not run' is never counted as passed."""

    state: Literal["passed", "failed", "not run"]
    detail: str = ""


class Proof(Model):
    """What was proved of this very image: `image` is the engine's id of what was tested."""

    image: str
    probe: Check
    tests: Check


class Image(Model):
    """out/<id>/image.json: what this image is and what of it has been proved."""

    schema_: Annotated[Literal[1], Field(alias="schema")] = 1
    id: str
    key: str
    digest: str | None = None  # of the pushed manifest
    uri: str | None = None  # repository@digest
    tags: list[str] = []
    size: int | None = None  # compressed bytes: the sum of config and layers as pushed
    versions: dict[str, str] = {}  # as the probe read them out of the finished image
    packages: dict[str, str] = {}  # of the distribution, likewise
    drift: list[Drift] = []
    proof: Proof | None = None

    def to_json(self) -> dict[str, Any]:
        return self.model_dump(by_alias=True)


class PlanEntry(Model):
    """What would happen to one image, and why."""

    id: str
    action: Action
    reason: str
    key: str


# --- this host: host.toml ------------------------------------------------------------------------------------


class HostRegistry(Model):
    host: str
    port: int
    ready_seconds: int


class HostEngine(BaseModel):
    """The part of [engine] that is judged here; scripts/engine.sh reads the rest."""

    model_config = ConfigDict(frozen=True)
    minimum: str
    buildx_minimum: str
    check_minimum: str
    check_buildx_minimum: str


class HostDisk(Model):
    """What a build takes beyond its sources, as multiples of their compressed size."""

    store: float
    engine: float


class Host(BaseModel):
    """The whole of host.toml; scripts read the tables that are not named here."""

    model_config = ConfigDict(frozen=True)
    engine: HostEngine
    registry: HostRegistry
    disk: HostDisk


class Finding(Model):
    """One precondition as `trainwright doctor` found it."""

    check: str
    state: Literal["ok", "warning", "failed", "unknown"]
    found: str
    fix: str = ""
