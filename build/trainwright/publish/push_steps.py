"""Define the steps of a push: `push` does each in all places before the next, `push --dry-run` lists them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property

from trainwright.build import proof_code
from trainwright.build.build import at_hand
from trainwright.build.image_tests import tested
from trainwright.build.state import out_folder, write_image
from trainwright.core import store
from trainwright.core.errors import NotRunError, RegistryError, TestError, TrainwrightError, collected
from trainwright.core.progress import Say
from trainwright.docker import engine
from trainwright.image import tags as image_tags
from trainwright.image.inputs import Inputs
from trainwright.matrix.records import Check, Image, Proof
from trainwright.publish import attest, licences, sign_probed, twins
from trainwright.registry import auth, client, ecr, ecr_repositories, scanning
from trainwright.registry.ecr_settings import Setting, refuse_filters
from trainwright.registry.locations import Held
from trainwright.registry.settings import FILE, Place, Publication, Repository, publication


@dataclass
class Push:
    """One image on its way to its places, and what is known of it so far."""

    found: Inputs
    held: Held
    release: str  # one more tag, "" for none
    digest: str  # behind the key's tag; "" until it is published
    missing: list[Place]  # the places without the key's tag
    image: Image
    unsigned: list[str] = field(default_factory=list)  # what our key has yet to sign of a published image
    untwinned: Sequence[Place] = ()  # the places that should have its zstd twin, and lack it
    twin_asked: bool = False  # whether the user asked for the twin, so that a registry that takes none is an error
    # Of the push itself:
    say: Say = print
    allowed: Sequence[str] = ()  # licences that the user's contract allows to publish
    gate: Check = field(default_factory=lambda: Check(state="not run"))
    scan: Check = field(default_factory=lambda: Check(state="not run"))
    no_twin: str = ""  # why no twin was made although one should be; "" if it was
    # Of a dry run:
    to_send: str = ""  # digest of the image that would be sent; "" if it is not built
    refused: list[TrainwrightError] = field(default_factory=list)  # all errors that would end the push

    @property
    def id(self) -> str:
        return self.found.variant.id

    @cached_property
    def policy(self) -> Publication:
        return publication(self.found.recipe.root)

    @property
    def uri(self) -> str:
        return f"{self.missing[0].repository}@{self.digest}"


class Step:
    """One step: whether the push needs it, its lines in a dry run, and the step itself."""

    def applies(self, push: Push) -> bool:
        return bool(push.missing)

    def tell(self, push: Push) -> Iterator[str]:
        """Yield the lines of a dry run; collect in push.refused the errors that would end the step."""
        raise NotImplementedError

    def do(self, push: Push) -> None:
        raise NotImplementedError


class Admit(Step):
    """Tell which licences the user's contract replaces. A dry run checks them here, a push before its first image."""

    def tell(self, push: Push) -> Iterator[str]:
        with collected(push.refused):
            refused = licences.refusals(push.found, push.missing, push.allowed)
            push.refused += refused
            yield from (f"licence: {error.what}" for error in refused)
        yield from licences.waived(push.found, push.allowed)

    def do(self, push: Push) -> None:
        for line in licences.waived(push.found, push.allowed):
            push.say(f"{push.id}: {line}")


class Take(Step):
    """Have the probed image in the engine; if a place has it already, that very digest, so that all get the same.

    Raises ConfigError for wrong tag filters, and what at_hand() raises.
    """

    def tell(self, push: Push) -> Iterator[str]:
        with collected(push.refused):
            refuse_filters(push.policy.repository, [push.id])
        if source := next((place for place in push.held if push.held[place]), None):
            with collected(push.refused):
                engine.client()
            yield f"build: not needed; the engine holds {push.digest}, or pulls it from {source}"
        elif push.to_send:
            yield f"build: the engine holds it, {push.to_send}"
        else:
            yield f"build: the image is not built: trainwright build {push.found.variant.words}"

    def do(self, push: Push) -> None:
        refuse_filters(push.policy.repository, [push.id])
        if push.digest:
            source = next(place.repository for place in push.held if push.held[place])
            sign_probed.take(source, push.found, push.digest, push.say)
        push.image = at_hand(push.found, push.say)


