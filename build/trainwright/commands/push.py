"""The command `trainwright push`."""

from typing import Annotated, Any

import typer

from trainwright.commands.options import (
    DryRun,
    Framework,
    Images,
    Json,
    Name,
    NoWait,
    Region,
    Registry,
    WaiveGate,
    With,
    app,
    asked_for,
)


def pushed(
    intent: Any, found: Any, held: Any, registry: str, region: str, release: str = "", waive_gate: str = ""
) -> Any:
    """Push the images. `held` is what the registry holds; if it is empty, the registry is queried."""
    from trainwright.build import state
    from trainwright.core import console
    from trainwright.publish import push as publish_push
    from trainwright.publish import refusals

    with console.progress() as (say, _):
        for one in found:
            refusals.refuse(one, release)
        held = held or state.published(intent, found, registry, region)
        return [publish_push.push(one, held[one.variant.id], release, say, waive_gate) for one in found]


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
    dry_run: DryRun = False,
    no_wait: NoWait = False,
    as_json: Json = False,
) -> None:
    """Push images by digest, verify and prove them, then tag them."""
    from trainwright.build import state
    from trainwright.core import console, errors
    from trainwright.image import child
    from trainwright.lock.lockfile import refuse_blocked

    intent, recipes = asked_for(framework, images, with_, name)
    with console.alone(intent.root, no_wait, reads=dry_run):
        found = [child.load(recipe) for recipe in recipes]
        if dry_run:
            from trainwright.publish.push import forecast

            for one in found:  # a blocked image has no steps; other errors are reported after the steps
                refuse_blocked(one.recipe, one.blocked)
            held = state.published(intent, found, registry, region)
            told = [forecast(one, held[one.variant.id], release, waive_gate) for one in found]
            console.final([each.done for each in told], as_json)
            return errors.refuse_all("a push would fail", [error for each in told for error in each.refused])
        done = pushed(intent, found, {}, registry, region, release, waive_gate)
    return console.final(done, as_json)
