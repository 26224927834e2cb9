"""Take published images into the engine, and sign them, but only a digest that this checkout has probed."""

from collections.abc import Iterable

from trainwright.build.build import proved
from trainwright.build.state import known_image, out_folder, write_image
from trainwright.core.errors import RegistryError
from trainwright.core.progress import Say
from trainwright.docker import engine
from trainwright.image.inputs import Inputs
from trainwright.lock import lockfile
from trainwright.matrix.records import Image
from trainwright.publish import attest, sign
from trainwright.publish.attest import Attested
from trainwright.registry import auth
from trainwright.registry.locations import Held
from trainwright.registry.settings import Place

PROBED_FIRST = "it is pulled and probed here first"


def unsigned(found: Inputs, image: Image, held: Held) -> list[str]:
    """Return what our key has yet to sign of a published image, also of another checkout's; [] without a key.

    The registry is queried until image.json records that this key has signed all of it in these places.
    """
    if not attest.signing_key():
        return []
    if probed_here(image, str(image.digest)) and image.proof and image.proof.signature.code == _signer(held):
        return []
    rows = [attest.lacking(found, place.repository, digest) for place, digest in held.items()]
    return list(dict.fromkeys(name for names in rows for name in names))


def probed_here(image: Image, digest: str) -> bool:
    """Return whether this checkout has probed the digest, because every user with push permission can tag an image."""
    return bool(image.proof and image.proof.image == digest and image.proof.probe.state == "passed")


def attested(found: Inputs, repository: str, digest: str, say: Say) -> Attested:
    """Call attest.attest(). An image that is to be signed and was not probed here is pulled and probed first.

    Raises also what build.proved() raises.
    """
    out = out_folder(found.recipe)
    image = known_image(found, out)
    if not probed_here(image, digest) and attest.lacking(found, repository, digest):
        take(repository, found, digest, say)
        say(f"{found.variant.id}: probing {digest} before it is signed")
        image = proved(found, out)
        if not probed_here(image, digest):
            raise other_image(found, f"{repository}@{digest}", image, "signed")
    return attest.attest(found, repository, digest, out / "sbom.json", say)


def sign_in(found: Inputs, digest: str, held: Held, say: Say) -> Image:
    """Call attested() for every place; record the result in image.json if that file is about this image."""
    done = [attested(found, place.repository, digest, say) for place in held][-1]
    image = known_image(found, out_folder(found.recipe))
    if image.proof and image.proof.image == digest:
        signature = done.signature.model_copy(update={"code": _signer(held)})
        proof = done.model_copy(update={"signature": signature}).into(image.proof)
        image = image.model_copy(update={"proof": proof})
        write_image(out_folder(found.recipe), image)
    return image


def _signer(places: Iterable[Place]) -> str:
    """Return the digest of our public key and of the places where it signs; "" without a key."""
    key = attest.signing_key()
    return lockfile.digest([sign.public_key(key), *sorted(place.repository for place in places)]) if key else ""


def take(repository: str, found: Inputs, digest: str, say: Say) -> None:
    """Pull the place's image into the engine in place of the one built here, which may have other bytes."""
    if engine.image_id(found.name) != digest:
        say(f"{found.variant.id}: pulling {digest} from {repository}")
        engine.pull(f"{repository}@{digest}", found.name, auth.credentials(repository))


def other_image(found: Inputs, uri: str, image: Image, not_done: str) -> RegistryError:
    """Return the error for a registry that holds other bytes than were probed; `not_done`: signed or tagged."""
    again = f"trainwright build {found.variant.words} && trainwright push {found.variant.words}"
    return RegistryError(
        f"the {found.variant.id} in the registry is not the image that was probed; it was not {not_done}",
        where=uri,
        why=f"the registry's image is {engine.image_id(uri)}, the probed one {image.proof and image.proof.image}",
        # A published image is not built again: find out which of the two the inputs give.
        fix=again if not_done == "tagged" else f"trainwright rebuild --compare {found.variant.id}",
    )
