"""Keep an image's state between its steps: what is planned, what out/<id>/image.json records, what was done."""

import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from pydantic import ValidationError

from trainwright.core import toml
from trainwright.core.errors import AwsError, EnvironmentProblem, NotRunError, RegistryError
from trainwright.core.files import write
from trainwright.docker import engine
from trainwright.image import inputs, key, tags
from trainwright.image.inputs import Inputs
from trainwright.matrix.matrix import Intent, Recipe
from trainwright.matrix.records import GRAFT, Image, PlanEntry
from trainwright.matrix.remedy import sentence
from trainwright.registry import client, ecr_repositories
from trainwright.registry import locations as places_module
from trainwright.registry.ecr_settings import Setting, refuse_filters
from trainwright.registry.settings import Place, publication


@dataclass
class Done:
    """The result of a command for one image: one row of the table that it prints at the end."""

    image: Image
    action: str
    why: str
    seconds: float
    steps: list[str] = field(default_factory=list)  # of a dry run: the planned steps in order


def out_folder(recipe: Recipe) -> Path:
    return recipe.root / "out" / recipe.id


def read_image(out: Path) -> Image | None:
    """Return the image.json of an earlier step, or None if there is none or another version of this program wrote it.

    Raises ConfigError if the file is damaged, because the record of a push must not be lost silently.
    """
    path, name = out / "image.json", f"out/{out.name}/image.json"
    if not path.exists():
        return None
    fix = f"rm -r {name}; trainwright push {out.name} writes it again from the registry"
    said = toml.parse_json(toml.read(path, name, fix=fix), name, fix)
    try:
        return Image.model_validate(said)
    except ValidationError:
        return None


def beyond_the_matrix(root: Path, identity: str) -> Image | None:
    """Return image.json of an image that was made here and that the matrix lacks: a graft, or one with packages on top.

    What the matrix had once does not count. Raises ConfigError if the file is damaged.
    """
    out = root / "out" / identity
    if not re.fullmatch(r"[\w.-]+", identity) or not ("-with-" in identity or (out / GRAFT).exists()):
        return None
    return read_image(out)


def known_image(found: Inputs, out: Path) -> Image:
    """Return image.json if it is of this key; otherwise an image made from the inputs."""
    image = read_image(out)
    if image and image.key == found.key:
        return image
    return Image(id=found.variant.id, key=found.key, drift=found.drift)


def write_image(out: Path, image: Image) -> None:
    write(out / "image.json", image.model_dump_json(by_alias=True, indent=2) + "\n")


def published_image(found: Inputs, out: Path, repository: str, digest: str = "") -> Image:
    """Return image.json of an image that the registry holds: ours if it is of this digest, else the registry's facts.

    `digest` is the digest behind its key, if that is known already.
    """
    digest, image = digest or client.resolve(repository, found.tag), known_image(found, out)
    if image.digest == digest and image.uri == f"{repository}@{digest}":
        return image
    manifest = client.image(repository, digest)
    image = image.model_copy(
        update={
            "digest": digest,
            "uri": f"{repository}@{digest}",
            "size": client.size_of(manifest),
            "tags": [found.tag],
            "versions": image.versions or found.versions,
        }
    )
    write_image(out, image)
    return image


def plan_one(
    found: Inputs,
    repository: str | None,
    engine_answers: Callable[[], bool],
    held: Mapping[Place, str] | None = None,
) -> PlanEntry:
    """Plan skip, reuse, build or blocked; a registry or an engine that does not answer is unknown, not empty.

    `held` is the result of published() for it; without it, `repository` is queried.
    """
    published = None
    warnings = [f"{sentence(warning)}: {warning.rule}" for warning in found.warnings]
    if found.blocked:
        return key.decide(found.variant.id, found.key, None, None, warnings, found.blocked)
    if held:
        published = places_module.home(held)[1]
        warnings += filter(None, [places_module.lacking(held)])
    elif repository:
        with suppress(EnvironmentProblem, RegistryError):  # a registry that does not answer
            published = client.resolve(repository, found.tag)
    present = None
    if not published and engine_answers():
        present = engine.image_id(found.name) is not None
    return key.decide(found.variant.id, found.key, published, present, warnings)


