"""The command `trainwright prove`."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from trainwright.commands.options import DryRun, Framework, Images, Json, NoWait, app, chosen
from trainwright.core.progress import counted

if TYPE_CHECKING:
    from trainwright.build.prove import Row


@app.command()
def prove(
    images: Images = None,
    framework: Framework = None,
    minutes: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="NUMBER", help="Begin no image later than this after the start; finish the one that runs."
        ),
    ] = None,
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep proved images in the engine; default: they are in the registry only.")
    ] = False,
    dry_run: DryRun = False,
    no_wait: NoWait = False,
    as_json: Json = False,
) -> None:
    """Build, push to the registry on loopback, test and record each image that is not proved by the present tests.

    One image after the other, cheap ones first; an image that lacks an input or disk is left, with the reason. The
    same command goes on after an interrupt. Between images the build cache is pruned.
    """
    import time

    from trainwright.build import image_tests
    from trainwright.build import prove as build_prove
    from trainwright.core import console, errors
    from trainwright.docker import engine

    began = time.monotonic()
    intent, recipes = chosen(framework, images)
    how = build_prove.How(intent.root, lambda line: typer.echo(line, err=True), keep)
    planned = build_prove.plan(recipes)
    before = f"; {planned.proved} of {len(recipes)} proved before" if planned.proved else ""
    if dry_run:
        rows = build_prove.forecast(how, planned)
        sizes = ("fetch", "disk")
        console.show(
            rows
            if as_json
            else [
                {name: console.human(row[name]) if name in sizes else row[name] for name in row if name != "untried"}
                for row in rows
            ],
            as_json,
        )
        if not engine.answers():
            typer.echo("note: no engine answers; not checked: its disk, and which architectures it builds", err=True)
        typer.echo(f"{build_prove.summary(rows)}{before}", err=True)
        return
    image_tests.refuse_without_pytest()
    how.until = began + minutes * 60 if minutes else how.until
    found, interrupted = build_prove.run(how, planned, not no_wait)
    if not interrupted or found:
        console.show([_shown(row, as_json) for row in found], as_json)
    count = {state: sum(row.state == state for row in found) for state in ("proved", "failed", "left")}
    said = ", ".join(f"{number} {state}" for state, number in count.items())
    typer.echo(f"{said} in {(time.monotonic() - began) / 60:.0f} minutes{before}", err=True)
    if interrupted:
        raise KeyboardInterrupt
    errors.refuse_all("images were not proved", [row.error for row in found if row.error])
    named = {*(images or ())}
    if unmet := [row for row in found if row.state == "left" and (row.retry or row.id in named)]:
        raise errors.NotRunError(
            f"{counted(len(unmet), 'image')} left, such as {unmet[0].id}",
            why=unmet[0].reason,
            fix=unmet[0].fix or ("the same command again: it goes on with what is left" if unmet[0].retry else ""),
        )


def _shown(row: "Row", as_json: bool) -> dict[str, Any]:
    seconds: Any = round(row.seconds, 1) if as_json else f"{row.seconds:.0f} s" if row.seconds else ""
    return {"id": row.id, "state": row.state, "seconds": seconds, "reason": row.said}
