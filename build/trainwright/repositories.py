"""What a repository of Amazon ECR is to be like, in Amazon's own documents, and how one that is there differs."""

import json
import re
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any, Literal

from trainwright import trains
from trainwright.errors import ConfigError
from trainwright.model import Model
from trainwright.plan import SHORT
from trainwright.publication import FILE, Repository

PULL = ["ecr:BatchCheckLayerAvailability", "ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer"]
READERS = "TrainwrightReaders"  # which statement of a repository's policy is ours
IMMUTABLE: Literal["IMMUTABLE_WITH_EXCLUSION"] = "IMMUTABLE_WITH_EXCLUSION"
State = Literal["as wanted", "missing", "created", "differs", "changed", "cannot be changed"]


class Held(Model):
    """A repository as it is."""

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
    """One row: what a repository has, what it is to have, and what became of that."""

    repository: str
    region: str
    setting: str
    held: str
    wanted: str
    state: State


def movable(tag: str, filters: Iterable[str]) -> bool:
    """Whether ECR lets a tag move."""
    return any(
        fnmatchcase(tag, pattern) for pattern in filters
    )  # their one wildcard is `*`; [ and ? cannot stand there


def refuse_filters(settings: Repository, identities: Iterable[str]) -> None:
    """Raises ConfigError where a tag for ever could move, or an alias could not, or a cache's rule reaches an image."""
    for identity in identities:
        fixed = [f"{identity}-{'0' * SHORT}", f"{identity}-{'f' * SHORT}", trains.tag(identity, "2026.11.0")]
        wrong = [tag for tag in fixed if movable(tag, settings.moving)]
        wrong += [tag for tag in [trains.alias(identity)] if not movable(tag, settings.moving)]
        wrong += [tag for tag in [*fixed, trains.alias(identity)] if movable(tag, [settings.caches])]
        if wrong:
            raise ConfigError(
                f"[repository] of {FILE} is wrong about the tag {wrong[0]}",
                where=FILE,
                why="what `moving` matches can be overwritten, what `caches` matches expires; tags of keys and of "
                "releases are neither, an alias is the first alone",
                fix=f"$EDITOR {FILE}",
            )


def lifecycle(settings: Repository) -> str:
    """What expires by itself: images without any tag, and build caches.

    Neither rule can reach what a release names. Its digest has had two tags since it was published, of its key and of
    the release; both are immutable, so neither was taken away by a push to the same name, and an image with a tag is
    not untagged. The second rule asks for a cache's tag, which refuse_filters() keeps apart from an image's, and which
    only buildx writes, on manifests that are no images.
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
    """A repository's policy in which these accounts may pull, and do nothing else; statements of others stay.

    "" where nothing is left in it.
    """
    document: dict[str, Any] = json.loads(policy) if policy else {"Version": "2012-10-17"}
    statements = [row for row in _listed(document.get("Statement")) if row.get("Sid") != READERS]
    partition = arn.split(":")[1]
    if accounts := [f"arn:{partition}:iam::{account}:root" for account in sorted(set(readers))]:
        statements.append({"Sid": READERS, "Effect": "Allow", "Principal": {"AWS": accounts}, "Action": PULL})
    return json.dumps({**document, "Statement": statements}) if statements else ""


def differences(settings: Repository, held: Held) -> list[tuple[str, str, str]]:
    """Setting, what is there, what is wanted; only what differs."""
    wanted_key = settings.kms_key if settings.kms_key.startswith("arn:") and ":key/" in settings.kms_key else ""
    pairs = [
        ("moving tags", _moving(held.mutability, held.moving), _moving(IMMUTABLE, settings.moving)),
        ("scan on push", _yes(held.scan_on_push), _yes(settings.scan_on_push)),
        ("encryption", held.encryption, settings.encryption),
        ("KMS key", held.kms_key if wanted_key else "", wanted_key),  # an alias is answered with what it stands for
        *((f"tag {name}", held.tags.get(name, "none"), value) for name, value in settings.tags.items()),
        ("lifecycle", same(held.lifecycle), same(lifecycle(settings))),
        ("readers", _readers(held.policy), _readers(with_readers(held.policy, settings.readers, held.arn))),
    ]
    return [pair for pair in pairs if pair[1] != pair[2]]


FOR_EVER = ("encryption", "KMS key")  # a repository keeps what it was created with


def replicated(
    rules: list[dict[str, Any]], settings: Repository, prefix: str, account: str, region: str
) -> list[dict[str, Any]]:
    """The registry's rules of replication with what is missing of ours; those of others stay as they are.

    `prefix` is how the names of our repositories begin.
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
    """JSON in one form: a list of one is what Amazon writes without the list."""

    def normal(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {name: normal(value[name]) for name in sorted(value)}
        if isinstance(value, list):
            rows = sorted((normal(row) for row in value), key=json.dumps)
            return rows[0] if len(rows) == 1 else rows
        return value

    return json.dumps(normal(json.loads(document))) if document else "none"


def _listed(value: Any) -> list[dict[str, Any]]:
    return value if isinstance(value, list) else [value] if value else []


def _moving(mutability: str, filters: Iterable[str]) -> str:
    return f"{mutability} {', '.join(sorted(filters))}".strip()


def _yes(value: bool) -> str:
    return "yes" if value else "no"


def _readers(policy: str) -> str:
    """Our statement of a policy; whatever stands in it that we would not write is a difference, too."""
    own = [row for row in _listed(json.loads(policy).get("Statement")) if row.get("Sid") == READERS] if policy else []
    if not own:
        return "none"
    principals = own[0].get("Principal")
    named = principals.get("AWS", []) if isinstance(principals, Mapping) else principals
    accounts = [named] if isinstance(named, str) else list(named or [])
    exact = same(json.dumps(own[0].get("Action"))) == same(json.dumps(PULL))
    shown = ", ".join(sorted(re.sub(r"^arn:[\w-]+:iam::(\d{12}):root$", r"\1", row) for row in accounts))
    return shown if exact and own[0].get("Effect") == "Allow" else f"{shown} with other rights"
