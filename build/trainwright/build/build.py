"""Build the images that are not built yet, and prove that each matches its lock."""

import json
import shutil
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from trainwright.build import baking, kept, proof_code, syft
from trainwright.build import compile as build_compile
from trainwright.build.state import Done, known_image, out_folder, plan_one, published_image, read_image, write_image
from trainwright.core import store
from trainwright.core.errors import NotRunError
from trainwright.core.files import write
from trainwright.core.progress import Progress, Say
from trainwright.docker import buildx, engine
from trainwright.docker.buildx import Cache
from trainwright.image import bootstrap, child, probe
from trainwright.image.inputs import Distribution, Inputs
from trainwright.lock import lockfile, rpms, wheel_files
from trainwright.matrix.matrix import Intent, Recipe
from trainwright.matrix.model import Base
from trainwright.matrix.records import Check, Image, Proof
from trainwright.registry import auth, client
from trainwright.registry.locations import home
from trainwright.registry.settings import Place, publication
from trainwright.resolve import apt, upstream
from trainwright.resolve.fetch import fetch, fetch_packages, to_fetch

KEY = "key"  # out/<id>/key: the key of the sources in this folder


def lay_out(found: Inputs, out: Path) -> None:
    """Lay out the build context out/<id>/: text, wheels, base, rootfs. Files of an earlier lock are removed."""
    clear(out, found)
    for folder, entries in found.wheels.items():
        (out / "wheels" / folder).mkdir(parents=True)
        for entry in entries:
            store.place(entry.sha256, out / "wheels" / folder / entry.file, entry.file)
    for source in found.lock.sources:
        upstream.lay_out(source, out / "sources" / source.name)
    for name, path in found.rootfs.items():
        target = out / "rootfs" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
        target.chmod(0o755 if path.stat().st_mode & 0o100 else 0o644)
    if found.parent is None:
        lay_out_base(found, out)
    write_text(found.text, out)
    for copied in [path for part in ("rootfs", "requirements") for path in (out / part).rglob("") if path.is_dir()]:
        copied.chmod(0o755)  # the image's content must not depend on this user's umask
    write(out / KEY, found.key + "\n")  # written last, so that an incomplete folder has no key


def lay_out_base(found: Inputs, out: Path) -> None:
    """Lay out what an image of the matrix starts from, and the additional packages of its compile stages."""
    definition = found.recipe.base
    lay_out_packages(definition, found.distribution, out / "packages")
    if definition.provider == "packages":
        store.place(first_tar(found), out / "base" / "first.tar", f"the start of the base {found.variant.base}")
        names = bootstrap.first(found.distribution.effective)
        files = (found.distribution.effective[name]["Filename"] for name in names)
        write(out / "packages" / bootstrap.LIST, "".join(f"{file}\n" for file in files))
    if found.tools:
        lay_out_packages(definition, found.tools, out / "build-packages")


def lay_out_packages(base: Base, state: Distribution, folder: Path) -> None:
    """Write locked packages, and for apt their index, for a step that installs them without network."""
    own = {name: stanza for name, stanza in state.effective.items() if stanza["SHA256"]}
    folder.mkdir()
    if base.manager == "apt":
        apt.archive(folder, base, own, state.epoch)
    for name, stanza in own.items():
        store.place(stanza["SHA256"], folder / stanza["Filename"], name)


def clear(out: Path, found: Inputs) -> None:
    """Remove the sources, and the results of another key."""
    for name in ("wheels", "sources", "requirements", "rootfs", "base", "packages", "build-packages"):
        shutil.rmtree(out / name, ignore_errors=True)
    (out / KEY).unlink(missing_ok=True)
    image = read_image(out)
    if image is None or image.key != found.key:
        for name in ("image.json", "sbom.json", "tests.xml", "training.xml", "cluster.xml"):
            (out / name).unlink(missing_ok=True)


def is_laid_out(found: Inputs, out: Path) -> bool:
    """Return whether out/<id>/ holds exactly the sources of this key."""
    return (out / KEY).is_file() and (out / KEY).read_bytes().strip() == found.key.encode()


def write_text(texts: Mapping[str, str], out: Path) -> None:
    """Write only the rendered part of out/<id>/; `texts` maps a path in it to its text."""
    for name, text in texts.items():
        write(out / name, text)


def known_start(found: Inputs) -> Path:
    """Return the store's file that holds the sha256 of the tar that a base starts from."""
    return store.root() / "base" / found.base_key


def has_start(found: Inputs) -> bool:
    known = known_start(found)
    given = found.parent is not None or found.recipe.base.provider == "image"
    return given or (known.exists() and store.has(known.read_text().strip()))