class CreateRepositories(Step):
    """Create the repositories that Amazon ECR lacks; the settings of existing ones stay as they are."""

    def tell(self, push: Push) -> Iterator[str]:
        for place in push.missing:
            told = [f"repository: {place.repository}: a plain registry has no settings"]
            if place.region:
                with collected(push.refused):
                    told = self._told(place, push.policy.repository)
            yield from told

    def do(self, push: Push) -> None:
        for place in filter(lambda place: place.region, push.missing):
            for row in settled(place, push.policy.repository, create=True):
                if row.state == "created" or row.setting != "all":
                    push.say(f"{place}: {row.repository}: {row.setting} {row.state} {row.held} {row.wanted}".rstrip())

    def _told(self, place: Place, settings: Repository) -> list[str]:
        rows = settled(place, settings, create=False)
        own = [row for row in rows if row.repository == place.path]
        others = [f"{row.setting} of {row.repository}: {row.held or 'as wanted'}" for row in rows if row not in own]
        if own[0].state == "missing":
            return [f"repository: {place.repository} does not exist; it is created: {_settings(settings)}", *others]
        if own[0].state == "as wanted":
            return [f"repository: {place.repository} matches {FILE}: {_settings(settings)}", *others]
        told = "; ".join(f"{row.setting} is {row.held}, {FILE} requires {row.wanted}" for row in own)
        return [f"repository: {place.repository} stays as it is: {told}; trainwright repositories --apply", *others]


class Send(Step):
    """Push by digest to all places, then read back what each holds; nothing points at the image yet."""

    def tell(self, push: Push) -> Iterator[str]:
        called = push.to_send or "its digest, known once it is built,"
        for place in push.missing:
            yield f"push by digest: {called} to {place.repository}; blobs that it holds are not sent"
        places = ", ".join(map(str, push.missing))
        yield f"verify in {places}: the manifest under its digest, each blob; plain, one platform, Docker media types"

    def do(self, push: Push) -> None:
        with store.scratch() as folder:
            layout = folder / "layout"
            engine.save(push.found.name, layout)
            push.digest, manifest = client.manifest_of(layout)
            for place in push.missing:
                push.say(f"{push.id}: pushing {push.digest} to {place}")
                client.push(layout, place.repository, push.digest)
            for place in push.missing:
                client.verify(place.repository, push.digest, manifest)


class Prove(Step):
    """Check that the image tests passed on this digest of the registry, or run them now."""

    def tell(self, push: Push) -> Iterator[str]:
        proof, tests = push.image.proof, "probe and image tests run on it"
        if proof and push.to_send and proof.image == push.to_send:
            passed = _tests_passed(push, proof)
            tests = f"it is probed; {f'{proof.tests.detail} passed on it' if passed else 'image tests run on it'}"
        yield f"prove: the engine pulls it by that digest from {push.missing[0]}; {tests}"

    def do(self, push: Push) -> None:
        found, proof = push.found, push.image.proof
        engine.pull_only(push.uri, auth.credentials(push.missing[0].host))
        if engine.image_id(push.uri) != push.digest or proof is None or proof.image != push.digest:
            raise sign_probed.other_image(found, push.uri, push.image, "tagged")
        if not _tests_passed(push, proof):
            tested(found, push.image, push.uri, push.say)


