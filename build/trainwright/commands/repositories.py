"""The command for repositories of Amazon ECR and their settings."""

from typing import Annotated

import typer

from trainwright.commands.options import Framework, Json, Only, Region, Registry, app, chosen


@app.command()
def repositories(
    only: Only = None,
    framework: Framework = None,
    registry: Registry = "ecr",
    region: Region = "",
    apply: Annotated[
        bool, typer.Option("--apply", help="Create what is missing, and change what is not as wanted.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Repositories of Amazon ECR: what is missing, and which settings are not as publish.toml wants them."""
    from trainwright import images, report

    intent, variants = chosen(framework, only)
    places = [place for variant in variants for place in images.places(intent, variant, registry or "ecr", region)]
    rows = images.settle(intent, variants, places, create=apply, change=apply)
    report.show([row.model_dump() for row in rows], as_json)
    if not apply and any(row.state in ("missing", "differs") for row in rows):
        typer.echo("nothing was written; --apply creates and changes", err=True)
