"""Find the images, in the matrix and in every release, that hold a queried item; an unreadable one is "unknown"."""

from collections.abc import Callable, Iterator
from functools import cache
from typing import NamedTuple

from packaging.utils import canonicalize_name

from trainwright.core import checkout
from trainwright.core.errors import ConfigError, EnvironmentProblem, RegistryError, TrainwrightError
from trainwright.core.toml import Model
from trainwright.image import inputs
from trainwright.image import tags as image_names
from trainwright.inspect import find
from trainwright.inspect.find import Held, Query
from trainwright.matrix.matrix import Intent, Recipe, load_intent
from trainwright.publish import release_records
from trainwright.publish.release_records import Train
from trainwright.registry import client

UNKNOWN = "unknown"
Ask = Callable[[str, str], str]  # repository below the registry, tag: returns the digest, "" or "unknown"


class Row(Model):
    """One queried item in one image; if `what` is "unknown", an image whose contents could not be determined."""

    id: str
    release: str  # "" for the present matrix
    digest: str  # "" if it is not published, "unknown" if no registry answered
    alias: str  # whether the image's alias points to this digest now: yes, no, unknown
    what: str
    name: str
    version: str
    why: str = ""


class Place(NamedTuple):
    """One image of the matrix or of a release, with its contents or the reason why they are unknown."""

    id: str
    release: str
    digest: str
    repository: str
    held: list[Held]
    why: str
    recipe: Recipe | None = None  # of the present matrix


def affected(intent: Intent, queries: list[Query], host: str | None) -> tuple[list[Row], str]:
    """Return the rows or, if there are none, the existing versions of the queried items. No `host`: ask no registry.

    Raises ConfigError for a name that never existed in any image, if every image could be read.
    """
    ask = _asking(host)
    places = [*_of_the_matrix(intent)]
    for train in release_records.known(intent.root).values():
        places += _of_a_release(intent, train)
    everything = {f"{place.release}/{place.id}": place.held for place in places}
    components, exists = {*intent.components.components}, ""
    try:
        _, exists = find.find(queries, everything, components)
    except ConfigError:
        if not any(place.why for place in places):
            raise
    names = components | {canonicalize_name(query.name) for query in queries}
    rows = []
    for place in places:
        found, _ = find.find(queries, {place.id: place.held}, names)
        if not found and not place.why:
            continue
        digest = _published(place.recipe, place.repository, ask) if place.recipe else place.digest
        alias = ask(place.repository, image_names.alias(place.id))
        now = UNKNOWN if UNKNOWN in (alias, digest) else "yes" if alias and alias == digest else "no"
        where = {"id": place.id, "release": place.release, "digest": digest, "alias": now}
        if place.why:
            rows.append(Row(**where, what=UNKNOWN, name="", version="", why=place.why))
        rows += [Row(**where, what=held.what, name=held.name, version=held.version) for held in found]
    return rows, "" if rows else exists


def _asking(host: str | None) -> Ask:
    """Return a function that resolves tags to digests, each once; after a registry failure it asks no more."""
    silent = host is None

    @cache
    def ask(repository: str, tag: str) -> str:
        nonlocal silent
        if silent:
            return UNKNOWN
        try:
            return client.resolve(f"{host}/{repository}", tag)
        except (RegistryError, EnvironmentProblem):
            silent = True
            return UNKNOWN

    return ask


def _published(recipe: Recipe, repository: str, ask: Ask) -> str:
    """Return the digest of a matrix image under its present key, or "" if the image is blocked."""
    try:
        return "" if inputs.awaited(recipe) else ask(repository, inputs.load(recipe).tag)
    except TrainwrightError:
        return UNKNOWN


def _of_the_matrix(intent: Intent) -> Iterator[Place]:
    """Yield the matrix images by the locks of this tree; a blocked image, which was never published, by its pins."""
    for recipe in intent.recipes:
        locked, found, _ = inputs.known(recipe)
        readable = (locked and found) or inputs.awaited(recipe)
        held = find.holdings(recipe, locked, found) if readable else []
        why = "" if readable else "its lock is missing or stale: trainwright lock"
        yield Place(recipe.id, "", "", image_names.repository(recipe.variant.framework), held, why, recipe)


def _of_a_release(intent: Intent, train: Train) -> list[Place]:
    """Return a release's images by the intent and locks of its commit; all are unknown if those cannot be read."""

    def place(identity: str, held: list[Held], why: str) -> Place:
        image = train.images[identity]
        return Place(identity, train.name, image.digest, image.repository, held, why)

    try:
        commit = checkout.commit_of(intent.root, train.commit)
        with checkout.exported(intent.root, commit) as folder:
            old = load_intent(folder)
            return [place(identity, *_as_it_was(old.find(identity))) for identity in train.images]
    except TrainwrightError as error:
        return [place(identity, [], _line(error)) for identity in train.images]


def _as_it_was(recipe: Recipe | None) -> tuple[list[Held], str]:
    if recipe is None:
        return [], "the matrix of that commit has no such image"
    try:
        locked = inputs.read_lock(recipe)
        found = inputs.read_distribution(recipe.intent, recipe.variant.base).as_locked
        return find.holdings(recipe, locked, found), ""
    except TrainwrightError as error:
        return [], _line(error)


def _line(error: TrainwrightError) -> str:
    return " ".join(f"{error.what}: {error.why or error.fix}".split())
