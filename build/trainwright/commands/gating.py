"""Commands that judge logs of nccl-tests."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trainwright.commands.options import Json, app, find_root
from trainwright.errors import printable

if TYPE_CHECKING:
    from trainwright.judge import Verdict
    from trainwright.witnesses import Case

Logs = Annotated[
    list[str], typer.Argument(metavar="LOG...", help="Output of nccl-tests, or of -J; - is standard input.")
]


@app.command()
def judge(
    logs: Logs,
    world_size: Annotated[int | None, typer.Option(min=1, help="Ranks that were started.")] = None,
    nodes: Annotated[int | None, typer.Option(min=1, help="Hosts that they ran on.")] = None,
    instance: Annotated[str, typer.Option(metavar="TYPE", help="p5.48xlarge: its NICs, GPUDirect and floors.")] = "",
    nics: Annotated[
        int | None, typer.Option(min=1, help="EFA interfaces of a host, where they are fewer than the type has.")
    ] = None,
    exit_code: Annotated[int | None, typer.Option(help="What the run ended with.")] = None,
    collective: Annotated[str, typer.Option(help="all_reduce, ...: where the log does not say it.")] = "",
    pins: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VERSION|FILE", help="nccl=2.30.7, or an image.json; repeat.")
    ] = None,
    record: Annotated[
        str, typer.Option(metavar="ID", help="Write down that this image passed: dockerfiles/gates/.")
    ] = "",
    baseline: Annotated[str, typer.Option(metavar="NAME", help="Be no slower than that: dockerfiles/baselines/.")] = "",
    tolerance: Annotated[
        float | None, typer.Option(min=0.001, max=0.999, help="What may be lost to the baseline; 0.05 is 5%.")
    ] = None,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="One page with charts; needs nothing else.")] = None,
    png: Annotated[Path | None, typer.Option(metavar="FILE", help="The charts as a picture.")] = None,
    junit: Annotated[Path | None, typer.Option(metavar="FILE", help="One suite a log, one case a check.")] = None,
    as_json: Json = False,
) -> None:
    """Whether logs of nccl-tests prove what they should (6: they prove a failure; 7: incomplete, or no floor known)."""
    from trainwright import baselines, judging, report, reports, verdicts
    from trainwright.errors import ConfigError, TrainwrightError
    from trainwright.witnesses import Declared

    if tolerance is not None and not baseline:
        why = "a tolerance is what may be lost to a baseline"
        raise ConfigError("--tolerance without --baseline", where="--tolerance", why=why, fix="--baseline NAME")
    if record:
        judging.recordable(find_root(), record, logs)
    declared = Declared(
        world_size=world_size,
        nodes=nodes,
        instance=instance,
        nics=nics,
        exit_code=exit_code,
        collective=collective,
        pins=judging.pins(pins or []),
    )
    known = baselines.read(find_root(), baseline, tolerance) if baseline else None
    if known and not known.proved:
        typer.echo(f"the baseline {baseline} is unproved: it is of logs that the judge did not pass", err=True)
    examined = judging.examined(find_root(), logs, declared, known)
    found = [verdict for verdict, _ in examined]
    reports.write(examined, html, png, junit)
    if as_json:
        report.data([verdict.model_dump() for verdict in found])
    else:
        verdicts.show(found)
    if not instance:
        typer.echo("speed and transport are not judged: give --instance TYPE and --nodes NUMBER", err=True)
    try:
        judging.refuse(found)
    except TrainwrightError:
        if record:
            typer.echo(f"nothing was recorded of {record}: not every log passes", err=True)
        raise
    if record:
        judging.record(find_root(), record, found, declared)
        typer.echo(f"dockerfiles/gates/{record}.toml: commit it, the release of {record} asks for it", err=True)


@app.command()
def diagnose(logs: Logs, as_json: Json = False) -> None:
    """Why a job over NCCL failed: cause, the line that shows it, and the fix; "unknown" where nothing proves one."""
    from trainwright import judging, report
    from trainwright.witnesses import Declared

    rows = [_diagnosis(verdict, case) for verdict, case in judging.examined(find_root(), logs, Declared())]
    if as_json:
        report.data(rows)
        return
    for row in rows:  # sentences do not fit in a table
        typer.echo(f"{printable(row['log'])}: {row['cause']}")
        for name in ("what", "evidence", "fix"):
            if row[name]:
                typer.echo(f"  {name + ':':<10}{printable(row[name])}")


def _diagnosis(verdict: "Verdict", case: "Case") -> dict[str, str]:
    """What is said of one log; where nothing proves a cause, what to do next."""
    evidence = "; ".join(check.evidence for check in verdict.checks if check.state == "fail")
    said = {"log": verdict.file, "cause": verdict.cause or "unknown", "what": verdict.why, "evidence": evidence}
    if verdict.cause:
        return {**said, "fix": verdict.fix}
    if verdict.verdict == "pass":
        return {**said, "cause": "none", "fix": ""}
    if case.log.silent:
        what = "it has no line of NCCL or of nccl-tests"
        return {**said, "what": what, "fix": "name a log of the job's ranks; with NCCL_DEBUG=INFO they say more"}
    lacks = "; ".join(dict.fromkeys(check.evidence for check in verdict.checks if check.state == "not established"))
    what = f"no line of it proves a cause; {lacks}" if lacks else "no line of it proves a cause"
    fix = "run it again with NCCL_DEBUG=INFO and NCCL_DEBUG_SUBSYS=INIT,NET,ENV, and keep what every rank says"
    return {**said, "what": what, "fix": fix}


@app.command()
def estimate(
    parameters: Annotated[str, typer.Option(metavar="NUMBER", help="7B, 350M, 7e9: all that get a gradient.")],
    instance: Annotated[str, typer.Option(metavar="TYPE", help="p5.48xlarge.")],
    nodes: Annotated[int, typer.Option(min=1, help="How many of them.")] = 2,
    precision: Annotated[str, typer.Option(help="Of the gradients: fp32, bf16, fp16, fp8.")] = "bf16",
    busbw: Annotated[float | None, typer.Option(min=0.001, metavar="GB/S", help="Measured; else the floor.")] = None,
    step: Annotated[
        float | None, typer.Option(min=1e-6, metavar="SECONDS", help="Of a step without any network.")
    ] = None,
    as_json: Json = False,
) -> None:
    """What data-parallel training sends at each step, how long that takes over EFA and over TCP, and what is lost."""
    from trainwright import floors, instances, report, scaling

    root = find_root()
    rows = instances.load_instances(root)
    name = instance.removeprefix("ml.")
    if name not in rows:
        raise instances.unknown(name, rows, "--instance")
    count = scaling.parameters(parameters)
    found = scaling.estimate(count, precision, name, rows[name], nodes, floors.load_floors(root), busbw, step)
    if as_json:
        report.data(found.model_dump())
        return
    typer.echo(
        f"{found.ranks} ranks; gradients {report.human(found.gradients)}; "
        f"each rank sends {report.human(found.sent)} a step (2(N-1)/N of it)"
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
    report.show([{name: value for name, value in row.items() if value} for row in shown], as_json=False)


def _percent(share: float | None) -> str:
    return "" if share is None else f"{share:.1%}"
