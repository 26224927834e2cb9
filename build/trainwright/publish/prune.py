"""Delete manifests that nothing refers to from a registry; list them first, and keep what cannot be judged."""

from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime

from pydantic import Field

from trainwright.core.console import human
from trainwright.core.errors import AwsError, ConfigError, NotRunError, RegistryError, TrainwrightError, did_you_mean
from trainwright.core.progress import Say, counted
from trainwright.core.toml import Model
from trainwright.docker import zstd_twin
from trainwright.image import child, inputs
from trainwright.image import tags as image_tags
from trainwright.image.tags import ID_LABEL
from trainwright.matrix.matrix import Intent, Recipe
from trainwright.publish import release_records, retention
from trainwright.publish.retention import ACCOUNTS, JOBS, WAIVABLE, Known, Listed, Verdict
from trainwright.registry import client, ecr
from trainwright.registry.retry import side_by_side
from trainwright.registry.settings import Place, Repository, publication

IMAGE = ("application/vnd.docker.container.image.v1+json", "application/vnd.oci.image.config.v1+json")


class Pruned(Model):
    """The result of `trainwright prune`."""

    rows: list[Verdict]
    deleted: bool  # whether anything was deleted, or only listed
    freed: int  # bytes
    collected: bool  # whether the registry frees the bytes by itself
    unasked: dict[str, str] = Field(default={})  # as in retention.Known


def prune(intent: Intent, places: Iterable[Place], delete: bool, waived: set[str], say: Say) -> Pruned:
    """List what would be deleted; with `delete`, delete it and read back that everything else is still there.

    Raises ConfigError for an unknown waiver; NotRunError with `delete` if SageMaker could not be queried and this is
    not waived; RegistryError and AwsError if the registry refuses.
    """
    if wrong := waived - WAIVABLE.keys():
        name = min(wrong)
        raise ConfigError(f"--waive {name!r} is not a valid waiver", why=did_you_mean(name, WAIVABLE))
    found, verdicts, collected = list[Listed](), list[Verdict](), False
    places = list(dict.fromkeys(places))
    known, keys = _known(intent, places, waived), dict[str, str]()
    if delete:
        _refuse_unasked(known, "nothing is deleted")
    for place in places:
        say(f"{place.repository}: listing")
        listed = _listed(place)
        rows = _judged(intent, listed, known, keys)
        if delete and any(row.state != "kept" for row in rows):
            again = _listed(place)
            say(
                f"{place.repository}: checking again what is in use"
            )  # because a job may have started during the listing
            known = _known(intent, places, waived)
            _refuse_unasked(known, f"nothing of {place.repository} is deleted")
            rows = _delete(place, rows, _judged(intent, again, known, keys), say)
        found, verdicts, collected = found + listed, verdicts + rows, collected or bool(place.region)
    gone = {(row.repository, row.digest) for row in verdicts if row.state != "kept"}
    return Pruned(
        rows=verdicts,
        deleted=delete,
        freed=retention.freed(found, gone),
        collected=collected,
        unasked=known.unasked,
    )


def _refuse_unasked(known: Known, what: str) -> None:
    if left := [name for name in known.unasked if name not in known.waived]:
        answered = ", and ".join(WAIVABLE[name] for name in left)
        words = " ".join(f"--waive {name}" for name in left)
        raise NotRunError(
            f"{what}: cannot determine which images running jobs use",
            why="; ".join(known.unasked[name] for name in left),
            fix=f"allow those actions; or, if you are sure that {answered}: prune {words}",
        )


# --- listing ---------------------------------------------------------------------------------------------------------


def _known(intent: Intent, places: Iterable[Place], waived: set[str]) -> Known:
    released = {
        image.digest: f"the release {train.name}"
        for train in release_records.known(intent.root).values()
        for image in train.images.values()
    }
    policy = publication(intent.root)
    used, unasked = _in_use([place for place in places if place.region], policy.repository)
    return Known(
        at=datetime.now(UTC),
        days=policy.prune.days,
        released=released,
        used=used,
        unasked=unasked,
        waived=waived,
    )


def _in_use(places: list[Place], settings: Repository) -> tuple[set[str], dict[str, str]]:
    """Return the images that SageMaker uses, and what could not be queried.

    The caller's account is asked in every region that images are published or replicated to. Because SageMaker pulls
    from ECR only, nothing is used without `places` there.
    """
    used, silent, unasked = set[str](), list[str](), dict[str, str]()
    regions = dict.fromkeys([place.region for place in places] + settings.replicate_to * bool(places))
    for region in regions:
        try:
            used |= ecr.images_in_use(region)
        except AwsError as error:
            silent.append(f"{region}: {error.what}")
    if silent:
        unasked[JOBS] = "; ".join(silent)
    others = {place.account for place in places if place.account} | set(settings.readers if places else ())
    if others:
        with suppress(AwsError):
            others -= {ecr.account(places[0].region)}
    if others:
        unasked[ACCOUNTS] = f"jobs of {', '.join(sorted(others))}, which may pull it, cannot be listed from here"
    return used, unasked


