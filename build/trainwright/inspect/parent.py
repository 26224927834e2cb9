"""Resolve the image that another one starts from: by its labels, by out/, or by a registry."""

import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from trainwright.build import state
from trainwright.core.errors import ConfigError, NotRunError, RegistryError, TrainwrightError, did_you_mean
from trainwright.core.toml import load
from trainwright.docker import engine
from trainwright.image import inputs, tags
from trainwright.image.tags import ID_LABEL, KEY_LABEL, PARENT_LABEL, PYTHON_LABEL
from trainwright.inspect.derived import FILE, Derived, Parent
from trainwright.matrix.matrix import Intent, Recipe
from trainwright.matrix.records import Image
from trainwright.registry import client

PINNED = re.compile(r".@sha256:[0-9a-f]{64}$")


def parent_of(intent: Intent, said: str, given: str) -> Parent:
    """Resolve the parent that the user named: an id of the matrix, repository@digest, or repository:tag.

    `given` is the registry. Raises ConfigError for an invalid name, RegistryError for a tag that is not in the
    registry, NotRunError for a matrix image that is not published.
    """
    if recipe := intent.find(said):
        return _published(recipe, given)
    if made := state.beyond_the_matrix(intent.root, said):
        said = _address(made, given)
    if "/" not in said:
        ids = [variant.id for variant in intent.variants]
        raise ConfigError(
            f"{said!r} is neither an image of the matrix nor repository@digest", why=did_you_mean(said, ids)
        )
    repository, at, digest = said.partition("@")
    if not at:
        repository, _, tag = said.rpartition(":")
        digest = client.resolve(repository, tag) if repository else ""
        if not digest:
            raise RegistryError(f"{said} is not in the registry", fix="trainwright push")
    config = client.config(repository, digest).get("config", {})
    labels = config.get("Labels") or {}
    if not {ID_LABEL, KEY_LABEL} <= labels.keys():
        raise ConfigError(f"{said} was not built by trainwright", why=f"it has no label {ID_LABEL}")
    own = {"python": labels.get(PYTHON_LABEL, ""), "user": str(config.get("User") or "")}
    return Parent(id=labels[ID_LABEL], key=labels[KEY_LABEL], digest=digest, uri=f"{repository}@{digest}", **own)


def _address(made: Image, given: str) -> str:
    """Return the address of a pushed graft, or image with packages on top, by its image.json. Raises NotRunError."""
    uris = [uri for uri in made.uris or [made.uri or ""] if uri and lies_in(given, uri)]
    if not uris:
        fix = "trainwright graft IMAGE --push, or trainwright push ID --with FILE"
        why = f"it was not pushed from here{f' to {given}' * bool(given)}"
        raise NotRunError(f"{made.id} has no digest to start from", where=f"out/{made.id}/image.json", why=why, fix=fix)
    return uris[0]


def _published(recipe: Recipe, given: str) -> Parent:
    """Return the pushed image with its present inputs, from out/<id>/image.json or the registry. Raises NotRunError."""
    found = inputs.load(recipe)
    image = state.read_image(state.out_folder(recipe))
    if image and image.key == found.key and image.digest and image.uri and lies_in(given, image.uri):
        return Parent(id=recipe.id, key=found.key, digest=image.digest, uri=image.uri)
    repository = state.places(recipe, given)[0].repository
    if digest := client.resolve(repository, found.tag):
        return Parent(id=recipe.id, key=found.key, digest=digest, uri=f"{repository}@{digest}")
    raise NotRunError(
        f"{recipe.id} is not published, so it has no digest to start from",
        where=repository,
        fix=f"trainwright push {recipe.id}",
    )


def lies_in(given: str, uri: str) -> bool:
    """Return whether an address is in the named registry; True if none is named."""
    return not given or uri.startswith(f"{given.rstrip('/')}/")


def must_be_pinned(parent: str) -> None:
    """Raise ConfigError for a reference without a digest, because a tag or a bare name can point to any image."""
    if not PINNED.search(parent):
        raise ConfigError(
            f"{parent!r} does not name a parent by its digest",
            why="the engine does not hold it, and a registry tag can move to another image",
            fix="trainwright verify <image> --parent <repository@sha256:...>",
        )


def read_project(folder: Path) -> Derived:
    """Read derived.toml of a project. Raises ConfigError."""
    if not (folder / FILE).is_file():
        raise ConfigError(f"{folder} has no {FILE}", fix=f"trainwright derive <id> --into {folder}")
    return load(folder / FILE, Derived)


def reference(intent: Intent | None, labels: Mapping[str, str], given: str) -> str:
    """Return the parent of an image with these labels: by its parent label, else by the key that it inherited.

    `given` is the registry. Raises NotRunError if neither determines it.
    """
    if said := labels.get(PARENT_LABEL):
        return said
    identity, key = labels.get(ID_LABEL, ""), labels.get(KEY_LABEL, "")
    if intent and identity and key:
        for path in (intent.root / "out").glob("*/image.json"):
            image = state.read_image(path.parent)
            if image and image.key == key and image.uri and lies_in(given, image.uri):
                return image.uri
        tag = tags.key_tag(identity, key)
        local = tags.engine_name(identity.partition("-")[0], tag)
        if engine.image_id(local):
            return local
        if recipe := intent.find(identity):
            with suppress(TrainwrightError):
                repository = state.places(recipe, given)[0].repository
                if digest := client.resolve(repository, tag):
                    return f"{repository}@{digest}"
    raise NotRunError(
        "cannot determine the parent of this image",
        why=f"it has no label {PARENT_LABEL}"
        + (f", and no image with its key {key[:12]} is in this checkout, the engine or the registry" * bool(key)),
        fix="trainwright verify <image> --parent <repository@digest>",
    )
