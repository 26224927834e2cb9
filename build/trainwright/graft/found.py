"""Describe an image of unknown origin: what its configuration says, and what a look into it finds. Pure."""

import re
from pathlib import Path
from typing import Any, Literal

from packaging.version import InvalidVersion, Version
from pydantic import Field

from trainwright.core.errors import masked, printable
from trainwright.core.progress import counted
from trainwright.core.toml import Model, load
from trainwright.inspect.image_config import DEFAULT_SHELL
from trainwright.lock.rpms import Rpm

FILE = "dockerfiles/graft.toml"
Fabric = Literal["none", "efa", "distro"]
Target = Literal["ec2", "sagemaker"]
NVCC = "/usr/local/cuda/bin/nvcc"
MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}


class Look(Model):
    """Limits of the container that looks into an image, and where it looks."""

    memory_gb: int
    processes: int
    seconds: int
    program_seconds: int
    answer_mb: int
    pythons: list[str]
    paths: list[str]


class Limits(Model):
    python: str
    layers: int
    glibc_efa: str


class Chooses(Model):
    """A variable that chooses a transport."""

    why: str
    efa: str = ""  # the value that a graft with EFA sets instead; "": such a graft is refused


class Stacks(Model):
    """The stacks of the matrix whose pins a fabric adds, for images without and with CUDA."""

    cpu: str
    cuda: str


class Settings(Model):
    """The content of graft.toml."""

    look: Look
    limits: Limits
    fabrics: dict[str, Stacks]
    distributions: dict[str, str] = Field(default={})  # ID of /etc/os-release to its name in bases.toml, if another
    frameworks: dict[str, list[str]]  # component to the Python packages that bring it
    libraries: dict[str, list[str]]  # what no component of layers/ brings, and could shadow what one does
    variables: dict[str, Chooses]


def settings(root: Path) -> Settings:
    return load(root / FILE, Settings)


class Answer(Model):
    """What a component says of itself when it is started or imported."""

    version: str
    error: str = ""
    maps: list[str] = Field(default=[])  # files of NCCL that the process maps


class Python(Model):
    path: str
    version: str
    prefix: str
    base_prefix: str
    kind: str  # venv, conda, system, local, other
    site: str
    site_exists: bool
    site_rights: list[int] = Field(default=[])  # its user, group and mode
    cxx: str = ""  # newest symbols of conda's own libstdc++, as 3.4.30
    packages: dict[str, str]
    components: dict[str, Answer]


class Library(Model):
    """A file of a component, as libraries.json of an image of ours describes it; `version` only of NCCL."""

    component: str
    sha256: str
    names: list[str]
    version: str = ""


class Loader(Model):
    missing: list[str]  # folders or files of ld.so.conf that do not exist
    preload: list[str]


class Inside(Model):
    """The output of scripts/look.py."""

    os: dict[str, str]
    machine: str
    libc: str
    managers: list[str]
    pythons: list[Python]
    commands: dict[str, Answer]
    libraries: dict[str, Library]
    loader: Loader
    packages: dict[str, str]  # of the distribution; several versions of one are joined by " and "
    rpms: list[Rpm] = Field(default=[])  # the same of a distribution with rpm, as rpm lists them
    paths: dict[str, str]
    users: dict[str, list[int]] = Field(default={})  # name to numbers of user and group
    cxx: str = ""  # newest symbols of the distribution's libstdc++


class Config(Model):
    """An image's configuration, as far as it matters to what is built on top."""

    architecture: str
    os: str
    created: str = ""
    user: str = ""
    entrypoint: list[str] = Field(default=[])
    command: list[str] = Field(default=[])
    environment: dict[str, str] = Field(default={})
    labels: dict[str, str] = Field(default={})
    volumes: list[str] = Field(default=[])
    onbuild: list[str] = Field(default=[])
    shell: list[str] = Field(default=[])
    healthcheck: list[str] = Field(default=[])
    layers: list[str]  # digests of the unpacked layers, lowest first
    media_types: list[str] = Field(default=[])  # of the packed layers; empty where the registry was not asked


class Found(Model):
    """All that is known of an image. `inside` is None if nothing could be started in it: `silent` says why."""

    reference: str  # as the user gave it
    pinned: str  # repository@digest, or the engine's id
    source: str  # what a build starts from: `pinned`, or a name in the engine where no registry has the image
    config: Config
    inside: Inside | None = None
    silent: str = ""
    frameworks: list[str] = Field(default=[])  # components that count as one
    moved: str = ""  # the digest that the registry has under this tag now, if it is another one

    @property
    def python(self) -> Python | None:
        """Return the interpreter that holds a framework, the first of PATH; else the first one."""
        known = self.inside.pythons if self.inside else []
        return next((one for one in known if set(one.components) & set(self.frameworks)), next(iter(known), None))

    @property
    def framework(self) -> str:
        """Return the component that is this image's framework, or ""."""
        python = self.python
        return next((name for name in self.frameworks if python and name in python.components), "")

    @property
    def mapped(self) -> list[str]:
        """Return the files of NCCL that a process with the framework maps."""
        return self.python.components[self.framework].maps if self.python and self.framework else []

    @property
    def nccls(self) -> dict[str, str]:
        """Map each file of NCCL on disk to its version."""
        held = self.inside.libraries if self.inside else {}
        return {path: one.version for path, one in held.items() if one.component == "nccl"}

    @property
    def nccl(self) -> str:
        """Return the version of the NCCL that the framework maps, or of the only one on disk; "" if unknown.

        A framework for CPUs maps none, so a file of a distribution's package beside it counts for nothing.
        """
        known = self.nccls
        paths = self.mapped or ([] if self.accelerator == "cpu" else list(known))
        return known.get(paths[0], "") if len(paths) == 1 else ""

    @property
    def accelerator(self) -> str:
        """Return cpu, or cu with CUDA's version, as the framework's own version or NVIDIA's packages say it."""
        python = self.python
        if python is None:
            return "cpu"
        local = python.components[self.framework].version.partition("+")[2] if self.framework else ""
        if re.fullmatch(r"cpu|cu\d+", local):
            return local
        runtime = [name for name in python.packages if name.startswith("nvidia-cuda-runtime")]
        if runtime:
            return "cu" + "".join(python.packages[runtime[0]].split(".")[:2])
        cuda = self.config.environment.get("CUDA_VERSION", "")
        return "cu" + "".join(cuda.split(".")[:2]) if cuda else "cpu"

    @property
    def cuda(self) -> str:
        """Return CUDA's version as major.minor; "" for an image without CUDA."""
        digits = self.accelerator.removeprefix("cu")
        return f"{digits[:-1]}.{digits[-1]}" if digits.isdigit() and len(digits) > 1 else ""

    @property
    def has_nvcc(self) -> bool:
        """Return whether the image has CUDA's compiler in the usual place."""
        return bool(self.inside and self.inside.paths.get(NVCC))

    @property
    def glibc(self) -> str:
        """Return the version of glibc; "" for another C library."""
        name, _, version = (self.inside.libc if self.inside else "").partition(" ")
        return version if name == "glibc" else ""


