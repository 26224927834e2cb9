"""The nouns: what the matrix declares, what the lock established, what an image is. Data only."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Action = Literal["skip", "reuse", "build", "blocked"]
TestedBy = Literal["make test", "CI", ""]  # "": nobody, unless somebody does so by hand
# Of the Python packages of a lock: what images hold, and what only builds use.
Group = Literal["framework", "toolkit", "devel", "added", "tools", "sdist-build", "compile-build"]


MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}  # as Debian and as the kernel call them


class Model(BaseModel):
    """Frozen, and an unknown key is an error rather than a silent no-op."""

    # Built when it is first used: a command uses few of the models that it imports.
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


# --- intent: matrix.toml -----------------------------------------------------------------------------------


class Row(Model):
    """A cross product of axes that shares one set of pins."""

    release: str  # major.minor, as in the image id
    accelerators: list[str]
    pythons: list[str]
    targets: list[str]
    bases: list[str]
    pins: dict[str, str]
    flavour: str = ""  # what tells these images apart from others of the same release and accelerator
    instances: list[str] = []  # of instances.toml: what is compiled here is compiled for their GPUs
    driver: str = ""  # the oldest GPU driver of the hosts, where it is known
    devel: bool = False  # whether each image has a twin with compilers
    awaits: str = ""  # what could not be had where this was written: without it these images have no lock


class Framework(Model):
    default: str
    rows: list[Row]


class Target(Model):
    pins: dict[str, str]


class Tested(Model):
    """Ids of the images that are built and tested without anybody asking for them."""

    make_test: Annotated[list[str], Field(alias="make-test")] = []
    ci: list[str] = []  # beside those of `make test`; the most important ones first
    begin_within_minutes: Annotated[int | None, Field(alias="begin-within-minutes")] = None


class Matrix(Model):
    """The whole of matrix.toml. A pin is `version`, `provider version`, or `provider` where that one has no choice."""

    tested: Tested = Tested()
    common: Target
    devel: Target = Target(pins={})  # what the twin with compilers has beyond its image
    targets: dict[str, Target]
    frameworks: dict[str, Framework]


# --- intent: layers/<component>.toml -------------------------------------------------------------------------

Text = str | dict[str, str]  # the same for all accelerators, or one per glob of them
Names = list[str] | dict[str, list[str]]  # the same for all distributions, or by glob of `<distribution>-<suite>`
Kind = Literal["python", "distro", "source", "file", "bundled", "base"]
Position = Literal["system", "interpreter", "framework", "python", "toolkit", "compiled"]


class Probe(Model):
    """How the finished image is asked for a component's version: a program to run, or Python code."""

    command: list[str] = []
    code: str = ""
    pattern: str  # one group: the version
    shows: str = "{version}"  # how a pinned version looks there; {major}, {minor}, {micro} are its parts
    at_start: bool = False  # whether it is asked again before each job: what decides how ranks compute and talk


class Flag(Model):
    """An installer's option that only some versions on some bases need."""

    range: str
    base: str  # family of the base
    flag: str
    evidence: str


class InstallPath(Model):
    """Where a version of an installer puts something."""

    range: str
    path: str
    evidence: str


class Provider(Model):
    """One way to get a component; what it is follows from what is said here."""

    requirement: Text = ""  # Python requirement with {version}
    extras: dict[str, list[str]] = {}  # another component to the parts of its Python package that this one loads
    index: dict[str, str] = {}  # accelerator to the framework's own wheel index
    build_requirements: list[Text] = []  # Python requirements of compile stages and of the devel twin
    packages: Names = []  # of the distribution; where there is nothing else, the first carries the version
    build_packages: Names = []  # of the distribution, for compile stages alone
    git: str = ""  # upstream's address, fetched at a commit
    tag: str = ""  # what upstream calls {version}
    url: str = ""  # a file, by {version}
    bundled_by: str = ""  # another component, whose release says which version it brings
    replaces: Text = ""  # the Python package whose place it takes
    refuses: Text = ""  # the Python package of the same content under another name: a job cannot lay it over this one
    installs: list[str] = []  # globs: packages that it registers with dpkg itself, of a version that no lock can know
    compile: bool = False  # its source distribution is compiled in a stage of its own, against the image's packages
    in_base: bool = False  # the base image brings it; the pin says which version, and the probe whether that is true

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
        return "python" if self.requirement else "distro"


class Release(Model):
    """What is known of one version, and where from. Without commit or sha256 it cannot be locked."""

    commit: Annotated[str, Field(pattern=r"^(|[0-9a-f]{40})$")] = ""
    sha256: Sha256 | Literal[""] = ""
    size: int | None = None  # bytes
    date: str = ""
    checksums: dict[str, str] = {}  # further ones: evidence
    bundles: dict[str, str] = {}  # component to the version that this release brings
    evidence: str = ""


class Toolkit(Model):
    """An image to copy compilers from, where no package brings them."""

    reference: str  # with its digest, or it blocks what compiles with it
    path: str  # of the folder in it
    evidence: str


IN_BASE = "base"  # the provider of whatever an image to start from brings: nobody has to declare it


class Component(Model):
    """The whole of layers/<component>.toml."""

    licence: str
    summary: str
    position: Position
    probe: Probe
    libraries: list[str] = []  # globs of file names: a process may load these from the image's own files alone
    symbol: str = ""  # a function of theirs: whoever preloads another one of that name replaces them
    variables: dict[str, list[str]] = {}  # what makes it load something else: to the file names that {value} can mean
    providers: dict[str, Provider]
    releases: dict[str, Release] = {}
    flags: list[Flag] = []
    paths: list[InstallPath] = []
    toolkits: dict[str, Toolkit] = {}  # by version

    def provider(self, name: str) -> Provider:
        return Provider(in_base=True) if name == IN_BASE else self.providers[name]


