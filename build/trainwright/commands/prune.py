"""The command `trainwright prune`."""

from typing import Annotated

import typer

from trainwright.commands.options import Json, NoWait, Region, Registry, app, find_root


@app.command()
def prune(
    framework: Annotated[str | None, typer.Option(help="Only this framework's repository.")] = None,
    delete: Annotated[bool, typer.Option("--delete", help="Delete; without it, only list.")] = False,
    waive: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Skip a check on your responsibility: running-jobs, other-accounts, age."),
    ] = None,
    registry: Registry = "",
    region: Region = "",
    no_wait: NoWait = False,
    as_json: Json = False,
) -> None:
    """List or delete old images in a registry. Keeps those that a release, alias, present key or job names."""
    from trainwright.core import console
    from trainwright.image import tags
    from trainwright.matrix.matrix import load_intent, select
    from trainwright.publish import prune as publish_prune
    from trainwright.registry import locations

    intent = load_intent(find_root())
    recipes = select(intent, framework, "*")
    with console.alone(intent.root, no_wait, reads=not delete), console.progress() as (say, _):
        hosts = locations.hosts(intent.root, registry, region)
        asked = [host.place(tags.repository(recipe.variant.framework)) for host in hosts for recipe in recipes]
        found = publish_prune.prune(intent, asked, delete, set(waive or ()), say)
    if as_json:
        console.data(found.model_dump(mode="json"))
    else:
        console.show(publish_prune.table(found), as_json)
    for line in publish_prune.sentences(found):
        typer.echo(line, err=True)
