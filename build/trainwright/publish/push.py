"""Push by digest, verify what the registry holds, prove that digest, attest it, and only then tag."""

import time
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

from trainwright.build import proof_code
from trainwright.build.build import at_hand, prove
from trainwright.build.image_tests import tested
from trainwright.build.state import Done, known_image, out_folder, published_image, write_image
from trainwright.core import store
from trainwright.core.errors import (
    ConfigError,
    NotRunError,
    RegistryError,
    TestError,
    TrainwrightError,
    collected,
    refuse_all,
)
from trainwright.core.progress import Say
from trainwright.docker import engine
from trainwright.image import child, key, tags
from trainwright.image.inputs import Inputs
from trainwright.lock import lockfile
from trainwright.matrix.matrix import Intent, Recipe
from trainwright.matrix.records import Check, Image
from trainwright.publish import attest, sign
from trainwright.publish.attest import Attested
from trainwright.registry import auth, client, ecr, ecr_repositories, scanning
from trainwright.registry.ecr_settings import Setting, movable, refuse_filters
from trainwright.registry.settings import FILE, Place, Publication, Repository, publication

PROBED_FIRST = "it is pulled and probed here first"
Held = Mapping[Place, str]  # digest behind the key's tag in each place, "" if it has none


def push(recipe: Recipe, held: Held, release: str, say: Say, waiver: str = "") -> Done:
    """Push an image from the engine to each place, with all checks before the tag that means exactly its inputs.

    `held` is what the places hold under the key: a place that has it is left alone, one that lacks it gets the same
    digest. `release` is one more tag, for people. It needs a passed gate or a `waiver` (NAME: REASON), and refuse()
    checks before that the image has no drift.
    """
    began = time.monotonic()
    found = child.load(recipe)
    out = out_folder(recipe)
    digest, missing = one_digest(found, held)
    gate = Check(state="not run")
    if release:
        for place in held:
            refuse_taken(found, place.repository, release, digest)
        gate = gated(recipe, digest or engine.image_id(found.name) or "", waiver)
    if not missing:
        image = published_image(found, out, next(iter(held)).repository, digest)
        action, why = "skip", key.decide(recipe.id, found.key, digest, None).reason
        if not release and (names := unsigned(found, image, held)):
            image = _sign(found, digest, held, say)
            action, why = "signed", f"{why}; now signed: {', '.join(names)}"
    else:
        image = _publish(found, held, missing, digest, say)
        action, why = "pushed", "pushed by digest, verified, proved, tagged"
    if release:
        if attest.signing_key():  # the image may have been published before the signing key existed
            image = _sign(found, str(image.digest), held, say)
        for place in held:
            client.tag(place.repository, str(image.digest), release)
        proof = image.proof.model_copy(update={"gate": gate}) if image.proof else None
        image = image.model_copy(update={"tags": [*dict.fromkeys([*image.tags, release])], "proof": proof})
        write_image(out, image)
        why += f"; released as {release}"
    return Done(image, action, why, time.monotonic() - began)


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

    Raises as build.prove(), too.
    """
    out = out_folder(found.recipe)
    image = known_image(found, out)
    if not probed_here(image, digest) and attest.lacking(found, repository, digest):
        _take(repository, found, digest, say)
        say(f"{found.variant.id}: probing {digest} before it is signed")
        image = prove(found, out)
        if not probed_here(image, digest):
            raise _other_image(found, f"{repository}@{digest}", image, "signed")
    return attest.attest(found, repository, digest, out / "sbom.json", say)


def _sign(found: Inputs, digest: str, held: Held, say: Say) -> Image:
    """Call attested() for every place, and note it in image.json if that is about this very image."""
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


def one_digest(found: Inputs, held: Held) -> tuple[str, list[Place]]:
    """Return the digest behind the key's tag, "" if it is not published, and the places that lack it.

    Raises RegistryError if two places disagree.
    """
    named = {digest for digest in held.values() if digest}
    if len(named) > 1:
        raise RegistryError(
            f"{found.tag} points to different images",
            where=", ".join(f"{place}: {digest}" for place, digest in held.items() if digest),
            why="the tag of a key is immutable, so none of them can be moved",
            fix=f"trainwright rebuild --compare {found.variant.id}   # shows which of them the inputs give",
        )
    return next(iter(named), ""), [place for place, digest in held.items() if not digest]


def _publish(found: Inputs, held: Held, missing: list[Place], digest: str, say: Say) -> Image:
    """Publish: each step in all places before the next one.

    The tag comes last; until then nothing points at the image.
    """
    policy, identity, out = publication(found.recipe.root), found.variant.id, out_folder(found.recipe)
    if digest:  # a digest that one place has is the one for all, built here or not
        _take(next(place.repository for place in held if held[place]), found, digest, say)
    image = at_hand(found, say)
    refuse_filters(policy.repository, [identity])
    for place in filter(lambda place: place.region, missing):
        for row in settled(place, policy.repository, create=True):
            if row.state == "created" or row.setting != "all":
                say(f"{place}: {row.repository}: {row.setting} {row.state} {row.held} {row.wanted}".rstrip())
    with store.scratch() as folder:
        engine.save(found.name, folder / "layout")
        digest, manifest = client.manifest_of(folder / "layout")
        for place in missing:
            say(f"{identity}: pushing {digest} to {place}")
            client.push(folder / "layout", place.repository, digest)
        for place in missing:
            client.verify(place.repository, digest, manifest)
    uri = f"{missing[0].repository}@{digest}"
    _prove(found, image, missing[0], digest, say)
    scan = _scanned(found, missing, digest, policy, say)
    image = _sign(found, digest, held, say)
    assert image.proof is not None  # written by the tests
    for place in missing:
        client.tag(place.repository, digest, found.tag)
    image = image.model_copy(
        update={
            "digest": digest,
            "uri": uri,
            "uris": [f"{place.repository}@{digest}" for place in held],
            "tags": [found.tag],
            "proof": image.proof.model_copy(update={"scan": scan}),
        }
    )
    write_image(out, image)
    return image


def settled(place: Place, settings: Repository, create: bool) -> list[Setting]:
    """Return a repository's settings; create it if missing and `create` is set, and change nothing that exists.

    Raises RegistryError if it existed and would let our tags move, AwsError.
    """
    rows = ecr_repositories.ensure(place.region, [place.path], settings, create, False, place.account)
    loose = next((row for row in rows if row.setting == "moving tags" and row.state != "changed"), None)
    if loose:
        raise RegistryError(
            f"{place.path} allows immutable tags to move",
            where=str(place),
            why=f"it has {loose.held}, but {FILE} requires {loose.wanted}",
            fix="trainwright repositories --apply",
        )
    return rows


def _take(repository: str, found: Inputs, digest: str, say: Say) -> None:
    """Pull the place's image into the engine in place of the one built here, which may have other bytes."""
    if engine.image_id(found.name) != digest:
        say(f"{found.variant.id}: pulling {digest} from {repository}")
        engine.pull(f"{repository}@{digest}", found.name, auth.credentials(repository))


