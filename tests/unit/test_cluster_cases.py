"""Test the table of cluster tests: every declared job has a row, and a skipped one is never shown as passed."""

import re
from pathlib import Path

from cluster import cases, platforms

SCRIPTS = Path(cases.__file__).parent / "scripts"
EVERY = cases.cases(cases.settings())


def test_every_case_has_a_script_that_says_what_it_checked() -> None:
    for case in EVERY:
        assert "checked: " in (SCRIPTS / f"{case.script}.py").read_text()
    assert {path.stem for path in SCRIPTS.glob("*.py")} == {case.script for case in EVERY}
    assert len({case.id for case in EVERY}) == len(EVERY)


def test_every_platform_takes_part_with_every_distribution_that_it_knows() -> None:
    found = {(case.path, case.distribution) for case in EVERY}
    kinds: dict[str, tuple[str, ...]] = dict.fromkeys(platforms.PLATFORMS, ("plain", "torchrun", "mpi", "tensorflow"))
    kinds |= {"mpijob": ("mpi",), "sagemaker-v3": ("plain", "torchrun", "mpi")}  # no more than these are theirs
    every = {(path, kind) for path, known in kinds.items() for kind in known}
    assert every <= found
    assert {case.hosts for case in EVERY} == {2, 4}
    assert {case.distribution for case in EVERY if case.processes > 1} == {"torchrun", "mpi"}  # several ranks on a host


def test_what_did_not_run_is_a_row_that_says_so() -> None:
    ran = EVERY[0]
    properties = {"case": ran.id, "what": ran.script, "path": ran.path, "hosts": ran.hosts, "seconds": 4.5}
    found = cases.rows([("passed", properties), ("failed", {"what": "a_host_is_killed"})], ["torch", "mpi4py"])
    assert len(found) == len(EVERY) + 1
    assert [row["result"] for row in found].count("passed") == 1
    by = {row["what"]: row["result"] for row in found}
    assert by["a_host_is_killed"] == "failed"
    assert by["horovod"] == "not run: the image has no horovod"
    assert by["fsdp"] == "not run"
    table = cases.markdown("title", found)
    assert len(re.findall(r"^\| ", table, re.MULTILINE)) == len(found) + 1


def test_a_platform_tells_every_host_what_it_tells_it() -> None:
    """Host names are what the launcher meets by; who has no secret gets none."""
    for platform in platforms.PLATFORMS:
        for secret in ("hidden", None):
            given = platforms.hosts(platform, 2, "script.py", "mpi", 1, {"epochs": 3}, {"MORE": "1"}, secret)
            assert [host.name for host in given] == platforms.names(platform, 2)
            for host in given:
                assert host.environment["MORE"] == "1"
                assert ("TRAINWRIGHT_JOB_SECRET_FILE" in host.environment) == (secret is not None)
                assert list(host.private.values()) == ([b"hidden"] if secret else [])
                assert "hidden" not in str([host.command, host.environment, host.files])
