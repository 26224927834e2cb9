"""The command `trainwright fetch`."""

import typer

from trainwright.commands.options import (
    Framework,
    Images,
    Json,
    Only,
    app,
    chosen,
    named,
)


@app.command()
def fetch(images: Images = None, only: Only = None, framework: Framework = None, as_json: Json = False) -> None:
    """Download every locked file into the store, and verify it."""
    from trainwright.core import console
    from trainwright.resolve import fetch as resolve_fetch
    from trainwright.resolve import resolve

    only = named(images, only)
    intent, variants = chosen(framework, only)
    if framework is None and only is None:
        variants, blocked = resolve.waiting(intent, variants)
        if blocked:
            typer.echo(f"{len(blocked)} locks are blocked and are not fetched: trainwright plan", err=True)
    with console.progress(resolve_fetch.to_fetch(intent, variants)) as (say, advance):
        resolve_fetch.fetch(intent, variants, say, advance)
        rows = resolve_fetch.fetched(intent, variants)
    console.show(rows, as_json)