def _prove(found: Inputs, image: Image, place: Place, digest: str, say: Say) -> None:
    """Check that the image tests passed on this digest of the registry, or run them now. Raises as tested()."""
    uri = f"{place.repository}@{digest}"
    engine.pull_only(uri, auth.credentials(place.host))
    if engine.image_id(uri) != digest or image.proof is None or image.proof.image != digest:
        raise _other_image(found, uri, image, "tagged")
    tests = image.proof.tests
    if tests.state != "passed" or tests.code != proof_code.digest_of(found.recipe.root, found.variant, "image"):
        tested(found, image, uri, say)


def _other_image(found: Inputs, uri: str, image: Image, done: str) -> RegistryError:
    return RegistryError(
        f"the {found.variant.id} in the registry is not the image that was probed; it was not {done}",
        where=uri,
        why=f"the registry's image is {engine.image_id(uri)}, the probed one {image.proof and image.proof.image}",
        fix=f"trainwright build {found.variant.words} && trainwright push {found.variant.words}",
    )


def _scanned(found: Inputs, places: list[Place], digest: str, policy: Publication, say: Say) -> Check:
    """Return the check of all places' scans under the policy.

    Raises TestError if a finding refuses the image, NotRunError if a scan has no result and the policy refuses that.
    """
    checks = []
    for place in places:
        if not place.region:
            checks.append(Check(state="not run", detail=f"{place}: a plain registry scans nothing"))
            continue
        say(f"{found.variant.id}: waiting for the scan in {place}")
        scan = ecr.findings(place.region, place.path, digest, policy.scan.wait_seconds, place.account)
        check = scanning.judge(scan, policy.scan, datetime.now(UTC).date())
        for row in scanning.idle(scan, policy.scan):
            say(f"{found.variant.id}: note: [scan] allows {row}, which is no longer found ({FILE})")
        where = f"{place.repository}@{digest}"
        if check.state == "failed":
            raise TestError(
                f"the scan of {found.variant.id} has findings that are not allowed; it was not tagged",
                where=where,
                why=check.detail,
                fix=f"trainwright lock --update; or a row with reason and expiry in [[scan.allow]] of {FILE}",
            )
        if check.state == "not run" and policy.scan.unknown == "refuse":
            raise NotRunError(
                f"the scan of {found.variant.id} has no result; it was not tagged",
                where=where,
                why=check.detail,
                fix=f"trainwright push {found.variant.words}: it resumes where it stopped; or [scan] unknown in {FILE}",
            )
        checks.append(check.model_copy(update={"detail": f"{place}: {check.detail}"}))
    state = "not run" if any(check.state == "not run" for check in checks) else "passed"
    return Check(state=state, detail="; ".join(check.detail for check in checks))


