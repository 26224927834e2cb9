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
    shown = None if as_json else {"id", "action", "reason", "key"}
    table = [row.model_dump(include=shown) for row in rows]
    console.show(table if as_json else [row | {"key": row["key"][: tags.SHORT]} for row in table], as_json)
    for entry in () if as_json else rows:
        for warning in entry.warnings:
            typer.echo(f"warning: {entry.id}: {warning}", err=True)
