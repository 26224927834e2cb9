"""The command `trainwright changes`."""

from typing import Annotated

import typer

from trainwright.commands.options import Json, app, chosen


@app.command()
def changes(
    since: Annotated[str, typer.Option(metavar="COMMIT", help="A branch, tag or commit to compare this tree with.")],
    as_json: Json = False,
) -> None:
    """List the images that changed since a commit, and why."""
    from trainwright.core import console
    from trainwright.image import changes as changes_module
    from trainwright.image import tags

    intent, _ = chosen(None, None)
    rows = [row.model_dump() for row in changes_module.since(intent, since)]
    short = [row | {"old": row["old"][: tags.SHORT], "new": row["new"][: tags.SHORT]} for row in rows]
    console.show(rows if as_json else short, as_json)
    if not rows:
        typer.echo(f"no image changes between {since} and this tree", err=True)
