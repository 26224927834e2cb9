"""The data models: declarations of the matrix, contents of the locks, and images. Data only."""

from functools import cache
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from trainwright.core.toml import Model
from trainwright.core.versions import within

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Action = Literal["skip", "reuse", "build", "blocked"]
TestedBy = Literal["make test", "CI", ""]  # "": no automatic run
# Groups of a lock's Python packages: those in images, and those that only builds use.
# "base": what the base's own Python holds, which has no file here.
Group = Literal["framework", "toolkit", "devel", "added", "tools", "sdist-build", "compile-build", "base"]


MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}  # Debian's name to the kernel's name


# --- intent: matrix.toml -----------------------------------------------------------------------------------


class Row(Model):
    """A cross product of axes that shares one set of pins. The descriptions are what `matrix --keys` prints."""

    release: str = Field(description="major.minor of the framework, as in the id of the image")
    accelerators: list[str] = Field(description="`cpu`, or the CUDA as `cu132`; one image for each")
    pythons: list[str] = Field(description="versions of Python, as `3.13`; one image for each")
    targets: list[str] = Field(description="names of `[targets]`: `ec2`, `sagemaker`; one image for each")
    bases: list[str] = Field(description="names of bases.toml; the id names each base but the first")
    stack: str = Field("", description="a name of `[stacks]`, whose pins come before those of the row")
    pins: dict[str, str] = Field({}, description="component to version, provider, or both; `none` takes a pin out")
    flavour: str = Field("", description="end of the id, if other rows have the same release, accelerator and target")
    instances: list[str] = Field(
        [], description="names of instances.toml: what is compiled is for their GPUs; else those of the stack"
    )
    driver: str = Field("", description="the oldest GPU driver of the hosts, if it is known")
    devel: bool = Field(False, description="true: each image has a twin `<id>-devel` with compilers")
    awaits: str = Field(
        "", description="an address that was not reached: until a host with it locks the row, it is blocked"
    )


class Framework(Model):
    default: str
    pins: dict[str, str] = {}  # of every row: they come after the target's, before the stack's
    rows: list[Row]


class Target(Model):
    pins: dict[str, str]


class Stack(Model):
    """The pins that the images of many rows share below their framework."""

    pins: dict[str, str]
    instances: list[str] = []


class Tested(Model):
    """Ids of the images that are built and tested automatically."""

    make_test: Annotated[list[str], Field(alias="make-test")] = []
    ci: list[str] = []  # in addition to those of `make test`; the most important ones first
    begin_within_minutes: Annotated[int | None, Field(alias="begin-within-minutes")] = None


class Matrix(Model):
    """The whole of matrix.toml. A pin is `version`, `provider version`, or `provider` if that one offers no choice."""

    tested: Tested = Tested()
    common: Target
    devel: Target = Target(pins={})  # additional pins of the devel twin, which has compilers
    targets: dict[str, Target]
    stacks: dict[str, Stack] = {}
    frameworks: dict[str, Framework]


# --- intent: layers/<component>.toml -------------------------------------------------------------------------

Text = str | dict[str, str]  # the same for all accelerators, or one per glob of them
Names = list[str] | dict[str, list[str]]  # the same for all distributions, or by glob of `<distribution>-<suite>`
Kind = Literal["python", "distro", "source", "file", "bundled", "base", "own"]
Position = Literal["system", "interpreter", "framework", "python", "toolkit", "compiled"]


class Probe(Model):
    """The way to ask a finished image for a component's version: a program to run, or Python code."""

    command: list[str] = []
    code: str = ""
    pattern: str  # one group: the version
    shows: str = "{version}"  # format of a pinned version there; {major}, {minor}, {micro} are its parts
    at_start: bool = False  # whether each job probes it again before it starts, as ranks compute or communicate with it
    maps_nccl: bool = True  # of a framework: whether `code` maps NCCL on a host without a GPU, too


