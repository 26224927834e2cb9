"""Run a gate, from the command line's options to its log: check that it can run, emit it or run it here, judge it."""

import os
import re
import shlex
import shutil
import signal
import subprocess
import tempfile
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from difflib import get_close_matches
from pathlib import Path

from pydantic import Field

from trainwright.build.state import beyond_the_matrix, read_image
from trainwright.core import toml, yaml_text
from trainwright.core.errors import ConfigError, EnvironmentProblem, NotRunError, did_you_mean
from trainwright.core.process import run as call
from trainwright.core.toml import Model
from trainwright.docker import engine
from trainwright.gate import floors, launchers, read, spec
from trainwright.gate.case import Declared
from trainwright.gate.judge import Verdict
from trainwright.gate.spec import Run
from trainwright.image import tags
from trainwright.matrix import instances
from trainwright.matrix.instances import Instance
from trainwright.matrix.matrix import Intent, load_intent
from trainwright.matrix.records import GRAFT
from trainwright.registry.http import is_loopback
from trainwright.schedulers import clusters, dra
from trainwright.schedulers import kubernetes as objects
from trainwright.schedulers import placement as placements
from trainwright.schedulers.clusters import Asked
from trainwright.schedulers.placement import Placement
from trainwright.schedulers.slurm import ECR

TESTS = "nccl-tests"


def check_image(root: Path, image: str) -> None:
    """Raise ConfigError for a matrix image without nccl-tests; accept any other reference, whose contents are unknown.

    Also raise ConfigError for unprintable characters: the name goes into a comment of the emitted script, and a line
    break in it would start a line that is executed.
    """
    if not image.isprintable():
        raise ConfigError(f"{image!r} has unprintable characters", where="IMAGE")
    intent = load_intent(root)
    recipe = intent.find(image)
    if recipe is None or TESTS in recipe.pins or recipe.made_by_others:  # those may have the tests undeclared
        return
    having = [one.id for one in intent.variants if TESTS in one.pins]
    near = get_close_matches(image, having, n=1, cutoff=0) or [""]
    raise ConfigError(
        f"{image} does not contain {TESTS}",
        why=f"trainwright find --has {TESTS} lists the images that contain it",
        fix=f"trainwright gate {near[0]}" if near[0] else "",
    )


def check_hosts(image: str, on: str, hosts: list[str]) -> None:
    """Check that these hosts can pull the image, and that SageMaker accepts its registry. Raises ConfigError."""
    if not image or on == "docker":
        return
    address = image.partition("/")[0]
    elsewhere = on != "ssh" or not all(is_loopback(host.rpartition("@")[2]) for host in hosts)
    if elsewhere and is_loopback(address):
        raise ConfigError(
            f"other hosts cannot pull {image}",
            where=f"--on {on}",
            why=f"{address} is a loopback address",
            fix="push it to a registry that they reach: make push REGISTRY=ecr, or REGISTRY=<host>[:<port>]",
        )
    if on == "sagemaker" and not ECR.search(image.partition("/")[0]):
        raise ConfigError(
            f"SageMaker does not pull from {address}",
            where="--on sagemaker",
            why="TrainingImage must be in Amazon ECR; another registry requires a TrainingImageConfig and a VPC, "
            "which this request lacks",
            fix="push it to Amazon ECR: make push REGISTRY=ecr",
        )


def check_architecture(name: str, row: Instance | None, has: str) -> None:
    """Check the instance type's architecture against the image's, `has` ("" if unknown). Raises ConfigError."""
    if row and has and row.architecture != has:
        raise ConfigError(
            f"the image is for {has}, but {name} is {row.architecture}",
            where="--instance",
            fix=f"choose an image for {row.architecture}: trainwright list --instance {name}",
        )


