"""Plan a graft from what was found and what is wanted: what stays, what is added, or why it is refused. Pure."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath

from packaging.version import InvalidVersion, Version

from trainwright.core.errors import ConfigError, IncompatibleError, NotRunError, TrainwrightError
from trainwright.core.progress import counted
from trainwright.core.toml import Model
from trainwright.graft import recipe as graft_recipe
from trainwright.graft.found import NVCC, Fabric, Found, Inside, Target, settings
from trainwright.graft.traps import traps
from trainwright.graft.wanted import File, Trap, Wanted
from trainwright.image import tags
from trainwright.lock import additions, requirements
from trainwright.lock.additions import NAME
from trainwright.matrix.matrix import Intent, Recipe
from trainwright.matrix.model import Pin

FIRST_WITH_NVCC = 13  # of CUDA: its wheels have a compiler
NCCL_HEADER = "/usr/include/nccl.h"
DATABASES = {"apt": ["/var/lib/dpkg"], "dnf": ["/var/lib/rpm", "/var/lib/dnf"]}  # of packages, by their manager
NOT_DNF_4 = ("dnf5", "microdnf")  # packages whose program may be called dnf as well: neither answers rpm_solve.py
PIP = "PIP_CONSTRAINT"
CONSTRAINTS = "/opt/trainwright/constraints.txt"


def file_of(path: Path) -> File:
    """Read a requirements file. Raises ConfigError with file and line."""
    asked = requirements.read(path)
    name = additions.name_of(str(path), fix=f"give the file a name with letters or digits: mv {path} team.txt")
    return File(path=str(path), name=name, asked=asked)


def asked_for(
    intent: Intent,
    target: Target,
    fabric: Fabric,
    architecture: str,
    forbidden: Sequence[str] = (),
    file: File | None = None,
) -> Wanted:
    """Return the requested graft with the rules for it. `forbidden`: which licences forbid a push."""
    return Wanted(
        target=target,
        fabric=fabric,
        architecture=architecture,
        settings=settings(intent.root),
        compat=intent.compat,
        plugin=newest_plugin(intent),
        forbidden=list(forbidden),
        file=file,
    )


class Step(Model):
    """A row of the plan."""

    what: str
    does: str  # stays, is added, is set
    why: str


class Plan(Model):
    id: str
    framework: str  # of the matrix, which names the repository
    steps: list[Step]
    environment: dict[str, str]  # that the graft sets
    traps: list[Trap]
    lacking: list[str]  # what is asked for and cannot be built on this image by this version

    @property
    def repository(self) -> str:
        return tags.repository(self.framework)


def plan(intent: Intent, found: Found, wanted: Wanted, name: str = "") -> Plan:
    """Return the plan; its traps and `lacking` say whether it can be built.

    Raises ConfigError for an invalid name, and for one that makes the id of an image of the matrix.
    """
    found_traps = traps(found, wanted)
    framework = framework_name(intent, found.framework)
    own = identity(found, wanted, framework, name)
    if intent.find(own):
        why = "a graft is told from others by its id: its folder in out/, its tags, and what prune keeps"
        raise ConfigError(f"{own} is an image of the matrix", where="--name", why=why, fix="--name team")
    environment = {}
    inside = found.inside
    if inside and inside.paths.get("/etc/pip.conf") and PIP not in found.config.environment:
        environment[PIP] = CONSTRAINTS
    if wanted.fabric == "efa":
        preset = wanted.settings.variables.items()
        environment |= {key: row.efa for key, row in preset if row.efa and key in found.config.environment}
    return Plan(
        id=own,
        framework=framework,
        steps=_steps(intent, found, wanted, environment),
        environment=environment,
        traps=found_traps,
        lacking=list(_lacking(graft_recipe.recipe(intent, found, wanted, own, framework), found, wanted)),
    )


def _steps(intent: Intent, found: Found, wanted: Wanted, environment: dict[str, str]) -> list[Step]:
    python, pins = found.python, graft_recipe.added(intent, found, wanted)
    rows = [Step(what=counted(len(found.config.layers), "layer"), does="stay", why="the graft only adds layers on top")]
    if python and found.framework:
        version = python.components[found.framework].version
        why = f"the launcher starts ranks with {python.path}"
        rows.append(Step(what=f"{found.framework} {version}", does="stays", why=why))
    if found.nccl:
        rows.append(Step(what=f"NCCL {found.nccl}", does="stays", why="it is the one that the framework maps"))
    why = "starts the ranks on every host, and ends all when one fails"
    rows.append(Step(what="launcher", does="is added", why=f"trainwright-launch {why}"))
    why = "trainwright-check compares image and host with it before each job"
    rows.append(Step(what="declaration, preflight", does="is added", why=why))
    own = found.inside is not None and bool(found.inside.paths.get("/etc/pip.conf"))
    if not own:
        why = "keeps a job's requirements.txt from changing what was found"
        rows.append(Step(what="/etc/pip.conf", does="is added", why=why))
    rows += [Step(what=f"{name}={value}", does="is set", why="see the traps") for name, value in environment.items()]
    rows += [_step(intent, found, wanted, name, pin) for name, pin in pins.items()]
    if wanted.fabric != "none" and found.accelerator == "cpu":
        why = "the framework is built for CPUs and has no NCCL, so there is nothing that a plugin could serve"
        rows.append(Step(what="aws-ofi-nccl, nccl-tests", does="are left out", why=why))
    if wanted.file and python:
        count = f"{counted(len(wanted.file.asked.lines), 'requirement')} of {wanted.file.path}"
        why = f"with what they need, from wheels, to {python.site}; all packages that are there stay"
        rows.append(Step(what=count, does="are added", why=why))
    if wanted.target == "sagemaker":
        rows.append(Step(what="command train", does="is set", why="SageMaker starts a training container with it"))
        if found.config.user:
            rows.append(Step(what="user root", does="is set", why="SageMaker's /opt/ml belongs to root"))
    return rows


def _step(intent: Intent, found: Found, wanted: Wanted, name: str, pin: Pin) -> Step:
    """Return the row of a component that is added: where it comes from, and what it is made for."""
    provider = intent.components.components[name].provider(pin.provider)
    origin = {
        "distro": "of the image's distribution",
        "bundled": f"of {provider.bundled_by}",
        "source": f"compiled in the image, for its glibc {found.glibc} and NCCL {found.nccl}",
        "file": f"its release, whose address is {provider.url.format(version=pin.version)}",
        "python": f"for the image's own Python, all of whose packages stay: --target {wanted.target}",
    }
    return Step(what=f"{name} {pin.version}".strip(), does="is added", why=origin.get(provider.kind, "it is asked for"))


def _lacking(recipe: Recipe, found: Found, wanted: Wanted) -> Iterator[str]:
    """Yield what is asked for and cannot be built on this image by this version."""
    pins, inside, base = graft_recipe.added(recipe.intent, found, wanted), found.inside, recipe.base
    if inside is None or not pins:
        return
    stack = graft_recipe.stack_of(wanted, found)
    if stack and stack not in recipe.intent.matrix.stacks:
        yield f"--fabric {wanted.fabric} requires the stack {stack}, which matrix.toml does not declare"
    yield from _without_packages(recipe, inside, f"--target {wanted.target} --fabric {wanted.fabric}")
    if wanted.fabric != "none" and "openmpi" in inside.commands and not _has_openmpi(recipe, inside):
        yield "the image has an Open MPI that its package manager did not install: remove it, or use --fabric none"
    python, written = found.python, ["/usr", "/etc", "/opt", *DATABASES[base.manager]]
    written += [python.site] if python else []
    for volume in found.config.volumes:
        if covered := next((path for path in written if PurePosixPath(path).is_relative_to(volume)), ""):
            yield f"VOLUME {volume} of the image covers {covered}, where packages are installed: build it without"
    if any(recipe.provider(name).kind == "source" for name in pins):
        yield from _cannot_compile(found)


def _without_packages(recipe: Recipe, inside: Inside, asked: str) -> Iterator[str]:
    """Yield why packages of the image's distribution cannot be added to it."""
    base, has = recipe.base, ", ".join(inside.managers) or "none"
    distribution = f"{base.distribution} {base.suite}".strip() or "its distribution"
    if base.manager == "apt":
        if "apt-get" not in inside.managers:
            yield f"{asked} requires apt-get in the image, which has {has}"
        elif not base.archives:
            yield f"the archives of {base.distribution or distribution} are not known: bases.toml has no such base"
        return
    other = next((name for name in NOT_DNF_4 if name in inside.packages and "dnf" not in inside.packages), "")
    if "dnf" not in inside.managers or other:
        yield f"{asked} requires dnf 4 in the image, which has {other or has}"
    elif not base.archives:
        why = "bases.toml has no base of this distribution, whose `archives` names them"
        yield f"the repositories of {distribution} are not known: {why}"
    elif unnamed := graft_recipe.unnamed(recipe):
        files = ", ".join(f"dockerfiles/layers/{name}.toml" for name in unnamed)
        line = f'"{base.distribution}-*" = [...]'
        what = f"the packages of {', '.join(unnamed)} have no known name in {distribution}"
        yield f"{what}: add a line {line} to their `packages` and `build_packages` in {files}"


