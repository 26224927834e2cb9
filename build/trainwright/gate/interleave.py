"""Run two images in turn in one allocation, A B B A, each run with a separate log, and compare the logs."""

import math
import shlex
from collections.abc import Callable
from pathlib import Path

from trainwright.core.errors import ConfigError, NotRunError, did_you_mean
from trainwright.core.toml import Model
from trainwright.gate import floors, launchers, measure, regression, spec
from trainwright.gate import run as gate_run
from trainwright.gate.case import Declared
from trainwright.gate.regression import Compared
from trainwright.gate.spec import Run

ON = ("docker", "ssh", "slurm")
WHY = {
    "sagemaker": "a training job runs one image, and two jobs get two allocations",
    "kubernetes": "each image runs in a separate job, which may be scheduled on other nodes",
}
FIX = f"--on {', '.join(ON[:-1])} or {ON[-1]}"


class Pair(Model):
    """Two runs, and their order."""

    name: str
    a: Run
    b: Run
    order: list[str]  # of A and B

    @property
    def turns(self) -> list[str]:
        """Return the name of each run's log: 01-a, 02-b, ..."""
        return [f"{number:02}-{image.lower()}" for number, image in enumerate(self.order, 1)]

    @property
    def seconds(self) -> int:
        return len(self.order) * self.a.seconds


def check(root: Path, on: str, count: int | None) -> int:
    """Return the number of runs of each image. Raises ConfigError for a launcher without one allocation for both."""
    if on in WHY:
        raise ConfigError(f"--on {on} cannot run two images in turn", where="--against", why=WHY[on], fix=FIX)
    if on not in ON:
        raise ConfigError(f"unknown launcher {on!r}", where="--on", why=did_you_mean(on, gate_run.LAUNCHERS))
    least = floors.load_floors(root).comparison.least_runs
    count = spec.load_settings(root).against.runs if count is None else count
    if count < least or count % 2:
        why = (
            f"a comparison requires at least {least} runs of each image"
            if count < least
            else "only an even number spreads a drift equally over both images"
        )
        raise ConfigError(
            f"--runs {count} is not valid", where="--runs", why=why, fix=f"--runs {least}, or any larger even number"
        )
    return count


def pair(a: Run, b: Run, count: int) -> Pair:
    name = a.name
    first, second = (run.model_copy(update={"name": f"{name}-{image}"}) for run, image in ((a, "a"), (b, "b")))
    return Pair(name=name, a=first, b=second, order=regression.abba(count))


def emit(root: Path, both: Pair, on: str, script: str = "") -> str:
    """Return one script, or file for sbatch, that runs all turns. `script` "" means scripts/gate.sh."""
    text = script or gate_run.script(root)
    emitter = {"docker": launchers.docker_script, "ssh": launchers.ssh, "slurm": launchers.slurm_script}[on]
    title = f"nccl-tests of A, {_named(both.a)}, and B, {_named(both.b)}, in turn: {''.join(both.order)}"
    options = launchers.slurm_options(both.a, both.name, both.seconds, [both.a, both.b]) if on == "slurm" else ""
    return launchers.in_turn(both.name, title, options, (emitter(both.a, text), emitter(both.b, text)), both.turns)


def _named(run: Run) -> str:
    return run.image or "what the hosts have"


def execute(root: Path, both: Pair, on: str, say: Callable[[str], None]) -> Path:
    """Run all turns here; return the folder of their logs. Raises EnvironmentProblem; NotRunError if a run failed."""
    folder = root / "out/gate" / both.name
    for number, turn in enumerate(both.turns, 1):
        say(f"run {turn}, {number} of {len(both.order)}")
        run = both.a if turn.endswith("a") else both.b
        log, code = gate_run.execute(root, run, on, say, folder / f"{turn}.log")
        if code:
            raise NotRunError(
                f"not established: a run ended with code {code}",
                where=str(log),
                why="the log of a failed run has no valid speed, and the later runs were not started",
                fix=f"trainwright judge {log} --nodes {run.nodes} --exit-code {code}",
            )
    return folder


def compared(root: Path, both: Pair, on: str, folder: Path) -> Compared:
    """Compare the logs of both images. Raises ConfigError, and NotRunError for logs that prove nothing."""
    declared = Declared(instance=both.a.instance, nodes=both.a.nodes, world_size=both.a.ranks, nics=both.a.nics)
    a, b = (sorted(map(str, folder.glob(f"*-{image}.log"))) for image in "ab")
    return measure.compare(root, a, b, declared, same_hosts=on == "docker")  # each container has another host name


def advice(both: Pair, on: str, file: str) -> str:
    """Return the commands that start the file and compare its logs."""
    words = ["trainwright", "compare", "--a", f"{both.name}/*-a.log", "--b", f"{both.name}/*-b.log"]
    words += ["--nodes", str(both.a.nodes), "--world-size", str(both.a.ranks)]
    words += ["--instance", both.a.instance] if both.a.instance else []
    words += ["--nics", str(both.a.nics)] if both.a.nics else []
    words += ["--same-hosts"] if on == "docker" else []
    hours = math.ceil(both.seconds / 3600)
    each = f"{len(both.order) // 2} runs of each image"
    return "\n".join(
        [
            f"# {gate_run.size(both.a)}",
            f"# {each}, at most {hours} hours: --collective, --limit and --runs reduce it",
            f"sbatch {file}" if on == "slurm" else f"bash {file}",
            shlex.join(words),
        ]
    )
