"""Commands about images that are out: what changed between two."""

from typing import Annotated

import typer

from trainwright.commands.options import Json, Registry, app, find_root

Image = "ID|RELEASE|URI|NAME"


@app.command()
def diff(
    old: Annotated[str, typer.Argument(metavar=f"OLD:{Image}", help="An id, <id>-2026.11.0, a URI, a local name.")],
    new: Annotated[str, typer.Argument(metavar=f"NEW:{Image}", help="Likewise.")],
    registry: Registry = "",
    as_json: Json = False,
) -> None:
    """What changed between two images: labels, configuration, components, packages, sources, layers and their bytes."""
    from trainwright import comparing, report
    from trainwright.matrix import load_intent

    with report.progress() as (say, _):
        found = comparing.compare(load_intent(find_root()), old, new, registry, say)
    if as_json:
        report.data(found.model_dump(exclude={"old": {"contents"}, "new": {"contents"}}))
    elif found.rows:
        report.show([row.model_dump() for row in found.rows], as_json)
    for line in comparing.sentences(found):
        typer.echo(line, err=True)