def _has_openmpi(recipe: Recipe, inside: Inside) -> bool:
    """Return whether a package of the distribution brought the image's Open MPI.

    Not every distribution with rpm has a name of it in layers/, but all call it openmpi, or begin with that.
    """
    if recipe.base.manager == "dnf":
        return any(name.startswith("openmpi") for name in inside.packages)
    said = recipe.intent.components.components["openmpi"].provider("distro").packages
    return any(name in inside.packages for name in recipe.packages(said)[:1])


def _cannot_compile(found: Found) -> Iterator[str]:
    python, inside = found.python, found.inside
    if python is None or inside is None:
        return
    wheel = any(path.startswith(f"{python.site}/nvidia/nccl/") for path in found.mapped or found.nccls)
    if not found.has_nvcc and not (wheel and found.cuda and int(found.cuda.partition(".")[0]) >= FIRST_WITH_NVCC):
        yield f"compiling for CUDA {found.cuda} requires nvcc in {NVCC}: no wheel of CUDA 12 has it"
    if not wheel and not inside.paths.get(NCCL_HEADER):
        yield f"compiling for NCCL {found.nccl} requires {NCCL_HEADER} in the image"


def refusals(found: Found, made: Plan) -> list[TrainwrightError]:
    """Return the errors of a plan that cannot be built: refused traps, or what was not established."""
    refused = [trap for trap in made.traps if trap.state == "refused"]
    if refused:
        return [
            IncompatibleError(
                f"{found.reference} cannot be grafted upon: {trap.name}: {trap.found}",
                where=found.pinned,
                why=trap.why,
                fix=trap.fix,
            )
            for trap in refused
        ]
    fix = f"trainwright graft {found.reference} --fabric none --target ec2"
    return [NotRunError(f"the graft of {found.reference} is not built", why=why, fix=fix) for why in made.lacking]


