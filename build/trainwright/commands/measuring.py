"""Commands that hold runs of nccl-tests against each other."""

from typing import TYPE_CHECKING, Annotated

import typer

from trainwright.commands.options import Json, app, find_root

if TYPE_CHECKING:
    from trainwright.regressions import Compared, Difference, Spread

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
    from trainwright import measuring, report
    from trainwright.witnesses import Declared

    declared = Declared(instance=instance, nodes=nodes, collective=collective)
    found = measuring.record(find_root(), name, logs, declared, unproved, replace)
    if as_json:
        report.data(found.model_dump(mode="json"))
        return
    typer.echo(f"dockerfiles/baselines/{name}.toml: {len(found.points)} sizes of {len(logs)} logs; commit it")


@baseline.command("list")
def list_(as_json: Json = False) -> None:
    """Every baseline that was recorded."""
    from trainwright import baselines, report

    found = [baselines.read(find_root(), name) for name in baselines.names(find_root())]
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
    report.show(rows, as_json)
    if not rows:
        typer.echo(
            "no baseline was recorded yet: trainwright baseline record <name> <logs of nccl-tests>, and commit it",
            err=True,
        )


@app.command()
def compare(
    a: Annotated[
        list[str],
        typer.Option(
            "--a", metavar="LOG", help="Of the image that is known: a file, a folder, a quoted pattern; repeat it."
        ),
    ],
    b: Annotated[list[str], typer.Option("--b", metavar="LOG", help="Of the image that may be slower.")],
    instance: Annotated[str, typer.Option(metavar="TYPE", help="p5.48xlarge: which sizes its floors name.")] = "",
    nodes: Annotated[int | None, typer.Option(min=1, help="Hosts that they ran on.")] = None,
    world_size: Annotated[int | None, typer.Option(min=1, help="Ranks that were started.")] = None,
    nics: Annotated[
        int | None, typer.Option(min=1, help="EFA interfaces of a host, where they are fewer than the type has.")
    ] = None,
    collective: Annotated[str, typer.Option(help="all_reduce, ...: where a log does not say it.")] = "",
    same_hosts: Annotated[bool, typer.Option(help="They are: only pods or containers have other names.")] = False,
    small: Annotated[bool, typer.Option("--small", help="Show small messages, too; they decide nothing.")] = False,
    as_json: Json = False,
) -> None:
    """Whether one image is slower than another, by runs of both in one allocation (6: it is; 7: not established).

    Run them interleaved, A B B A A B B A: ten of each find a loss of 5% behind noise of 2%.
    """
    from trainwright import measuring, report
    from trainwright.witnesses import Declared

    declared = Declared(instance=instance, nodes=nodes, world_size=world_size, nics=nics, collective=collective)
    found = measuring.compare(find_root(), a, b, declared, same_hosts)
    if as_json:
        report.data(found.model_dump())
    else:
        show(found, small)
    measuring.refuse(found)


def show(found: "Compared", small: bool = False) -> None:
    from trainwright import report

    shown = [one for one in found.differences if small or one.state != "small message"]
    report.show([_row(one) for one in shown], as_json=False)
    typer.echo(f"\n{found.verdict}: {found.why}")


def _row(one: "Difference") -> dict[str, str]:
    from trainwright import charts

    bounds = "" if one.low is None or one.high is None else f" ({one.low * 100:+.1f}..{one.high * 100:+.1f})"
    return {
        "collective": one.collective,
        "size": charts.size_text(one.size),
        "column": one.side.removesuffix(" of place").removesuffix(" place"),
        "A": _spread(one.a),
        "B": _spread(one.b),
        "B against A": "missing" if one.change is None else f"{one.change:+.1%}{bounds}",
        "state": one.state,
    }


def _spread(one: "Spread") -> str:
    return f"{one.median:.4g} ±{one.deviation / one.median:.1%}" if one.runs else "missing"
