"""The command `trainwright estimate`."""

from typing import Annotated

import typer

from trainwright.commands.options import Json, app, find_root


@app.command()
def estimate(
    parameters: Annotated[
        str, typer.Option(metavar="NUMBER", help="Number of parameters with a gradient: 7B, 350M, 7e9.")
    ],
    instance: Annotated[str, typer.Option(metavar="TYPE", help="Instance type, such as p5.48xlarge.")],
    nodes: Annotated[int, typer.Option(min=1, help="Number of instances.")] = 2,
    precision: Annotated[str, typer.Option(help="Precision of the gradients: fp32, bf16, fp16 or fp8.")] = "bf16",
    busbw: Annotated[
        float | None, typer.Option(min=0.001, metavar="GB/S", help="Measured bus bandwidth; default: the floor.")
    ] = None,
    step: Annotated[
        float | None, typer.Option(min=1e-6, metavar="SECONDS", help="Duration of a step without communication.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Estimate communication in data-parallel training. Shows bytes and time per step over EFA and TCP."""
    from trainwright.core import console
    from trainwright.gate import floors
    from trainwright.jobs import estimate as job_estimate
    from trainwright.matrix import instances

    root = find_root()
    instances.refuse(root, instance)
    rows = instances.load_instances(root)
    name = instance.removeprefix("ml.")
    if name not in rows:
        raise instances.unknown(name, rows, "--instance")
    count = job_estimate.parameters(parameters)
    found = job_estimate.estimate(count, precision, name, rows[name], nodes, floors.load_floors(root), busbw, step)
    if as_json:
        console.data(found.model_dump())
        return
    typer.echo(
        f"{found.ranks} ranks; gradients {console.human(found.gradients)}; "
        f"each rank sends {console.human(found.sent)} per step (2(N-1)/N of them)"
    )
    shown = [
        {
            "over": way.over,
            "busbw": f"{way.busbw:g} GB/s",
            "time": f"{way.seconds * 1000:.1f} ms",
            "efficiency": _percent(way.efficiency),
            "all hidden": _percent(way.efficiency_overlapped),
            "by": way.basis,
        }
        for way in found.ways
    ]
    console.show([{name: value for name, value in row.items() if value} for row in shown], as_json=False)


def _percent(share: float | None) -> str:
    return "" if share is None else f"{share:.1%}"