HERE = ("docker", "ssh")  # launchers that run on this machine
SCHEDULED: dict[str, clusters.Family] = {"slurm": "slurm", "kubernetes": "kubernetes"}
LAUNCHERS = (*HERE, *SCHEDULED, "sagemaker")
LAST_LINES = 15  # of a launcher's output, shown if nothing started
AGAIN_SECONDS = 3
POLL_SECONDS = 5  # interval of polling for the pod of a job
STOP_SECONDS = 60  # time for a launcher to end its containers after Ctrl-C
LINE = re.compile(rb"gate: (\w+) (begins|exited with code \d+|took \d+ s)$|gate: stopped after \d+ s$")


class Subject(Model):
    """The tested image: a reference for the launcher, and the known facts of it."""

    reference: str = ""
    id: str = ""  # of the matrix
    image_json: str = ""
    pins: dict[str, str] = Field(default={})


def subject(root: Path, image: str, on: str, intent: Intent | None = None) -> Subject:
    """Resolve an id of the matrix or any reference to the subject of a test.

    "" means the hosts' own installation for ssh and slurm, and for docker the image that was built. Raises ConfigError
    for an invalid name, NotRunError for an image that was not built or not pushed.
    """
    if not image:
        if on in ("ssh", "slurm"):
            return Subject()
        if on == "docker":
            image = _built(root)
        else:
            raise ConfigError(
                "no image was given", why=f"--on {on} requires one", fix=f"trainwright gate IMAGE --on {on}"
            )
    intent = intent or load_intent(root)
    recipe = intent.find(image)
    if recipe is None:
        made = beyond_the_matrix(root, image)
        here = tags.name_here(made.id, made.key) if made and on == "docker" else ""
        if made and here and engine.answers() and engine.image_id(here):
            return Subject(reference=here, pins=dict(made.versions))
        if made and made.uri:
            return Subject(reference=made.uri, pins=dict(made.versions))
        if made and (root / "out" / image / GRAFT).exists():
            fix = "trainwright graft IMAGE --push --registry <one that the hosts reach>"
            raise NotRunError(f"{image} was not pushed from here", where=f"out/{image}/image.json", fix=fix)
        if not re.search(r"[/:@]", image):
            intent.recipe(image)  # raises ConfigError with similar names
        return Subject(reference=image)
    found = read_image(root / "out" / image)
    reference = found.uri if found else None
    if found and not reference and on == "docker":
        reference = tags.name_here(image, found.key)
    if found is None or not reference:
        why = "other hosts pull it from a registry" if found else f"out/{image}/image.json does not exist"
        fix = f"make build push ONLY={image} REGISTRY=ecr, or another registry that the hosts reach"
        fix += "; or name the image by its address, REPOSITORY@sha256:..., to see the file"
        fix = f"make build ONLY={image}" if on == "docker" else fix
        raise NotRunError(f"{image} was not pushed from here", why=why, fix=fix)
    return Subject(reference=reference, id=image, image_json=f"out/{image}/image.json", pins=dict(found.versions))


def _built(root: Path) -> str:
    """Return the one image with nccl-tests built here. Raises NotRunError for none, ConfigError for several."""
    ids = [one.id for one in load_intent(root).variants if "nccl-tests" in one.pins]
    built = [one for one in ids if read_image(root / "out" / one)]
    if not built:
        raise NotRunError("no image with nccl-tests was built here", fix=f"make build ONLY={ids[0]}")
    if len(built) > 1:
        raise ConfigError(
            "several images with nccl-tests were built here", why=", ".join(built), fix=f"trainwright gate {built[0]}"
        )
    return built[0]


def gpus_here() -> int:
    """Count this machine's GPUs. Raises NotRunError if it has none, or Docker's engine is on another machine."""
    host = os.environ.get("DOCKER_HOST", "")
    if host and not host.startswith("unix://"):
        fix = "run it on that machine, or --on ssh --hosts FILE"
        raise NotRunError("not run: Docker's engine is on another machine", where=host, fix=fix)
    count = len(list(Path("/dev").glob("nvidia[0-9]*")))
    if not count:
        raise NotRunError(
            "not run: this machine has no NVIDIA GPU",
            why="/dev/nvidia0 does not exist",
            fix="run it on a host with GPUs, or emit it for a cluster: --on ssh, slurm, kubernetes or sagemaker",
        )
    return count


