"""Build a graft, prove that it is the image below and nothing else, and push it by digest."""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name

from trainwright.build import baking, state, syft
from trainwright.build import build as build_build
from trainwright.core import store
from trainwright.core.errors import BuildError, NotRunError
from trainwright.core.files import write
from trainwright.core.progress import Progress, Say, few
from trainwright.core.toml import load
from trainwright.docker import engine, oci_layout
from trainwright.graft import files, lock, look, recorded, with_file
from trainwright.graft import recipe as graft_recipe
from trainwright.graft.files import Graft, archive
from trainwright.graft.found import Found, Inside, settings
from trainwright.graft.plan import Plan
from trainwright.graft.results import Result
from trainwright.graft.wanted import Wanted
from trainwright.image import probe
from trainwright.lock import rpms
from trainwright.matrix.matrix import Intent
from trainwright.matrix.records import GRAFT
from trainwright.publish import attest, licences, twins
from trainwright.registry import client
from trainwright.registry.settings import Place, publication

STARTED = "trainwright was started"
ROOT = "0"  # the user of an image that names none


def build(
    intent: Intent, found: Found, wanted: Wanted, made: Plan, say: Say, progress: Progress
) -> tuple[Graft, Result]:
    """Lock, build and prove a graft; what the engine has already is proved again, and not built.

    Raises BuildError, NotRunError, EnvironmentProblem, and what lock.locked() raises.
    """
    began, out = time.monotonic(), intent.root / "out" / made.id
    if not engine.builds_itself():
        why = f"the builder {engine.builder().driver} does not hold the image below"
        fix = "unset BUILDX_BUILDER, or docker buildx use default"
        raise NotRunError(f"{made.id} is not built", why=why, fix=fix)
    recipe = graft_recipe.recipe(intent, found, wanted, made.id, made.framework)
    locked = lock.locked(recipe, found, out, files.epoch(found.config.created), say, progress, wanted.file)
    one = files.graft(recipe, found, made, locked)
    lay_out(one, out)
    recorded.write_down(found, wanted, made, out)
    if found.source != found.pinned:
        say(f"no registry answered for {found.pinned}, so only this engine can build on it")
        engine.tag(found.reference, found.source)
    if engine.image_id(one.name) is None:
        say(f"{one.id}: building in {out.relative_to(intent.root)}")
        with with_file.refused(found, wanted.file):
            baking.bake(out)
    say(f"{one.id}: looking into it, and checking it against its declaration")
    try:
        result, after = prove(intent, found, made, one, say)
    except BuildError:
        engine.remove(one.name)
        raise
    held = after.inside.packages if after.inside else {}
    image = state.known_image(one.inputs, out)
    state.write_image(out, image.model_copy(update={"versions": one.inputs.versions, "packages": held}))
    result = result.model_copy(update={"seconds": round(time.monotonic() - began, 1)})
    write(out / GRAFT, result.model_dump_json(indent=2) + "\n")
    return one, result


def lay_out(one: Graft, out: Path) -> None:
    """Write out/<id>/, from which `docker buildx bake` builds the graft without trainwright."""
    build_build.lay_out(one.inputs, out)
    if not (out / "image.json").exists():  # none yet, or it was of another key
        (out / GRAFT).unlink(missing_ok=True)
    write(out / "graft.tar", archive(one))


def prove(intent: Intent, found: Found, made: Plan, one: Graft, say: Say) -> tuple[Result, Found]:
    """Compare a graft with the image below it, and run its own check; return also what was found in it.

    Raises BuildError.
    """
    after = look.look(intent, one.name, say)
    wrong = list(differences(found, after, made, one))
    if wrong:
        raise BuildError(
            f"{one.id} is not the image below it: {wrong[0]}",
            where=found.pinned,
            why=few(wrong),
            fix=f"docker run --rm -it {found.pinned} sh",
        )
    if one.inputs.variant.target == "sagemaker":
        enter(intent, one.id, one.name, after)
    result = Result(
        id=one.id,
        key=one.key,
        image=one.name,
        base=found.pinned,
        lower_layers=len(found.config.layers),
        added_layers=len(after.config.layers) - len(found.config.layers),
        nccl_before=_nccls(found),
        nccl_after=_nccls(after),
        requirements=one.inputs.variant.requirements,
        added=with_file.named(one.inputs.recipe, one.inputs.lock),
        checked=check(intent, one.id, one.name, after.config.user),
    )
    return result, after