def newest_plugin(intent: Intent) -> str:
    """Return the newest release of aws-ofi-nccl that the components declare, which a fabric would bring."""
    held = intent.components.components.get("aws-ofi-nccl")
    return max(held.releases, key=Version, default="") if held else ""


def framework_name(intent: Intent, component: str) -> str:
    """Return the framework of the matrix that a component belongs to; the component itself if no image pins it."""
    return next((one.framework for one in intent.variants if component in one.pins), component or "none")


def identity(found: Found, wanted: Wanted, framework: str, name: str = "") -> str:
    """Return the id of a graft, formed like those of the matrix. Raises ConfigError for an invalid name."""
    name = name or slug(found.reference)
    if not re.fullmatch(NAME, name):
        raise ConfigError(
            f"{name!r} cannot be part of an image's name", why=f"it does not match {NAME}", fix="--name team"
        )
    python = found.python
    version = python.components[found.framework].version if python and found.framework else ""
    release = ".".join(version.split("+")[0].split(".")[:2]) or "0"
    number = "".join(python.version.split(".")[:2]) if python else "0"
    with_file = f"-with-{wanted.file.name}" if wanted.file else ""
    return f"{framework}-{release}-{found.accelerator}-py{number}-{wanted.target}-{name}{with_file}"


def slug(reference: str) -> str:
    """Return the last part of a repository's name, as a part of an id."""
    last = reference.partition("@")[0].rpartition("/")[2].partition(":")[0]
    return re.sub(r"[^a-z0-9]+", "-", last.lower()).strip("-")[:32].strip("-") or "graft"


def constraints(packages: dict[str, str]) -> str:
    """Return constraints that hold a job's requirements at the versions that were found."""
    lines = []
    for name, version in sorted(packages.items()):
        try:
            lines.append(f"{name}=={Version(version)}\n")
        except InvalidVersion:  # of conda or of a vendor: pip cannot compare it
            continue
    return "".join(lines)
