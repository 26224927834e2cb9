"""Test, push by digest, verify what the registry holds, and only then tag."""

import sys
import time
from typing import Literal
from xml.etree import ElementTree

from trainwright import engine, inputs, registry, store
from trainwright.building import at_hand
from trainwright.errors import NotRunError, RegistryError, TestError
from trainwright.images import Done, out_folder, plan_one, published_image, write_image
from trainwright.matrix import Intent
from trainwright.model import Check, Image, Variant
from trainwright.process import run
from trainwright.progress import Say


def test(intent: Intent, variant: Variant, repository: str | None, say: Say) -> Done:
    """Run the image tests on what the engine holds, and write the outcome into image.json. Raises TestError."""
    began = time.monotonic()
    found = inputs.load(intent, variant)
    out, image = out_folder(intent, variant), at_hand(intent, found, say, repository)
    report = out / "tests.xml"
    say(f"{variant.id}: image tests")

    def outcome(state: Literal["passed", "failed"], detail: str) -> Image:
        assert image.proof is not None  # at_hand() sees to it
        tests = Check(state=state, detail=detail)
        return image.model_copy(update={"proof": image.proof.model_copy(update={"tests": tests})})

    try:
        run(
            [
                *(sys.executable, "-m", "pytest", "--quiet", intent.root / "tests/image"),
                *("--image", found.name, "--variant", variant.id, f"--junitxml={report}"),
            ],
            cwd=intent.root,
            error=TestError,
            what=f"{variant.id} failed its image tests",
            fix=f"trainwright test --only {variant.id}",
            show=True,
            out_to_err=True,
        )
    except TestError as error:
        write_image(out, outcome("failed", error.why))
        raise
    counts = ElementTree.parse(report).getroot()[0].attrib
    if int(counts["skipped"]):
        raise NotRunError(
            f"{counts['skipped']} image test(s) of {variant.id} did not run",
            where=str(report),
            why="what did not run has proved nothing",
            fix=f"trainwright test --only {variant.id}",
        )
    image = outcome("passed", f"{counts['tests']} tests")
    write_image(out, image)
    return Done(image, "tested", f"{counts['tests']} image tests passed", time.monotonic() - began)


def push(intent: Intent, variant: Variant, repository: str, release: str, dry_run: bool, say: Say) -> Done:
    """Prove, push by digest, verify what the registry holds, tag. In this order: a tag never names the unproved.

    `release` is one more tag, for people; an image with drift does not get one.
    """
    began = time.monotonic()
    found = inputs.load(intent, variant)
    out = out_folder(intent, variant)
    tags = [found.tag, release] if release else [found.tag]
    if release and found.distribution.drift:
        raise RegistryError(
            f"{variant.id} cannot be released: {len(found.distribution.drift)} of its packages drifted from the lock",
            why=", ".join(f"{d.package} {d.locked or '(new)'} -> {d.used}" for d in found.distribution.drift[:5]),
            fix="trainwright lock --update, review the difference, and build again",
        )
    entry = plan_one(found, repository, engine.answers)
    if entry.action == "skip":
        image = published_image(found, out, repository)
        if release and not dry_run:
            registry.tag(repository, str(image.digest), release)
        return Done(image, "skip", entry.reason, time.monotonic() - began)
    image = at_hand(intent, found, say)
    if dry_run:
        return Done(image, "would push", f"to {repository}, then tag {', '.join(tags)}", time.monotonic() - began)
    if image.proof is None or image.proof.tests.state != "passed":
        image = test(intent, variant, None, say).image
    with store.scratch() as folder:
        engine.save(found.name, folder / "layout")
        digest, manifest = registry.manifest_of(folder / "layout")
        say(f"{variant.id}: pushing {digest}")
        registry.push(folder / "layout", repository, digest)
        registry.verify(repository, digest, manifest)
    for name in tags:
        registry.tag(repository, digest, name)
    image = image.model_copy(update={"digest": digest, "uri": f"{repository}@{digest}", "tags": tags})
    write_image(out, image)
    return Done(image, "pushed", "proved, pushed by digest, verified, tagged", time.monotonic() - began)
