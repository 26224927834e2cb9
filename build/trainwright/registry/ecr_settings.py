"""Define the settings of an Amazon ECR repository, as AWS documents, and compare them with an existing repository."""

import json
import re
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any, Literal

from trainwright.core.errors import ConfigError
from trainwright.core.toml import Model
from trainwright.image import tags as image_tags
from trainwright.image.tags import SHORT
from trainwright.registry.settings import FILE, Repository

PULL = ["ecr:BatchCheckLayerAvailability", "ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer"]
READERS = "TrainwrightReaders"  # Sid of our statement in a repository's policy
IMMUTABLE: Literal["IMMUTABLE_WITH_EXCLUSION"] = "IMMUTABLE_WITH_EXCLUSION"
State = Literal["as wanted", "missing", "created", "differs", "changed", "cannot be changed"]


class Held(Model):
    """The present state of a repository."""

    arn: str
    mutability: str
    moving: list[str]
    scan_on_push: bool
    encryption: str
    kms_key: str
    tags: dict[str, str]
    lifecycle: str  # JSON; "" for none
    policy: str  # JSON; "" for none


class Setting(Model):
    """One setting of a repository: present value, wanted value, and state."""

    repository: str
    region: str
    setting: str
    held: str
    wanted: str
    state: State


def refuse_filters(settings: Repository, identities: Iterable[str]) -> None:
    """Raise ConfigError if immutable tags could move, aliases could not, or the caches' rule matches an image."""
    for identity in identities:
        fixed = [
            f"{identity}-{'0' * SHORT}",
            f"{identity}-{'f' * SHORT}",
            image_tags.release_tag(identity, "2026.11.0"),
        ]
        fixed += [image_tags.twin_tag(tag) for tag in fixed]
        aliases = [image_tags.alias(identity), image_tags.twin_tag(image_tags.alias(identity))]
        wrong = [tag for tag in fixed if image_tags.movable(tag, settings.moving)]
        wrong += [tag for tag in aliases if not image_tags.movable(tag, settings.moving)]
        wrong += [tag for tag in [*fixed, *aliases] if image_tags.movable(tag, [settings.caches])]
        if wrong:
            raise ConfigError(
                f"[repository] of {FILE} has wrong patterns for the tag {wrong[0]}",
                where=FILE,
                why="tags that match `moving` can be overwritten, tags that match `caches` expire; aliases must match "
                "only `moving`, tags of keys and releases must match neither",
                fix=f"$EDITOR {FILE}",
            )


def lifecycle(settings: Repository) -> str:
    """Return the lifecycle policy: images without any tag, and build caches, expire.

    Neither rule can match an image that a release names. Since its publication the image has two immutable tags, of its
    key and of the release; a push cannot move them, and an image with a tag is not untagged. The second rule matches a
    cache's tag, which refuse_filters() keeps apart from an image's, and which only buildx writes, on manifests that are
    not images.
    """
    rules: list[tuple[str, dict[str, Any], int]] = [
        ("images without a tag", {"tagStatus": "untagged"}, settings.untagged_days),
        ("build caches", {"tagStatus": "tagged", "tagPatternList": [settings.caches]}, settings.cache_days),
    ]
    return json.dumps(
        {
            "rules": [
                {
                    "rulePriority": priority,
                    "description": f"trainwright: {what} expire",
                    "selection": {**which, "countType": "sinceImagePushed", "countUnit": "days", "countNumber": days},
                    "action": {"type": "expire"},
                }
                for priority, (what, which, days) in enumerate(rules, 1)
            ]
        }
    )


def with_readers(policy: str, readers: Iterable[str], arn: str) -> str:
    """Return a repository's policy in which these accounts may pull and do nothing else; other statements are kept.

    Returns "" if no statement is left.
    """
    document: dict[str, Any] = json.loads(policy) if policy else {"Version": "2012-10-17"}
    statements = [row for row in _listed(document.get("Statement")) if row.get("Sid") != READERS]
    partition = arn.split(":")[1]
    if accounts := [f"arn:{partition}:iam::{account}:root" for account in sorted(set(readers))]:
        statements.append({"Sid": READERS, "Effect": "Allow", "Principal": {"AWS": accounts}, "Action": PULL})
    return json.dumps({**document, "Statement": statements}) if statements else ""


