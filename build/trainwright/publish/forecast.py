"""Forecast the steps of a push, and the errors that would end it, without writing anything."""

import time
from typing import NamedTuple

from trainwright.build import state
from trainwright.build.state import Done
from trainwright.core.errors import EnvironmentProblem, NotRunError, RegistryError, TrainwrightError, collected
from trainwright.docker import engine
from trainwright.image import child, key
from trainwright.image.inputs import Inputs
from trainwright.matrix.matrix import Recipe
from trainwright.matrix.records import Image
from trainwright.publish import attest, push
from trainwright.publish.push import Held
from trainwright.registry.ecr_settings import refuse_filters
from trainwright.registry.settings import FILE, Place, Publication, Repository, publication


class Forecast(NamedTuple):
    """A row of the table, with its steps, and all errors that would end the real push."""

    done: Done
    refused: list[TrainwrightError]


def forecast(recipe: Recipe, held: Held, release: str, waiver: str = "") -> Forecast:
    """Forecast push.push() for an image that is not blocked.

    If two places hold different digests, the push stops there and has no steps.
    """
    began, found = time.monotonic(), child.load(recipe)
    image = state.known_image(found, state.out_folder(recipe))
    refused = push.refusals(found, release)
    try:
        digest, missing = push.one_digest(found, held)
    except RegistryError as error:
        return Forecast(Done(image, "refused", error.what, time.monotonic() - began), [*refused, error])
    own = digest or _in_the_engine(found, refused)
    if release:
        for place in held:
            with collected(refused):
                push.refuse_taken(found, place.repository, release, digest)
        with collected(refused):
            push.gated(recipe, own, waiver)
    image = image.model_copy(update={"digest": digest or image.digest})
    if not missing and not release:
        why, names = key.decide(recipe.id, found.key, digest, None).reason, list[str]()
        with collected(refused):
            names = push.unsigned(found, image, held)
        if names:
            first = "" if push.probed_here(image, digest) else f"; {push.PROBED_FIRST}"
            steps = [f"sign what is published: {', '.join(names)}: by {attest.signing_key()}{first}"]
            return Forecast(Done(image, "would sign", why, time.monotonic() - began, steps), refused)
        return Forecast(Done(image, "skip", why, time.monotonic() - began), refused)
    policy, steps = publication(recipe.root), list[str]()
    if missing:
        with collected(refused):
            refuse_filters(policy.repository, [recipe.id])
        steps = _until_it_is_proved(found, image, held, missing, digest, own, policy, refused)
    steps += _told(policy, held, missing, found.tag, release)
    tags = ", ".join(filter(None, [found.tag if missing else "", release]))
    if not missing:
        action, why = "would tag", f"published with this key as {digest}; then tag {tags}"
    else:
        action = "would push" if own else "not built"
        to = ", ".join(map(str, missing))
        why = f"{own or f'trainwright build {recipe.variant.words}; then it goes'} to {to}; then prove and attest it"
        why += f"; then tag {tags}"
    return Forecast(Done(image, action, why, time.monotonic() - began, steps), refused)


def _in_the_engine(found: Inputs, refused: list[TrainwrightError]) -> str:
    """Return the digest of the built image; "" if it is not built or no engine answers, which is added to `refused`."""
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


def _until_it_is_proved(
    found: Inputs,
    image: Image,
    held: Held,
    missing: list[Place],
    digest: str,
    own: str,
    policy: Publication,
    refused: list[TrainwrightError],
) -> list[str]:
    variant, source = found.variant, next((place for place in held if held[place]), None)
    steps = [f"build: the engine holds it, {own}"]
    if source:
        steps = [f"build: not needed; the engine pulls {digest} from {source}"]
    elif not own:
        steps = [f"build: the image is not built: trainwright build {variant.words}"]
    for place in missing:
        steps.append(f"repository: {place.repository}: a plain registry has no settings")
        if place.region:
            with collected(refused):
                steps[-1:] = _repository(place, policy.repository)
    called = own or "its digest, known once it is built,"
    steps += [f"push by digest: {called} to {place.repository}; blobs that it holds are not sent" for place in missing]
    steps.append("verify: the manifest under its digest, each blob; plain, one platform, Docker media types")
    proof = image.proof if image.proof and own and image.proof.image == own else None
    tests = "probe and image tests run on it"
    if proof:
        passed = proof.tests.state == "passed"
        tests = f"it is probed; {f'{proof.tests.detail} passed on it' if passed else 'image tests run on it'}"
    steps.append(f"prove: the engine pulls it by that digest from {missing[0]}; {tests}")
    scanned = policy.scan
    grave = " or ".join(scanned.refuse) or "no severity"
    allowed = f" unless allowed: {', '.join(row.id for row in scanned.allow)}" * bool(scanned.allow)
    silent = "refuses it, too" if scanned.unknown == "refuse" else "is recorded"
    for place in missing:
        if place.region:
            limit = f"for {scanned.wait_seconds:g} s at most"
            steps.append(f"scan in {place}: {limit}; {grave} refuses it{allowed}; no result {silent}")
        else:
            steps.append(f"scan: not run: {place} is a plain registry and scans nothing")
    return steps


def _repository(place: Place, settings: Repository) -> list[str]:
    """Return the steps for a repository. Raises the errors of push.settled()."""
    rows = push.settled(place, settings, create=False)
    own = [row for row in rows if row.repository == place.path]
    others = [f"{row.setting} of {row.repository}: {row.held or 'as wanted'}" for row in rows if row not in own]
    if own[0].state == "missing":
        return [f"repository: {place.repository} does not exist; it is created: {_settings(settings)}", *others]
    if own[0].state == "as wanted":
        return [f"repository: {place.repository} matches {FILE}: {_settings(settings)}", *others]
    told = "; ".join(f"{row.setting} is {row.held}, {FILE} requires {row.wanted}" for row in own)
    return [f"repository: {place.repository} stays as it is: {told}; trainwright repositories --apply", *others]


def _settings(settings: Repository) -> str:
    return "; ".join(
        filter(
            None,
            [
                f"tags are immutable except {', '.join(settings.moving)}",
                f"scan on push: {'yes' if settings.scan_on_push else 'no'}",
                f"encryption {settings.encryption} {settings.kms_key}".rstrip(),
                f"untagged images expire after {settings.untagged_days} days, caches after {settings.cache_days}",
                f"readers {', '.join(settings.readers) or 'none'}",
                ", ".join(f"{name}={value}" for name, value in settings.tags.items()),
            ],
        )
    )


def _told(policy: Publication, held: Held, missing: list[Place], tag: str, release: str) -> list[str]:
    """Return the steps that sign, then those that tag, in their order."""
    key = attest.signing_key()
    said = f"by {key}" if key else f"not run: {attest.NO_KEY} ([signature] required = {policy.signature.required!r})"
    steps = [f"sign image, SBOM and provenance: {said}"]
    if missing:
        steps.append(f"tag {tag} in {', '.join(map(str, missing))}: immutable")
    if release:
        steps.append(f"tag {release} in {', '.join(map(str, held))}: immutable")
    return [*steps, "no alias moves: `trainwright release` moves them"]
