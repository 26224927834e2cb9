"""Prepare a search: which hosts there are, by each launcher, and what of them can be told apart."""

import math
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from trainwright.core import yaml_text
from trainwright.core.errors import ConfigError, EnvironmentProblem, NotRunError
from trainwright.core.process import run as call
from trainwright.gate import baseline, launchers, spec
from trainwright.gate.find import launch, topology
from trainwright.gate.find.model import FILE, Cluster, Settings
from trainwright.gate.spec import Run
from trainwright.schedulers.kubernetes import kubectl

ALLOCATION = "SLURM_JOB_NODELIST"
HOSTFILE = "/etc/mpi/hostfile"
NODES = '{range .items[*]}{.metadata.name} {.spec.nodeName}{"\n"}{end}'
WAITS = "sleep {seconds}\n"  # the script of a job whose pods wait to be measured


def check(on: str, nodes: int | None, together: dict[str, object], unused: dict[str, object]) -> None:
    """Refuse what a search cannot do: options that exclude it, and those it does not use. Raises ConfigError."""
    if on == "sagemaker":
        raise ConfigError(
            "--on sagemaker cannot find a host",
            where="--find",
            why="a training job gets other hosts each time, so that a round cannot measure those of the round before",
            fix="--on ssh, slurm or kubernetes; a HyperPod cluster has slurm or kubernetes",
        )
    for option, value in together.items():
        if value:
            raise ConfigError(
                f"{option} and --find exclude each other",
                where=option,
                why="each round of a search depends on the results of the rounds before",
                fix="run the command where it reaches the hosts: for slurm inside of salloc or sbatch",
            )
    for option, value in unused.items():
        if value not in (None, "", []):
            raise ConfigError(
                f"{option} has no effect with --find",
                where=option,
                why=f"a search has the sweep and limits of {FILE}, and on slurm the nodes of the allocation",
                fix=f"leave {option} out",
            )
    if on == "kubernetes" and (nodes or 1) < 2:
        raise ConfigError(
            "a search requires two hosts at least",
            where="--on kubernetes",
            why=f"--nodes {nodes or 1}",
            fix="--nodes N",
        )


def allocated(nodes: int | None = None) -> list[str]:
    """Return the nodes of Slurm's allocation. Raises ConfigError outside of one, and for one of other than `nodes`."""
    listed = os.environ.get(ALLOCATION, "")
    if not listed:
        raise ConfigError(
            "--find --on slurm requires an allocation",
            where="--on slurm",
            why=f"{ALLOCATION} is not set: the steps of all rounds run in one allocation, side by side",
            fix="salloc --nodes=N --exclusive trainwright gate --find --on slurm ..., or that in a file for sbatch; "
            "for --dry-run: --nodes N",
        )
    found = call(
        ["scontrol", "show", "hostnames", listed], error=EnvironmentProblem, what="Slurm does not name the nodes"
    ).split()
    if nodes and nodes != len(found):
        why = f"the allocation has {len(found)} nodes, and a search takes all of them"
        raise ConfigError(f"--nodes {nodes} differs from the allocation", where="--nodes", why=why, fix="leave it out")
    return found


def named(whole: Run, on: str) -> list[str]:
    """Return the hosts for a plan: of an allocation or a job that does not exist yet they have numbers."""
    return whole.hosts or ([f"node{number}" for number in range(whole.nodes)] if on != "docker" else [])


def cluster(whole: Run, on: str, file: Path | None, hosts: list[str] | None = None) -> tuple[Cluster, list[str]]:
    """Return the hosts of a run and the names of their racks. Raises ConfigError, NotRunError."""
    names = hosts or whole.hosts
    if on == "docker":
        names = [f"gpu{number}" for number in range(whole.gpus)]
        if len(names) < 2:
            raise NotRunError("not run: one GPU has no other one to be compared with", where="--on docker")
    elif len(names) < 2:
        raise ConfigError(
            "a search requires two hosts at least", where="--find", why=f"{len(names)} named", fix="--hosts FILE"
        )
    spec.each_once(names, "--find")
    racks, rack_names = topology.racks(file, names) if file else ((), [])
    by_hosts = on != "docker"
    # A single GPU has a busbw of zero, and the pod that launches has none.
    alone = by_hosts and whole.gpus > 1 and on != "kubernetes"
    return Cluster(tuple(names), racks, whole.gpus if by_hosts else 1, alone), rack_names


