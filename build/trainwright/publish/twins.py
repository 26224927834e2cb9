"""Publish the zstd twin of a published image, and prove that a manifest is one.

A twin is converted from the layers of the published image, never built: its configuration has the same digest, so that
the image's probe and tests hold for it. Its manifest is another one, so that it has a signature of its own.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from trainwright.build.state import out_folder
from trainwright.core import store
from trainwright.core.console import human
from trainwright.core.errors import ConfigError, NotRunError, RegistryError
from trainwright.core.files import write
from trainwright.core.progress import Say
from trainwright.core.toml import Model
from trainwright.docker import oci_layout, zstd_twin
from trainwright.image import tags
from trainwright.image.inputs import Inputs
from trainwright.matrix.matrix import Recipe
from trainwright.publish import attest
from trainwright.registry import client, documents, http, locations
from trainwright.registry.locations import Held
from trainwright.registry.retry import Refused
from trainwright.registry.settings import FILE, Place, Twin, publication

# Answers of a registry that does not take a manifest because of its form, not because of who sends it.
REFUSALS = (400, 405, 406, 415, 422, 501)
SAGEMAKER = "SageMaker takes Docker media types with gzip layers"
AGAIN = "trainwright push {id} --twin"
GRAFT_AGAIN = "trainwright graft IMAGE --push --twin"


class NotTaken(RegistryError):
    """Raised if a registry takes no image with zstd layers; the published image is untouched."""


class Record(Model):
    """out/<id>/twin.json: the twins that were published or found from this checkout."""

    image: str  # digest of the image that they are of
    twins: dict[str, str] = Field(default={})  # repository to the twin's digest


def wanted(policy: Twin, places: Iterable[Place], asked: bool | None) -> list[Place]:
    """Return the places that should have a twin. `asked` is what the user says, None for nothing."""
    if asked is not None:
        return list(places) if asked else []
    if not policy.zstd_twin:
        return []
    return [place for place in places if policy.on_loopback or not http.is_loopback(place.repository)]


def lacking(found: Iterable[Inputs], held: Mapping[str, Held], asked: bool | None) -> dict[str, list[Place]]:
    """Map image ids to the places that should have the image's twin and lack it; one query for each repository.

    A twin that this checkout has recorded is not asked for; one that is found is compared with its image, and recorded.
    Raises RegistryError, AwsError; RegistryError also if something else has the twin's tag.
    """
    lacks, unknown = dict[str, list[Place]](), dict[str, list[tuple[Place, str]]]()
    images = {one.variant.id: one for one in found}
    for name, one in images.items():
        known, lacks[name] = recorded(one.recipe), []
        for place in wanted(publication(one.recipe.root).twin, held[name], asked):
            digest = held[name][place]
            if not digest:
                lacks[name].append(place)
            elif not (known and known.image == digest and place.repository in known.twins):
                unknown.setdefault(name, []).append((place, tags.twin_tag(one.tag)))
    for name, twins in locations.look_up(unknown).items():
        for place, twin in twins.items():
            if twin:
                refuse_other(place.repository, twin, held[name][place], tags.twin_tag(images[name].tag))
                record(images[name].recipe, place.repository, held[name][place], twin)
            else:
                lacks[name].append(place)
    return lacks


def find(repository: str, tag: str, image: str) -> str:
    """Return the digest of the twin of the image that `tag` names; "" if it has none.

    `image` is the digest of the image. Raises RegistryError if something else has the twin's tag.
    """
    digest = client.resolve(repository, tags.twin_tag(tag))
    if digest:
        refuse_other(repository, digest, image, tags.twin_tag(tag))
    return digest


def refuse_other(repository: str, twin: str, image: str, name: str = "") -> dict[str, Any]:
    """Check by the manifests that a twin is one of this image; return its manifest. Raises RegistryError."""
    manifest = client.image(repository, twin)
    if why := zstd_twin.differences(manifest, client.image(repository, image)):
        raise RegistryError(
            f"{name or twin} is not the zstd twin of {image}",
            where=f"{repository}@{twin}",
            why=why,
            fix=f"trainwright diff {repository}@{image} {repository}@{twin}",
        )
    return manifest


def publish(found: Inputs, repository: str, image: str, say: Say) -> str:
    """Make the twin of a published image, push it by digest, verify, sign, and tag it; return its digest.

    Layers come from the store, else from the registry. Raises NotTaken if the registry refuses OCI manifests or zstd;
    BuildError if a layer does not match the configuration; what client and attest raise.
    """
    if digest := find(repository, found.tag, image):  # another publisher's, perhaps of another version of the library
        attest.sign_twin(found, repository, digest, say)
        record(found.recipe, repository, image, digest)
        return digest
    policy, manifest = publication(found.recipe.root).twin, client.image(repository, image)
    if wrong := documents.other_kinds(manifest, oci_layout.DOCKERS):
        raise NotTaken(f"{found.variant.id} gets no zstd twin", where=f"{repository}@{image}", why=wrong[0])
    described = manifest["config"]
    config = client.blob(repository, described["digest"], described["size"])
    if why := documents.other_layers(documents.parsed(config), len(manifest["layers"])):
        raise RegistryError(f"{repository}@{image} is not an image", why=why)
    with store.scratch() as folder:
        (folder / "image/blobs/sha256").mkdir(parents=True)

        def layer(row: Mapping[str, Any]) -> Path:
            kept = store.path_of(str(row["digest"]).removeprefix("sha256:"))
            if kept.is_file() and kept.stat().st_size == row["size"]:
                return kept
            client.bring(repository, row, folder / "image")
            return client.blob_of(folder / "image", str(row["digest"]))

        say(f"{found.variant.id}: compressing its layers with zstd")
        made = zstd_twin.make(manifest, config, layer, folder / "twin", policy.level, policy.threads)
        sizes = f"{human(client.size_of(made.manifest))}, the image has {human(client.size_of(manifest))}"
        say(f"{found.variant.id}: pushing its zstd twin {made.digest} to {repository}: {sizes}")
        try:
            client.push(folder / "twin", repository, made.digest)
        except Refused as error:
            if error.status not in REFUSALS:
                raise
            raise _not_taken(found, repository, error) from None
        client.verify(repository, made.digest, made.manifest, zstd_twin.KINDS)
    attest.sign_twin(found, repository, made.digest, say)
    client.tag(repository, made.digest, tags.twin_tag(found.tag))
    record(found.recipe, repository, image, made.digest)
    return made.digest


def _not_taken(found: Inputs, repository: str, error: Refused) -> NotTaken:
    return NotTaken(
        f"{repository} does not take the zstd twin of {found.variant.id}; the image itself is published",
        where=error.where,
        why=f"{error.why}; a twin is an OCI image manifest with layers of {zstd_twin.LAYER}",
        fix=f"trainwright push {found.variant.words} --no-twin, or [twin] zstd_twin = false in {FILE}",
    )


# --- the record ------------------------------------------------------------------------------------------------------


def recorded(recipe: Recipe) -> Record | None:
    """Return the checkout's record; None if there is none, or it cannot be read: then the registry is asked."""
    return _read(out_folder(recipe))


