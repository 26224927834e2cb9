"""The command that builds an image again, to check that the result is the same."""

from typing import Annotated

import typer

from trainwright.commands.options import Framework, Json, Name, NoWait, Registry, With, app, asked_for, chosen
from trainwright.core.errors import ConfigError

SHOWN = 40  # differences in the table; --json has all


@app.command()
def rebuild(
    images: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="IMAGE|REFERENCE",
            help="An id; or with --compare repository@digest, repository:tag or an engine name to compare with.",
        ),
    ] = None,
    compare: Annotated[
        bool, typer.Option("--compare", help="Compare with the published image, else with the built one.")
    ] = False,
    framework: Framework = None,
    with_: With = None,
    name: Name = "",
    registry: Registry = "",
    no_wait: NoWait = False,
    as_json: Json = False,
) -> None:
    """Build one image again, without cache. With --compare, show what differs; exits 5 if anything does."""
    from trainwright.build import rebuild as build_rebuild
    from trainwright.build import state as build_state
    from trainwright.core import console
    from trainwright.resolve import fetch

    words = images or []
    reference = next((word for word in words if set(word) & set("/@:")), "")  # no id has one of these
    images = [word for word in words if word != reference] or None
    if reference and not compare:
        raise ConfigError("a reference requires --compare", fix=f"trainwright rebuild --compare {reference}")
    if reference and not images and not framework:
        intent, _ = chosen(None, None)
        recipes = [build_rebuild.recipe_of(intent, reference)]
    else:
        intent, recipes = asked_for(framework, images, with_, name)
    if len(recipes) != 1:
        raise ConfigError(
            f"rebuild requires one image, but {len(recipes)} were chosen", fix=f"trainwright rebuild {recipes[0].id}"
        )
    recipe = recipes[0]
    with console.alone(intent.root, no_wait), console.progress(fetch.to_fetch(recipes)) as (say, advance):
        repository = build_state.repository_if_any(recipe, registry)
        found, error = build_rebuild.rebuild(recipe, repository, compare, reference, say, advance)
    if as_json:
        console.data(found.model_dump())
    else:
        rows = [row.model_dump() for row in found.differences]
        state = {True: "the same digest", False: "another digest", None: "not compared"}[found.same]
        row = {"id": found.id, "key": found.key[:12], "rebuilt": found.rebuilt, "held": found.held, "state": state}
        console.show(rows[:SHOWN] or [{**row, "time": f"{found.seconds} s"}], as_json)
        if len(rows) > SHOWN:
            typer.echo(f"and {len(rows) - SHOWN} more differences: --json has all", err=True)
    if error:
        raise error