def admits_everybody(policy: str) -> bool:
    """Return whether a repository's policy lets everybody pull: an Allow for all principals without a condition.

    A statement by what it does not name (NotPrincipal, NotAction) counts as one for everybody else.
    """
    for row in _listed(json.loads(policy).get("Statement")) if policy else []:
        principal = row.get("Principal")
        named = principal.get("AWS") if isinstance(principal, Mapping) else principal
        everybody = "*" in _listed(named) or "NotPrincipal" in row
        actions = [str(action).lower() for action in _listed(row.get("Action"))]
        pulls = "NotAction" in row or any(fnmatchcase(one.lower(), glob) for one in PULL for glob in actions)
        if row.get("Effect") == "Allow" and everybody and pulls and not row.get("Condition"):
            return True
    return False


def differences(settings: Repository, held: Held) -> list[tuple[str, str, str]]:
    """Return setting, present value and wanted value of each difference."""
    wanted_key = settings.kms_key if settings.kms_key.startswith("arn:") and ":key/" in settings.kms_key else ""
    pairs = [
        ("moving tags", _moving(held.mutability, held.moving), _moving(IMMUTABLE, settings.moving)),
        ("scan on push", _yes(held.scan_on_push), _yes(settings.scan_on_push)),
        ("encryption", held.encryption, settings.encryption),
        ("KMS key", held.kms_key if wanted_key else "", wanted_key),  # for an alias, ECR returns the key behind it
        *((f"tag {name}", held.tags.get(name, "none"), value) for name, value in settings.tags.items()),
        ("lifecycle", same(held.lifecycle), same(lifecycle(settings))),
        ("readers", _readers(held.policy), _readers(with_readers(held.policy, settings.readers, held.arn))),
    ]
    return [pair for pair in pairs if pair[1] != pair[2]]


FOR_EVER = ("encryption", "KMS key")  # fixed when the repository is created


def replicated(
    rules: list[dict[str, Any]], settings: Repository, prefix: str, account: str, region: str
) -> list[dict[str, Any]]:
    """Return the registry's replication rules with our missing ones added; existing rules are not changed.

    `prefix` is the prefix of our repositories' names.
    """
    served = {
        (target["region"], target["registryId"])
        for rule in rules
        if not rule.get("repositoryFilters")
        or any(prefix.startswith(row["filter"]) for row in rule["repositoryFilters"])
        for target in rule["destinations"]
    }
    missing = [other for other in settings.replicate_to if other != region and (other, account) not in served]
    if not missing:
        return rules
    own = {
        "destinations": [{"region": other, "registryId": account} for other in missing],
        "repositoryFilters": [{"filter": prefix, "filterType": "PREFIX_MATCH"}],
    }
    return [*rules, own]


def same(document: str) -> str:
    """Return JSON in one normal form, in which a list of one element equals the element, as AWS writes it."""

    def normal(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {name: normal(value[name]) for name in sorted(value)}
        if isinstance(value, list):
            rows = sorted((normal(row) for row in value), key=json.dumps)
            return rows[0] if len(rows) == 1 else rows
        return value

    return json.dumps(normal(json.loads(document))) if document else "none"


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value] if value else []


def _moving(mutability: str, filters: Iterable[str]) -> str:
    return f"{mutability} {', '.join(sorted(filters))}".strip()


def _yes(value: bool) -> str:
    return "yes" if value else "no"


def _readers(policy: str) -> str:
    """Return the readers in our statement of a policy; any deviation from what we write counts as a difference."""
    own = [row for row in _listed(json.loads(policy).get("Statement")) if row.get("Sid") == READERS] if policy else []
    if not own:
        return "none"
    principals = own[0].get("Principal")
    named = principals.get("AWS", []) if isinstance(principals, Mapping) else principals
    accounts = [named] if isinstance(named, str) else list(named or [])
    exact = same(json.dumps(own[0].get("Action"))) == same(json.dumps(PULL))
    shown = ", ".join(sorted(re.sub(r"^arn:[\w-]+:iam::(\d{12}):root$", r"\1", row) for row in accounts))
    return shown if exact and own[0].get("Effect") == "Allow" else f"{shown} with other rights"
