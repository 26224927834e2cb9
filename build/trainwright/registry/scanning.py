"""Judge a registry's scan by [scan] of publish.toml: an unknown result is not a clean one."""

from collections.abc import Sequence
from datetime import date
from typing import Annotated, Literal

from pydantic import Field

from trainwright.core.progress import counted, few
from trainwright.core.toml import Model
from trainwright.matrix.records import Check

Severity = Literal["CRITICAL", "HIGH", "MEDIUM", "LOW", "INFORMATIONAL", "UNDEFINED"]
SHOWN = 10  # findings that a refusal names


class Finding(Model):
    """One vulnerability in one package, as the registry's scanner reports it."""

    id: str  # CVE-2026-1234
    severity: str
    package: str = ""
    version: str = ""

    def __str__(self) -> str:
        return f"{self.id} ({self.severity}) in {self.package or 'an unnamed package'} {self.version}".strip()


class Scan(Model):
    """The outcome of a scan. Only the state `complete` is a statement about the image."""

    state: Literal["complete", "pending", "failed", "unsupported", "none"]
    why: str = ""
    findings: list[Finding] = Field(default=[])


class Allow(Model):
    """A finding that is allowed until a date, with the reason."""

    id: str
    package: str = ""  # "" matches every package
    reason: Annotated[str, Field(min_length=1)]
    expires: date


class ScanPolicy(Model):
    """The table [scan] of publish.toml."""

    refuse: list[Severity]
    unknown: Literal["refuse", "record"]  # policy for a scan without a result
    wait_seconds: Annotated[float, Field(gt=0)]
    allow: list[Allow] = Field(default=[])


def judge(scan: Scan, policy: ScanPolicy, today: date) -> Check:
    """Return passed, failed, or "not run" without a complete scan; the detail names up to SHOWN refused findings.

    A row of the allow-list is valid up to and including its expiry date.
    """
    if scan.state != "complete":
        return Check(state="not run", detail=f"unknown: the scan is {scan.state}{f', {scan.why}' * bool(scan.why)}")
    grave = [finding for finding in scan.findings if finding.severity in policy.refuse]
    expired = [row for row in policy.allow if row.expires < today]
    valid = [row for row in policy.allow if row.expires >= today]
    refused = [finding for finding in grave if not _allows(valid, finding)]
    refusable = " or ".join(policy.refuse) or "any refused severity"
    counts = f"{counted(len(scan.findings), 'finding')}, {len(grave)} of {refusable}"
    if not refused:
        answered = f"; each is allowed by publish.toml: {', '.join(sorted({f.id for f in grave}))}" * bool(grave)
        return Check(state="passed", detail=counts + answered)
    told = [f"{finding}{_expiry(expired, finding)}" for finding in refused]
    return Check(state="failed", detail=f"{counts}: {few(told, SHOWN)}")


def idle(scan: Scan, policy: ScanPolicy) -> list[str]:
    """Return rows of the allow-list that match no finding and can be removed."""
    if scan.state != "complete":
        return []
    return [row.id for row in policy.allow if not any(_allows([row], finding) for finding in scan.findings)]


def _allows(rows: Sequence[Allow], finding: Finding) -> bool:
    return any(row.id == finding.id and row.package in ("", finding.package) for row in rows)


def _expiry(expired: Sequence[Allow], finding: Finding) -> str:
    row = next((row for row in expired if _allows([row], finding)), None)
    return f", allowed only until {row.expires}" if row else ""
