"""The harness itself: what a test asks of it happens, within bounds, and nothing of a job stays in the engine."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cluster import harness

from trainwright.docker import engine
from trainwright.jobs.containers import LABEL

pytestmark = pytest.mark.component("sagemaker-training")
LIMIT_SECONDS = 150
QUICK = {"TRAINWRIGHT_WATCH": "off", "TRAINWRIGHT_STARTUP_CHECK": "off"}
SLEEPS = """
import os, sys, time
sys.stdout.write(f"I am {os.environ['SM_CURRENT_HOST']}\\n")
sys.stdout.flush()
time.sleep(600)
"""


def left(name: str) -> list[Any]:
    asked, client = {"label": f"{LABEL}={name}"}, engine.client()
    return [*client.containers.list(all=True, filters=asked), *client.networks.list(filters=asked)]


def terminated() -> None:
    """As `timeout` ends pytest."""
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(LIMIT_SECONDS)


def failed() -> None:
    raise RuntimeError("of a test")


@pytest.mark.parametrize(("problem", "ends"), [(RuntimeError, failed), (KeyboardInterrupt, terminated)])
def test_nothing_is_left(image: str, tmp_path: Path, problem: type[BaseException], ends: Callable[[], None]) -> None:
    """Whatever ends a test, while its hosts sleep."""
    names = list[str]()

    def test() -> None:
        with harness.cluster(image, tmp_path, 2, SLEEPS, distribution="plain", begin=False) as job:
            names.append(job.running.name)
            job.start("algo-1")
            assert len(left(names[0])) == 3
            ends()

    with pytest.raises(problem):
        test()
    assert left(names[0]) == []


def test_what_a_test_does_to_a_host(cluster: Callable[..., harness.Cluster]) -> None:
    """One is late, one is paused, one is off the network, one is killed; each is waited for within bounds."""
    job = cluster(2, SLEEPS, listed=False, distribution="plain", begin=False, environment=QUICK)
    job.start("algo-1")
    job.start("algo-2")
    for host in job.hosts:
        job.wait_for(host, f"I am {host}", LIMIT_SECONDS)
    job.cut("algo-2")
    assert job.run("algo-1", "getent", "hosts", "algo-2")[0] != 0
    job.pause("algo-2")
    with pytest.raises(pytest.fail.Exception, match="algo-1, algo-2 did not end within 1 s"):
        job.ended(within=1)
    job.resume("algo-2")
    job.kill("algo-2")
    assert job.ended(LIMIT_SECONDS, ["algo-2"])["algo-2"].code == 137
    job.stop("algo-1", 1).join()
    over = job.ended(LIMIT_SECONDS)
    assert over["algo-1"].code != 0
    assert [*over] == ["algo-1", "algo-2"]
    assert [*job.over] == ["algo-2", "algo-1"]  # as they ended


def test_the_secret_is_a_file_that_only_root_reads(cluster: Callable[..., harness.Cluster]) -> None:
    secret = "of-this-test-" + "0" * 64
    job = cluster(1, SLEEPS, listed=False, distribution="plain", secret=secret)
    path = "/run/secrets/trainwright/job"
    assert job.run("algo-1", "stat", "--format", "%a %u", path, str(Path(path).parent)) == (0, "400 0\n700 0\n")
    assert job.read("algo-1", path) == secret.encode()
    assert "of-this-test" not in job.inspect("algo-1")
