"""Check where an image may be published: licences of what it holds, and who can pull from a place."""

from collections.abc import Collection, Iterable, Iterator
from datetime import date
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from trainwright.core.errors import ConfigError, RegistryError, TrainwrightError, did_you_mean, refuse_all
from trainwright.core.toml import Model, load
from trainwright.image.inputs import Inputs
from trainwright.matrix.matrix import Recipe
from trainwright.matrix.model import Lock
from trainwright.registry import ecr_repositories
from trainwright.registry.ecr_settings import admits_everybody
from trainwright.registry.http import is_loopback
from trainwright.registry.settings import FILE as PUBLISH
from trainwright.registry.settings import Place, publication

FILE = "dockerfiles/licences.toml"
OPTION = "--licence-allows"

Kind = Literal["loopback", "ecr", "private", "public", "unknown"]
Said = Annotated[str, Field(min_length=1)]


class Licence(Model):
    """One licence: what falls under it, and the places that it allows."""

    name: Annotated[str, Field(pattern=r"^\S+$")]  # for --licence-allows
    title: Said
    cuda_compiler: bool = False  # whether a devel twin for CUDA falls under it
    components: list[str] = Field(default=[])
    packages: list[str] = Field(default=[])  # globs of Python packages
    bases: list[str] = Field(default=[])  # globs of the reference of a base image
    places: list[Kind]
    why: Said
    evidence: Said
    checked_on: date


class Licences(Model):
    """The whole of licences.toml."""

    licences: list[Licence]


def of_image(recipe: Recipe, locked: Lock | None) -> Iterator[tuple[Licence, str]]:
    """Yield each licence that an image falls under, with what does; without a lock, as far as the intent says."""
    installed = recipe.installed(locked)
    for row in load(recipe.root / FILE, Licences).licences:
        held = [name for name in recipe.pins if name in row.components]
        held += [name for name in installed if any(fnmatchcase(name, glob) for glob in row.packages)]
        if recipe.base.provider == "image":
            held += [recipe.base.reference for glob in row.bases if fnmatchcase(recipe.base.reference, glob)]
        if row.cuda_compiler and recipe.variant.devel and "cuda" in recipe.pins:
            held.append("CUDA's compiler")
        if held:
            yield row, held[-1]


def kind_of(place: Place, root: Path) -> tuple[Kind, str]:
    """Return what is known of who can pull from a place, and one sentence that says why. Raises AwsError."""
    hosts = publication(root).places
    if is_loopback(place.host):
        return "loopback", "it is this machine"
    if place.region:
        held = ecr_repositories.describe(place.region, place.path, place.account)
        if held and admits_everybody(held.policy):
            return "public", "the policy of this repository lets everybody pull: a Principal of * without a condition"
        return "ecr", "the policy of this repository does not let everybody pull"
    named: list[tuple[Kind, list[str]]] = [("private", hosts.private), ("public", hosts.public)]
    for kind, globs in named:
        if any(fnmatchcase(place.host, glob) for glob in globs):
            return kind, f"{place.host} is in `{kind}` of [places] in {PUBLISH}"
    return "unknown", f"{place.host} is neither on loopback, nor Amazon ECR, nor in [places] of {PUBLISH}"


def refusals(found: Inputs, places: Iterable[Place], allowed: Collection[str]) -> list[TrainwrightError]:
    """Return an error for each place that a licence keeps the image out of, unless its name is in `allowed`.

    Places are only looked at for an image that a licence restricts. Raises ConfigError for an unknown name, AwsError.
    """
    root = found.recipe.root
    known = load(root / FILE, Licences).licences
    for name in allowed:
        if name not in {row.name for row in known}:
            names = [row.name for row in known]
            raise ConfigError(
                f"{OPTION} {name} is not a licence of {FILE}", why=did_you_mean(name, names), fix=f"{OPTION} {names[0]}"
            )
    restricted = [(row, held) for row, held in of_image(found.recipe, found.lock) if row.name not in allowed]
    refused = list[TrainwrightError]()
    for place in places if restricted else ():
        kind, why = kind_of(place, root)
        refused += [_refusal(found, place, kind, why, row, held) for row, held in restricted if kind not in row.places]
    return refused


def waived(found: Inputs, allowed: Collection[str]) -> list[str]:
    """Return one sentence for each licence of an image that the user's own contract replaces."""
    return [
        f"licence: {row.title} ({held}): {OPTION} {row.name} says that a contract allows it"
        for row, held in of_image(found.recipe, found.lock)
        if row.name in allowed
    ]


def table(recipe: Recipe, locked: Lock | None) -> list[dict[str, str]]:
    """Return a row for people for each licence that an image falls under."""
    return [
        {
            "licence": row.name,
            "of": held,
            "published only in": ", ".join(row.places),
            "because": f"{row.title}: {row.why}",
        }
        for row, held in of_image(recipe, locked)
    ]


def refuse(found: Inputs, places: Iterable[Place], allowed: Collection[str]) -> None:
    """Raise all of refusals() at once, if there are any."""
    refuse_all(f"{found.variant.id} was not pushed", refusals(found, places, allowed))


def _refusal(found: Inputs, place: Place, kind: Kind, why: str, row: Licence, held: str) -> RegistryError:
    listed = f", or {place.host} in `private` of [places] in {PUBLISH} if it is" * (kind == "unknown")
    return RegistryError(
        f"{found.variant.id} may not be published in {place.repository} under the {row.title} ({row.name})",
        where=place.repository,
        why=f"the image holds {held}: {row.why}; {why}\nevidence: {row.evidence} (checked {row.checked_on})",
        fix=f"REGISTRY=ecr, a private repository{listed if 'private' in row.places else ''}; "
        f"if your contract allows it, the same command with {OPTION} {row.name}",
    )