def _judged(intent: Intent, listed: list[Listed], known: Known, keys: dict[str, str]) -> list[Verdict]:
    """Judge what was listed, by the keys of the images in it; `keys` holds those that were computed before."""
    named = {(row.labels or {}).get(ID_LABEL) for row in listed}
    keys |= {recipe.id: _key(recipe) for recipe in intent.recipes if recipe.id in named - keys.keys()}
    return retention.judge(listed, known.model_copy(update={"keys": keys}))


def _key(recipe: Recipe) -> str:
    """Return the tag of an image's present key; "", for unknown, if it is blocked or its lock is stale."""
    if not inputs.awaited(recipe):
        with suppress(TrainwrightError):
            return child.load(recipe).tag
    return ""


def _listed(place: Place) -> list[Listed]:
    """Return every manifest that the registry lists; a plain registry lists only tagged ones."""
    pushed: dict[str, datetime] = {}
    if place.region:
        images = ecr.listing(place.region, place.path, place.account)
        tagged = {image.digest: image.tags for image in images}
        pushed = {image.digest: image.pushed for image in images}
    else:
        tagged = {}
        for tag, digest in client.resolve_all(place.repository, client.tags(place.repository)).items():
            if digest:  # else it was deleted during the listing
                tagged.setdefault(digest, []).append(tag)
    return side_by_side(lambda digest: _look(place, digest, tagged[digest], pushed.get(digest)), list(tagged))


def _look(place: Place, digest: str, tags: list[str], pushed: datetime | None) -> Listed:
    manifest = client.manifest(place.repository, digest)
    config = manifest.get("config") or {}
    parts = [config, *manifest.get("layers", [])] if config else []
    labels, created = None, None
    if config.get("mediaType") in IMAGE:
        said = client.config(place.repository, digest)
        labels = dict((said.get("config") or {}).get("Labels") or {})
        with suppress(ValueError):
            created = datetime.fromisoformat(str(said.get("created", "")))
            created = created.replace(tzinfo=created.tzinfo or UTC)
    return Listed(
        place=str(place),
        repository=place.repository,
        digest=digest,
        tags=sorted(tags),
        pushed=pushed,
        created=created,
        labels=labels,
        blobs={part["digest"]: int(part["size"]) for part in parts},
        config=str(config.get("digest", "")),
        twin=zstd_twin.is_twin(manifest),
    )


# --- deletion --------------------------------------------------------------------------------------------------------


def _delete(place: Place, first: list[Verdict], again: list[Verdict], say: Say) -> list[Verdict]:
    """Delete only what both listings mark, because a release may have come in between.

    First zstd twins, then images, then what is about them: if it is interrupted, none of these is left alone.
    """
    doomed = {row.digest for row in first if row.state != "kept"}
    now = {row.digest: row for row in again if row.state != "kept" and row.digest in doomed}

    def late(digest: str) -> tuple[bool, bool]:
        first = (now[digest].tags or [""])[0]
        return bool(retention.BESIDE.fullmatch(first)), not image_tags.is_twin(first)

    order = sorted(now, key=late)
    say(f"{place.repository}: deleting {len(order)} of {len(again)}")
    if place.region:
        ecr.delete(place.region, place.path, order, place.account)
    else:
        for digest in order:
            client.delete(place.repository, digest)
    _read_back(place, [row for row in again if row.digest not in now])
    return [row.model_copy(update={"state": "deleted" if row.digest in now else "kept"}) for row in again]


def _read_back(place: Place, kept: list[Verdict]) -> None:
    """Check that every kept manifest is still there with its tags. Raises RegistryError."""
    tags = [tag for row in kept for tag in row.tags]
    held = client.resolve_all(place.repository, tags)
    lost = [f"{tag} pointed to {row.digest}" for row in kept for tag in row.tags if held[tag] != row.digest]
    if lost:
        raise RegistryError(
            f"{counted(len(lost), 'tag')} of kept images changed",
            where=place.repository,
            why="; ".join(lost[:5]),
            fix="trainwright prune, which lists the present state; another user may just have moved an alias",
        )
    for row in kept:
        client.manifest(place.repository, row.digest)


def table(found: Pruned) -> list[dict[str, object]]:
    """Return the rows of the table shown to the user."""
    return [
        {
            "digest": row.digest[:19],
            "tags": ", ".join(row.tags) or "none",
            "pushed": f"{row.days} days ago" if row.days is not None else "unknown",
            "size": human(row.size),
            "state": row.state,
            "why": row.why,
            "repository": row.repository,
        }
        for row in found.rows
    ]


def sentences(found: Pruned) -> list[str]:
    """Return the last lines shown to the user."""
    gone = [row for row in found.rows if row.state != "kept"]
    unknown = [row for row in found.rows if row.why.startswith("unknown")]
    said = [
        f"not checked: {why}; if you are sure that {WAIVABLE[name]}: --waive {name}"
        for name, why in found.unasked.items()
    ]
    said += [f"{len(unknown)} are kept because they cannot be judged here"] if unknown else []
    if not gone:
        return [*said, f"nothing to delete among {len(found.rows)}"]
    done = "deleted" if found.deleted else "would be deleted"
    later = "" if found.collected else "; a plain registry frees the space at its next garbage collection"
    return [*said, f"{len(gone)} of {len(found.rows)} {done}, {human(found.freed)}{later}"]