def prepare(
    root: Path,
    what: Subject,
    on: str,
    *,
    instance: str,
    nodes: int | None,
    gpus: int | None,
    hosts: Path | None,
    collectives: list[str],
    limit: int | None,
    efa: int | None = None,
    asked: Asked | None = None,
    placement: Placement | None = None,
) -> Run:
    """Validate the options and return the run. Raises ConfigError for options that contradict each other."""
    if on not in LAUNCHERS:
        cluster = clusters.load_kinds(root).clusters.get(on)
        fix = (
            f"--on {cluster.family} --cluster {on}" if cluster else "--on kubernetes" * (on in ("pytorchjob", "mpijob"))
        )
        raise ConfigError(f"unknown launcher {on!r}", where="--on", why=did_you_mean(on, LAUNCHERS), fix=fix)
    names = None
    if hosts:
        names = spec.read_hosts(toml.read(hosts, str(hosts)))
    if on == "ssh" and not names:
        raise ConfigError(
            "no hosts were given", why="--on ssh requires their names", fix="--hosts FILE, one host per line"
        )
    if on != "ssh" and names:
        raise ConfigError(f"--hosts only applies to --on ssh; {on} finds hosts itself", where="--hosts")
    if on == "docker" and (nodes or 1) > 1:
        raise ConfigError("--on docker runs on this machine only", where="--nodes", fix="--on ssh --hosts FILE")
    instances.refuse(root, instance)
    table = instances.load_instances(root)
    check_hosts(what.reference, on, names or [])
    has = load_intent(root).recipe(what.id).base.architecture if what.id else ""
    check_architecture(instance, table.get(instance.removeprefix("ml.")), has)
    stamp, settings = datetime.now(UTC).strftime("%Y%m%d-%H%M%S"), spec.load_settings(root)
    asked, kinds = asked or Asked(), clusters.load_kinds(root)
    if on not in SCHEDULED:
        clusters.refuse_stray(asked, on, "")
    run = spec.make(
        settings,
        table,
        floors.load_floors(root),
        name=spec.name_of(what.id or what.reference, stamp),
        image=what.reference,
        instance=instance,
        nodes=nodes or len(names or [""]),
        gpus=gpus,
        collectives=collectives,
        hosts=names,
        limit=limit,
        efa=efa,
        cluster=clusters.choose(kinds, asked, on, SCHEDULED[on]) if on in SCHEDULED else None,
        kinds=kinds if on in SCHEDULED else None,
        placement=placement,
    )
    if on != "kubernetes":
        _refuse_idle_efa(run, efa, on)
        return run
    clusters.refuse_without_efa(asked, run.efa, run.nodes)
    row = table.get(run.instance)
    found = dra.needed(kinds.claims, run.cluster, on, run.name, run.nodes, run.efa, bool(row and row.imex))
    said = dra.remarks(kinds.claims, found, "mpijob" if run.nodes > 1 else on)
    efa = run.efa if run.nodes > 1 else 0
    said += placements.notes(run.placement, run.cluster, kinds.kueue, run.placement.namespace, efa)
    return run.model_copy(update={"claims": found, "remarks": said})


def _refuse_idle_efa(run: Run, efa: int | None, on: str) -> None:
    """Refuse --efa where nothing requests interfaces and the judge counts none. Raises ConfigError."""
    if efa and (run.nodes == 1 or not run.instance):
        lacks = "--instance" if run.nodes > 1 else "several nodes"
        why = f"--on {on} takes all interfaces of a host; --efa only tells the judge of several hosts of a type"
        fix = f"leave --efa out, or {'--instance TYPE' if run.nodes > 1 else '--nodes 2'}"
        raise ConfigError(f"--efa requires {lacks}", where="--efa", why=why, fix=fix)


def refuse_stray(on: str, said: dict[str, object]) -> None:
    """Refuse options of a training job for launchers that create none, because they would have no effect."""
    given = [option for option, value in said.items() if value]
    if given and on != "sagemaker":
        raise ConfigError(
            f"{given[0]} only applies to training jobs, which --on {on} does not create",
            where=given[0],
            fix="--on sagemaker",
        )


