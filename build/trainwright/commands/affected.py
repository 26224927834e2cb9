"""The command `trainwright affected`."""

from typing import Annotated

import typer

from trainwright.commands.options import Json, Registry, app, chosen


@app.command()
def affected(
    by: Annotated[
        list[str],
        typer.Option(
            metavar="NAME[=VERSION]", help="Component or package, as in `find --has`; repeat: one image must hold all."
        ),
    ],
    registry: Registry = "",
    as_json: Json = False,
) -> None:
    """List the images that hold a bad version. Covers the matrix and every release, with digests."""
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
        typer.echo(f"which images have an alias now is unknown: {error.what}", err=True)
    rows, exists = affected_module.affected(intent, queries, host)
    console.show([row.model_dump() for row in rows], as_json)
    if not rows:
        typer.echo(f"no image of the matrix or of a release holds it; {exists}", err=True)
