"""The command `trainwright outdated`."""

from trainwright.commands.options import Framework, Images, Json, app, chosen


@app.command()
def outdated(images: Images = None, framework: Framework = None, as_json: Json = False) -> None:
    """List what upstream has newer than the pins. An upstream that does not answer is unknown."""
    from trainwright.core import console
    from trainwright.resolve import outdated as resolve_outdated

    intent, recipes = chosen(framework, images)
    with console.progress() as (say, _):
        rows = resolve_outdated.outdated(intent, recipes, say)
    console.show([row.model_dump() for row in rows], as_json)
