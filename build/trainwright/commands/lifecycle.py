"""Commands about images that are out: what changed between two, and which of them nothing names any longer."""

from typing import Annotated

import typer

from trainwright.commands.options import Json, NoWait, Region, Registry, app, find_root

Image = "ID|RELEASE|URI|NAME"


@app.command()
def diff(
    old: Annotated[str, typer.Argument(metavar=f"OLD:{Image}", help="An id, <id>-2026.11.0, a URI, a local name.")],
    new: Annotated[str, typer.Argument(metavar=f"NEW:{Image}", help="Likewise.")],
    registry: Registry = "",
    region: Region = "",
    as_json: Json = False,
) -> None:
    """What changed between two images: labels, configuration, components, packages, sources, layers and their bytes."""
    from trainwright import comparing, report
    from trainwright.matrix import load_intent

    with report.progress() as (say, _):
        found = comparing.compare(load_intent(find_root()), old, new, registry, say, region)
    if as_json:
        report.data(found.model_dump(exclude={"old": {"contents"}, "new": {"contents"}}))
    elif found.rows:
        report.show([row.model_dump() for row in found.rows], as_json)
    for line in comparing.sentences(found):
        typer.echo(line, err=True)


@app.command()
def prune(
    framework: Annotated[str | None, typer.Option(help="Only this framework's repository.")] = None,
    delete: Annotated[bool, typer.Option("--delete", help="Do it; without, nothing is deleted.")] = False,
    waive: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="running-jobs, other-accounts, age: you answer for it.")
    ] = None,
    registry: Registry = "",
    region: Region = "",
    no_wait: NoWait = False,
    as_json: Json = False,
) -> None:
    """What a registry holds that no release, alias, present key or job names, and is old; a dry run by itself."""
    from trainwright import images, places, pruning, report
    from trainwright.matrix import load_intent, select

    intent = load_intent(find_root())
    variants = select(intent.variants, framework, "*")
    with report.alone(intent.root, no_wait, reads=not delete), report.progress() as (say, _):
        hosts = places.hosts(intent.root, registry, region)
        asked = [host.place(images.below_registry(variant)) for host in hosts for variant in variants]
        found = pruning.prune(intent, asked, delete, set(waive or ()), say)
    if as_json:
        report.data(found.model_dump(mode="json"))
    else:
        report.show(pruning.table(found), as_json)
    for line in pruning.sentences(found):
        typer.echo(line, err=True)
