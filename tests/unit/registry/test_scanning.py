"""Test a scan against the policy: severe findings refuse, an exception needs reason and date, unknown is not clean."""

from datetime import date, timedelta
from typing import Any

import pytest
from pydantic import ValidationError

from trainwright.registry import scanning
from trainwright.registry.scanning import Allow, Finding, Scan, ScanPolicy

TODAY = date(2026, 11, 22)
GRAVE = Finding(id="CVE-2026-1", severity="CRITICAL", package="openssl", version="3.0.1")
MILD = Finding(id="CVE-2026-2", severity="LOW", package="zlib", version="1.2")


def policy(*allow: Allow, **more: Any) -> ScanPolicy:
    return ScanPolicy(**{"refuse": ["CRITICAL", "HIGH"], "unknown": "refuse", "wait_seconds": 1} | more, allow=[*allow])


def row(**more: Any) -> Allow:
    return Allow(**{"id": GRAVE.id, "reason": "not reachable: no listener", "expires": TODAY} | more)


def complete(*findings: Finding) -> Scan:
    return Scan(state="complete", findings=[*findings])


def test_clean_and_mild_pass() -> None:
    assert scanning.judge(complete(), policy(), TODAY).state == "passed"
    assert scanning.judge(complete(MILD), policy(), TODAY).state == "passed"


def test_what_is_grave_refuses_by_name() -> None:
    check = scanning.judge(complete(MILD, GRAVE), policy(), TODAY)
    assert check.state == "failed"
    assert "CVE-2026-1 (CRITICAL) in openssl 3.0.1" in check.detail
    assert MILD.id not in check.detail


@pytest.mark.parametrize("state", ["pending", "failed", "unsupported", "none"])
def test_no_data_is_unknown_and_never_clean(state: Any) -> None:
    check = scanning.judge(Scan(state=state, why="nothing after 300 s", findings=[]), policy(), TODAY)
    assert check.state == "not run"
    assert "unknown" in check.detail
    assert "300 s" in check.detail


def test_an_allowed_finding_passes_up_to_its_last_day_and_is_named() -> None:
    check = scanning.judge(complete(GRAVE), policy(row()), TODAY)
    assert check.state == "passed"
    assert GRAVE.id in check.detail
    late = scanning.judge(complete(GRAVE), policy(row()), TODAY + timedelta(days=1))
    assert late.state == "failed"
    assert f"allowed only until {TODAY}" in late.detail


def test_a_row_for_another_package_or_finding_allows_nothing() -> None:
    for other in (row(package="zlib"), row(id="CVE-2026-9")):
        assert scanning.judge(complete(GRAVE), policy(other), TODAY).state == "failed"
    assert scanning.judge(complete(GRAVE), policy(row(package="openssl")), TODAY).state == "passed"


@pytest.mark.parametrize("lacking", ["reason", "expires"])
def test_a_row_needs_reason_and_expiry(lacking: str) -> None:
    said = row().model_dump() | {"reason": ""} if lacking == "reason" else row().model_dump(exclude={"expires"})
    with pytest.raises(ValidationError, match=lacking):
        Allow(**said)


def test_rows_that_no_finding_needs_are_told() -> None:
    assert scanning.idle(complete(MILD), policy(row())) == [GRAVE.id]
    assert scanning.idle(complete(GRAVE), policy(row())) == []
    assert scanning.idle(Scan(state="none"), policy(row())) == []


def test_many_findings_are_counted() -> None:
    many = [Finding(id=f"CVE-2026-{n}", severity="HIGH", package="p") for n in range(40)]
    check = scanning.judge(complete(*many), policy(), TODAY)
    assert "40 findings" in check.detail
    assert "and 30 more" in check.detail
