"""One image between its steps: what is planned, what out/<id>/image.json says of it, what was done."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from trainwright import children, engine, host_settings, plan, registry
from trainwright.errors import EnvironmentProblem, RegistryError
from trainwright.files import write
from trainwright.inputs import Inputs
from trainwright.matrix import Intent
from trainwright.model import Variant
from trainwright.outcome import Image, PlanEntry
from trainwright.publication import Place
from trainwright.remedy import sentence


@dataclass
class Done:
    """One row of the final table."""

    image: Image
    action: str
    why: str
    seconds: float


def out_folder(intent: Intent, variant: Variant) -> Path:
    return intent.root / "out" / variant.id


def read_image(out: Path) -> Image | None:
    """What an earlier step wrote; None where nothing did, or another version of this program."""
    try:
        return Image.model_validate_json((out / "image.json").read_bytes())
    except (FileNotFoundError, ValidationError):
        return None


def known_image(found: Inputs, out: Path) -> Image:
    """What image.json says of this key already; where it says nothing, what the inputs say."""
    image = read_image(out)
    if image and image.key == found.key:
        return image
    return Image(id=found.variant.id, key=found.key, drift=found.drift)


def write_image(out: Path, image: Image) -> None:
    write(out / "image.json", image.model_dump_json(by_alias=True, indent=2) + "\n")


def published_image(found: Inputs, out: Path, repository: str) -> Image:
    """image.json of an image that the registry holds: ours if it is of this key, else what the registry says."""
    digest, image = registry.resolve(repository, found.tag), known_image(found, out)
    if image.digest == digest and image.uri == f"{repository}@{digest}":
        return image
    manifest = registry.manifest(repository, digest)
    image = image.model_copy(
        update={
            "digest": digest,
            "uri": f"{repository}@{digest}",
            "size": registry.size_of(manifest),
            "tags": [found.tag],
            "versions": image.versions or found.versions,
        }
    )
    write_image(out, image)
    return image


def plan_one(found: Inputs, repository: str | None, engine_answers: Callable[[], bool]) -> PlanEntry:
    """skip, reuse, build or blocked; a registry or an engine that does not answer is unknown, not empty."""
    published = None
    warnings = [f"{sentence(warning)}: {warning.rule}" for warning in found.warnings]
    if found.blocked:
        return plan.decide(found.variant.id, found.key, None, None, warnings, found.blocked)
    if repository:
        with suppress(EnvironmentProblem, RegistryError):  # a registry that does not answer
            published = registry.resolve(repository, found.tag)
    present = None
    if not published and engine_answers():
        present = engine.image_id(found.name) is not None
    return plan.decide(found.variant.id, found.key, published, present, warnings)


def registry_host(root: Path, given: str) -> str:
    """Where images are: `given` (REGISTRY), else the registry on loopback.

    Raises RegistryError where that one does not answer, or where an AWS account is configured: publishing to ECR by
    default is not there yet, and loopback instead would be a silent fallback.
    """
    host = given or host_settings.registry_address(root)
    if not given and (account := host_settings.aws_account()):
        raise RegistryError(
            "an AWS account is configured, and this version does not publish to Amazon ECR by itself yet",
            why=f"{account} is set",
            fix=f"REGISTRY=<account>.dkr.ecr.<region>.amazonaws.com after `docker login`, or REGISTRY={host}",
        )
    if not given and not registry.answers(host):
        raise RegistryError(f"no registry answers at {host}", fix="make registry")
    return host


def below_registry(variant: Variant) -> str:
    """The path of the variant's repository below the registry."""
    return f"trainwright/{variant.framework}"


def repository(intent: Intent, variant: Variant, given: str) -> str:
    """Where the variant's images go. Raises RegistryError as registry_host() does."""
    return f"{registry_host(intent.root, given)}/{below_registry(variant)}"


def places(intent: Intent, variant: Variant, given: str) -> list[Place]:
    """Every place that the variant's images go to. Raises RegistryError as registry_host() does."""
    return [Place(host=registry_host(intent.root, given), path=below_registry(variant))]


def published(intent: Intent, variants: list[Variant], given: str) -> dict[str, dict[Place, str]]:
    """By id: what each place holds under the key's tag, "" where it holds nothing."""
    found = {variant.id: children.load(intent, variant).tag for variant in variants}
    return {
        variant.id: {
            place: registry.resolve(place.repository, found[variant.id]) for place in places(intent, variant, given)
        }
        for variant in variants
    }


def repository_if_any(intent: Intent, variant: Variant, given: str) -> str | None:
    """The same where it only serves to find out what is published already: None where nobody can say."""
    try:
        return repository(intent, variant, given)
    except RegistryError:
        return None
