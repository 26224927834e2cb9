"""Test, push by digest, verify what the registry holds, and only then tag."""

import sys
import time
from pathlib import Path
from typing import Literal
from xml.etree import ElementTree

from trainwright import children, engine, lock, plan, registry, store, trains
from trainwright.building import at_hand
from trainwright.errors import ConfigError, NotRunError, RegistryError, TestError
from trainwright.images import Done, known_image, out_folder, published_image, write_image
from trainwright.inputs import Inputs
from trainwright.matrix import Intent
from trainwright.model import Variant
from trainwright.outcome import Check, Image, PlanEntry
from trainwright.process import run
from trainwright.progress import Say


def test(intent: Intent, variant: Variant, repository: str | None, say: Say) -> Done:
    """Run the image tests on what the engine holds, and write the outcome into image.json.

    From the first moment on, what an earlier run said no longer counts. Raises TestError, and NotRunError where a
    test was skipped.
    """
    began = time.monotonic()
    found = children.load(intent, variant)
    out, image = out_folder(intent, variant), at_hand(intent, found, say, repository)
    report = out / "tests.xml"
    report.unlink(missing_ok=True)
    _write_outcome(out, image, "not run", "begun, and not ended")
    say(f"{variant.id}: image tests")
    try:
        run(
            [
                *(sys.executable, "-m", "pytest", "--quiet", intent.root / "tests/image"),
                *("--image", found.name, "--variant", variant.parent or variant.id, f"--junitxml={report}"),
                *(("--with", Path(variant.requirements).absolute(), "--name", variant.name) if variant.parent else ()),
            ],
            cwd=intent.root,
            error=TestError,
            what=f"{variant.id} failed its image tests",
            fix=f"trainwright test {variant.words}",
            show=True,
            out_to_err=True,
        )
    except TestError as error:
        _write_outcome(out, image, "failed", error.why)
        raise
    counts = ElementTree.parse(report).getroot()[0].attrib
    if int(counts["skipped"]):
        _write_outcome(out, image, "not run", f"{counts['skipped']} of {counts['tests']} tests did not run")
        raise NotRunError(
            f"{counts['skipped']} image test(s) of {variant.id} did not run",
            where=str(report),
            why="what did not run has proved nothing",
            fix=f"trainwright test {variant.words}",
        )
    image = _write_outcome(out, image, "passed", f"{counts['tests']} tests")
    return Done(image, "tested", f"{counts['tests']} image tests passed", time.monotonic() - began)


def _write_outcome(out: Path, image: Image, state: Literal["passed", "failed", "not run"], detail: str) -> Image:
    assert image.proof is not None  # at_hand() sees to it
    proof = image.proof.model_copy(update={"tests": Check(state=state, detail=detail)})
    image = image.model_copy(update={"proof": proof})
    write_image(out, image)
    return image


def push(intent: Intent, variant: Variant, repository: str, release: str, dry_run: bool, say: Say) -> Done:
    """Prove, push by digest, verify what the registry holds, tag. In this order: a tag never names the unproved.

    `release` is one more tag, for people; an image with drift does not get one. A dry run refuses what the real one
    would refuse, and writes nothing: not here, not in the engine, not in the registry.
    """
    began = time.monotonic()
    found = children.load(intent, variant)
    lock.refuse_blocked(variant, found.blocked)
    out = out_folder(intent, variant)
    if release:
        _refuse_alias(intent, release)
        refuse_drift(found)
    held = registry.resolve(repository, found.tag)  # a registry that does not answer ends a push at once
    if release:
        _refuse_taken(found, repository, release, held)
    entry = plan.decide(variant.id, found.key, held, None if held else engine.image_id(found.name) is not None)
    if dry_run:
        action, why = _forecast(found, entry, repository, release)
        return Done(known_image(found, out), action, why, time.monotonic() - began)
    if entry.action == "skip":
        image = published_image(found, out, repository)
        action, why = "skip", entry.reason
    else:
        image = _publish(intent, found, repository, say)
        action, why = "pushed", "proved, pushed by digest, verified, tagged"
    if release:
        registry.tag(repository, str(image.digest), release)
        image = image.model_copy(update={"tags": [*dict.fromkeys([*image.tags, release])]})
        write_image(out, image)
        why += f"; released as {release}"
    return Done(image, action, why, time.monotonic() - began)


def _publish(intent: Intent, found: Inputs, repository: str, say: Say) -> Image:
    """The way of one image from the engine to a tag in the registry that means exactly its inputs."""
    image = at_hand(intent, found, say)
    if image.proof is None or image.proof.tests.state != "passed":
        image = test(intent, found.variant, None, say).image
    with store.scratch() as folder:
        engine.save(found.name, folder / "layout")
        digest, manifest = registry.manifest_of(folder / "layout")
        say(f"{found.variant.id}: pushing {digest}")
        registry.push(folder / "layout", repository, digest)
        registry.verify(repository, digest, manifest)
    registry.tag(repository, digest, found.tag)
    image = image.model_copy(update={"digest": digest, "uri": f"{repository}@{digest}", "tags": [found.tag]})
    write_image(out_folder(intent, found.variant), image)
    return image


def _refuse_alias(intent: Intent, release: str) -> None:
    """An alias moves with every release, and an id looks like one: a tag for ever must not be called that."""
    if release in {name for variant in intent.variants for name in (variant.id, trains.alias(variant.id))}:
        raise ConfigError(
            f"--release {release} is the alias of an image, which moves",
            fix=f"trainwright release <year>.<month>.0 --only {release}",
        )


def refuse_drift(found: Inputs) -> None:
    """Raises RegistryError for an image that is not what its lock says: it can be used, and never released."""
    if drift := found.drift:
        raise RegistryError(
            f"{found.variant.id} cannot be released: {len(drift)} of its packages drifted from the lock",
            why=", ".join(f"{d.package} {d.locked or '(new)'} -> {d.used}" for d in drift[:5]),
            fix="trainwright lock --update, review the difference, lock --update --write, and build again",
        )


def _refuse_taken(found: Inputs, repository: str, release: str, own: str) -> None:
    """Before anything is sent: a release tag that another image has. `own` is the digest of this one, "" before."""
    taken = registry.resolve(repository, release)
    if taken in ("", own):
        return
    this = f"this image is {own}" if own else "this image is not in the registry yet"
    what = f"{found.variant.id} cannot be released as {release}: a released tag never moves"
    raise RegistryError(
        what, where=f"{repository}:{release}", why=f"it names {taken}; {this}", fix="choose another name"
    )


def _forecast(found: Inputs, entry: PlanEntry, repository: str, release: str) -> tuple[str, str]:
    """What a push would do, and why. Raises NotRunError where there is nothing to push."""
    if entry.action == "skip":
        return ("would tag", f"{entry.reason}; then {release}") if release else ("skip", entry.reason)
    if entry.action == "build":
        raise NotRunError(
            f"{entry.id} is not there to be pushed",
            why=entry.reason,
            fix=f"trainwright build --only {entry.id}",
        )
    tags = ", ".join(filter(None, [found.tag, release]))
    return "would push", f"to {repository}, once it is proved; then tag {tags}"
