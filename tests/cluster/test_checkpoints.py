"""docs/examples/checkpoint.py, stopped in the middle and started again: the loss goes on exactly as without a stop."""

import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from cluster import harness

pytestmark = [pytest.mark.component("sagemaker-training"), pytest.mark.component("torch")]
EXAMPLE = Path(__file__).parents[2] / "docs/examples/checkpoint.py"
STEPS, SAVE_EVERY, MIDDLE, STOPPED = 400, 100, 60, 143
LIMIT, GRACE = 180, 120  # seconds
LOSS = re.compile(r"rank (\d+) step (\d+) loss (\S+)")
Curve = dict[tuple[str, int], str]  # rank, step: loss, as Python writes it
Job = Callable[[Path], harness.Cluster]  # with this folder of checkpoints


@pytest.fixture
def begun(cluster: Callable[..., harness.Cluster], request: pytest.FixtureRequest) -> Job:
    hosts, distribution = getattr(request, "param", (1, "plain"))

    def begun(checkpoints: Path) -> harness.Cluster:
        checkpoints.mkdir(exist_ok=True)
        return cluster(
            hosts,
            EXAMPLE,
            distribution=distribution,
            arguments={"steps": STEPS, "save-every": SAVE_EVERY},
            environment={"OMP_NUM_THREADS": "1", "TRAINWRIGHT_STARTUP_CHECK": "off"},
            volumes={"/opt/ml/checkpoints": (checkpoints, "rw")},
        )

    return begun


def curve(logs: str) -> Curve:
    """Fails where a step was taken twice."""
    found = [(match[1], int(match[2]), match[3]) for match in LOSS.finditer(logs)]
    taken = {(rank, step): loss for rank, step, loss in found}
    assert len(taken) == len(found), "a step was taken twice in one run"
    return taken


def finished(job: harness.Cluster) -> Curve:
    ended = job.ended(LIMIT)
    assert [one.code for one in ended.values()] == [0] * len(job.hosts), job.said()
    return curve(job.said())


@pytest.mark.parametrize("begun", [(1, "plain"), (2, "torchrun")], indirect=True, ids=["plain", "torchrun-2-hosts"])
def test_a_stopped_job_goes_on_where_it_was(
    begun: Job, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    job = begun(tmp_path / "cut")
    job.wait_for("algo-1", f"step {MIDDLE} ", LIMIT)
    began = time.monotonic()
    for host in job.hosts:
        job.stop(host, GRACE)
    ended = job.ended(LIMIT)
    record_property("seconds until exit", round(time.monotonic() - began, 1))
    assert [one.code for one in ended.values()] == [STOPPED] * len(job.hosts), job.said()
    first = curve(job.said())
    whole, again = begun(tmp_path / "whole"), begun(tmp_path / "cut")
    second = finished(again)
    ranks, last = {rank for rank, _ in first}, max(step for _, step in first)
    assert MIDDLE <= last < STEPS - 1, "it was not stopped in the middle"
    assert first.keys() & second.keys() == set(), "steps were repeated"
    assert first.keys() | second.keys() == {(rank, step) for rank in ranks for step in range(STEPS)}, "or lost"
    assert first | second == finished(whole), "the loss is another one than without a stop"


def test_a_killed_job_goes_on_from_its_last_checkpoint(begun: Job, tmp_path: Path) -> None:
    """SIGKILL in the middle of anything: the file is whole, and what is trained again comes to the same."""
    job = begun(tmp_path / "cut")
    job.wait_for("algo-1", f"step {SAVE_EVERY + MIDDLE} ", LIMIT)
    job.kill("algo-1")
    job.ended(LIMIT)
    before, saved = curve(job.said()), [int(step) for step in re.findall(r"saved step (\d+)", job.said())]
    again = finished(begun(tmp_path / "cut"))
    first = min(step for _, step in again)
    assert first in (saved[-1], saved[-1] + SAVE_EVERY)  # the latter if it died before it could say so
    both = before.keys() & again.keys()
    assert {at: before[at] for at in both} == {at: again[at] for at in both}