def _read(out: Path) -> Record | None:
    path = out / "twin.json"
    try:
        return Record.model_validate_json(path.read_bytes()) if path.is_file() else None
    except (OSError, ValidationError):
        return None


def record(recipe: Recipe, repository: str, image: str, twin: str) -> None:
    known = recorded(recipe)
    others = known.twins if known and known.image == image else {}
    made = Record(image=image, twins={**others, repository: twin})
    write(out_folder(recipe) / "twin.json", made.model_dump_json(indent=2) + "\n")


# --- choice ----------------------------------------------------------------------------------------------------------


def known_address(recipe: Recipe, uri: str) -> str:
    """Return the address of a pushed image's twin by the checkout's record, without a request; "" for none."""
    repository, _, digest = uri.partition("@")
    known = recorded(recipe)
    twin = known.twins.get(repository, "") if known and known.image == digest else ""
    return f"{repository}@{twin}" if twin else ""


def recorded_as(root: Path, ids: Iterable[str], digest: str) -> list[str]:
    """Return those of these ids of which this checkout has recorded a twin with this digest."""
    known = {identity: _read(root / "out" / identity) for identity in ids}
    return [name for name, one in known.items() if one and digest in one.twins.values()]


def none(identity: str, where: str, again: str = AGAIN) -> NotRunError:
    """Return the error of an image without a twin. `again` publishes one."""
    return NotRunError(
        f"{identity} has no zstd twin",
        where=where,
        why="it was published without one, or by an older version",
        fix=again.format(id=identity),
    )


def refuse_for_sagemaker(root: Path, ids: Iterable[str], address: str) -> None:
    """Raise ConfigError if an address is that of a twin, by its tag or by what this checkout recorded of these ids."""
    name, _, digest = address.rpartition("/")[2].partition("@")
    if tags.is_twin(name.partition(":")[2]) or (digest and recorded_as(root, ids, digest)):
        raise ConfigError(
            "SageMaker does not pull the zstd twin of an image",
            where=address,
            why=SAGEMAKER,
            fix="name the image itself: its tag is the same without -zstd",
        )
