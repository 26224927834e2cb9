"""Find the URIs of a published image, in every region, by digest or by an immutable tag."""

import re
from collections.abc import Iterable
from pathlib import Path

from trainwright.build import state
from trainwright.core.errors import ConfigError, NotRunError, RegistryError, did_you_mean
from trainwright.core.toml import Model
from trainwright.image import inputs, tags
from trainwright.image.inputs import Inputs
from trainwright.matrix.matrix import Intent, Recipe, load_intent
from trainwright.matrix.records import Image
from trainwright.publish import release_records, twins
from trainwright.registry import locations
from trainwright.registry.settings import Place

ECR = "ecr"  # value of REGISTRY for the account's own registry
PINNED = re.compile(r"(?P<repository>[^@]+)@(?P<digest>sha256:[0-9a-f]{64})")
WHY = "SageMaker only pulls images from Amazon ECR"


class Uri(Model):
    """The URI of one image in one registry."""

    id: str
    uri: str  # with its digest or its tag, as requested
    digest: str
    tag: str  # immutable tag: of its key or its release
    registry: str
    region: str  # of Amazon ECR; "" for another registry, which SageMaker cannot pull from
    said_by: str  # the source of this entry: image.json, the registry or the release


def uris(
    root: Path,
    identity: str,
    registry: str,
    regions: str,
    release: str,
    by_digest: bool,
    otherwise: str = "",
    zstd: bool = False,
) -> list[Uri]:
    """Return every place that holds the image with its present inputs, or as a release published it.

    Without a registry, return what the last push of this checkout recorded in `image.json`, without a request; if it
    recorded nothing, ask Amazon ECR if `regions` are given, else `otherwise`, else the registry on loopback. `zstd`:
    of each image its zstd twin, which the registry is asked for. Raises ConfigError; NotRunError if the image is not
    published; RegistryError and AwsError if that cannot be determined.
    """
    found = _uris(root, identity, registry, regions, release, by_digest, otherwise)
    return [_twin(root, one) for one in found] if zstd else found


def _twin(root: Path, image: Uri) -> Uri:
    """Return the address of an image's zstd twin, compared with the image. Raises NotRunError, RegistryError."""
    repository = image.uri.partition("@")[0] if "@" in image.uri else image.uri.rpartition(":")[0]
    if image.region:
        locations.hosts(root, image.registry)  # logs in to ECR
    if not (digest := twins.find(repository, image.tag, image.digest)):
        again = twins.AGAIN if load_intent(root).find(image.id) else twins.GRAFT_AGAIN
        raise twins.none(image.id, f"{repository}:{tags.twin_tag(image.tag)}", again)
    tag = tags.twin_tag(image.tag)
    uri = f"{repository}@{digest}" if "@" in image.uri else f"{repository}:{tag}"
    return image.model_copy(update={"uri": uri, "digest": digest, "tag": tag, "said_by": "the registry"})


def _uris(
    root: Path, identity: str, registry: str, regions: str, release: str, by_digest: bool, otherwise: str
) -> list[Uri]:
    intent = load_intent(root)
    made = None if release or intent.find(identity) else state.beyond_the_matrix(root, identity)
    if made:
        return _made_here(root, made, registry, regions, by_digest, otherwise)
    recipe = intent.recipe(identity)
    if release:
        return _released(recipe, registry, regions, release, by_digest)
    if waiting := inputs.awaited(recipe):
        raise NotRunError(
            f"{identity} is blocked, so it cannot be published", why="; ".join(waiting), fix="trainwright list"
        )
    found = inputs.load(recipe)
    if not registry and (said := _written_down(found, regions)):
        return [_uri(identity, repository, digest, found.tag, "image.json", by_digest) for repository, digest in said]
    registry = registry or (ECR if regions else otherwise)
    below, fix = tags.repository(recipe.variant.framework), _push(identity, registry, regions)
    return _held(root, identity, below, found.tag, registry, regions, by_digest, fix)


def _made_here(root: Path, made: Image, registry: str, regions: str, by_digest: bool, otherwise: str) -> list[Uri]:
    """Return the places of a graft of this checkout, or of an image with packages on top, by its last push."""
    tag, said = tags.key_tag(made.id, made.key), made.uris or [made.uri or ""]
    if not registry and (known := _pushed(said, regions)):
        return [_uri(made.id, repository, digest, tag, "image.json", by_digest) for repository, digest in known]
    registry = registry or (ECR if regions else otherwise)
    fix = "trainwright graft IMAGE --push, or trainwright push ID --with FILE"
    below = tags.repository(made.id.partition("-")[0])
    return _held(root, made.id, below, tag, registry, regions, by_digest, fix)


def _held(
    root: Path, identity: str, below: str, tag: str, registry: str, regions: str, by_digest: bool, fix: str
) -> list[Uri]:
    """Return the places that hold a tag. Raises NotRunError if one of them does not."""
    wanted = [(host.place(below), tag) for host in locations.hosts(root, registry, regions)]
    held = locations.look_up({identity: wanted})[identity]
    _all_hold(held, f"{identity} is not published with its present inputs", fix)
    return [_placed(identity, place, digest, tag, "the registry", by_digest) for place, digest in held.items()]


