"""The command `trainwright diff`."""

from typing import Annotated

import typer

from trainwright.commands.options import Json, Region, Registry, app, find_root

Image = "ID|RELEASE|URI|NAME"


@app.command()
def diff(
    old: Annotated[
        str, typer.Argument(metavar=f"OLD:{Image}", help="Image: an id, a release tag, a URI or a name in the engine.")
    ],
    new: Annotated[
        str, typer.Argument(metavar=f"NEW:{Image}", help="Image to compare with OLD, named in the same ways.")
    ],
    registry: Registry = "",
    region: Region = "",
    as_json: Json = False,
) -> None:
    """Show what changed between two images: labels, configuration, components, packages, sources, layers and bytes."""
    from trainwright.core import console
    from trainwright.inspect import diff as inspect_diff
    from trainwright.matrix.matrix import load_intent

    with console.progress() as (say, _):
        found = inspect_diff.compare(load_intent(find_root()), old, new, registry, say, region)
    if as_json:
        console.data(found.model_dump(exclude={"old": {"contents"}, "new": {"contents"}}))
    elif found.rows:
        console.show([row.model_dump() for row in found.rows], as_json)
    for line in inspect_diff.sentences(found):
        typer.echo(line, err=True)