def planned(
    intent: Intent,
    recipes: Iterable[Recipe],
    given: str,
    regions: str = "",
    must_know: bool = False,
    elsewhere: bool = False,
) -> tuple[list[PlanEntry], str]:
    """Return the plan of each image, and why the published state is unknown, "" if it is known.

    With `must_know`, raises as published() does instead. `elsewhere` plans for a builder that does not have this
    engine.
    """
    recipes = list(recipes)
    missing = {recipe.id: inputs.awaited(recipe) for recipe in recipes}
    found = {recipe.id: inputs.load(recipe) for recipe in recipes if not missing[recipe.id]}
    answers = (lambda: False) if elsewhere else cache(engine.answers)
    look = (lambda *asked: (published(*asked), "")) if must_know else published_if_known
    held, why = look(intent, found.values(), given, regions)
    rows = [
        plan_one(found[recipe.id], None, answers, held.get(recipe.id))
        if recipe.id in found
        else key.decide(recipe.id, "", None, None, blocked=missing[recipe.id])
        for recipe in recipes
    ]
    return rows, why


def pushed_here(intent: Intent) -> tuple[list[Recipe], list[str]]:
    """Return the images that out/ records as pushed with their present inputs, and the ids of those with others."""
    said = [(recipe, read_image(out_folder(recipe))) for recipe in intent.recipes]
    pushed = {recipe.id: (recipe, image.key) for recipe, image in said if image and image.digest and image.uri}
    fresh = [recipe for recipe, key in pushed.values() if not inputs.awaited(recipe) and inputs.load(recipe).key == key]
    return fresh, sorted(pushed.keys() - {recipe.id for recipe in fresh})


def exported(recipes: Iterable[Recipe]) -> dict[str, str]:
    """Return the variables with which a pipeline passes on pushed images; for several images, one word each.

    Raises NotRunError if one was not pushed with its present inputs.
    """
    rows: list[dict[str, str]] = []
    for recipe in recipes:
        image, key = read_image(out_folder(recipe)), inputs.load(recipe).key
        if not image or image.key != key or not image.digest or not image.uri:
            raise NotRunError(
                f"{recipe.id} was not pushed from here with its present inputs",
                where=f"out/{recipe.id}/image.json",
                fix=f"make build push ONLY={recipe.id}",
            )
        rows.append({"IMAGE_ID": image.id, "IMAGE_KEY": key, "IMAGE_DIGEST": image.digest, "IMAGE_URI": image.uri})
    return {name: " ".join(row[name] for row in rows) for name in rows[0]} if rows else {}


def places(recipe: Recipe, given: str, regions: str = "") -> list[Place]:
    """Return every repository that the variant's images go to. Raises what locations.hosts() raises."""
    below = tags.repository(recipe.variant.framework)
    return [host.place(below) for host in places_module.hosts(recipe.root, given, regions)]


def published(intent: Intent, found: Iterable[Inputs], given: str, regions: str = "") -> dict[str, dict[Place, str]]:
    """Map image id to each place's digest under the image's key, "" if it has none; one call for each repository.

    Raises RegistryError and AwsError, because an unknown state is not "nothing".
    """
    hosts = places_module.hosts(intent.root, given, regions)
    wanted = {
        one.variant.id: [(host.place(tags.repository(one.variant.framework)), one.tag) for host in hosts]
        for one in found
    }
    return places_module.look_up(wanted)


def lacking(recipes: Iterable[Recipe], held: Mapping[str, Mapping[Place, str]], everywhere: bool) -> list[Recipe]:
    """Return the images that no place holds under their key; with `everywhere`, those that any place lacks.

    `held` is the result of published().
    """
    whole = all if everywhere else any
    return [recipe for recipe in recipes if not (held.get(recipe.id) and whole(held[recipe.id].values()))]


def published_if_known(
    intent: Intent, found: Iterable[Inputs], given: str, regions: str = ""
) -> tuple[dict[str, dict[Place, str]], str]:
    """Return published() and "", for callers that only save work with it; {} and why if the state is unknown."""
    try:
        return published(intent, found, given, regions), ""
    except (RegistryError, AwsError, EnvironmentProblem) as error:
        return {}, f"what is published is unknown: {error.what} ({error.fix})"


def settle(
    intent: Intent, recipes: Iterable[Recipe], places: Iterable[Place], create: bool, change: bool
) -> list[Setting]:
    """Call ecr_repositories.ensure() for the Amazon ECR repositories among `places`; plain registries are not queried.

    Raises ConfigError if publish.toml would let the tag of a key or a release move. Raises AwsError.
    """
    settings, names = publication(intent.root).repository, dict[tuple[str, str], list[str]]()
    refuse_filters(settings, [recipe.id for recipe in recipes])
    for place in dict.fromkeys(places):
        if place.region:
            names.setdefault((place.region, place.account), []).append(place.path)
    return [
        row
        for (region, account), paths in names.items()
        for row in ecr_repositories.ensure(region, paths, settings, create, change, account)
    ]


def repository_if_any(recipe: Recipe, given: str) -> str | None:
    """Return the first of the image's places, which is queried for its state; None if the places are unknown."""
    try:
        return places(recipe, given)[0].repository
    except (RegistryError, AwsError):
        return None