def expected(root: Path, name: str, whole: Run, settings: Settings) -> float:
    """Return the logarithm of a pair's busbw in a baseline. Raises ConfigError if that is of other hosts."""
    held, where = baseline.read(root, name), f"--baseline {name}"
    if held.instance != whole.instance:
        raise ConfigError(
            f"the baseline is of {held.instance}, and these hosts are {whole.instance or 'of an unknown type'}",
            where=where,
            fix="--instance TYPE and a baseline of it, or none: a search compares the hosts with each other",
        )
    if held.nodes != 2:
        raise ConfigError(f"the baseline is of {held.nodes} nodes", where=where, why="a search measures pairs")
    points = [
        point
        for algorithm in (settings.environment.get("NCCL_ALGO", "").lower(), "any")
        for point in held.points_of(settings.run.collective, algorithm, settings.run.least)
        if point.size <= settings.run.most
    ]
    if not points:
        why = f"it has no {settings.run.collective} of {settings.run.least} bytes and more"
        raise ConfigError("the baseline has nothing to compare with", where=where, why=why)
    return sum(math.log(speed) for one in points for speed in (one.out_of_place, one.in_place)) / (2 * len(points))


def folder(root: Path, name: str, asked: Path | None) -> Path:
    return asked or root / "out/gate" / f"find-{name.removeprefix('gate-')}"


def seconds(whole: Run, settings: Settings) -> int:
    """Return the longest time that a search can take: all its rounds, each with a run and those of every rail."""
    rails = (None, *(range(whole.gpus) if whole.gpus > 1 else ()))
    runs = [launch.part(whole, ["a", "b"], "kubernetes", settings, whole.name, rail).seconds for rail in rails]
    turns = math.ceil(whole.nodes / 2 / settings.run.side_by_side)
    return settings.rounds.most * turns * sum(runs)


@contextmanager
def pods(whole: Run, settings: Settings, say: Callable[[str], None]) -> Iterator[tuple[str, dict[str, str]]]:
    """Start a job whose pods wait, and remove it at the end. Yields its name, and each node with its worker."""
    longest = seconds(whole, settings)
    waiting = whole.model_copy(update={"sweep": whole.sweep.model_copy(update={"limit": longest})})
    manifests = launchers.kubernetes(waiting, WAITS.format(seconds=longest))
    command = kubectl(whole.placement.namespace).split()
    text = yaml_text.dump(*manifests)
    try:
        call([*command, "create", "-f", "-"], error=EnvironmentProblem, what="the job was not created", stdin=text)
        selected = f"--selector=training.kubeflow.org/job-name={whole.name}"
        # The job has this condition once all its pods run; pods themselves can be waited for only where they exist.
        ready = f"--timeout={settings.run.ready}s"
        call(
            [*command, "wait", f"mpijob/{whole.name}", "--for=condition=Running", ready],
            error=EnvironmentProblem,
            what="the pods of the search did not start",
            fix=" ".join([*command, "describe", "pods", selected]),
        )
        listed = call(
            [*command, "exec", f"job/{whole.name}-launcher", "--", "cat", HOSTFILE],
            error=EnvironmentProblem,
            what="the launcher does not name its workers",
        )
        placed = call(
            [*command, "get", "pods", selected, f"--output=jsonpath={NODES}"],
            error=EnvironmentProblem,
            what="the nodes of the workers are unknown",
        )
        yield whole.name, by_node(listed.splitlines(), placed.splitlines())
    finally:
        try:
            call(
                [*command, "delete", "--ignore-not-found", "--wait=false", "-f", "-"],
                error=EnvironmentProblem,
                what="the job of the search was not removed",
                stdin=text,
            )
        except EnvironmentProblem as error:  # it must hide neither the answer nor an error of the search
            objects = [f"{one['kind'].lower()}/{one['metadata']['name']}" for one in manifests]
            say(f"{error}; to remove it: {' '.join([*command, 'delete', *objects])}")


@contextmanager
def containers(whole: Run, settings: Settings) -> Iterator[None]:
    """Remove at the end the containers that pyxis keeps on the nodes of an allocation."""
    try:
        yield
    finally:
        named = f"pyxis_{whole.name}-{os.environ.get('SLURM_JOB_ID', '')}"
        nodes = [f"--nodes={whole.nodes}", f"--ntasks={whole.nodes}", "--ntasks-per-node=1"]
        words = ["timeout", str(settings.run.wait), "srun", *nodes, "enroot", "remove", "--force", named]
        with suppress(EnvironmentProblem):  # pyxis may have done it
            call(words, error=EnvironmentProblem, what="the containers of the search were not removed")


def by_node(hostfile: Sequence[str], placed: Sequence[str]) -> dict[str, str]:
    """Return the worker of each node, sorted by node. Raises EnvironmentProblem where two share one."""
    nodes = {pod: node for pod, _, node in (line.partition(" ") for line in placed)}
    workers = [line.split()[0].partition(":")[0] for line in hostfile if line.strip()]
    found = {nodes.get(worker.partition(".")[0], ""): worker for worker in workers}
    if "" in found or len(found) != len(workers):
        raise EnvironmentProblem(
            "the workers are not on nodes of their own",
            where="--on kubernetes",
            why=f"{len(workers)} workers, nodes {', '.join(sorted(filter(None, found))) or 'unknown'}",
            fix="--gpus with all GPUs of a node",
        )
    return dict(sorted(found.items()))
