"""Test that the tests of one xdist_group share a process, and with it a fixture that takes minutes.

pytest-xdist#1386: with pytest 9.2, groups are silently ignored.
"""

import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

from trainwright.build.image_tests import SIDE_BY_SIDE

TESTS = """
import time
import pytest

@pytest.mark.parametrize("n", range(4))
{mark}
def test_one(n, worker_id, record_property):
    record_property("worker", worker_id)
    time.sleep(0.05)  # else the first process may have done everything before the second one asks
"""


def test_a_group_is_one_process(tmp_path: Path) -> None:
    grouped = TESTS.format(mark='@pytest.mark.xdist_group("g")')
    for name, text in (("test_a", grouped), ("test_b", TESTS.format(mark="")), ("test_c", grouped)):
        (tmp_path / f"{name}.py").write_text(text)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    words = [sys.executable, "-m", "pytest", "-p", "xdist", *SIDE_BY_SIDE, "--numprocesses=2", "--junitxml=report.xml"]
    alone = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    ran = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, env=alone)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    workers: dict[str, set[str]] = {}
    for case in ElementTree.parse(tmp_path / "report.xml").iter("testcase"):
        (worker,) = (found.attrib["value"] for found in case.iter("property"))
        workers.setdefault(case.attrib["classname"], set()).add(worker)
    assert workers["test_a"] == workers["test_c"], workers
    assert len(workers["test_a"]) == 1, workers
    assert len(set.union(*workers.values())) == 2, workers  # one process alone would prove nothing
