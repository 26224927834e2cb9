"""The command `trainwright release`."""

from typing import Annotated

import typer

from trainwright.commands.options import (
    DryRun,
    Framework,
    Images,
    Json,
    NoWait,
    Region,
    Registry,
    WaiveGate,
    app,
    asked_for,
)


@app.command()
def release(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="2026.11.0: a new train; 2026.11.1: security updates of it.")
    ],
    images: Images = None,
    framework: Framework = None,
    registry: Registry = "",
    region: Region = "",
    waive_gate: WaiveGate = "",
    dry_run: DryRun = False,
    no_wait: NoWait = False,
    as_json: Json = False,
) -> None:
    """Release published and proved images. Tags them, writes the record, and last moves the alias of each."""
    from trainwright.core import console
    from trainwright.publish import release as publish_release
    from trainwright.publish import release_records
    from trainwright.registry import locations

    release_records.version(name)  # before anything is read
    intent, recipes = asked_for(framework, images)
    with console.alone(intent.root, no_wait, reads=dry_run), console.progress() as (say, _):
        hosts = locations.hosts(intent.root, registry, region)
        rows = publish_release.release(intent, recipes, name, list(map(str, hosts)), dry_run, say, waive_gate)
    console.show([row.model_dump() for row in rows], as_json)
    if not dry_run:
        typer.echo(f"commit {release_records.FOLDER}/{name}.toml: it is the record of {name}", err=True)