class Flag(Model):
    """An installer's options that only some versions on some bases need."""

    range: str
    base: str  # family of the base, or "any"
    but: list[str] = []  # families that "any" leaves out
    flag: str
    installs: list[str] = []  # globs: packages that it registers only with these options
    evidence: str

    def applies(self, version: str, family: str) -> bool:
        named = self.base == family or (self.base == "any" and family not in self.but)
        return named and within(version, self.range)


class InstallPath(Model):
    """The path of an installer's files, for a range of its versions."""

    range: str
    manager: Literal["apt", "dnf", "any"] = "any"  # of the base's packages
    path: str
    evidence: str


class Provider(Model):
    """One way to get a component; its kind follows from the fields that are set."""

    requirement: Text = ""  # Python requirement with {version}
    extras: dict[str, list[str]] = {}  # another component to the extras of its Python package that this one loads
    index: dict[str, str] = {}  # accelerator to the framework's own wheel index
    build_requirements: list[Text] = []  # Python requirements of compile stages and of the devel twin
    packages: Names = []  # of the distribution; if nothing else is set, the first carries the version
    build_packages: Names = []  # of the distribution, for compile stages only
    git: str = ""  # upstream's address, fetched at a commit
    tag: str = ""  # upstream's tag for {version}
    url: str = ""  # a file, by {version}
    bundled_by: str = ""  # another component, whose release names the bundled version
    replaces: Text = ""  # the Python package that it replaces
    refuses: Text = ""  # Python package with the same content: a job cannot install it over this one
    installs: list[str] = []  # globs: packages that it registers with dpkg itself, with versions unknown to the lock
    compile: bool = False  # its source distribution is compiled in a separate stage, against the image's packages
    own: bool = False  # files of rootfs/<component>, kept beside this declaration; the probe verifies the pin's version
    in_base: bool = False  # the base image contains it; the pin declares the version, and the probe verifies it

    @property
    def kind(self) -> Kind:
        if self.git:
            return "source"
        if self.url:
            return "file"
        if self.bundled_by:
            return "bundled"
        if self.in_base:
            return "base"
        if self.own:
            return "own"
        return "python" if self.requirement else "distro"


class Release(Model):
    """The known facts of one version, and their source. Without commit or sha256 it cannot be locked."""

    commit: Annotated[str, Field(pattern=r"^(|[0-9a-f]{40})$")] = ""
    sha256: Sha256 | Literal[""] = ""
    size: int | None = None  # bytes
    date: str = ""
    checksums: dict[str, str] = {}  # further ones: evidence
    bundles: dict[str, str] = {}  # component to the version that this release brings
    evidence: str = ""


class Toolkit(Model):
    """An image to copy compilers from, if no package contains them."""

    reference: str  # with its digest; without one, it blocks every image that compiles with it
    path: str  # of the folder in it
    evidence: str


IN_BASE = "base"  # the provider of everything in a base image: no declaration is needed


@cache
def _brought() -> Provider:  # one object, because its pins are asked for their provider thousands of times
    return Provider(in_base=True)


class Part(Model):
    """One program that a component of several brings, under a licence of its own."""

    name: str  # a key of its releases' `bundles` if its version is known
    licence: str
    source: str  # upstream's address


class LeftOut(Model):
    """Files of an installed Python package that an image does not ship, or ships without debug sections."""

    package: str  # glob of its name: "nvidia-cusolver*"; without effect where the image has no such package
    files: list[str]  # globs below site-packages; at least one must match, else the build fails
    not_in: list[str] = []  # versions of the package, or globs of them, that have no such file
    why: str
    debug: bool = False  # leave out the files' debug sections, and ship the files
    devel: bool = False  # the devel twin ships them


