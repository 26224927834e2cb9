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
            "--a", metavar="LOG", help="Logs of the known image: a file, a folder, a quoted pattern; repeat for more."
        ),
    ],
    b: Annotated[list[str], typer.Option("--b", metavar="LOG", help="Logs of the image that may be slower.")],
    instance: Annotated[
        str, typer.Option(metavar="TYPE", help="Instance type, such as p5.48xlarge; its floors name the sizes.")
    ] = "",
    nodes: Annotated[int | None, typer.Option(min=1, help="Number of hosts of the runs.")] = None,
    world_size: Annotated[int | None, typer.Option(min=1, help="Number of ranks that were started.")] = None,
    nics: Annotated[
        int | None, typer.Option(min=1, help="EFA interfaces per host, if fewer than the type has.")
    ] = None,
    collective: Annotated[str, typer.Option(help="Collective, such as all_reduce, if a log does not name it.")] = "",
    same_hosts: Annotated[
        bool, typer.Option(help="The hosts are the same, although pods or containers have other names.")
    ] = False,
    small: Annotated[
        bool, typer.Option("--small", help="Also show small messages, which the verdict ignores.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Compare the speed of two images. Exits 6 if B is slower, 7 if that could not be established.

    Run both in one allocation, interleaved as A B B A A B B A: ten runs of each detect a loss of 5% at 2% noise.
    """
    from trainwright.core import console
    from trainwright.gate import measure
    from trainwright.gate.case import Declared

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
    from trainwright.gate.reports import charts

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
