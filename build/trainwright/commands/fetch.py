"""The command `trainwright fetch`."""

import typer

from trainwright.commands.options import Framework, Images, Json, app, chosen
from trainwright.core.progress import counted


@app.command()
def fetch(images: Images = None, framework: Framework = None, as_json: Json = False) -> None:
    """Download every locked file into the store, and verify it."""
    from trainwright.core import console
    from trainwright.resolve import fetch as resolve_fetch
    from trainwright.resolve import resolve

    intent, recipes = chosen(framework, images)
    if framework is None and images is None:
        recipes, blocked = resolve.waiting(recipes)
        if blocked:
            typer.echo(f"left out {counted(len(blocked), 'blocked lock')}: trainwright plan", err=True)
    with console.progress(resolve_fetch.to_fetch(recipes)) as (say, advance):
        resolve_fetch.fetch(intent, recipes, say, advance)
        rows = resolve_fetch.fetched(recipes)
    console.show(rows, as_json)
