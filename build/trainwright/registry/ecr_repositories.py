"""Create missing repositories of Amazon ECR, and change existing ones only on request. Raises AwsError."""

from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from trainwright.core.errors import AwsError
from trainwright.registry import ecr_settings
from trainwright.registry.aws import client, of, told
from trainwright.registry.aws_errors import Call
from trainwright.registry.ecr_settings import FOR_EVER, IMMUTABLE, Held, Setting, State
from trainwright.registry.settings import Repository


def ensure(
    region: str, names: Iterable[str], settings: Repository, create: bool, change: bool, account: str = ""
) -> list[Setting]:
    """Return a row for each setting that differs from `publish.toml`.

    A repository that is missing, created or without differences has one row, and so has each replicated prefix.
    `create` creates missing repositories. Because existing settings were a person's decision, only `change` changes
    them, and it is never the default. Without both, nothing is written. `account` is another account's registry; "" is
    the caller's.
    """
    rows, names = [], list(names)
    for name in names:
        held = describe(region, name, account)
        made = held is None
        if held is None and create:
            held = _create(region, name, settings, account)
        if held is None:
            rows.append(_row(region, name, "all", "no repository", "", "missing"))
            continue
        found = ecr_settings.differences(settings, held)
        settled = [_settle(region, name, settings, held, row, made or change, account) for row in found]
        rows += [row for row in settled if not (made and row.state == "changed")]
        if made or not found:
            rows.append(_row(region, name, "all", "no repository" * made, held.arn, "created" if made else "as wanted"))
    prefixes = {name.rpartition("/")[0] + "/" for name in names if settings.replicate_to and not account}
    return rows + [_replicate(region, prefix, settings, change) for prefix in sorted(prefixes)]


def describe(region: str, name: str, account: str = "") -> Held | None:
    """Return the present settings of a repository; None if it does not exist."""
    ecr, who = client("ecr", region), of(account)
    with told(Call("ecr", region=region, resource=name)):
        try:
            (found,) = ecr.describe_repositories(repositoryNames=[name], **who)["repositories"]
        except ecr.exceptions.RepositoryNotFoundException:
            return None
        tags = ecr.list_tags_for_resource(resourceArn=found["repositoryArn"])["tags"]
        try:
            lifecycle = ecr.get_lifecycle_policy(repositoryName=name, **who)["lifecyclePolicyText"]
        except ecr.exceptions.LifecyclePolicyNotFoundException:
            lifecycle = ""
        try:
            policy = ecr.get_repository_policy(repositoryName=name, **who)["policyText"]
        except ecr.exceptions.RepositoryPolicyNotFoundException:
            policy = ""
    return Held(
        arn=found["repositoryArn"],
        mutability=found["imageTagMutability"],
        moving=[row["filter"] for row in found.get("imageTagMutabilityExclusionFilters", [])],
        scan_on_push=found.get("imageScanningConfiguration", {}).get("scanOnPush", False),
        encryption=found.get("encryptionConfiguration", {}).get("encryptionType", "AES256"),
        kms_key=found.get("encryptionConfiguration", {}).get("kmsKey", ""),
        tags={tag["Key"]: tag["Value"] for tag in tags},
        lifecycle=lifecycle,
        policy=policy,
    )


def _create(region: str, name: str, settings: Repository, account: str) -> Held:
    ecr = client("ecr", region)
    own_key = {"kmsKey": settings.kms_key} if settings.kms_key else {}
    encryption: Any = {"encryptionType": settings.encryption, **own_key}
    there = ecr.exceptions.RepositoryAlreadyExistsException  # created by another process; describe() returns its state
    with told(Call("ecr", "CreateRepository", region, name)), suppress(there):
        ecr.create_repository(
            repositoryName=name,
            imageTagMutability=IMMUTABLE,
            imageTagMutabilityExclusionFilters=_filters(settings),
            imageScanningConfiguration={"scanOnPush": settings.scan_on_push},
            encryptionConfiguration=encryption,
            tags=[{"Key": key, "Value": value} for key, value in settings.tags.items()],
            **of(account),
        )
    held = describe(region, name, account)
    if held is None:
        raise AwsError(f"{name} was created, but does not exist", where=region, fix="run the same command again")
    return held


def _settle(
    region: str, name: str, settings: Repository, held: Held, row: tuple[str, str, str], change: bool, account: str
) -> Setting:
    """Change one setting that differs, if that is allowed, and return its row."""
    setting, ecr, who = row[0], client("ecr", region), of(account)
    if setting in FOR_EVER or not change:
        return _row(region, name, *row, "cannot be changed" if setting in FOR_EVER else "differs")
    with told(Call("ecr", region=region, resource=name)):
        if setting == "moving tags":
            ecr.put_image_tag_mutability(
                repositoryName=name,
                imageTagMutability=IMMUTABLE,
                imageTagMutabilityExclusionFilters=_filters(settings),
                **who,
            )
        elif setting == "scan on push":
            scan: Any = {"scanOnPush": settings.scan_on_push}
            ecr.put_image_scanning_configuration(repositoryName=name, imageScanningConfiguration=scan, **who)
        elif setting == "lifecycle":
            text = ecr_settings.lifecycle(settings)
            ecr.put_lifecycle_policy(repositoryName=name, lifecyclePolicyText=text, **who)
        elif setting != "readers":
            key = setting.removeprefix("tag ")
            ecr.tag_resource(resourceArn=held.arn, tags=[{"Key": key, "Value": settings.tags[key]}])
        elif policy := ecr_settings.with_readers(held.policy, settings.readers, held.arn):
            ecr.set_repository_policy(repositoryName=name, policyText=policy, **who)
        else:
            ecr.delete_repository_policy(repositoryName=name, **who)
    return _row(region, name, *row, "changed")


def _replicate(region: str, prefix: str, settings: Repository, change: bool) -> Setting:
    """Add missing replication rules, and keep the others, because replication belongs to the account's registry."""
    ecr = client("ecr", region)
    with told(Call("ecr", region=region, resource="the registry's replication")):
        registry = ecr.describe_registry()
        held: Any = registry["replicationConfiguration"].get("rules", [])
        rules: Any = ecr_settings.replicated(held, settings, prefix, registry["registryId"], region)
        if rules != held and change:
            ecr.put_replication_configuration(replicationConfiguration={"rules": rules})
    missing = ", ".join(target["region"] for rule in rules[len(held) :] for target in rule["destinations"])
    state: State = "as wanted" if not missing else "changed" if change else "differs"
    said = f"not replicated to {missing}" if missing else ""
    return _row(region, f"{prefix}*", "replication", said, ", ".join(settings.replicate_to), state)


def _filters(settings: Repository) -> Any:
    return [{"filterType": "WILDCARD", "filter": pattern} for pattern in settings.moving]


def _row(region: str, name: str, setting: str, held: str, wanted: str, state: State) -> Setting:
    return Setting(repository=name, region=region, setting=setting, held=held, wanted=wanted, state=state)