class Component(Model):
    """The whole of layers/<component>.toml."""

    licence: str
    parts: list[Part] = []  # of an installer
    summary: str
    position: Position
    probe: Probe
    libraries: list[str] = []  # globs of file names: a process may load these only from the image's own files
    symbol: str = ""  # a function of these libraries: a preloaded function of that name replaces them
    variables: dict[str, list[str]] = {}  # variables that make it load another file: to the file names {value} can mean
    providers: dict[str, Provider]
    releases: dict[str, Release] = {}
    flags: list[Flag] = []
    paths: list[InstallPath] = []
    toolkits: dict[str, Toolkit] = {}  # by version
    left_out: list[LeftOut] = []

    def provider(self, name: str) -> Provider:
        return _brought() if name == IN_BASE else self.providers[name]


# --- intent: bases.toml, tools.toml --------------------------------------------------------------------------


class Base(Model):
    """The start of an image: bootstrapped packages, or a registry image by digest."""

    provider: Literal["packages", "image"]
    distribution: str  # debian
    suite: str  # bookworm
    manager: Literal["apt", "dnf"] = "apt"  # installs packages
    sections: list[str] = ["main"]  # of its archives
    family: str = ""  # vendor of the image, if some code or installer treats it specially: nvidia, ngc, dlc
    environment: dict[str, str] = {}  # what an image from it sets instead of the base's own value
    architecture: str = "amd64"  # the distribution's name for it
    archives: dict[
        str, list[str]
    ] = {}  # archive ("debian-security") to its suites; of dnf: repository of the image to []
    snapshots: dict[str, str] = {}  # archive to the address of its snapshot service
    glibc: str  # decides which manylinux wheels fit
    packages: list[str] = []
    left_out: list[str] = []  # globs of files of these packages that no job reads, as dpkg's path-exclude takes them
    kept: list[str] = []  # what of these is shipped: dpkg's path-include
    reference: str = ""  # provider image; without a digest it blocks every image that starts from it
    evidence: str = ""  # source of this digest
    awaits: str = ""  # an address that the author did not reach, {reference} for the image: it has no lock without it

    @property
    def machine(self) -> str:
        return MACHINES[self.architecture]


class Bases(Model):
    """The whole of bases.toml. A base that is `like` another one inherits its keys, except those it sets itself."""

    bases: dict[str, Base]

    @model_validator(mode="before")
    @classmethod
    def _likened(cls, data: dict[str, Any]) -> dict[str, Any]:
        said, whole = data.get("bases", {}), {}
        if not isinstance(said, dict) or not all(isinstance(own, dict) for own in said.values()):
            return data  # not of this form: the fields' own validation reports it
        for name, own in said.items():
            model = own.get("like", "")
            if not isinstance(model, str) or (model and (model not in said or "like" in said[model])):
                raise ValueError(f"{name} has like = {model!r}; it requires the name of a base without `like`")
            whole[name] = {key: value for key, value in {**said.get(model, {}), **own}.items() if key != "like"}
        return {**data, "bases": whole}


class LayerLimits(Model):
    """Limits for distributing wheels over layers, by their compressed size in bytes."""

    most: int  # most bytes of a layer, because layers are pulled in parallel; a larger wheel is cut into two
    alone: int  # smaller wheels share one layer


class Tools(Model):
    """The whole of tools.toml."""

    layers: LayerLimits
    python_tools: dict[str, str]  # wheels that the build itself needs: name to version
    sdist_build: dict[str, str]  # build requirements of source distributions: name to version
    may_move: list[str] = []  # Python packages that a job may change: they install others, and do not train


class Components(Model):
    """All components, bases and tools that a matrix can use."""

    components: dict[str, Component]
    bases: dict[str, Base]
    tools: Tools


# --- one image ---------------------------------------------------------------------------------------------


class Pin(Model):
    """The declaration of one component in the intent."""

    provider: str
    version: str  # "" if the provider decides: the distribution's packages, an installer's bundle, a base