def refuse_without_find(said: dict[str, object]) -> None:
    """Refuse options of a search where none was asked for. Raises ConfigError."""
    for option, value in said.items():
        if value:
            raise ConfigError(f"{option} requires --find", where=option, fix=f"--find {option} ...")


def script(root: Path) -> str:
    return (root / spec.SCRIPT).read_text()


def devices(run: Run) -> list[str]:
    """Return the devices of this machine that a container needs in addition to its GPUs."""
    found = (path for pattern in run.settings.docker.devices for path in Path("/").glob(pattern.lstrip("/")))
    return sorted(str(path) for path in found)


def emit(
    root: Path,
    run: Run,
    on: str,
    role: str = "",
    output: str = "",
    secret: bool = True,
    subnets: list[str] | None = None,
    security_groups: list[str] | None = None,
) -> str:
    """Return the launcher's input. Raises ConfigError.

    Without `secret`, no key is generated, and *** takes its place.
    """
    at = launchers.place(role, output, subnets or [], security_groups or []) if on == "sagemaker" else None
    text = script(root)
    if on == "docker":
        return launchers.docker_script(run, text)
    if on == "ssh":
        return launchers.ssh(run, text)
    if on == "slurm":
        return launchers.slurm(run, text)
    if on == "kubernetes":
        lines = [
            f"nccl-tests of {run.image}",
            *run.remarks,
            "",
            objects.ONCE,
            *launchers.kubernetes_commands(run, "THIS-FILE"),
        ]
        head = "".join(f"# {line}".rstrip() + "\n" for line in lines)
        return head + yaml_text.dump(*launchers.kubernetes(run, text))
    assert at
    row = instances.load_instances(root).get(run.instance)
    key = "" if run.nodes == 1 else ephemeral_key() if secret else "***"
    return launchers.json_text(launchers.sagemaker(run, text, row.sagemaker if row else "", at, key))


def must_not_show_a_key(run: Run, on: str, file: str) -> None:
    """Refuse to print a request with a private key to standard output. Raises ConfigError."""
    if on == "sagemaker" and run.nodes > 1 and file in ("", "-"):
        raise ConfigError(
            "the request contains the private key of the job's containers and is not printed",
            where="--emit",
            fix="--emit FILE, which only you can read; --dry-run shows it without the key",
        )


def ephemeral_key() -> str:
    """Return a new OpenSSH key, as one line. Raises EnvironmentProblem without ssh-keygen."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "key"
        words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "gate", "-f", str(file)]
        call(words, error=EnvironmentProblem, what="cannot create an ssh key", fix="install OpenSSH's client")
        return "".join(line for line in file.read_text().splitlines() if not line.startswith("-----"))


def command(run: Run, on: str) -> str:
    """Return the command that runs here, without the script's text."""
    if on == "docker":
        return f"{shlex.join(launchers.docker(run, devices(run)))} < {spec.SCRIPT}"
    return launchers.ssh(run, f"# {spec.SCRIPT}\n")


def size(run: Run) -> str:
    """Describe for people how many nodes, GPUs and EFA interfaces a run takes; mark a default of one node."""
    nodes = "1 node (EFA is only tested on several nodes: --nodes)" if run.nodes == 1 else f"{run.nodes} nodes"
    efa = f", {run.efa} EFA interfaces each" if run.efa and run.nodes > 1 else ""
    return f"{nodes} with {run.gpus} GPU{'s' if run.gpus > 1 else ''} each{efa}"


