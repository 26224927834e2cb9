"""Check what must hold before an image is pushed or released."""

from trainwright.core.errors import ConfigError, NotRunError, RegistryError, TrainwrightError, collected, refuse_all
from trainwright.image import tags
from trainwright.image.inputs import Inputs
from trainwright.lock import lockfile
from trainwright.matrix.matrix import Intent, Recipe
from trainwright.matrix.records import Check
from trainwright.publish import attest
from trainwright.registry import client
from trainwright.registry.settings import FILE, publication


def refuse(found: Inputs, release: str) -> None:
    """Make the checks that need no registry. Raises LockError (blocked), or all errors of refusals() at once."""
    lockfile.refuse_blocked(found.recipe, found.blocked)
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
        return passed.check(recipe, digest, waiver)
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
    if tags.movable(release, [*settings.moving, settings.caches]):
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
            fix=f"trainwright lock {found.recipe.words} --update, review it, the same with --write, and build again",
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
