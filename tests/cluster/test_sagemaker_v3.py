"""What version 3 of SageMaker's SDK starts is bash: a stop reaches the script nevertheless, on every host."""

import secrets
from collections.abc import Callable

import pytest
from cluster import beside, harness

pytestmark = pytest.mark.component("sagemaker-training")
READY, SAVED = "ready to be stopped", "saved at step"
LIMIT_SECONDS, GRACE_SECONDS, SOON_SECONDS = 150, 60, 60
QUICK = {"TRAINWRIGHT_STARTUP_CHECK": "off"}
WAITS = f"""
import signal, sys, time
RANKS

def save(*_):
    print("{SAVED} 1", flush=True)
    sys.exit(0)

signal.signal(signal.SIGTERM, save)
print("{READY}", flush=True)
time.sleep(600)
"""

SHOWS = """
import glob, re
found = {name: open(name, "rb").read() for name in glob.glob("/proc/[0-9]*/environ")}
kept = [name for name, text in found.items() if re.search(rb"JOB_SECRET=[0-9a-f]", text)]
print("kept:", kept, glob.glob("/tmp/trainwright-secret-*"))
print("read:", sum(b"SM_ENTRY_SCRIPT" in found[name] for name in found if name == "/proc/1/environ"))
"""


@pytest.mark.parametrize(
    ("distribution", "hosts", "ranks"),
    [
        pytest.param("plain", 1, "", id="plain"),
        pytest.param("torchrun", 1, "", id="torchrun", marks=pytest.mark.component("torch")),
        pytest.param("mpi", 2, "from mpi4py import MPI", id="mpi", marks=pytest.mark.component("mpi4py")),
    ],
)
def test_a_stop_reaches_the_script(
    cluster: Callable[..., harness.Cluster], distribution: str, hosts: int, ranks: str
) -> None:
    """bash is the first process, and would never hear of it."""
    script = WAITS.replace("RANKS", ranks)
    job = cluster(hosts, script, "stop", platform="sagemaker-v3", distribution=distribution, environment=QUICK)
    beside.until(job, lambda: job.said().count(READY) == hosts, LIMIT_SECONDS)
    for host in job.hosts:
        job.stop(host, GRACE_SECONDS)
    assert [one.code for one in job.ended(SOON_SECONDS).values()] == [0] * hosts, job.said()
    assert job.said().count(SAVED) == hosts, job.said()


def test_no_process_keeps_the_secret(cluster: Callable[..., harness.Cluster]) -> None:
    """bash was started with it, and cannot forget it; nor is the file left by which the launcher gets it."""
    environment = {**QUICK, "TRAINWRIGHT_JOB_SECRET": secrets.token_hex(32)}
    options = {"platform": "sagemaker-v3", "distribution": "plain", "secret": None, "environment": environment}
    job = cluster(1, SHOWS, listed=False, **options)
    assert job.ended(LIMIT_SECONDS)["algo-1"].code == 0, job.said()
    assert "kept: [] []" in job.said()
    assert "read: 1" in job.said(), "it was not the first process that was looked at"