def advice(run: Run, on: str, what: Subject, file: str) -> str:
    """Return the commands that submit the file and judge its log."""
    log = f"{run.name}.log"
    words = ["trainwright", "judge", log, "--nodes", str(run.nodes), "--world-size", str(run.ranks)]
    words += ["--instance", run.instance] if run.instance else []
    words += ["--nics", str(run.nics)] if run.nics else []
    words += ["--pins", what.image_json] if what.image_json else []
    words += ["--record", what.id] if what.id and run.instance else []
    submitted = launchers.kubernetes_commands(run, file) if on == "kubernetes" else []
    fetch = {
        "slurm": [f"sbatch {file}"],
        "kubernetes": [
            *submitted,
            # The pod appears some seconds later, and its image is pulled some minutes later.
            # The loop ends after the job's own time limit, when no log can come any more.
            f"for try in $(seq {-(-run.seconds // POLL_SECONDS)}); do "
            f"{objects.kubectl(run.placement.namespace)} logs --follow job/{_job(run)} > {log} "
            f"&& break; sleep {POLL_SECONDS}; done",
        ],
        "sagemaker": [
            f"aws sagemaker create-training-job --cli-input-json file://{file}",
            f"aws sagemaker wait training-job-completed-or-stopped --training-job-name {run.name}",
            f"aws logs tail /aws/sagemaker/TrainingJobs --since 1d --format short "
            f"--log-stream-name-prefix {run.name}/algo-1- > {log}",
        ],
    }.get(on, [f"bash {file} > {log}"])
    return "\n".join([f"# {line}" for line in (size(run), *run.remarks)] + [*fetch, shlex.join(words)])


def _job(run: Run) -> str:
    return run.name if run.nodes == 1 else f"{run.name}-launcher"


def execute(root: Path, run: Run, on: str, say: Callable[[str], None], log: Path | None = None) -> tuple[Path, int]:
    """Run the gate, and return the path of its log and its exit code. The log is written completely or not at all.

    Raises EnvironmentProblem if nothing started: a missing program or image, no GPU runtime in Docker, an unreachable
    host.
    """
    for program in {"docker": ["docker"], "ssh": ["ssh", "ssh-keygen"]}[on]:
        if not shutil.which(program):
            raise EnvironmentProblem(
                f"{program} is not installed on this machine", fix=f"install it, or --on {on} --emit FILE"
            )
    log = log or root / "out/gate" / f"{run.name}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    words = ["bash", "-c", emit(root, run, on)]
    with tempfile.NamedTemporaryFile(dir=log.parent, prefix=f".{log.name}.", delete=False) as file:
        partial = Path(file.name)
        child = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            assert child.stdout
            begun, last = False, deque[bytes](maxlen=LAST_LINES)
            for line in iter(child.stdout.readline, b""):
                file.write(line)
                begun = begun or line.startswith(b"gate: ")
                last.append(line)
                if LINE.match(line.rstrip()):
                    say(line.decode().strip().removeprefix("gate: "))
            code = child.wait()
            if not begun:
                why = b"".join(last).decode(errors="replace").strip() or f"exit code {code} without output"
                fix = f"docker run --rm --gpus all {run.image} nvidia-smi" if on == "docker" else "ssh to each host"
                raise EnvironmentProblem("the gate did not start", where=f"--on {on}", why=why, fix=fix)
            file.close()
            partial.chmod(0o644)
            partial.replace(log)
        finally:
            _stop(child)
            partial.unlink(missing_ok=True)
            if on == "docker":
                subprocess.run(["docker", "rm", "--force", "--volumes", run.name], capture_output=True)
    return log, code


def _stop(child: "subprocess.Popen[bytes]") -> None:
    """Stop the whole process group: SIGINT first, so that it ends what it started elsewhere, and SIGKILL at last.

    Because bash forgets an interrupt that arrives while the command it waits for ends by itself, SIGINT is sent twice.
    """
    for number, seconds in ((signal.SIGINT, AGAIN_SECONDS), (signal.SIGINT, STOP_SECONDS), (signal.SIGKILL, None)):
        if child.poll() is not None:
            return
        with suppress(ProcessLookupError):
            os.killpg(child.pid, number)
        with suppress(subprocess.TimeoutExpired):
            child.wait(seconds)


def judged(root: Path, run: Run, what: Subject, log: Path, code: int) -> list[Verdict]:
    declared = Declared(
        world_size=run.ranks, nodes=run.nodes, instance=run.instance, exit_code=code, pins=what.pins, nics=run.nics
    )
    return read.verdicts(root, [str(log)], declared)