def check(intent: Intent, identity: str, name: str, user: str) -> str:
    """Run a graft's own check of its declaration, as the user of its jobs. Raises BuildError if it refuses.

    `name` is that of the image in the engine.
    """
    words = ["TRAINWRIGHT_PREFLIGHT=off /usr/local/bin/trainwright-check 2>&1"]
    what = f"trainwright-check fails in {identity} as the user {user or 'root'}"
    try:
        said, why = look.ask(name, settings(intent.root), ["/bin/sh", "-c"], words, user or "0")
    except BuildError as error:
        fix = "let that user read and start the Python that holds the framework, or build the image with USER root"
        raise BuildError(what, where=name, why=error.why, fix=fix) from None
    if why:  # the engine does not start the container
        fix = "build the image below with /bin/sh, and with a USER that its /etc/passwd has, or that is a number"
        raise BuildError(what, where=name, why=why, fix=fix)
    return next((line for line in said.splitlines() if line.startswith("trainwright-check:")), "")


def enter(intent: Intent, identity: str, name: str, after: Found) -> None:
    """Start a program by the image's own entrypoint, as SageMaker starts `train`. Raises BuildError if that does not.

    `name` is that of the image in the engine.
    """
    entrypoint = after.config.entrypoint
    if not entrypoint:
        return
    words = ["/bin/sh", "-c", f"echo {STARTED}"]
    why = ""
    try:
        said, why = look.ask(name, settings(intent.root), entrypoint, words, after.config.user or ROOT)
    except BuildError as error:
        said, why = "", error.why
    if STARTED not in said.splitlines():
        raise BuildError(
            f"the entrypoint of {identity} does not start what SageMaker asks for",
            where=f"ENTRYPOINT {json.dumps(entrypoint)}",
            why=f"SageMaker gives it the word train, and it did not start the program that it was given: {why or said}"[
                :600
            ],
            fix='build the image with ENTRYPOINT [], or with one that ends in exec "$@"',
        )


def _nccls(found: Found) -> list[str]:
    return [f"{path} {version}" + ", mapped" * (path in found.mapped) for path, version in found.nccls.items()]


def differences(before: Found, after: Found, made: Plan, one: Graft) -> Iterator[str]:
    """Yield what a graft changed of the image below it beyond its plan and its lock."""
    was, now = before.config, after.config
    if now.layers[: len(was.layers)] != was.layers:
        yield f"its lowest {len(was.layers)} layers are not those of {before.pinned}"
    set_here = {*made.environment, *files.set_by(one.inputs.text["Dockerfile"])}
    names = {name for name, _ in was.environment.items() ^ now.environment.items()} - set_here
    if names or any(now.environment.get(name) != value for name, value in made.environment.items()):
        yield f"the environment is another one: {', '.join(sorted(names or made.environment))}"
    path = was.environment.get("PATH", "")
    if not now.environment.get("PATH", "").endswith(path):
        yield f"PATH was {path}, is {now.environment.get('PATH', '')}"
    fields = ["architecture", "os", "entrypoint", "volumes", "onbuild", "shell", "healthcheck"]
    if one.inputs.variant.target != "sagemaker":
        fields.append("command")
        if (was.user or ROOT) != (now.user or ROOT):
            yield f"user was {was.user or ROOT}, is {now.user or ROOT}"
    for name in fields:
        if getattr(was, name) != getattr(now, name):
            yield f"{name} was {getattr(was, name)}, is {getattr(now, name)}"
    if before.inside and after.inside:
        yield from _inside(before.inside, after.inside, one)


