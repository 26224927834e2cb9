"""Build a graft, prove that it is the image below and nothing else, and push it by digest."""

import time
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from trainwright.build import baking
from trainwright.core import store
from trainwright.core.errors import BuildError, NotRunError
from trainwright.core.files import write
from trainwright.core.progress import Say
from trainwright.core.toml import Model, load
from trainwright.docker import engine
from trainwright.graft import look
from trainwright.graft.files import Graft, archive
from trainwright.graft.found import Found, settings
from trainwright.graft.plan import Plan
from trainwright.matrix.matrix import Intent
from trainwright.publish import licences
from trainwright.registry import client
from trainwright.registry.settings import Place

SHOWN = 5  # differences in an error
RESULT = "graft.json"


class Result(Model):
    """What a graft became: the content of out/<id>/graft.json."""

    id: str
    key: str
    image: str  # its name in the engine
    base: str
    digest: str = ""  # in the registry
    uri: str = ""
    lower_layers: int
    added_layers: int
    added_bytes: int = 0  # compressed, once it was saved
    nccl_before: list[str]
    nccl_after: list[str]
    checked: str  # the last line of trainwright-check
    seconds: float = 0

    def shown(self) -> list[tuple[str, str]]:
        """Return the rows of a table: each field that says something."""
        rows = self.model_dump().items()
        return [(name, ", ".join(value) if isinstance(value, list) else str(value)) for name, value in rows if value]


def build(intent: Intent, found: Found, made: Plan, one: Graft, say: Say) -> Result:
    """Build a graft that the engine lacks, and prove it. Raises BuildError, NotRunError, EnvironmentProblem."""
    began = time.monotonic()
    if not engine.builds_itself():
        why = f"the builder {engine.builder().driver} does not hold the image below"
        fix = "unset BUILDX_BUILDER, or docker buildx use default"
        raise NotRunError(f"{one.id} is not built", why=why, fix=fix)
    out = intent.root / "out" / one.id
    lay_out(one, out)
    if found.source != found.pinned:
        say(f"no registry answered for {found.pinned}, so only this engine can build on it")
        engine.tag(found.reference, found.source)
    if engine.image_id(one.name) is None:
        say(f"{one.id}: building in {out.relative_to(intent.root)}")
        baking.bake(out)
    say(f"{one.id}: looking into it, and checking it against its declaration")
    try:
        result = prove(intent, found, made, one, say)
    except BuildError:
        engine.remove(one.name)
        raise
    result = result.model_copy(update={"seconds": round(time.monotonic() - began, 1)})
    write(out / RESULT, result.model_dump_json(indent=2) + "\n")
    return result


def lay_out(one: Graft, out: Path) -> None:
    """Write out/<id>/, from which `docker buildx bake` builds the graft without trainwright."""
    write(out / "graft.tar", archive(one))
    for name, (text, _) in one.files.items():
        if not name.startswith("rootfs/"):
            write(out / name, text)


def prove(intent: Intent, found: Found, made: Plan, one: Graft, say: Say) -> Result:
    """Compare a graft with the image below it, and run its own check. Raises BuildError."""
    after = look.look(intent, one.name, say)
    wrong = list(differences(found, after, made))
    if wrong:
        rest = f" (and {len(wrong) - SHOWN} more)" if len(wrong) > SHOWN else ""
        raise BuildError(
            f"{one.id} is not the image below it: {wrong[0]}",
            where=found.pinned,
            why="; ".join(wrong[:SHOWN]) + rest,
            fix=f"docker run --rm -it {found.pinned} sh",
        )
    return Result(
        id=one.id,
        key=one.key,
        image=one.name,
        base=found.pinned,
        lower_layers=len(found.config.layers),
        added_layers=len(after.config.layers) - len(found.config.layers),
        nccl_before=_nccls(found),
        nccl_after=_nccls(after),
        checked=check(intent, one, found.config.user),
    )


