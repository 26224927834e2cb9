"""The command `trainwright judge`."""

from pathlib import Path
from typing import Annotated

import typer

from trainwright.commands.options import Json, Logs, app, find_root


@app.command()
def judge(
    logs: Logs,
    world_size: Annotated[int | None, typer.Option(min=1, help="Number of ranks that were started.")] = None,
    nodes: Annotated[int | None, typer.Option(min=1, help="Number of hosts of the runs.")] = None,
    instance: Annotated[
        str, typer.Option(metavar="TYPE", help="Instance type, such as p5.48xlarge: sets NICs, GPUDirect and floors.")
    ] = "",
    nics: Annotated[
        int | None, typer.Option(min=1, help="EFA interfaces per host, if fewer than the type has.")
    ] = None,
    exit_code: Annotated[int | None, typer.Option(help="Exit code of the run.")] = None,
    collective: Annotated[str, typer.Option(help="Collective, such as all_reduce, if the log does not name it.")] = "",
    pins: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VERSION|FILE", help="Expected versions: nccl=2.30.7, or an image.json; repeat for more."
        ),
    ] = None,
    record: Annotated[
        str, typer.Option(metavar="ID", help="Record in dockerfiles/gates/ that this image passed.")
    ] = "",
    baseline: Annotated[
        str, typer.Option(metavar="NAME", help="Fail if slower than this baseline of dockerfiles/baselines/.")
    ] = "",
    tolerance: Annotated[
        float | None, typer.Option(min=0.001, max=0.999, help="Allowed loss against the baseline; 0.05 is 5%.")
    ] = None,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write one self-contained page with charts.")
    ] = None,
    png: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the charts as a picture.")] = None,
    junit: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write JUnit XML: a suite per log, a case per check.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Judge logs of nccl-tests. Exits 6 if they prove a failure, 7 if they are incomplete or no floor is known."""
    from trainwright.core import console
    from trainwright.core.errors import ConfigError, TrainwrightError
    from trainwright.gate import baseline as gate_baseline
    from trainwright.gate import read
    from trainwright.gate.case import Declared
    from trainwright.gate.reports import verdicts

    if tolerance is not None and not baseline:
        why = "a tolerance is the allowed loss against a baseline"
        raise ConfigError("--tolerance requires --baseline", where="--tolerance", why=why, fix="--baseline NAME")
    recipe = read.recordable(find_root(), record, logs) if record else None
    declared = Declared(
        world_size=world_size,
        nodes=nodes,
        instance=instance,
        nics=nics,
        exit_code=exit_code,
        collective=collective,
        pins=read.pins(pins or []),
    )
    known = gate_baseline.read(find_root(), baseline, tolerance) if baseline else None
    if known and not known.proved:
        typer.echo(
            f"the baseline {baseline} is unproved: it was recorded from logs that `judge` did not pass", err=True
        )
    examined = read.examined(find_root(), logs, declared, known)
    found = [verdict for verdict, _ in examined]
    verdicts.write(examined, html, png, junit)
    if as_json:
        console.data([verdict.model_dump() for verdict in found])
    else:
        verdicts.show(found)
    if not instance:
        typer.echo("speed and transport are not judged: give --instance TYPE and --nodes NUMBER", err=True)
    try:
        read.refuse(found)
    except TrainwrightError:
        if record:
            typer.echo(f"no gate was recorded for {record}: not every log passes", err=True)
        raise
    if recipe:
        read.record(recipe, found, declared)
        typer.echo(f"dockerfiles/gates/{record}.toml: commit it, the release of {record} requires it", err=True)