class Scan(Step):
    """Judge the registry's own scan by the policy."""

    def tell(self, push: Push) -> Iterator[str]:
        scanned = push.policy.scan
        grave = " or ".join(scanned.refuse) or "no severity"
        allowed = f" unless allowed: {', '.join(row.id for row in scanned.allow)}" * bool(scanned.allow)
        silent = "refuses it, too" if scanned.unknown == "refuse" else "is recorded"
        for place in push.missing:
            if place.region:
                limit = f"for {scanned.wait_seconds:g} s at most"
                yield f"scan in {place}: {limit}; {grave} refuses it{allowed}; no result {silent}"
            else:
                yield f"scan: not run: {place} is a plain registry and scans nothing"

    def do(self, push: Push) -> None:
        checks = [self._judged(push, place) for place in push.missing]
        state = "not run" if any(check.state == "not run" for check in checks) else "passed"
        push.scan = Check(state=state, detail="; ".join(check.detail for check in checks))

    def _judged(self, push: Push, place: Place) -> Check:
        """Return the check of one scan.

        Raises TestError if a finding refuses the image, NotRunError if it has no result and the policy refuses that.
        """
        if not place.region:
            return Check(state="not run", detail=f"{place}: a plain registry scans nothing")
        push.say(f"{push.id}: waiting for the scan in {place}")
        policy = push.policy.scan
        scan = ecr.findings(place.region, place.path, push.digest, policy.wait_seconds, place.account)
        check = scanning.judge(scan, policy, datetime.now(UTC).date())
        for row in scanning.idle(scan, policy):
            push.say(f"{push.id}: note: the scan no longer finds {row}, so its row of [[scan.allow]] in {FILE} can go")
        where = f"{place.repository}@{push.digest}"
        if check.state == "failed":
            raise TestError(
                f"the scan of {push.id} has findings that are not allowed; it was not tagged",
                where=where,
                why=check.detail,
                fix=f"trainwright lock --update; or a row with reason and expiry in [[scan.allow]] of {FILE}",
            )
        if check.state == "not run" and policy.unknown == "refuse":
            raise NotRunError(
                f"the scan of {push.id} has no result; it was not tagged",
                where=where,
                why=check.detail,
                fix=f"trainwright push {push.found.variant.words}: it resumes where it stopped; "
                f"or [scan] unknown in {FILE}",
            )
        return check.model_copy(update={"detail": f"{place}: {check.detail}"})


class Sign(Step):
    """Sign image, SBOM and provenance in every place; a published image may be older than the key."""

    def applies(self, push: Push) -> bool:
        return bool(push.missing or push.release or push.unsigned)

    def tell(self, push: Push) -> Iterator[str]:
        key = attest.signing_key()
        if push.unsigned:
            first = "" if sign_probed.probed_here(push.image, push.digest) else f"; {sign_probed.PROBED_FIRST}"
            yield f"sign what is published: {', '.join(push.unsigned)}: by {key}{first}"
        else:
            required = push.policy.signature.required
            said = f"by {key}" if key else f"not run: {attest.NO_KEY} ([signature] required = {required!r})"
            yield f"sign image, SBOM and provenance: {said}"

    def do(self, push: Push) -> None:
        # Without a key, sign_in() would replace a recorded signature by "not run".
        if push.missing or attest.signing_key():
            push.image = sign_probed.sign_in(push.found, push.digest, push.held, push.say)
            for place in push.held if not push.missing and attest.signing_key() else ():
                if twin := twins.find(place.repository, push.found.tag, push.digest):
                    attest.sign_twin(push.found, place.repository, twin, push.say)


class Tag(Step):
    """Set the key's tag, which means: these inputs, built, probed, tested."""

    def tell(self, push: Push) -> Iterator[str]:
        yield f"tag {push.found.tag} in {', '.join(map(str, push.missing))}: immutable"

    def do(self, push: Push) -> None:
        assert push.image.proof is not None  # Prove refuses an image without one
        for place in push.missing:
            client.tag(place.repository, push.digest, push.found.tag)
        push.image = push.image.model_copy(
            update={
                "digest": push.digest,
                "uri": push.uri,
                "uris": [f"{place.repository}@{push.digest}" for place in push.held],
                "tags": [push.found.tag],
                "proof": push.image.proof.model_copy(update={"scan": push.scan}),
            }
        )
        write_image(out_folder(push.found.recipe), push.image)