def refuse(found: Inputs, release: str) -> None:
    """Check what needs no registry: raises LockError (blocked), and all of refusals() at once."""
    lockfile.refuse_blocked(found.variant, found.blocked)
    refuse_all(f"{found.variant.id} was not pushed", refusals(found, release))


def refusals(found: Inputs, release: str) -> list[TrainwrightError]:
    """Return ConfigError (an alias as the release), RegistryError (drift), attest.must_be_possible()'s error."""
    refused = list[TrainwrightError]()
    if release:
        with collected(refused):
            _refuse_alias(found.recipe.intent, release)
        with collected(refused):
            refuse_drift(found)
    with collected(refused):
        attest.must_be_possible(found.recipe.root, "release" if release else "push")
    return refused


def gated(recipe: Recipe, digest: str, waiver: str) -> Check:
    """Call passed.check(); without nccl-tests in the image no gate can run, so that the only fix is the waiver."""
    from trainwright.gate import passed  # needed by releases only, and it imports everything that judges a log

    try:
        return passed.check(recipe.root, recipe.variant, digest, waiver)
    except NotRunError as error:
        if "nccl-tests" in recipe.pins:
            raise
        why = f"{error.why}; it has NCCL but no nccl-tests, so no gate can run on it"
        fix = f"the same command with {passed.WAIVE}, by the person responsible"
        raise NotRunError(error.what, where=error.where, why=why, fix=fix) from None


def _refuse_alias(intent: Intent, release: str) -> None:
    """Check the release's name.

    Raises ConfigError if it is an alias, an id or another movable name: a release is permanent.
    """
    if release in {name for variant in intent.variants for name in (variant.id, tags.alias(variant.id))}:
        raise ConfigError(
            f"--release {release} is an image's alias, and aliases move",
            fix=f"trainwright release <year>.<month>.0 {release}",
        )
    settings = publication(intent.root).repository
    if movable(release, [*settings.moving, settings.caches]):
        raise ConfigError(
            f"--release {release} is a tag that may move or expire",
            where=FILE,
            why=f"`moving` is {', '.join(settings.moving)}, `caches` {settings.caches}",
            fix="choose another name",
        )


def refuse_drift(found: Inputs) -> None:
    """Check that the image has no drift from its lock; with drift it can be used, never released.

    Raises RegistryError.
    """
    if drift := found.drift:
        raise RegistryError(
            f"{found.variant.id} cannot be released: {len(drift)} of its packages drifted from the lock",
            why=", ".join(f"{d.package} {d.locked or '(new)'} -> {d.used}" for d in drift[:5]),
            fix="trainwright lock --update, review the difference, lock --update --write, and build again",
        )


def refuse_taken(found: Inputs, repository: str, release: str, own: str) -> None:
    """Check before pushing that no other image has the release tag. `own` is this image's digest, "" before the push.

    Raises RegistryError.
    """
    taken = client.resolve(repository, release)
    if taken in ("", own):
        return
    this = f"this image is {own}" if own else "this image is not in the registry yet"
    what = f"{found.variant.id} cannot be released as {release}: a release tag is immutable"
    raise RegistryError(
        what, where=f"{repository}:{release}", why=f"it points to {taken}; {this}", fix="choose another name"
    )