def first_tar(found: Inputs) -> str:
    """Return the sha256 of the tar in the store that the base starts from, made once for all images on that base."""
    known = known_start(found)
    if known.exists() and store.has(sha256 := known.read_text().strip()):
        return sha256
    with store.scratch() as folder:
        made = folder / "first.tar"
        bootstrap.first_tar(found.distribution.effective, found.distribution.epoch, made)
        sha256 = store.sha256_of(made)
        store.add(made, sha256)
    write(known, sha256 + "\n")
    return sha256


def build(
    recipe: Recipe,
    repository: str | None,
    say: Say,
    progress: Progress,
    cache: Cache | None = None,
    held: Mapping[Place, str] | None = None,
) -> Done:
    """Build one image if it can be neither skipped nor reused, and prove that it matches its lock. Raises BuildError.

    `held` is the result of state.published() for it; without it, `repository` is queried if it is not None.
    """
    began = time.monotonic()
    found = child.load(recipe)
    lockfile.refuse_blocked(recipe, found.blocked)
    place, digest = home(held) if held else (None, "")
    repository, key = place.repository if place else repository, found.key
    entry = plan_one(found, repository, engine.answers, held)
    for warning in entry.warnings:
        say(f"{recipe.id}: warning: {warning}")
    if entry.action == "build":
        must_be_able(recipe, cache)
        engine.client()  # raises now rather than after fetching hundreds of megabytes
        fetch_packages(recipe.intent, [recipe], say, progress)
        found = child.load(recipe)  # drift that the fetch found changes the key
        with ThreadPoolExecutor(1) as beside:  # unpack (seconds) while the wheels are fetched
            start = None if has_start(found) else beside.submit(first_tar, found)
            fetch(recipe.intent, [recipe], say, progress)
        if start:
            start.result()
        if found.key != key:
            held, digest = None, ""
        entry = plan_one(found, repository, engine.answers, held)
    out = out_folder(recipe)
    if entry.action == "build" and found.parent:
        found = stand_on(found, repository, say, progress)
    if entry.action == "skip":
        if not is_laid_out(found, out):
            if to_fetch([recipe]) == 0 and has_start(found):
                lay_out(found, out)
            else:  # because the image is published, do not fetch gigabytes of sources
                clear(out, found)
                say(f"{recipe.id}: published, so its sources are not fetched; out/{recipe.id}/ only holds text")
        write_text(found.text, out)
        return Done(
            published_image(found, out, str(repository), digest), "skip", entry.reason, time.monotonic() - began
        )
    if entry.action == "build" or not is_laid_out(found, out):
        fetch(recipe.intent, [recipe], say, progress)
        say(f"{recipe.id}: laying out its sources")
        lay_out(found, out)
    write_text(found.text, out)
    if entry.action == "build":
        say(f"{recipe.id}: building in {out}")
        baking.bake(out, words=buildx.cache_words(cache, recipe.id, export_of(recipe.intent)) if cache else [])
    return Done(at_hand(found, say), entry.action, entry.reason, time.monotonic() - began)


def must_be_able(recipe: Recipe, cache: Cache | None = None) -> None:
    """Check that engine and builder can do what the build needs, before hours of work. Raises EnvironmentProblem."""
    buildx.must_build_for(engine.builder(), recipe.base.architecture)
    if not engine.builds_itself():
        buildx.must_hand_over(engine.builder())
    if cache and cache.to:
        buildx.must_export_caches(engine.builder())


def export_of(intent: Intent) -> str:
    return publication(intent.root).cache.export


def stand_on(found: Inputs, repository: str | None, say: Say, progress: Progress) -> Inputs:
    """Bring the parent and compiler images into the engine, and compile the wheels that only a compiler image makes."""
    out = out_folder(found.recipe)
    jobs = [job for job in found.compile if job.wheel is None]
    wanted = {job.image for job in jobs} | {found.variant.parent}
    for other in (recipe for recipe in found.recipe.intent.recipes if recipe.id in wanted):
        build(other, repository, say, progress)
        at_hand(child.load(other), say, repository)
    for job in jobs:
        build_compile.compile_wheel(found, job, out, say)
    return child.load(found.recipe)  # with the compiled wheels


def at_hand(found: Inputs, say: Say, repository: str | None = None) -> Image:
    """Return the proved image that the engine holds under this key; pull it if only `repository` has it.

    Raises NotRunError if it is not built, BuildError if it does not match its lock.
    """
    identity, out = bring(found, say, repository), out_folder(found.recipe)
    image = read_image(out)
    if image and image.proof and (image.key, image.proof.image) == (found.key, identity):
        code = proof_code.digest_of(found.recipe, "probe")
        if image.proof.probe.code == code:
            return image
    baking.settle(found.name)  # it may have been baked by hand
    say(f"{found.variant.id}: probing the image, and listing its packages")
    return proved(found, out)


