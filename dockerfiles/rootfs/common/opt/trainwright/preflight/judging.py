"""Run every check of the preflight: does this host have what the job needs?"""

from __future__ import annotations

from collections.abc import Callable

from efa import check_efa, check_plugin
from findings import WORST_FIRST, Case, Finding
from gpus import check_driver, check_gdrcopy, check_gpus
from limits import check_memlock, check_nofile, check_shm, check_tasks
from peers import check_interface, check_peers

Check = Callable[[Case], list[Finding]]
CHECKS: list[Check] = [
    check_efa,
    check_plugin,
    check_peers,
    check_interface,
    check_gpus,
    check_driver,
    check_gdrcopy,
    check_memlock,
    check_nofile,
    check_tasks,
    check_shm,
]
# Checks for a host that runs no ranks, such as the launcher pod of an MPIJob.
ALWAYS = (check_peers, check_interface, check_nofile)


def judge(case: Case) -> list[Finding]:
    """Return the findings of all checks, worst first."""
    checks = CHECKS if case.facts.processes else ALWAYS
    found = [finding for check in checks for finding in check(case)]
    return sorted(found, key=lambda finding: WORST_FIRST.index(finding.level))
