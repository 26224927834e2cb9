"""Plan a graft from what was found and what is wanted: what stays, what is added, or why it is refused. Pure."""

import re

from packaging.version import InvalidVersion, Version

from trainwright.core.errors import ConfigError, IncompatibleError, NotRunError, TrainwrightError
from trainwright.core.toml import Model
from trainwright.graft.found import Found
from trainwright.graft.traps import traps
from trainwright.graft.wanted import Trap, Wanted
from trainwright.image import tags
from trainwright.lock.additions import NAME
from trainwright.matrix.matrix import Intent

PIP = "PIP_CONSTRAINT"
CONSTRAINTS = "/opt/trainwright/constraints.txt"


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
    lacking: list[str]  # what is asked for and not built by this version, or from here

    @property
    def repository(self) -> str:
        return tags.repository(self.framework)


def plan(intent: Intent, found: Found, wanted: Wanted, name: str = "") -> Plan:
    """Return the plan; its traps and `lacking` say whether it can be built. Raises ConfigError for an invalid name."""
    found_traps = traps(found, wanted)
    framework = framework_name(intent, found.framework)
    environment = {}
    inside = found.inside
    if inside and inside.paths.get("/etc/pip.conf") and PIP not in found.config.environment:
        environment[PIP] = CONSTRAINTS
    if wanted.fabric == "efa":
        preset = wanted.settings.variables.items()
        environment |= {key: row.efa for key, row in preset if row.efa and key in found.config.environment}
    return Plan(
        id=identity(found, wanted, framework, name),
        framework=framework,
        steps=_steps(found, wanted, environment),
        environment=environment,
        traps=found_traps,
        lacking=_lacking(wanted),
    )


def _steps(found: Found, wanted: Wanted, environment: dict[str, str]) -> list[Step]:
    python = found.python
    rows = [Step(what=f"{len(found.config.layers)} layers", does="stay", why="the graft only adds a layer on top")]
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
    if wanted.fabric != "none":
        what = "libfabric, aws-ofi-nccl, nccl-tests"
        rows.append(Step(what=what, does="is added", why=f"--fabric {wanted.fabric}"))
    return rows


def _lacking(wanted: Wanted) -> list[str]:
    """Return what is asked for and cannot be built yet."""
    told = []
    if wanted.fabric == "efa":
        told.append(
            "--fabric efa requires the EFA installer's packages in a lock of this distribution, which grafts lack"
        )
    if wanted.fabric == "distro":
        told.append("--fabric distro requires a lock of the distribution's libfabric and Open MPI, which grafts lack")
    if wanted.target == "sagemaker":
        told.append("--target sagemaker requires a lock of SageMaker's training toolkit for the image's own Python")
    return told


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
    return f"{framework}-{release}-{found.accelerator}-py{number}-{wanted.target}-{name}"


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
