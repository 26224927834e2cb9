"""The command for repositories of Amazon ECR and their settings."""

from typing import Annotated

import typer

from trainwright.commands.options import Framework, Images, Json, Region, Registry, app, chosen


@app.command()
def repositories(
    images: Images = None,
    framework: Framework = None,
    registry: Registry = "ecr",
    region: Region = "",
    apply: Annotated[
        bool, typer.Option("--apply", help="Create missing ones, and change settings that differ.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Check the Amazon ECR repositories against publish.toml. Lists missing ones and settings that differ."""
    from trainwright.build import state
    from trainwright.core import console

    intent, recipes = chosen(framework, images)
    places = [place for recipe in recipes for place in state.places(recipe, registry or "ecr", region)]
    rows = state.settle(intent, recipes, places, create=apply, change=apply)
    console.show([row.model_dump() for row in rows], as_json)
    for host in dict.fromkeys(place.host for place in places if not place.region):
        typer.echo(
            f"{host} is a plain registry: it has no such settings, and creates a repository at the first push; "
            "for Amazon ECR: --registry ecr",
            err=True,
        )
    if not apply and any(row.state in ("missing", "differs") for row in rows):
        typer.echo("nothing was written; --apply creates and changes repositories", err=True)
