"""The command `trainwright baseline`."""

from typing import Annotated

import typer

from trainwright.commands.options import Json, app, find_root

baseline = typer.Typer(no_args_is_help=True, help="How fast an image was, for later runs: `judge --baseline`.")
app.add_typer(baseline, name="baseline")


@baseline.command()
def record(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Of the file: dockerfiles/baselines/NAME.toml.")],
    logs: Annotated[list[str], typer.Argument(metavar="LOG...", help="Of one image; the median over them counts.")],
    instance: Annotated[str, typer.Option(metavar="TYPE", help="p5.48xlarge: where they ran.")] = "",
    nodes: Annotated[int | None, typer.Option(min=1, help="On how many of them.")] = None,
    collective: Annotated[str, typer.Option(help="all_reduce, ...: where a log does not say it.")] = "",
    unproved: Annotated[bool, typer.Option(help="Also of logs that the judge does not pass.")] = False,
    replace: Annotated[bool, typer.Option("--replace", help="In place of the one that has this name.")] = False,
    as_json: Json = False,
) -> None:
    """Write down how fast an image is; commit the file."""
    from trainwright.core import console
    from trainwright.gate import measure
    from trainwright.gate.evidence import Declared

    declared = Declared(instance=instance, nodes=nodes, collective=collective)
    found = measure.record(find_root(), name, logs, declared, unproved, replace)
    if as_json:
        console.data(found.model_dump(mode="json"))
        return
    typer.echo(f"dockerfiles/baselines/{name}.toml: {len(found.points)} sizes of {len(logs)} logs; commit it")


@baseline.command("list")
def list_(as_json: Json = False) -> None:
    """Every baseline that was recorded."""
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
