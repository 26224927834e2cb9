"""Build an image again without cache, and compare it with the existing one: both must have the same digest."""

import re
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from trainwright.build import baking, build, rebuilt
from trainwright.build.rebuilt import Rebuilt, Row
from trainwright.build.state import out_folder, read_image
from trainwright.core import store
from trainwright.core.errors import BuildError, ConfigError, NotRunError
from trainwright.core.progress import Progress, Say, counted
from trainwright.docker import engine, oci_layout
from trainwright.image import child
from trainwright.image.inputs import Inputs
from trainwright.image.tags import ID_LABEL, KEY_LABEL
from trainwright.lock import lockfile
from trainwright.matrix.matrix import Intent, Recipe
from trainwright.registry import auth, client
from trainwright.resolve.fetch import fetch

DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


def held_by_name(reference: str) -> tuple[str, str]:
    """Return the digest of a named image, and its place: a name in the engine, or repository@digest.

    `reference` is repository@digest, repository:tag, a digest or a name in the engine. Raises NotRunError if neither
    engine nor registry has it, RegistryError.
    """
    _, at, digest = reference.partition("@")
    if at and DIGEST.fullmatch(digest):
        return digest, reference
    if identity := engine.image_id(reference):
        return identity, reference
    repository, _, tag = reference.rpartition(":")
    if repository and "/" in repository and "/" not in tag and (digest := client.resolve(repository, tag)):
        return digest, f"{repository}@{digest}"
    raise NotRunError(
        f"the image {reference} to compare with does not exist",
        why="neither the engine nor a registry holds it",
        fix="name it as repository@sha256:...",
    )


def labels_of(digest: str, where: str) -> dict[str, str]:
    """Return the labels of an image, without its layers."""
    if "@" not in where:
        return engine.labels(where)
    config = client.config(where.partition("@")[0], digest)
    return dict(config.get("config", {}).get("Labels") or {})


def recipe_of(intent: Intent, reference: str) -> Recipe:
    """Return the matrix image that a published image was built from. Raises ConfigError if it is not of this matrix."""
    identity = labels_of(*held_by_name(reference)).get(ID_LABEL, "")
    if found := intent.find(identity):
        return found
    raise ConfigError(
        f"{reference} is not an image of this matrix",
        why=f"its label {ID_LABEL} says {identity or 'nothing'}",
        fix="trainwright list",
    )


def _held(found: Inputs, reference: str, repository: str | None) -> tuple[str, str]:
    """Return digest and place of the image to compare with. Raises NotRunError if there is none."""
    if reference:
        digest, where = held_by_name(reference)
        said = labels_of(digest, where).get(KEY_LABEL, "")
        if said != found.key:
            raise NotRunError(
                f"{reference} was built from other inputs than those of this checkout",
                why=f"its key is {said[:12] or '(none)'}, the key of {found.variant.id} here is {found.key[:12]}",
                fix="git checkout <the commit that it was built from>",
            )
        return digest, where
    image = read_image(out_folder(found.recipe))
    if image and image.key == found.key and image.digest and image.uri:
        return image.digest, image.uri
    if identity := engine.image_id(found.name):
        return identity, found.name
    if repository and (digest := client.resolve(repository, found.tag)):
        return digest, f"{repository}@{digest}"
    raise NotRunError(
        f"{found.variant.id} is neither built nor published with its present inputs: there is nothing to compare with",
        fix=f"trainwright build {found.variant.words}",
    )


def rebuild(
    recipe: Recipe, repository: str | None, compare: bool, reference: str, say: Say, progress: Progress
) -> tuple[Rebuilt, BuildError | None]:
    """Build without any cache, under a temporary name; with `compare`, return the differences from `reference`.

    A `reference` of "" means the image as pushed, else the one in the engine, else the one in the registry. Raises
    NotRunError if there is nothing to compare with, BuildError.
    """
    began = time.monotonic()
    found = child.load(recipe)
    lockfile.refuse_blocked(recipe, found.blocked)
    build.must_be_able(recipe)
    fetch(recipe.intent, [recipe], say, progress)
    found = child.load(recipe)  # a drift found by the fetch changes the key
    held = _held(found, reference, repository) if compare else ("", "")
    out = out_folder(recipe)
    if found.parent:
        found = build.stand_on(found, repository, say, progress)
    if not build.is_laid_out(found, out):
        say(f"{recipe.id}: laying out its sources")
        build.lay_out(found, out)
    build.write_text(found.text, out)
    with _gone_afterwards(f"trainwright/rebuild:{secrets.token_hex(6)}") as name:
        say(f"{recipe.id}: building again in {out}, without cache, as {name}")
        baking.bake(out, name, ["--no-cache"])
        digest = str(engine.image_id(name))
        differs = compare and digest != held[0]
        rows = _differences(name, *held, say) if differs else []
    seconds = round(time.monotonic() - began, 1)
    result = Rebuilt(id=recipe.id, key=found.key, rebuilt=digest, seconds=seconds)
    if not compare:
        return result, None
    result = result.model_copy(update={"held": held[0], "where": held[1], "same": not differs, "differences": rows})
    return result, _another(result) if differs else None


def _another(result: Rebuilt) -> BuildError:
    layers, differences = len({row.layer for row in result.differences}), counted(len(result.differences), "difference")
    return BuildError(
        f"a rebuild of {result.id} from the same inputs has another digest",
        where=result.where,
        why=f"expected {result.held}, found {result.rebuilt}: {differences} in {counted(layers, 'place')}",
        fix="see `Build an image again` in docs/how-to.md",
    )


@contextmanager
def _gone_afterwards(name: str) -> Iterator[str]:
    try:
        yield name
    finally:
        engine.remove(name)


def _differences(name: str, digest: str, where: str, say: Say) -> list[Row]:
    """Return the differences of two images; pull the existing one if the engine does not have it."""
    say(f"comparing with {where}")
    with store.scratch() as folder, _gone_afterwards(f"{name}-held") as theirs:
        if engine.image_id(digest):
            engine.tag(digest, theirs)
        else:
            with _gone_afterwards(where):  # the name under which the engine keeps a pulled image
                engine.pull(where, theirs, auth.credentials(where))
        for image, layout in ((name, "rebuilt"), (theirs, "held")):
            engine.save(image, folder / layout)
        ours, held = folder / "rebuilt", folder / "held"
        return list(rows_of(oci_layout.read(ours), oci_layout.read(held), ours, held))


def rows_of(one: oci_layout.Content, other: oci_layout.Content, ours: Path, theirs: Path) -> Iterator[Row]:
    """Yield how the image in `ours` differs from the one in `theirs`; only layers that differ are unpacked."""
    yield from rebuilt.config_rows(one.config, other.config)
    titles = max(rebuilt.names(one.config), rebuilt.names(other.config), key=len)
    for number, title in enumerate(titles):
        pair = [(image.layers[number : number + 1] or [""])[0] for image in (one, other)]
        if pair[0] == pair[1]:
            continue
        if not all(pair):
            yield Row(layer=title, path="", what="presence", rebuilt=pair[0][:19], held=pair[1][:19])
        elif len({image.config["rootfs"]["diff_ids"][number] for image in (one, other)}) == 1:
            yield rebuilt.compression(title)
        else:
            yield from rebuilt.layer_rows(title, oci_layout.entries(ours, pair[0]), oci_layout.entries(theirs, pair[1]))
