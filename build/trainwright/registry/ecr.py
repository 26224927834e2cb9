"""Call Amazon ECR's control plane (tokens, tags in batches, scans, deletion), and list the images that SageMaker uses.

`account` is the twelve digits of another account's registry; "" is the caller's own. Everything here raises AwsError.
"""

import base64
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from threading import Lock
from typing import Any, Literal
from urllib.parse import urlsplit

from trainwright.core.errors import AwsError
from trainwright.core.progress import counted
from trainwright.registry.aws import client, of, told
from trainwright.registry.aws_errors import Call
from trainwright.registry.http import MANIFESTS
from trainwright.registry.scanning import Finding, Scan

BATCH = 100  # tags or digests in one call, ECR's limit
SCANS: dict[str, Literal["complete", "pending", "failed", "unsupported", "none"]] = {
    "COMPLETE": "complete",
    "ACTIVE": "complete",  # of Inspector, which keeps scanning
    "IN_PROGRESS": "pending",
    "PENDING": "pending",
    "FAILED": "failed",
    "UNSUPPORTED_IMAGE": "unsupported",
    "IMAGE_SIZE_EXCEEDED": "unsupported",
    "LIMIT_EXCEEDED": "failed",
}  # all others (too old, archived, unavailable): no result is known
POLL_SECONDS, POLL_MOST_SECONDS = 1.0, 15.0  # between two polls of a scan; doubled each time


# --- who, and by which token ---------------------------------------------------------------------------------------


def account(region: str) -> str:
    """Return the twelve digits of the caller's account."""
    with told(Call("sts", "GetCallerIdentity", region)):
        return client("sts", region).get_caller_identity()["Account"]


@dataclass
class Token:
    """ECR's credentials, valid for twelve hours."""

    host: str
    user: str
    password: str
    given: bool = False


_tokens: dict[tuple[str, str], Token] = {}
_locks = defaultdict[tuple[str, str], Lock](Lock)  # a region does not wait for another region's token


def _token(region: str, account: str) -> Token:
    with told(Call("ecr", "GetAuthorizationToken", region)):
        whose: Any = {"registryIds": [account]} if account else {}
        (data,) = client("ecr", region).get_authorization_token(**whose)["authorizationData"]
    user, _, password = base64.b64decode(data["authorizationToken"]).decode().partition(":")
    return Token(urlsplit(data["proxyEndpoint"]).netloc, user, password)


def host(region: str, account: str = "") -> str:
    """Return host[:port] of the account's registry in a region, from its token."""
    with _locks[region, account]:
        if (region, account) not in _tokens:
            _tokens[region, account] = _token(region, account)
        return _tokens[region, account].host


def credentials(region: str, account: str = "") -> Callable[[], tuple[str, str]]:
    """Return a function that provides user and password, each time from a token that no earlier call returned.

    A caller whose token was refused gets another one, whatever its expiry; a caller that asks once makes one API call.
    """

    def provide() -> tuple[str, str]:
        with _locks[region, account]:
            token = _tokens.get((region, account))
            if token is None or token.given:
                token = _tokens[region, account] = _token(region, account)
            token.given = True
            return token.user, token.password

    return provide


def forget() -> None:
    """Forget all tokens."""
    _tokens.clear()


# --- images --------------------------------------------------------------------------------------------------------


def lookup(region: str, name: str, tags: Iterable[str], account: str = "") -> dict[str, str]:
    """Return the digest behind each tag, "" if it does not exist; one call for each 100 tags.

    All are "" if the repository does not exist.
    """
    ecr, wanted, found = client("ecr", region), list(dict.fromkeys(tags)), dict[str, str]()
    batches = [wanted[start : start + BATCH] for start in range(0, len(wanted), BATCH)]
    while batches:
        batch = batches.pop()
        with told(Call("ecr", "BatchGetImage", region, name)):
            try:
                ids: Any = [{"imageTag": tag} for tag in batch]
                said = ecr.batch_get_image(
                    repositoryName=name, imageIds=ids, acceptedMediaTypes=list(MANIFESTS), **of(account)
                )
            except ecr.exceptions.RepositoryNotFoundException:
                return dict.fromkeys(wanted, "")
        images = [row["imageId"] for row in said["images"]]
        own = {row["imageTag"]: row["imageDigest"] for row in images if row.get("imageTag") in batch}
        if len(batch) == 1 and images:  # a lone request's answer counts, whichever of the image's tags it names
            own = {batch[0]: images[0]["imageDigest"]}
        failed = {row["imageId"].get("imageTag"): row for row in said["failures"]}
        for tag, row in failed.items():
            if row.get("failureCode") != "ImageNotFound":
                raise AwsError(f"{name}:{tag} cannot be looked up", where=region, why=str(row.get("failureReason")))
        found |= dict.fromkeys((tag for tag in batch if tag in failed), "") | own
        unsaid = [tag for tag in batch if tag not in found]
        if len(batch) == 1 and unsaid:
            raise AwsError(f"Amazon's answer does not mention {name}:{unsaid[0]}", where=region)
        batches += [[tag] for tag in unsaid]
    return {tag: found[tag] for tag in wanted}


