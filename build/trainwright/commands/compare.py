"""The command `trainwright compare`."""

from typing import TYPE_CHECKING, Annotated

import typer

from trainwright.commands.options import Json, app, find_root

if TYPE_CHECKING:
    from trainwright.gate.regression import Compared, Difference, Spread


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
    from trainwright.core import console
    from trainwright.gate import measure
    from trainwright.gate.evidence import Declared

    declared = Declared(instance=instance, nodes=nodes, world_size=world_size, nics=nics, collective=collective)
    found = measure.compare(find_root(), a, b, declared, same_hosts)
    if as_json:
        console.data(found.model_dump())
    else:
        show(found, small)
    measure.refuse(found)


def show(found: "Compared", small: bool = False) -> None:
    from trainwright.core import console

    shown = [one for one in found.differences if small or one.state != "small message"]
    console.show([_row(one) for one in shown], as_json=False)
    typer.echo(f"\n{found.verdict}: {found.why}")


def _row(one: "Difference") -> dict[str, str]:
    from trainwright.gate import charts

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