# --- intent: bases.toml, tools.toml --------------------------------------------------------------------------


class Base(Model):
    """What an image starts from: bootstrapped packages, or a registry image by digest."""

    provider: Literal["packages", "image"]
    distribution: str  # debian
    suite: str  # bookworm
    manager: Literal["apt", "dnf"] = "apt"  # what installs packages; those of dnf are not locked yet
    sections: list[str] = ["main"]  # of its archives
    family: str = ""  # whose image it is, where somebody treats it in a way of its own: nvidia
    architecture: str = "amd64"  # the distribution's name for it
    archives: dict[str, list[str]] = {}  # archive ("debian", "debian-security") to its suites
    snapshots: dict[str, str] = {}  # archive to the address of its snapshot service
    glibc: str  # decides which manylinux wheels fit
    packages: list[str] = []
    reference: str = ""  # provider image; without its digest it blocks whatever starts from it
    evidence: str = ""  # who says that this is the digest
    awaits: str = ""  # what could not be had where this was written: without it there is no lock of its packages

    @property
    def machine(self) -> str:
        return MACHINES[self.architecture]


class Bases(Model):
    """The whole of bases.toml. A base that is `like` another one has what that one has, but for what it says itself."""

    bases: dict[str, Base]

    @model_validator(mode="before")
    @classmethod
    def _likened(cls, data: dict[str, Any]) -> dict[str, Any]:
        said, whole = data.get("bases", {}), {}
        if not isinstance(said, dict) or not all(isinstance(own, dict) for own in said.values()):
            return data  # not of this form: its fields say so
        for name, own in said.items():
            model = own.get("like", "")
            if not isinstance(model, str) or (model and (model not in said or "like" in said[model])):
                raise ValueError(f"{name} is like {model!r}, which is no base that says everything itself")
            whole[name] = {key: value for key, value in {**said.get(model, {}), **own}.items() if key != "like"}
        return {**data, "bases": whole}


class LayerLimits(Model):
    """How wheels are dealt out over layers, by their compressed size in bytes."""

    most: int  # of a layer: layers are pulled side by side
    alone: int  # what is smaller goes into one layer with all else that is small


class Tools(Model):
    """The whole of tools.toml."""

    layers: LayerLimits
    python_tools: dict[str, str]  # wheels the build itself needs: name to version
    sdist_build: dict[str, str]  # what source distributions are built with: name to version
    may_move: list[str] = []  # Python packages that a job may move: they install others, and train nothing


class Components(Model):
    """What there is to choose from."""

    components: dict[str, Component]
    bases: dict[str, Base]
    tools: Tools


# --- one image ---------------------------------------------------------------------------------------------


class Pin(Model):
    """What the intent says of one component."""

    provider: str
    version: str  # "" where the provider decides: the distribution's packages, an installer's bundle


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
    parent: str = ""  # the image that a requirements file puts packages on; "": an image of the matrix itself
    requirements: str = ""  # that file

    @property
    def groups(self) -> tuple[Group, ...]:
        """Of a lock's Python packages, those that the finished image has: no tools, and compilers in a twin alone."""
        own: tuple[Group, ...] = ("framework", "toolkit", "devel") if self.devel else ("framework", "toolkit")
        return (*own, "added") if self.parent else own

    @property
    def lock(self) -> str:
        """Name of its lock: a devel twin has that of its image."""
        return (self.parent or self.id).removesuffix("-devel") if self.devel else self.parent or self.id

    @property
    def words(self) -> str:
        """How the command line is told which image is meant."""
        if not self.parent:
            return f"--only {self.id}"
        return f"--only {self.parent} --with {self.requirements} --name {self.name}"

    @property
    def name(self) -> str:
        """What tells images on top of one and the same image apart."""
        return self.id.removeprefix(f"{self.parent}-with-")


# --- facts: locks/ -----------------------------------------------------------------------------------------


class PythonFile(Model):
    """One wheel or source distribution, chosen for the variant's Python and platform."""

    name: str
    version: str
    file: str
    sha256: Sha256
    size: int  # bytes
    group: Group
    compile: bool = False  # whether compile stages install it, too
    licence: str = ""  # as its own metadata says
    needs: list[str] = []  # names of its own requirements, so that a missing entry is noticed


class Source(Model):
    """A file by its sha256, or a git tree by its commit: what a component is compiled or installed from."""

    name: str  # of the component
    version: str
    url: str  # upstream's address; a mirror changes where the bytes come from, not this
    tag: str = ""
    commit: str = ""
    sha256: str = ""
    size: int | None = None  # bytes; None where nobody has said
    licence: str
    checksums: dict[str, str] = {}  # further ones: evidence

    @property
    def file(self) -> str:
        return self.url.rpartition("/")[2]


class Compiled(Model):
    """A source distribution of a lock that is compiled against the image it goes on top of."""

    name: str
    build: list[str]  # names of what its compilation needs beyond that image; group compile-build


class Lock(Model):
    """locks/<id>.toml: what the intent resolved to."""

    intent: Sha256  # of the intent it was resolved from; another one means stale
    entries: Sha256  # over every word of every file: one that is missing or edited is noticed, whoever needs it
    python: list[PythonFile]
    sources: list[Source] = []
    compiled: list[Compiled] = []  # of what a requirements file adds


class Package(Model):
    """One package of the distribution, as the signed index describes it."""

    name: str
    version: str
    architecture: str
    archive: str
    filename: str  # path below the archive
    size: int  # bytes
    sha256: Sha256 | Literal[""]  # empty: it came with the base image, whose digest covers it