class TagRelease(Step):
    """Set the additional tag that the user requested."""

    def applies(self, push: Push) -> bool:
        return bool(push.release)

    def tell(self, push: Push) -> Iterator[str]:
        yield f"tag {push.release} in {', '.join(map(str, push.held))}: immutable"

    def do(self, push: Push) -> None:
        image = push.image
        for place in push.held:
            client.tag(place.repository, push.digest, push.release)
        proof = image.proof.model_copy(update={"gate": push.gate}) if image.proof else None
        tags = [*dict.fromkeys([*image.tags, push.release])]
        push.image = image.model_copy(update={"tags": tags, "proof": proof})
        write_image(out_folder(push.found.recipe), push.image)


class MakeTwin(Step):
    """Publish the zstd twin: the image's own layers in another compression, with the same configuration.

    It comes last, because the image is published whatever becomes of it.
    """

    def applies(self, push: Push) -> bool:
        return bool(push.untwinned)

    def tell(self, push: Push) -> Iterator[str]:
        places, tag = ", ".join(map(str, push.untwinned)), image_tags.twin_tag(push.found.tag)
        level = push.policy.twin.level
        yield f"zstd twin (level {level}): compress its layers, push by digest to {places}, verify, sign as the image"
        yield f"tag {tag} in {places}: immutable"

    def do(self, push: Push) -> None:
        for place in push.untwinned:
            try:
                twins.publish(push.found, place.repository, push.digest, push.say)
            except twins.NotTaken as error:
                if push.twin_asked:
                    raise
                push.say(f"{push.id}: note: no zstd twin: {error.what}: {error.why}")
                push.no_twin = "no zstd twin, because the registry takes none"


class TagTwinRelease(Step):
    """Set the additional tag of the twin."""

    def applies(self, push: Push) -> bool:
        return bool(push.release)

    def tell(self, push: Push) -> Iterator[str]:
        places = set(push.untwinned)
        with collected(push.refused):
            places |= {
                one for one in push.held if push.digest and twins.find(one.repository, push.found.tag, push.digest)
            }
        if places:
            yield f"tag {image_tags.twin_tag(push.release)} in {', '.join(sorted(map(str, places)))}: immutable"

    def do(self, push: Push) -> None:
        for place in push.held:
            if twin := twins.find(place.repository, push.found.tag, push.digest):
                client.tag(place.repository, twin, image_tags.twin_tag(push.release))


STEPS = (
    Admit(),
    Take(),
    CreateRepositories(),
    Send(),
    Prove(),
    Scan(),
    Sign(),
    Tag(),
    TagRelease(),
    MakeTwin(),
    TagTwinRelease(),
)


def _tests_passed(push: Push, proof: Proof) -> bool:
    """Return whether the present image tests passed on the image."""
    return proof.tests.state == "passed" and proof.tests.code == proof_code.digest_of(push.found.recipe, "image")


def settled(place: Place, settings: Repository, create: bool) -> list[Setting]:
    """Return a repository's settings; create it if missing and `create` is set, and change nothing that exists.

    Raises AwsError, and RegistryError if the repository existed and would let our tags move.
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


def _settings(settings: Repository) -> str:
    return "; ".join(
        filter(
            None,
            [
                f"tags are immutable except {', '.join(settings.moving)}",
                f"scan on push: {'yes' if settings.scan_on_push else 'no'}",
                f"encryption {settings.encryption} {settings.kms_key}".rstrip(),
                f"untagged images expire after {settings.untagged_days} days, caches after {settings.cache_days}",
                f"readers {', '.join(settings.readers) or 'none'}",
                ", ".join(f"{name}={value}" for name, value in settings.tags.items()),
            ],
        )
    )