def bring(found: Inputs, say: Say, repository: str | None = None) -> str:
    """Return the id of the image that the engine holds under this key; pull it if only `repository` has it.

    Raises NotRunError if it is not built.
    """
    identity = engine.image_id(found.name)
    if identity is None and repository and (digest := client.resolve(repository, found.tag)):
        say(f"{found.variant.id}: pulling {digest}")
        identity = engine.pull(f"{repository}@{digest}", found.name, auth.credentials(repository))
    if identity is None:
        raise NotRunError(
            f"{found.variant.id} is not built with its present inputs",
            fix=f"trainwright build {found.variant.words}",
        )
    return identity


def findings(found: Inputs, name: str) -> tuple[probe.Findings, str]:
    """Probe an image in the engine; return the findings and the time when they were made, "" for just now.

    Findings of the same image, questions and host are reused. Raises BuildError.
    """
    script = (found.recipe.root / "scripts/probe.py").read_text()
    questions = json.dumps(probe.questions(found.recipe, found.pins))
    on = {"image": engine.image_id(name), "script": script, "questions": questions, "host": kept.host()}
    said, when = kept.outcome("probe", on, lambda: engine.ask(name, script, questions))
    return probe.Findings.model_validate(said), when


def proved(found: Inputs, out: Path) -> Image:
    """Prove the finished image by prove(); on a base with rpm, compare rpm's packages first. Raises BuildError.

    These are compared on their own, because what proves an image counts for its proof, and rpm proves no other image.
    """
    if found.recipe.base.manager == "apt":
        return prove(found, out)
    rows = rpm_packages(found, found.name)
    probe.refuse(found.recipe, rpms.differences(found.distribution.effective, rows))
    none = Distribution(intent="", epoch=0, locked={}, effective={}, drift=[], unmet=None)
    image = prove(found.model_copy(update={"distribution": none}), out)
    held = {name: rpms.version(row) for name, row in rpms.by_name(rows).items()}
    assert image.proof is not None  # of prove()
    python = image.proof.probe.detail.partition(" and ")[2]
    check = image.proof.probe.model_copy(update={"detail": f"{len(held)} rpm packages and {python}"})
    update = {"packages": held, "drift": found.drift, "proof": image.proof.model_copy(update={"probe": check})}
    image = image.model_copy(update=update)
    write_image(out, image)
    return image


def rpm_packages(found: Inputs, name: str) -> list[rpms.Rpm]:
    """Return what rpm lists in an image in the engine. Raises BuildError."""
    said = engine.ask(name, (found.recipe.root / "scripts/rpm_packages.py").read_text(), entrypoint=[])
    return [rpms.Rpm.model_validate(row) for row in said]


def prove(found: Inputs, out: Path) -> Image:
    """Probe the finished image, compare it with the lock, write SBOM and image.json. Raises BuildError."""
    with store.scratch() as folder, ThreadPoolExecutor(1) as beside:
        engine.save(found.name, folder / "layout")
        _, manifest = client.manifest_of(folder / "layout")
        # syft reads the saved layers, without the engine, while the image is probed.
        listing = beside.submit(syft.sbom, folder / "layout", folder / "sbom.json", found.variant.id)
        said, when = findings(found, found.name)
        packages = found.distribution.packages()
        differences = probe.compare(found.recipe, found.pins, found.lock, packages, said)
        differences += wheel_files.of_compiled(said.files, found.recipe.installed(found.lock).values())
        before = known_image(found, out)  # with the fields that a push wrote, which later proofs keep
        if differences and before.uri:
            write_image(out, before.model_copy(update={"proof": None}))
        elif differences:
            (out / "image.json").unlink(missing_ok=True)
        probe.refuse(found.recipe, differences)
        listing.result()
        write(out / "sbom.json", (folder / "sbom.json").read_text())
    proof = Proof(
        image=str(engine.image_id(found.name)),
        probe=Check(
            state="passed",
            detail=f"{len(said.packages)} distribution and {len(said.python_packages)} Python packages"
            + (f", kept from {when}" if when else ""),
            code=proof_code.digest_of(found.recipe, "probe"),
        ),
        tests=Check(state="not run"),
    )
    image = before.model_copy(
        update={
            "size": client.size_of(manifest),
            "versions": said.versions,
            "packages": said.packages,
            "drift": found.drift,
            "proof": proof,
        }
    )
    write_image(out, image)
    return image