def findings(region: str, name: str, digest: str, wait_seconds: float, account: str = "") -> Scan:
    """Return the findings of an image's scan once it has ended, or its present state after `wait_seconds`."""
    ends, pause = time.monotonic() + wait_seconds, POLL_SECONDS
    while (scan := _scan(region, name, digest, account)).state in ("pending", "none"):
        left = ends - time.monotonic()
        if left <= 0:
            return scan.model_copy(update={"why": f"{scan.why or 'it has not ended'}, after {wait_seconds:g} s"})
        time.sleep(min(pause, left))
        pause = min(2 * pause, POLL_MOST_SECONDS)
    return scan


def _scan(region: str, name: str, digest: str, account: str) -> Scan:
    ecr, rows, state, why = client("ecr", region), list[Finding](), "none", ""
    with told(Call("ecr", "DescribeImageScanFindings", region, f"{name}@{digest}")):
        try:
            pages = ecr.get_paginator("describe_image_scan_findings").paginate(
                repositoryName=name, imageId={"imageDigest": digest}, **of(account)
            )
            for page in pages:
                said: Any = page.get("imageScanStatus", {})
                state, why = (
                    SCANS.get(said.get("status"), "none"),
                    said.get("description", "") or said.get("status", ""),
                )
                found: Any = page.get("imageScanFindings", {})
                rows += [_finding(row) for row in found.get("findings", [])]
                rows += [row for enhanced in found.get("enhancedFindings", []) for row in _enhanced(enhanced)]
        except ecr.exceptions.ScanNotFoundException:
            return Scan(state="none", why="no scan was started")
    return Scan(state=state, why="" if state == "complete" else why, findings=rows if state == "complete" else [])


def _finding(row: Any) -> Finding:
    """Parse a finding of ECR's own scanner."""
    facts = {fact["key"]: fact.get("value", "") for fact in row.get("attributes", [])}
    package, version = facts.get("package_name", ""), facts.get("package_version", "")
    return Finding(id=row["name"], severity=row["severity"], package=package, version=version)


def _enhanced(row: Any) -> list[Finding]:
    """Parse a finding of Amazon Inspector: one vulnerability in several packages."""
    details = row.get("packageVulnerabilityDetails", {})
    identity = details.get("vulnerabilityId") or row.get("title") or row["findingArn"]
    severity = row.get("severity", "UNDEFINED")
    packages = details.get("vulnerablePackages") or [{}]
    return [
        Finding(id=identity, severity=severity, package=each.get("name", ""), version=each.get("version", ""))
        for each in packages
    ]


@dataclass
class Listed:
    """One image of a repository."""

    digest: str
    tags: list[str]
    pushed: datetime


def listing(region: str, name: str, account: str = "") -> list[Listed]:
    """Return every image, tagged or not, and when it was pushed; [] if the repository does not exist."""
    ecr = client("ecr", region)
    with told(Call("ecr", "DescribeImages", region, name)):
        try:
            pages = list(ecr.get_paginator("describe_images").paginate(repositoryName=name, **of(account)))
        except ecr.exceptions.RepositoryNotFoundException:
            return []
    return [
        Listed(row["imageDigest"], row.get("imageTags", []), row["imagePushedAt"])
        for page in pages
        for row in page["imageDetails"]
    ]


def delete(region: str, name: str, digests: Iterable[str], account: str = "") -> list[str]:
    """Delete images with all their tags; return the digests that are gone, including those that were gone before."""
    ecr, wanted, gone = client("ecr", region), list(dict.fromkeys(digests)), set[str]()
    for start in range(0, len(wanted), BATCH):
        batch = wanted[start : start + BATCH]
        with told(Call("ecr", "BatchDeleteImage", region, name)):
            ids: Any = [{"imageDigest": digest} for digest in batch]
            said = ecr.batch_delete_image(repositoryName=name, imageIds=ids, **of(account))
        failed = {row["imageId"].get("imageDigest"): row for row in said["failures"]}
        gone |= {digest for digest in batch if failed.get(digest, {}).get("failureCode") in (None, "ImageNotFound")}
        bad = [row for digest, row in failed.items() if digest not in gone]
        if bad:
            why = "; ".join(f"{row['imageId'].get('imageDigest')}: {row.get('failureReason')}" for row in bad)
            raise AwsError(f"not deleted: {counted(len(bad), 'image')} of {name}", where=region, why=why)
    return [digest for digest in wanted if digest in gone]


def images_in_use(region: str) -> set[str]:
    """Return the image addresses that SageMaker's running training jobs and its models name."""
    sagemaker, found = client("sagemaker", region), set[str]()
    with told(Call("sagemaker", region=region)):
        for page in sagemaker.get_paginator("list_training_jobs").paginate(StatusEquals="InProgress"):
            for job in page["TrainingJobSummaries"]:
                said = sagemaker.describe_training_job(TrainingJobName=job["TrainingJobName"])
                found.add(said["AlgorithmSpecification"].get("TrainingImage", ""))
        for models in sagemaker.get_paginator("list_models").paginate():
            for model in models["Models"]:
                try:
                    held = sagemaker.describe_model(ModelName=model["ModelName"])
                except sagemaker.exceptions.ClientError as error:
                    if "Could not find model" in str(error):  # deleted after it was listed
                        continue
                    raise
                containers: list[Any] = [held.get("PrimaryContainer", {}), *held.get("Containers", [])]
                found |= {container.get("Image", "") for container in containers}
    return found - {""}
