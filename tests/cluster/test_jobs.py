"""Each launch path with each distribution, and the values that training over several hosts gives: cases.toml."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from cluster import cases, harness

SETTINGS = cases.settings()
ALL = [
    pytest.param(case, id=case.id, marks=[pytest.mark.component(name) for name in case.needs])
    for case in cases.cases(SETTINGS)
]
SCRIPTS = Path(__file__).parent / "scripts"


@pytest.mark.parametrize("case", ALL)
def test_job(
    case: cases.Case, cluster: Callable[..., harness.Cluster], record_property: Callable[[str, object], None]
) -> None:
    record_property("case", case.id)
    job = cluster(
        case.hosts,
        SCRIPTS / f"{case.script}.py",
        what=case.script,
        platform=case.path,
        distribution=case.distribution,
        processes=case.processes,
        environment={} if case.path in SETTINGS.compared else {"TRAINWRIGHT_STARTUP_CHECK": "off"},
    )
    over = job.ended(SETTINGS.limit_seconds)
    assert {host: one.code for host, one in over.items()} == dict.fromkeys(job.hosts, 0), job.said()
    if case.distribution == "plain":
        for host in job.hosts:
            assert f"checked: alone on {host}" in job.said(host), job.said()
    else:
        world = case.hosts * case.processes
        found = sorted(re.findall(r"checked: rank (\d+) of (\d+)", job.said()))
        assert found == sorted((str(rank), str(world)) for rank in range(world)), job.said()
