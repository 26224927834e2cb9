"""The command `trainwright outdated`."""

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
def outdated(images: Images = None, only: Only = None, framework: Framework = None, as_json: Json = False) -> None:
    """List what upstream has newer than the pins. An upstream that does not answer is unknown."""
    from trainwright.core import console
    from trainwright.resolve import outdated as resolve_outdated

    intent, variants = chosen(framework, named(images, only))
    with console.progress() as (say, _):
        rows = resolve_outdated.outdated(intent, variants, say)
    console.show([row.model_dump() for row in rows], as_json)