def _inside(before: Inside, after: Inside, one: Graft) -> Iterator[str]:
    """Yield what differs in the files of the image: what it had must be there, and what is new must be in the lock."""
    own = one.inputs
    for name in ("os", "libc"):
        if getattr(before, name) != getattr(after, name):
            yield f"{name} of the image changed: {getattr(after, name)!r}"[:400]
    new = {canonicalize_name(entry.name): entry.version for entry in own.recipe.installed(own.lock).values()}
    known = {python.path: python for python in after.pythons}
    for python in before.pythons:
        now = known.get(python.path)
        wanted = python.packages | (new if python.path == one.python else {})
        if now is None or now.packages != wanted:
            held = now.packages if now else {}
            wrong = sorted({name for name, _ in wanted.items() ^ held.items()})
            yield f"packages of {python.path}: {few(wrong, between=', ')}"
        elif now.components != {**now.components, **python.components}:
            yield f"what {python.path} imports changed: {now.components!r}"[:400]
    for what, old, new_rows in (
        ("program", before.commands, after.commands),
        ("library", _files(before), _files(after)),
    ):
        for name, row in old.items():
            if new_rows.get(name) != row and name not in files.replaced(own.recipe):
                yield f"{what} {name} was {row}, is {new_rows.get(name, 'gone')}"[:400]
    yield from _packages(before, after, one)


def _files(inside: Inside) -> dict[str, str]:
    return {path: f"{row.component} {row.version} sha256 {row.sha256}" for path, row in inside.libraries.items()}


def _packages(before: Inside, after: Inside, one: Graft) -> Iterator[str]:
    """Yield each distribution package that neither the image nor the lock has in this version."""
    held = one.inputs.distribution.packages()
    if held and one.inputs.recipe.base.manager == "dnf":
        own = probe.installed_by_pins(one.inputs.recipe, after.packages)
        entries = one.inputs.distribution.effective.items()
        locked = {name: row for name, row in entries if rpms.rpm_name(row) not in own}
        yield from rpms.differences(locked, [row for row in after.rpms if row.name not in own])
        return
    wanted = {name: package.version for name, package in held.items()} if held else before.packages
    wanted = wanted | probe.installed_by_pins(one.inputs.recipe, after.packages)
    for name in sorted(wanted.keys() | after.packages.keys()):
        if wanted.get(name) != after.packages.get(name):
            now = after.packages.get(name, "not there")
            yield f"package {name} is {now}, the lock says {wanted.get(name, 'none')}"


def forbidden(intent: Intent, reference: str, places: Sequence[Place]) -> list[str]:
    """Return why licences do not allow an image on top of this one in these places."""
    told = []
    for place in places:
        kind, why = licences.kind_of(place, intent.root)
        for row in load(intent.root / licences.FILE, licences.Licences).licences:
            names = (reference, f"docker.io/{reference}")
            if kind not in row.places and any(fnmatchcase(name, glob) for name in names for glob in row.bases):
                told.append(f"{row.title} does not allow it in {place.host}: {row.why}; {why}")
    return told


# --- the registry ----------------------------------------------------------------------------------------------------