class Variant(Model):
    """One cell of the matrix: one image."""

    id: str
    framework: str
    release: str
    accelerator: str
    python: str
    target: str
    base: str
    flavour: str
    devel: bool
    default: bool
    tested: TestedBy
    instances: list[str]
    driver: str = ""
    awaits: str = ""
    row: int = 0  # of its framework's rows, from 0
    pins: dict[str, Pin]
    parent: str = ""  # the image that a requirements file extends; "" for an image of the matrix itself
    requirements: str = ""  # path of the requirements file; without a parent it is of a graft, which adds it itself

    @property
    def groups(self) -> tuple[Group, ...]:
        """Return the groups of locked Python packages in the image: no tools; compilers only in a devel twin."""
        own: tuple[Group, ...] = ("framework", "toolkit", "devel") if self.devel else ("framework", "toolkit")
        own += ("base",) if "python" in self.pins and self.pins["python"].provider == IN_BASE else ()
        return (*own, "added") if self.requirements else own

    @property
    def lock(self) -> str:
        """Return the name of its lock: a devel twin has that of its image."""
        return (self.parent or self.id).removesuffix("-devel") if self.devel else self.parent or self.id

    @property
    def lock_file(self) -> str:
        return f"dockerfiles/locks/{self.lock}.toml"

    @property
    def words(self) -> str:
        """Return the command line's options that select this image."""
        if not self.parent:
            return self.id
        return f"{self.parent} --with {self.requirements} --name {self.name}"

    @property
    def name(self) -> str:
        """Return the name that distinguishes images on top of the same image."""
        return self.id.removeprefix(f"{self.parent}-with-")


# --- facts: locks/ -----------------------------------------------------------------------------------------


class PythonFile(Model):
    """One wheel or source distribution, chosen for the image's Python and platform."""

    name: str
    version: str
    file: str
    sha256: Sha256 | Literal[""]  # empty: of the base's own Python; the base's digest covers it
    size: int  # bytes
    group: Group
    compile: bool = False  # whether compile stages install it as well
    licence: str = ""  # as its own metadata states
    needs: list[str] = []  # names of its own requirements, so that a missing entry is detected


class Source(Model):
    """A file by its sha256, or a git tree by its commit: what a component is compiled or installed from."""

    name: str  # of the component
    version: str
    url: str  # upstream's address; a mirror changes the download, not this
    tag: str = ""
    commit: str = ""
    sha256: str = ""
    size: int | None = None  # bytes; None if unknown
    licence: str
    checksums: dict[str, str] = {}  # further ones: evidence

    @property
    def file(self) -> str:
        return self.url.rpartition("/")[2]


class Compiled(Model):
    """A source distribution of a lock that is compiled against the image it goes on top of."""

    name: str
    build: list[str]  # names of its build requirements beyond that image; group compile-build


class Overlap(Model):
    """Two wheels of a lock that install different bytes to the same paths, as their RECORD files say."""

    wheels: tuple[str, str]  # names of the packages, sorted
    files: int  # how many paths
    such_as: str  # the first path, below the virtual environment


class Lock(Model):
    """The whole of locks/<id>.toml: what the intent was resolved to."""

    intent: Sha256  # of the intent it was resolved from; any other value means stale
    entries: Sha256  # over all fields of all files: detects a missing or edited entry
    python: list[PythonFile]
    sources: list[Source] = []
    compiled: list[Compiled] = []  # of the packages that a requirements file adds
    brought: dict[str, str] = {}  # component to the version that its base brings, where it was asked
    overlaps: list[Overlap] = []  # each admitted by a row of [[winners]] in compat.toml


class Package(Model):
    """One package of the distribution, as the signed index describes it."""

    name: str
    version: str
    architecture: str
    archive: str
    filename: str  # path below the archive
    size: int  # bytes
    sha256: Sha256 | Literal[""]  # empty: from the base image, whose digest covers it
    location: str = ""  # of rpm: path in its repository
    address: str = ""  # of rpm: where upstream has it, because an image may find its repositories by a list of mirrors
