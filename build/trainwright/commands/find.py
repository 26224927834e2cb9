"""The command `trainwright find`."""

import functools
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from trainwright.commands.options import Json, app, chosen


@app.command()
def find(
    has: Annotated[
        list[str],
        typer.Option(metavar="NAME[=VERSION]", help="Component or package: nccl=2.30, 'nccl>=2.29'; repeat for more."),
    ],
    as_json: Json = False,
) -> None:
    """List the images, and grafts of this checkout, that hold a component or package of Python or the distribution."""
    from trainwright.core import console
    from trainwright.graft import results
    from trainwright.image import inputs
    from trainwright.inspect import find as inspect_find
    from trainwright.lock import additions

    intent, recipes = chosen(None, None)

    def grafts() -> Iterator[Any]:
        if any(results.paths(intent.root)):
            from trainwright.graft import recorded

            yield from recorded.contents(intent, functools.partial(typer.echo, err=True))

    queries = [inspect_find.query(text) for text in has]
    images = {}
    for recipe in recipes:
        locked, packages, _ = inputs.known(recipe)
        images[recipe.id] = inspect_find.holdings(recipe, locked, packages)
    for recipe, locked, packages, python in grafts():
        held = [
            inspect_find.Held(id=recipe.id, what="Python package", name=name, version=python[name]) for name in python
        ]
        images[recipe.id] = [*inspect_find.holdings(recipe, locked, packages), *held]
    ready = {
        name: f"{row.image} --with {row.requirements}" for name, row in additions.settings(intent.root).recipes.items()
    }
    rows, exists = inspect_find.find(queries, images, intent.components.components, ready)
    if rows or as_json:
        console.show([row.model_dump() for row in rows], as_json)
    if exists:
        typer.echo(f"no image holds it; {exists}", err=True)