def push(
    found: Found, one: Graft, result: Result, place: Place, out: Path, say: Say, asked: bool | None = None
) -> Result:
    """Push a proved graft by digest, verify it, and tag it last; then its zstd twin, if one is wanted (`asked`).

    Raises BuildError for a layer with other files than the image's configuration names, RegistryError, NotRunError for
    an engine that keeps no compressed layers.
    """
    repository, lower = place.repository, look.lower_manifest(found.pinned)
    with store.scratch() as folder:
        layout = folder / "layout"
        engine.save_as_it_is(one.name, layout)
        digest, manifest = on_its_layers(found, layout, lower)
        syft.sbom(layout, out / "sbom.json", one.id)
        say(f"{one.id}: pushing {digest} to {repository}")
        client.push(layout, repository, digest)
    client.verify(repository, digest, manifest, files.kinds(found))
    done = attest.attest(one.inputs, repository, digest, out / "sbom.json", say)
    client.tag(repository, digest, one.tag)
    size = sum(int(layer["size"]) for layer in manifest["layers"][len(found.config.layers) :])
    signed = f"{done.signature.state}: {done.signature.detail}"
    update = {"digest": digest, "uri": f"{repository}@{digest}", "added_bytes": size, "signature": signed}
    result = result.model_copy(update=update)
    write(out / GRAFT, result.model_dump_json(indent=2) + "\n")
    image = state.known_image(one.inputs, out)
    uris = [*(image.uris if image.digest == digest else []), result.uri]
    said = {"digest": digest, "uri": result.uri, "uris": list(dict.fromkeys(uris)), "tags": [one.tag]}
    state.write_image(out, image.model_copy(update={**said, "size": client.size_of(manifest)}))
    if made := twin(found, one, result, place, asked, say):  # last: the image is published without it
        result = result.model_copy(update={"twin": made})
        write(out / GRAFT, result.model_dump_json(indent=2) + "\n")
    return result


def twin(found: Found, one: Graft, result: Result, place: Place, asked: bool | None, say: Say) -> str:
    """Publish the zstd twin of a pushed graft where publish.toml or the user wants one; return its address, or why not.

    `asked` is what the user says, None for nothing. Raises RegistryError if the user asked and the registry does not
    take it, and what twins.publish() raises.
    """
    if not twins.wanted(publication(one.inputs.recipe.root).twin, [place], asked):
        return ""
    if files.kinds(found) != oci_layout.DOCKERS:
        return "none: layers of the image below are compressed with zstd already"
    try:
        return f"{place.repository}@{twins.publish(one.inputs, place.repository, result.digest, say)}"
    except twins.NotTaken as error:
        if asked:
            raise
        return f"none: {error.why}"


def on_its_layers(found: Found, layout: Path, lower: Mapping[str, Any] | None) -> tuple[str, dict[str, Any]]:
    """Return digest and manifest of a saved graft, and see that its lowest layers are those of the image below.

    An engine that holds a layer of the same files in another compression may export that one. Then the registry's own
    layer is brought in its place; that both hold the same files is seen when the layout is unpacked for the SBOM.
    Without a registry, build() has compared the unpacked layers. Raises BuildError for a layer of an unknown type,
    NotRunError, RegistryError.
    """
    digest, manifest = client.manifest_of(layout)
    own = [str(layer["digest"]) for layer in manifest["layers"]]
    if own[: len(found.config.layers)] == found.config.layers:
        raise NotRunError(
            "the graft is not pushed: its layers are not compressed",
            why="this engine's image store keeps unpacked layers only, so the lower layers would get other digests",
            fix="enable the containerd image store: docs.docker.com/engine/storage/containerd",
        )
    rows = lower["layers"] if lower else []
    others = {place: row for place, row in enumerate(rows[: len(own)]) if row["digest"] != own[place]}
    if not others:
        return digest, manifest
    for place, row in others.items():
        client.bring(found.pinned.partition("@")[0], row, layout)
        packing = str(row["mediaType"]).rpartition(".")[2].rpartition("+")[2]
        kind = next((one for one in files.kinds(found).layers if one.endswith(packing)), "")
        if not kind:
            why = f"its layer {row['digest']} is of the type {row['mediaType']}, which the look before did not show"
            raise BuildError("the graft is not pushed", where=found.pinned, why=why, fix="run the command again")
        manifest["layers"][place] = {"mediaType": kind, "digest": row["digest"], "size": row["size"]}
    return oci_layout.describe(layout, json.dumps(manifest).encode(), str(manifest["mediaType"])), manifest
