"""The command `trainwright baseline`."""

from typing import Annotated

import typer

from trainwright.commands.options import Json, app, find_root
from trainwright.core.progress import counted

baseline = typer.Typer(
    no_args_is_help=True, help="Record how fast an image is. `judge --baseline` compares later runs."
)
app.add_typer(baseline, name="baseline")


@baseline.command()
def record(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the file dockerfiles/baselines/NAME.toml.")],
    logs: Annotated[list[str], typer.Argument(metavar="LOG...", help="Logs of one image; their median is recorded.")],
    instance: Annotated[str, typer.Option(metavar="TYPE", help="Instance type of the runs, such as p5.48xlarge.")] = "",
    nodes: Annotated[int | None, typer.Option(min=1, help="Number of hosts of the runs.")] = None,
    collective: Annotated[str, typer.Option(help="Collective, such as all_reduce, if a log does not name it.")] = "",
    unproved: Annotated[bool, typer.Option(help="Accept logs that `judge` does not pass.")] = False,
    replace: Annotated[bool, typer.Option("--replace", help="Replace the baseline of this name.")] = False,
    as_json: Json = False,
) -> None:
    """Record how fast an image is, as a file to commit."""
    from trainwright.core import console
    from trainwright.gate import measure
    from trainwright.gate.case import Declared

    declared = Declared(instance=instance, nodes=nodes, collective=collective)
    found = measure.record(find_root(), name, logs, declared, unproved, replace)
    if as_json:
        console.data(found.model_dump(mode="json"))
        return
    sizes, of = counted(len(found.points), "size"), counted(len(logs), "log")
    typer.echo(f"dockerfiles/baselines/{name}.toml: {sizes} of {of}; commit it")


@baseline.command("list")
def list_(as_json: Json = False) -> None:
    """List the recorded baselines."""
    from trainwright.core import console
    from trainwright.gate import baseline as gate_baseline

    found = [gate_baseline.read(find_root(), name) for name in gate_baseline.names(find_root())]
    rows = [
        {
            "name": one.name,
            "instance": one.instance,
            "nodes": one.nodes,
            "collectives": ", ".join(sorted({point.collective for point in one.points})),
            "day": str(one.day),
            "proved": one.proved,
            "digest": one.digest,
        }
        for one in found
    ]
    console.show(rows, as_json)
    if not rows:
        typer.echo(
            "no baseline was recorded yet: trainwright baseline record <name> <logs of nccl-tests>, and commit it",
            err=True,
        )
