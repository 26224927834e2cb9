"""Attest a published image in its registry: sign the image, its SBOM and its provenance, and verify them."""

import json
import os
import random
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from shlex import quote
from typing import Any, Literal

from trainwright.core import checkout, toml
from trainwright.core.errors import BuildError, NotRunError, RegistryError, TrainwrightError
from trainwright.core.progress import Say, few
from trainwright.core.toml import Model
from trainwright.image.inputs import Inputs
from trainwright.matrix.records import Check, Proof
from trainwright.publish import provenance, sbom, sign
from trainwright.publish.sign import Place
from trainwright.registry import http, settings
from trainwright.registry.settings import Signature

NO_KEY = "no signing key"
Purpose = Literal["push", "release"]


class Attested(Model):
    """The state of an image's attestations in the registry; each was verified after it was written."""

    sbom: Check
    provenance: Check
    signature: Check

    def into(self, proof: Proof) -> Proof:
        return proof.model_copy(update={name: getattr(self, name) for name in type(self).model_fields})


def signing_key() -> str:
    return os.environ.get(sign.KEY, "").strip()


def must_be_possible(root: Path, purpose: Purpose) -> None:
    """Check before anything is sent that a required signature can be made.

    Raises NotRunError if `publish.toml` requires a signature and no key is set; ConfigError or EnvironmentProblem if
    the key, its password or cosign does not work.
    """
    if key := signing_key():
        sign.public_key(key)
        return
    required = settings.publication(root).signature.required
    if required == "always" or required == purpose:
        raise NotRunError(
            f"a {purpose} requires a signature, but no signing key is set",
            where=f"{settings.FILE}: [signature] required = {required!r}",
            why=f"{sign.KEY} is not set",
            fix=f"export {sign.KEY}=<a file of `cosign generate-key-pair`, or awskms:///<ARN>>",
        )


def attest(found: Inputs, repository: str, digest: str, bill: Path, say: Say) -> Attested:
    """Sign the image, its SBOM (the file `bill`) and its provenance unless that was done before; then verify.

    Without a key nothing is signed, and each state is "not run": must_be_possible() decides whether that is acceptable.
    Raises BuildError if `bill` describes another image, RegistryError if a signature does not persist.
    """
    key = signing_key()
    if not key:
        unsigned = Check(state="not run", detail=NO_KEY)
        return Attested(sbom=unsigned, provenance=unsigned, signature=unsigned)
    policy = settings.publication(found.recipe.root).signature
    place = place_of(repository, digest, policy)
    with tempfile.TemporaryDirectory(prefix="trainwright-attest-") as folder:
        lacks = _lacks(found, place, policy, Path(folder))
        made = Path(folder, "provenance.json")
        made.write_text(json.dumps(provenance.predicate(found, policy.builder, commit_of(found.recipe.root))))
        if lacks["sbom"]() and (about := bill_of(bill)) != digest:
            raise BuildError(
                f"{found.variant.id} cannot be signed: its SBOM is missing here",
                where=str(bill),
                why=f"the SBOM here describes {about or 'none'}, but {digest} is to be signed",
                fix=f"rm -f {quote(str(bill.with_name('image.json')))} && trainwright build {found.variant.words}",
            )
        signs: dict[str, Callable[[], None]] = {
            "sbom": lambda: sign.attest(place, key, "sbom", bill),
            "provenance": lambda: sign.attest(place, key, "provenance", made),
            "signature": lambda: sign.sign(place, key),
        }
        steps = {name: (lacks[name], signs[name]) for name in signs}
        done = _until_it_holds(steps, policy, place, lambda what: say(f"{found.variant.id}: signing its {what}"))
    return Attested(**{name: Check(state="passed", detail=done[name]) for name in steps})


def sign_twin(found: Inputs, repository: str, digest: str, say: Say) -> None:
    """Sign the zstd twin of an image that was signed before, unless that was done; without a key, do nothing.

    SBOM and provenance stay beside the image: its configuration's digest leads from one to the other. Raises what
    attest() raises for a signature.
    """
    if not (key := signing_key()):
        return
    policy = settings.publication(found.recipe.root).signature
    place = place_of(repository, digest, policy)
    with tempfile.TemporaryDirectory(prefix="trainwright-attest-") as folder:
        public = Path(folder, "key.pub")
        public.write_text(sign.public_key(key))
        steps = {"signature": (lambda: sign.unsigned(place, public), lambda: sign.sign(place, key))}
        _until_it_holds(steps, policy, place, lambda _: say(f"{found.variant.id}: signing its zstd twin"))


