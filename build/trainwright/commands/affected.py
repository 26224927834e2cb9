"""The command `trainwright affected`."""

from typing import Annotated

import typer

from trainwright.commands.options import (
    Json,
    Registry,
    app,
    chosen,
)


@app.command()
def affected(
    by: Annotated[
        list[str], typer.Option(metavar="NAME[=VERSION]", help="As `find --has`; repeat: all of it at once.")
    ],
    registry: Registry = "",
    as_json: Json = False,
) -> None:
    """Which images hold a bad version: of the matrix as it is, and of every release, with their digests."""
    from trainwright.core import console
    from trainwright.core.errors import RegistryError
    from trainwright.inspect import affected as affected_module
    from trainwright.inspect import find
    from trainwright.registry import locations

    queries = [find.query(text, "--by") for text in by]
    intent, _ = chosen(None, None)
    host = None
    try:
        host = str(locations.hosts(intent.root, registry)[0])
    except RegistryError as error:
        typer.echo(f"which digest an alias names is unknown: {error.what}", err=True)
    rows, exists = affected_module.affected(intent, queries, host)
    console.show([row.model_dump() for row in rows], as_json)
    if not rows:
        typer.echo(f"no image has it, and none had it in any release; {exists}", err=True)
