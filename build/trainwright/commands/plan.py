"""The command `trainwright plan`."""

import typer

from trainwright.commands.options import Framework, Images, Json, Region, Registry, app, chosen


@app.command()
def plan(
    images: Images = None,
    framework: Framework = None,
    registry: Registry = "",
    region: Region = "",
    as_json: Json = False,
) -> None:
    """Show what a build would do. Prints skip, reuse, build or blocked for each image, with reason and key."""
    from trainwright.build import state
    from trainwright.core import console
    from trainwright.image import tags

    intent, recipes = chosen(framework, images)
    rows, why = state.planned(intent, recipes, registry, region)
    if why:
        typer.echo(why, err=True)
    table = [
        {"id": row.id, "action": row.action, "key": row.key[: tags.SHORT], "reason": console.brief(row.reason)}
        for row in rows
    ]
    console.show([row.model_dump() for row in rows] if as_json else table, as_json, spare=("key",))
    for entry in () if as_json else rows:
        for warning in entry.warnings:
            typer.echo(f"warning: {entry.id}: {warning}", err=True)
