"""Push an image by digest, with all checks before it gets its key tag; or list the steps of such a push."""

import time
from collections.abc import Sequence
from typing import NamedTuple

from trainwright.build.state import Done, known_image, out_folder, published_image
from trainwright.core.errors import EnvironmentProblem, NotRunError, RegistryError, TrainwrightError, collected
from trainwright.core.progress import Say
from trainwright.docker import engine
from trainwright.image import key
from trainwright.image.inputs import Inputs
from trainwright.matrix.records import Check
from trainwright.publish import refusals, sign_probed
from trainwright.publish.push_steps import STEPS, Push
from trainwright.registry.locations import Held
from trainwright.registry.settings import Place


class Twins(NamedTuple):
    """The places that should get the image's zstd twin, and whether the user asked for it."""

    places: Sequence[Place] = ()
    asked: bool = False  # if so, a registry that takes none is an error


NO_TWINS = Twins()


class Forecast(NamedTuple):
    """A row of the table, with its steps, and all errors that would end the real push."""

    done: Done
    refused: list[TrainwrightError]


def push(
    found: Inputs,
    held: Held,
    release: str,
    say: Say,
    waiver: str = "",
    allowed: Sequence[str] = (),
    twinned: Twins = NO_TWINS,
) -> Done:
    """Push an image from the engine to each place, one step of STEPS in all places before the next.

    `held` is what the places hold under the key: a place that has it is left alone, one that lacks it gets the same
    digest. `release` is one more tag, for people. It needs a passed gate or a `waiver` (NAME: REASON). Before,
    refusals.refuse() checks that the image has no drift, and licences.refuse() that it may go to these places;
    `allowed` are licences that the user's contract allows to publish. `twinned` is where the
    image's zstd twin goes.
    """
    began, out = time.monotonic(), out_folder(found.recipe)
    digest, missing = one_digest(found, held)
    gate = Check(state="not run")
    if release:
        for place in held:
            refusals.refuse_taken(found, place.repository, release, digest)
        gate = refusals.gated(found.recipe, digest or engine.image_id(found.name) or "", waiver)
    first = next(iter(held)).repository
    image = known_image(found, out) if missing else published_image(found, out, first, digest)
    one = Push(found, held, release, digest, missing, image, say=say, gate=gate, allowed=allowed)
    one.untwinned, one.twin_asked = twinned
    action, why = "pushed", "pushed by digest, verified, proved, tagged"
    if not missing:
        action, why = "skip", key.decide(one.id, found.key, digest, None).reason
        if not release and (names := sign_probed.unsigned(found, one.image, held)):
            one.unsigned, action, why = names, "signed", f"{why}; now signed: {', '.join(names)}"
        elif one.untwinned and not release:
            action = "twinned"
    for step in STEPS:
        if step.applies(one):
            step.do(one)
    if one.untwinned:
        why += f"; {one.no_twin or 'with its zstd twin'}"
    return Done(one.image, action, why + f"; released as {release}" * bool(release), time.monotonic() - began)


def forecast(
    found: Inputs,
    held: Held,
    release: str,
    waiver: str = "",
    allowed: Sequence[str] = (),
    twinned: Twins = NO_TWINS,
) -> Forecast:
    """Return the steps of push() for an image that is not blocked, and the errors that would end it; write nothing.

    If two places hold different digests, the push stops there and has no steps.
    """
    began, image = time.monotonic(), known_image(found, out_folder(found.recipe))
    refused = refusals.refusals(found, release)
    try:
        digest, missing = one_digest(found, held)
    except RegistryError as error:
        return Forecast(Done(image, "refused", error.what, time.monotonic() - began), [*refused, error])
    image = image.model_copy(update={"digest": digest or image.digest})
    to_send = digest or _in_the_engine(found, refused)
    one = Push(found, held, release, digest, missing, image, to_send=to_send, refused=refused, allowed=allowed)
    one.untwinned = twinned.places
    if release:
        for place in held:
            with collected(refused):
                refusals.refuse_taken(found, place.repository, release, digest)
        with collected(refused):
            refusals.gated(found.recipe, to_send, waiver)
    tags = ", ".join(filter(None, [found.tag if missing else "", release]))
    if missing:
        action = "would push" if to_send else "not built"
        sent = to_send or f"trainwright build {found.variant.words}; then it goes"
        why = f"{sent} to {', '.join(map(str, missing))}; then prove and attest it; then tag {tags}"
    elif release:
        action, why = "would tag", f"published with this key as {digest}; then tag {tags}"
    else:
        with collected(refused):
            one.unsigned = sign_probed.unsigned(found, image, held)
        action = "would sign" if one.unsigned else "would twin" if one.untwinned else "skip"
        why = key.decide(one.id, found.key, digest, None).reason
    steps = [line for step in STEPS if step.applies(one) for line in step.tell(one)]
    if missing or release:
        steps.append("no alias moves: `trainwright release` moves them")
    return Forecast(Done(image, action, why, time.monotonic() - began, steps), refused)


def one_digest(found: Inputs, held: Held) -> tuple[str, list[Place]]:
    """Return the digest behind the key's tag, "" if it is not published, and the places that lack it.

    Raises RegistryError if two places disagree.
    """
    named = {digest for digest in held.values() if digest}
    if len(named) > 1:
        raise RegistryError(
            f"{found.tag} points to different images",
            where=", ".join(f"{place}: {digest}" for place, digest in held.items() if digest),
            why="the tag of a key is immutable, so none of them can be moved",
            fix=f"trainwright rebuild --compare {found.variant.id}   # shows the digest that a build gives",
        )
    return next(iter(named), ""), [place for place, digest in held.items() if not digest]


def _in_the_engine(found: Inputs, refused: list[TrainwrightError]) -> str:
    """Return the digest of the built image; "" if it is not built or no engine answers, which is an error to report."""
    try:
        if held := engine.image_id(found.name):
            return held
        refused.append(
            NotRunError(
                f"{found.variant.id} is not built with its present inputs",
                why="a push sends the image from the engine; the steps after that are only a forecast",
                fix=f"trainwright build {found.variant.words}",
            )
        )
    except EnvironmentProblem as error:
        refused.append(error)
    return ""