def check(intent: Intent, one: Graft, user: str) -> str:
    """Run the graft's own check of its declaration, as the user of its jobs. Raises BuildError if it refuses."""
    words = ["TRAINWRIGHT_PREFLIGHT=off /usr/local/bin/trainwright-check 2>&1"]
    what = f"trainwright-check fails in {one.id} as the user {user or 'root'}"
    try:
        said, why = look.ask(one.name, settings(intent.root), ["/bin/sh", "-c"], words, user or "0")
    except BuildError as error:
        fix = "let that user read and start the Python that holds the framework, or build the image with USER root"
        raise BuildError(what, where=one.name, why=error.why, fix=fix) from None
    if why:
        raise BuildError(what, where=one.name, why=why)
    return next((line for line in said.splitlines() if line.startswith("trainwright-check:")), "")


def _nccls(found: Found) -> list[str]:
    return [f"{path} {version}" + ", mapped" * (path in found.mapped) for path, version in found.nccls.items()]


def differences(before: Found, after: Found, made: Plan) -> Iterator[str]:
    """Yield what a graft changed of the image below it, which must stay as it is."""
    was, now = before.config, after.config
    if now.layers[: len(was.layers)] != was.layers:
        yield f"its lowest {len(was.layers)} layers are not those of {before.pinned}"
    if {**was.environment, **made.environment} != now.environment:
        names = {name for name, _ in was.environment.items() ^ now.environment.items()} - made.environment.keys()
        yield f"the environment is another one: {', '.join(sorted(names))}"
    for name in ("architecture", "os", "user", "entrypoint", "command", "volumes", "onbuild", "shell", "healthcheck"):
        if getattr(was, name) != getattr(now, name):
            yield f"{name} was {getattr(was, name)}, is {getattr(now, name)}"
    for name in ("os", "libc", "pythons", "commands", "libraries", "packages"):
        if getattr(before.inside, name) != getattr(after.inside, name):
            yield f"{name} of the image changed: {getattr(after.inside, name)!r}"[:400]


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


def push(found: Found, one: Graft, result: Result, place: Place, out: Path, say: Say) -> Result:
    """Push a proved graft by digest, verify it, and tag it last.

    Raises BuildError if a lower layer has another digest than in the registry that the image below came from,
    RegistryError, NotRunError for an engine that keeps no compressed layers.
    """
    repository, lower = place.repository, look.lower_manifest(found.pinned)
    with store.scratch() as folder:
        layout = folder / "layout"
        engine.save_as_it_is(one.name, layout)
        digest, manifest = client.manifest_of(layout)
        must_stand_on(found, manifest, lower)
        engine.sbom(layout, out / "sbom.json", one.id)
        say(f"{one.id}: pushing {digest} to {repository}")
        client.push(layout, repository, digest)
    client.verify(repository, digest, manifest)
    client.tag(repository, digest, one.tag)
    size = sum(int(layer["size"]) for layer in manifest["layers"][len(found.config.layers) :])
    update = {"digest": digest, "uri": f"{repository}@{digest}", "added_bytes": size}
    result = result.model_copy(update=update)
    write(out / RESULT, result.model_dump_json(indent=2) + "\n")
    return result


def must_stand_on(found: Found, manifest: Mapping[str, Any], lower: Mapping[str, Any] | None) -> None:
    """Check that the lowest layers have the digests of the image below, as its registry names them.

    Without a registry, build() has compared the unpacked layers. Raises BuildError, NotRunError.
    """
    own = [str(layer["digest"]) for layer in manifest["layers"]]
    if own[: len(found.config.layers)] == found.config.layers:
        raise NotRunError(
            "the graft is not pushed: its layers are not compressed",
            why="this engine's image store keeps unpacked layers only, so the lower layers would get other digests",
            fix="enable the containerd image store: docs.docker.com/engine/storage/containerd",
        )
    wanted = [str(layer["digest"]) for layer in lower["layers"]] if lower else own[: len(found.config.layers)]
    if own[: len(wanted)] != wanted:
        other = next(digest for digest, is_now in zip(wanted, own, strict=False) if digest != is_now)
        why = f"{other} of the image below is not at its place"
        raise BuildError("the lower layers of the graft changed", where=found.pinned, why=why, fix="docker system df")
