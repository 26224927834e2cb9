"""The command `trainwright build`."""

import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from trainwright.commands.options import (
    Framework,
    Images,
    Json,
    LicenceAllows,
    Name,
    NoWait,
    Region,
    Registry,
    With,
    app,
    asked_for,
    with_inputs,
)

CACHE = "TRAINWRIGHT_CACHE"  # a cache to read and to write
ENGINE = "scripts/engine.py"


@app.command()
def build(
    images: Images = None,
    framework: Framework = None,
    with_: With = None,
    name: Name = "",
    registry: Registry = "",
    cache_to: Annotated[
        str, typer.Option(metavar="REPOSITORY[:TAG]", envvar=CACHE, help="Write the build cache to this repository.")
    ] = "",
    cache_from: Annotated[
        list[str] | None,
        typer.Option(metavar="REPOSITORY[:TAG]", envvar=CACHE, help="Read the build cache from this repository."),
    ] = None,
    region: Region = "",
    and_push: Annotated[bool, typer.Option("--push", help="Then push, as `trainwright push` does.")] = False,
    licence_allows: LicenceAllows = None,
    set_up: Annotated[
        bool, typer.Option("--set-up", help="Start the engine, and for --push the registry, if needed.")
    ] = False,
    no_wait: NoWait = False,
    as_json: Json = False,
) -> None:
    """Build the images that are not built yet, and probe them. Each image must hold what its lock says."""
    from trainwright.build import build as build_build
    from trainwright.build import image_tests, state
    from trainwright.commands.push import pushed, refuse_by_name, refuse_unlicensed
    from trainwright.core import console
    from trainwright.docker.buildx import Cache
    from trainwright.resolve import fetch as resolve_fetch

    cache = Cache(to=cache_to, sources=cache_from or [])
    intent, recipes = asked_for(framework, images, with_, name)
    with console.alone(intent.root, no_wait):
        if set_up and and_push and not registry:
            set_up_registry(intent.root)
        found = with_inputs(recipes)
        held, why = state.published_if_known(intent, found, registry, region)
        if and_push and held:
            refuse_unlicensed(found, held, licence_allows or [])
        elif and_push:
            refuse_by_name(found, registry, licence_allows or [])
        lacking = state.lacking(recipes, held, everywhere=and_push)
        if and_push and lacking:
            image_tests.refuse_without_pytest()
        if set_up and lacking:
            set_up_engine(intent.root)
        with console.progress(resolve_fetch.to_fetch(lacking)) as (say, advance):
            if why:
                say(why)
            done = [build_build.build(recipe, None, say, advance, cache, held.get(recipe.id)) for recipe in recipes]
        if not (and_push and as_json):
            console.final(done, as_json)
        if and_push and lacking:  # the build may have met a drift, which changes the key
            found, held = with_inputs(recipes), {}
        if and_push:
            done = pushed(intent, found, held, (registry, region), allowed=licence_allows or [])
            console.final(done, as_json)


def set_up_engine(root: Path) -> None:
    """Ensure that an engine answers and is new enough. If the script fails, exit with its code: it printed why."""
    if code := subprocess.call([sys.executable, root / ENGINE, "ensure"]):
        raise typer.Exit(code)


def set_up_registry(root: Path) -> None:
    """Start the registry on loopback if it does not answer, unless an AWS account is set, which needs another one."""
    from trainwright.build import loopback
    from trainwright.core import host_settings

    if host_settings.aws_account() or loopback.answers(root):
        return
    set_up_engine(root)
    loopback.up(root, lambda line: typer.echo(line, err=True))