def lacking(found: Inputs, repository: str, digest: str) -> list[str]:
    """Return what attest() would sign, in its order; [] without a key. Changes nothing."""
    if not (key := signing_key()):
        return []
    sign.public_key(key)
    policy = settings.publication(found.recipe.root).signature
    with tempfile.TemporaryDirectory(prefix="trainwright-attest-") as folder:
        lacks = _lacks(found, place_of(repository, digest, policy), policy, Path(folder))
        names = [name for name, why in lacks.items() if why()]
    return [{"sbom": "SBOM", "signature": "image"}.get(name, name) for name in names]


def _lacks(found: Inputs, place: Place, policy: Signature, folder: Path) -> dict[str, Callable[[], str]]:
    """Return, per attestation, a function that says why the one in the registry is insufficient, or "" if it is not."""
    public = folder / "key.pub"
    public.write_text(sign.public_key(signing_key()))
    return {
        "sbom": lambda: _no_sbom(place, public),
        "provenance": lambda: _no_provenance(found, place, public, policy),
        "signature": lambda: sign.unsigned(place, public),
    }


def _until_it_holds(
    steps: dict[str, tuple[Callable[[], str], Callable[[], None]]], policy: Signature, place: Place, say: Say
) -> dict[str, str]:
    """Sign until the registry holds every attestation; return for each whether it was there or was signed.

    Because two publishers write to one tag and each can lose the other's entry, what was lost is signed again. Raises
    RegistryError if something is still missing after `policy.attempts` attempts.
    """
    done = dict.fromkeys(steps, "was there, and verifies")
    for attempt in range(policy.attempts + 1):
        lacking = {name: why for name, (lacks, _) in steps.items() if (why := lacks())}
        if not lacking:
            return done
        if attempt == policy.attempts:
            break
        if attempt:
            time.sleep(random.uniform(0, policy.wait_seconds * 2 ** (attempt - 1)))
        for name in lacking:
            say("image" if name == "signature" else name)
            steps[name][1]()
            done[name] = "signed, and verified"
    raise RegistryError(
        f"the registry does not keep what was signed of {place.digest}: its {' and '.join(lacking)}",
        where=place.uri,
        why=f"signed {policy.attempts} times, and then: {'; '.join(lacking.values())}",
        fix="wait until no one else publishes this image, and push again",
    )


def place_of(repository: str, digest: str, policy: Signature) -> Place:
    return Place(
        repository=repository,
        digest=digest,
        loopback=http.is_loopback(repository),
        transparency_log=policy.transparency_log,
    )


def commit_of(root: Path) -> str:
    """Return the commit of a checkout without uncommitted changes; "" for one with changes, or without git."""
    with suppress(TrainwrightError):
        if not checkout.uncommitted(root):
            return checkout.commit_of(root, "HEAD")
    return ""


def _no_sbom(place: Place, public: Path) -> str:
    statements, why = sign.attested(place, public, "sbom")
    if any(sbom.image(_predicate(statement)) == place.digest for statement in statements):
        return ""
    return why or "the SBOM in the registry describes another image"


def _no_provenance(found: Inputs, place: Place, public: Path, policy: Signature) -> str:
    statements, why = sign.attested(place, public, "provenance")
    problems = [provenance.differences(found, policy.builder, said, place.digest) for said in statements]
    if [] in problems:
        return ""
    return why or few(problems[-1])


def _predicate(statement: dict[str, Any]) -> dict[str, Any]:
    said = statement.get("predicate")
    return said if isinstance(said, dict) else {}


def bill_of(bill: Path) -> str:
    """Return the digest of the image that a local SBOM describes; "" if the SBOM is missing or unreadable."""
    with suppress(TrainwrightError):
        return sbom.image(toml.parse_json(toml.read(bill), str(bill), "")) if bill.exists() else ""
    return ""