def config_of(attributes: dict[str, Any], media_types: list[str] | None = None) -> Config:
    """Read the engine's description of an image, without trusting its types."""
    said = attributes.get("Config") or {}
    pairs = (str(line).partition("=") for line in said.get("Env") or [])
    shell = _words(said.get("Shell"))
    return Config(
        architecture=str(attributes.get("Architecture") or ""),
        os=str(attributes.get("Os") or ""),
        created=str(attributes.get("Created") or ""),
        user=str(said.get("User") or ""),
        entrypoint=_words(said.get("Entrypoint")),
        command=_words(said.get("Cmd")),
        environment={name: value for name, _, value in pairs},
        labels={str(name): str(value) for name, value in (said.get("Labels") or {}).items()},
        volumes=sorted(map(str, said.get("Volumes") or [])),
        onbuild=_words(said.get("OnBuild")),
        shell=[] if shell == DEFAULT_SHELL else shell,
        healthcheck=_words((said.get("Healthcheck") or {}).get("Test")),
        layers=_words((attributes.get("RootFS") or {}).get("Layers")),
        media_types=media_types or [],
    )


def _words(said: Any) -> list[str]:
    return [str(word) for word in said or []]


def older(version: str, least: str) -> bool:
    """Return whether a version is older than another one; a version that cannot be read is not."""
    try:
        return Version(version) < Version(least)
    except InvalidVersion:
        return False


def shown(name: str, value: str) -> str:
    """Return a variable for people: one line, without what it may keep secret."""
    line = masked(f"{name}={value}").partition("=")[2]
    return " ".join(printable(line).split())[:200]


def without_secrets(found: Found) -> Found:
    """Return the same image with what a variable may keep secret as ***, for files and for what errors may print."""
    own = found.config.environment.items()
    hidden = {name: masked(f"{name}={value}").partition("=")[2] for name, value in own}
    return found.model_copy(update={"config": found.config.model_copy(update={"environment": hidden})})


def rows(found: Found) -> list[dict[str, str]]:
    """Return the table of what was found."""
    config, inside, python = found.config, found.inside, found.python
    told = [("image", found.pinned), ("platform", f"{config.os}/{config.architecture}")]
    if inside is None:
        told.append(("inside", f"not established: {found.silent}"))
    else:
        name = inside.os.get("PRETTY_NAME") or " ".join(filter(None, map(inside.os.get, ("ID", "VERSION_ID"))))
        told += [
            ("distribution", name or "unknown"),
            ("C library", inside.libc),
            ("package manager", ", ".join(inside.managers) or "none"),
            *(("python", _of_python(one, one is python)) for one in inside.pythons),
        ]
        if python and found.framework:
            answer = python.components[found.framework]
            version = answer.version or f"does not start: {answer.error}"
            told.append(("framework", f"{found.framework} {version} ({found.accelerator})"))
        told += [
            ("nccl", f"{path} {version or 'without a version'}" + ", mapped by the framework" * (path in found.mapped))
            for path, version in found.nccls.items()
        ]
        told += [(name, one.version or "without a version") for name, one in inside.commands.items()]
        others = sorted((p, one.component) for p, one in inside.libraries.items() if one.component != "nccl")
        told += [(component, path) for path, component in others]
    told += [
        ("user", config.user or "root"),
        ("entrypoint", " ".join(config.entrypoint) or "none"),
        ("layers", f"{len(config.layers)} ({', '.join(sorted(set(config.media_types))) or 'media types unknown'})"),
    ]
    for title, words in (("ONBUILD", config.onbuild), ("VOLUME", config.volumes), ("SHELL", config.shell)):
        told += [(title, word) for word in words]
    told += [("HEALTHCHECK", " ".join(config.healthcheck))] if config.healthcheck else []
    told += [("variable", f"{name}={shown(name, value)}") for name, value in sorted(config.environment.items())]
    return [{"what": what, "found": " ".join(printable(value).split())} for what, value in told]


def _of_python(one: Python, chosen: bool) -> str:
    text = f"{one.path} {one.version}, {one.kind}, {counted(len(one.packages), 'package')}"
    return text + ", used by the graft" * chosen