def _written_down(found: Inputs, regions: str) -> list[tuple[str, str]]:
    """Return repositories and digests of `image.json`. Raises NotRunError if it describes other inputs."""
    recipe = found.recipe
    image = state.read_image(state.out_folder(recipe))
    if image is None or not image.uri:
        return []
    if image.key != found.key:
        raise NotRunError(
            f"the inputs of {recipe.id} changed after it was published",
            where=f"out/{recipe.id}/image.json",
            why=f"{image.uri} has the key {image.key[: tags.SHORT]}, the present one is {found.key[: tags.SHORT]}",
            fix=f"make build push ONLY={recipe.id}; or --release NAME for a released image",
        )
    return _pushed(image.uris or [image.uri], regions)


def _pushed(uris: Iterable[str], regions: str) -> list[tuple[str, str]]:
    """Return repository and digest of each of these addresses that is in one of the regions; "": in any."""
    pushed = [match.group("repository", "digest") for one in uris if (match := PINNED.match(one))]
    wanted = {word for word in re.split(r"[,\s]+", regions) if word}
    return [(repository, digest) for repository, digest in pushed if not wanted or region_of(repository) in wanted]


def _released(recipe: Recipe, registry: str, regions: str, release: str, by_digest: bool) -> list[Uri]:
    release_records.version(release)
    records = release_records.known(recipe.root)
    if release not in records:
        raise ConfigError(
            f"release {release} does not exist", where=release_records.FOLDER, why=did_you_mean(release, records)
        )
    shipped = records[release].images.get(recipe.id)
    if shipped is None:
        raise ConfigError(
            f"{recipe.id} is not in {release}",
            where=f"{release_records.FOLDER}/{release}.toml",
            why=did_you_mean(recipe.id, records[release].images),
            fix=f"trainwright release {release} {recipe.id}",
        )
    tag = tags.release_tag(recipe.id, release)
    hosts = locations.hosts(recipe.root, registry or (ECR if regions else ""), regions)
    below = tags.repository(recipe.variant.framework)
    held = locations.look_up({recipe.id: [(host.place(below), tag) for host in hosts]})[recipe.id]
    fix = f"trainwright release {release} {recipe.id}"
    _all_hold(held, f"{recipe.id} of {release} is not in the registry", fix)
    for place, digest in held.items():
        if digest != shipped.digest:
            raise RegistryError(
                f"{place.repository}:{tag} is not what was released",
                where=f"{release_records.FOLDER}/{release}.toml",
                why=f"released: {shipped.digest}, in the registry: {digest}",
                fix=f"trainwright verify {place.repository}@{digest}",
            )
    return [_placed(recipe.id, place, digest, tag, release, by_digest) for place, digest in held.items()]


def _all_hold(held: dict[Place, str], what: str, fix: str) -> None:
    missing = [place.repository for place, digest in held.items() if not digest]
    if missing:
        raise NotRunError(what, where=", ".join(missing), why="the registry has no such tag", fix=fix)


def _push(identity: str, registry: str, regions: str) -> str:
    where = f" REGISTRY={registry or ECR}" if registry or regions else ""
    return f"make build push ONLY={identity}{where}" + (f" TRAINWRIGHT_REGIONS={regions}" if regions else "")


def region_of(repository: str) -> str:
    """Return the region of an Amazon ECR repository; "" for any other registry."""
    named = locations.ECR.match(repository.partition("@")[0])
    return named["region"] if named else ""


def _uri(identity: str, repository: str, digest: str, tag: str, said_by: str, by_digest: bool) -> Uri:
    host, _, path = repository.partition("/")
    return _placed(identity, Place(host=host, path=path, region=region_of(repository)), digest, tag, said_by, by_digest)


def _placed(identity: str, place: Place, digest: str, tag: str, said_by: str, by_digest: bool) -> Uri:
    return Uri(
        id=identity,
        uri=f"{place.repository}@{digest}" if by_digest else f"{place.repository}:{tag}",
        digest=digest,
        tag=tag,
        registry=place.host,
        region=place.region,
        said_by=said_by,
    )


def notes(found: Iterable[Uri]) -> list[str]:
    """Return notes for a person who wants to train with the image."""
    others = sorted({one.registry for one in found if not one.region})
    return [f"{WHY}, not from {', '.join(others)}: make push REGISTRY={ECR}"] if others else []


def identity_of(root: Path, intent: Intent, uri: str) -> str:
    """Return the id of the matrix image that a URI names, or "" if none matches.

    A tag is matched by its form; a digest by this checkout's `image.json` files and by the releases.
    """
    names = sorted((one.id for one in intent.variants), key=len, reverse=True)
    if match := PINNED.fullmatch(uri):
        written = {name: state.read_image(root / "out" / name) for name in names}
        found = [name for name, image in written.items() if image and image.digest == match["digest"]]
        found += twins.recorded_as(root, names, match["digest"])
        shipped = [record.images for record in release_records.known(root).values()]
        found += [name for one in shipped for name, image in one.items() if image.digest == match["digest"]]
        return found[0] if found and found[0] in names else ""
    tag = uri.rpartition(":")[2]
    return next(
        (name for name in names if tag.startswith(f"{name}-") and tags.is_ending(tag.removeprefix(f"{name}-"))), ""
    )
