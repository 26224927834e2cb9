"""The command that runs a training job on this machine."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, TextIO

import typer

from trainwright.commands.options import Distribution, Hyperparameter, Json, Script, app, find_root

COLOURS = (36, 33, 35, 32, 34, 31)  # of a terminal, one host after the other
Pairs = list[str] | None


@app.command(context_settings={"ignore_unknown_options": True})
def run(
    context: typer.Context,
    image: Annotated[str, typer.Argument(metavar="IMAGE", help="Id of an image built here, or any reference.")],
    script: Script,
    words: Annotated[
        Pairs,
        typer.Argument(metavar="[--NAME VALUE]...", help="Hyperparameters; put -- before one that is also an option."),
    ] = None,
    hosts: Annotated[int, typer.Option("--nodes", min=1, help="Number of hosts, which are containers.")] = 1,
    processes: Annotated[int, typer.Option(min=1, metavar="N", help="Ranks per host.")] = 1,
    distribution: Distribution = "",
    hyperparameter: Hyperparameter = None,
    channel: Annotated[
        Pairs, typer.Option(metavar="NAME=FOLDER", help="Read-only input data; repeat for more.")
    ] = None,
    env: Annotated[
        Pairs, typer.Option("--env", metavar="NAME=VALUE", help="Environment variable of the job; repeat for more.")
    ] = None,
    checkpoints: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="Folder for /opt/ml/checkpoints of all hosts; its files are there at the start."
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Folder that receives model, output and checkpoints of each host."),
    ] = None,
    gpus: Annotated[bool, typer.Option("--gpus", help="Give every host all GPUs of this machine.")] = False,
    grace: Annotated[
        int | None, typer.Option(min=0, metavar="SECONDS", help="Time from SIGTERM to SIGKILL; default: SageMaker's.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Run a distributed script on this machine. Uses the real image and SageMaker's contract, a container per host."""
    from trainwright.core import console
    from trainwright.jobs import run as jobs_run

    job = jobs_run.job(
        find_root(),
        image,
        script,
        words or [],
        [name[2:] for param in context.command.params for name in param.opts if name.startswith("--")],
        hosts=hosts,
        processes=processes,
        distribution=distribution,
        hyperparameters=hyperparameter or [],
        channels=channel or [],
        environment=env or [],
        checkpoints=checkpoints,
        gpus=gpus,
        grace=grace,
    )
    outcome = jobs_run.run(job, _line(hosts, sys.stderr if as_json else sys.stdout), output)
    rows = [one.model_dump() for one in outcome.hosts]
    if as_json:
        console.data(rows)
    else:
        print()
        console.show(
            [{**row, "seconds": f"{row['seconds']:.1f}", "failure": _first(row["failure"])} for row in rows], False
        )
    if outcome.interrupted:
        raise typer.Exit(130)
    jobs_run.refuse(outcome)


def _first(text: str) -> str:
    return text.splitlines()[0] if text else ""


def _line(hosts: int, to: TextIO) -> Callable[[str, str], None]:
    """Return a function that prints a line of a host after its name; on a terminal each name has its own colour."""
    coloured = to.isatty() and not os.environ.get("NO_COLOR")
    width = len(f"algo-{hosts}")

    def line(host: str, text: str) -> None:
        name = f"{host or 'run':<{width}} |"
        if coloured and host:
            name = f"\033[{COLOURS[int(host.rpartition('-')[2]) % len(COLOURS)]}m{name}\033[0m"
        to.write(f"{name} {text}\n")  # in one write, because every host has its own thread
        to.flush()

    return line
