"""The command `trainwright push`."""

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from trainwright.commands.options import (
    DryRun,
    Framework,
    Images,
    Json,
    LicenceAllows,
    Name,
    NoWait,
    Region,
    Registry,
    WaiveGate,
    With,
    app,
    asked_for,
    with_inputs,
)


def pushed(
    intent: Any,
    found: Any,
    held: Any,
    where: tuple[str, str],
    release: str = "",
    waive_gate: str = "",
    allowed: Sequence[str] = (),
    twin: bool | None = None,
) -> Any:
    """Push the images to `where`, a registry and its regions.

    `held` is what the registry holds; if it is empty, the registry is queried.
    """
    from trainwright.build import image_tests
    from trainwright.core import console
    from trainwright.publish import push as publish_push
    from trainwright.publish import refusals

    with console.progress() as (say, _):
        for one in found:
            refusals.refuse(one, release)
        held = held or known(intent, found, *where, allowed)
        refuse_unlicensed(found, held, allowed)
        if not all(all(held[one.variant.id].values()) for one in found):
            image_tests.refuse_without_pytest()
        twinned = untwinned(found, held, twin)
        return [
            publish_push.push(one, held[one.variant.id], release, say, waive_gate, allowed, twinned[one.variant.id])
            for one in found
        ]


def untwinned(found: Any, held: Any, asked: bool | None) -> Any:
    """Map each image to the places that its zstd twin goes to; `asked`: --twin, --no-twin, or None for neither."""
    from trainwright.publish import twins
    from trainwright.publish.push import Twins

    return {name: Twins(places, bool(asked)) for name, places in twins.lacking(found, held, asked).items()}


def known(intent: Any, found: Any, registry: str, region: str, allowed: Sequence[str]) -> Any:
    """Return what the registry holds. If it does not answer, its name alone says what a licence keeps out of it."""
    from trainwright.build import state
    from trainwright.core.errors import EnvironmentProblem, RegistryError

    try:
        return state.published(intent, found, registry, region)
    except (EnvironmentProblem, RegistryError):
        refuse_by_name(found, registry, allowed)
        raise


def refuse_by_name(found: Any, registry: str, allowed: Sequence[str]) -> None:
    """Check the licences of all images for a registry that did not answer; Amazon ECR must be asked for its policy."""
    from trainwright.image import tags
    from trainwright.registry.locations import ECR, OWN, hosts

    if registry and not ECR.fullmatch(registry) and not OWN.fullmatch(registry):
        (host,) = hosts(found[0].recipe.root, registry)
        places = {one.variant.id: host.place(tags.repository(one.variant.framework)) for one in found}
        refuse_unlicensed(found, {name: {place: ""} for name, place in places.items()}, allowed)


def refuse_unlicensed(found: Any, held: Any, allowed: Sequence[str]) -> None:
    """Check the licences of all images before the first is built or pushed; only places that lack one count."""
    from trainwright.publish import licences

    for one in found:
        licences.refuse(one, [place for place, digest in held[one.variant.id].items() if not digest], allowed)


@app.command()
def push(
    images: Images = None,
    framework: Framework = None,
    with_: With = None,
    name: Name = "",
    registry: Registry = "",
    region: Region = "",
    release: Annotated[str, typer.Option(metavar="TAG", help="One more tag, for people; it is immutable.")] = "",
    waive_gate: WaiveGate = "",
    licence_allows: LicenceAllows = None,
    twin: Annotated[
        bool | None,
        typer.Option("--twin/--no-twin", help="Also publish the image's zstd twin; default: as publish.toml says."),
    ] = None,
    dry_run: DryRun = False,
    no_wait: NoWait = False,
    as_json: Json = False,
) -> None:
    """Push images by digest, verify and prove them, then tag them."""
    from trainwright.core import console, errors
    from trainwright.lock.lockfile import refuse_blocked

    intent, recipes = asked_for(framework, images, with_, name)
    allowed = licence_allows or []
    with console.alone(intent.root, no_wait, reads=dry_run):
        found = with_inputs(recipes)
        if dry_run:
            from trainwright.publish.push import forecast

            for one in found:  # a blocked image has no steps; other errors are reported after the steps
                refuse_blocked(one.recipe, one.blocked)
            held = known(intent, found, registry, region, allowed)
            twinned = untwinned(found, held, twin)
            told = [
                forecast(one, held[one.variant.id], release, waive_gate, allowed, twinned[one.variant.id])
                for one in found
            ]
            console.final([each.done for each in told], as_json)
            return errors.refuse_all("a push would fail", [error for each in told for error in each.refused])
        done = pushed(intent, found, {}, (registry, region), release, waive_gate, allowed, twin)
    return console.final(done, as_json)
