"""`docker stop`, as of a spot instance or StopTrainingJob: every rank's own handler runs to its end, on every host."""

import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
from cluster import beside
from cluster.beside import Start

from trainwright.jobs.containers import Ended

pytestmark = [pytest.mark.component("sagemaker-training"), pytest.mark.xdist_group("stop")]
GRACE = 120  # seconds of SageMaker between SIGTERM and SIGKILL
START = 150  # seconds until every rank trains, on a busy machine
SAVES = 2  # seconds that a handler takes
LONG = 35  # longer than the 30 seconds that torchrun's agent gives its ranks
SOON = 40  # seconds beyond that
STOPPED = 143
PROCESSES = {"plain": 1, "torchrun": 2, "mpi": 2, "tensorflow": 1}
SCRIPT = """
import json, os, signal, socket, sys, time
{first}
index = json.loads(os.environ.get("TF_CONFIG", "{{}}")).get("task", {{}}).get("index", socket.gethostname())
rank = os.environ.get("RANK") or os.environ.get("OMPI_COMM_WORLD_RANK") or index
def saves(*_):
    print(f"rank {{rank}} heard it", flush=True)
    time.sleep({saves})
    open(f"/opt/ml/checkpoints/{{rank}}", "w").close()
    time.sleep(5)  # mpirun ends all ranks as soon as one has left
    sys.exit({code})
signal.signal(signal.SIGTERM, saves)
open(f"/opt/ml/checkpoints/began-{{rank}}", "w").close()
while True:
    time.sleep(0.1)
"""


@dataclass
class Stopped:
    """`seconds` from the first `docker stop` until the last host was gone."""

    hosts: dict[str, Ended]
    began: set[str]  # ranks
    saved: set[str]
    seconds: float
    logs: str


def stopped(start: Start, kept: Path, distribution: str, which: str, saves: int) -> Stopped:
    first = "from mpi4py import MPI" if distribution == "mpi" else ""
    processes = PROCESSES[distribution]
    text = SCRIPT.format(first=first, saves=saves, code=STOPPED)
    volumes = {"/opt/ml/checkpoints": (kept, "rw")}
    with start(2, text, distribution=distribution, processes=processes, volumes=volumes) as job:
        job.start()
        beside.until(job, lambda: len(list(kept.glob("began-*"))) == 2 * processes, START)
        began = time.monotonic()
        for host in job.hosts if which == "all" else [which]:
            job.stop(host, GRACE)
        ended = job.ended(GRACE + SOON)
        seconds = time.monotonic() - began
        files = {path.name for path in kept.iterdir()}
        ranks = {name.removeprefix("began-") for name in files if name.startswith("began-")}
        return Stopped(ended, ranks, files & ranks, seconds, job.said())


KINDS = {
    **{f"{name}-{which}": (name, which, SAVES) for name in PROCESSES for which in ("all", "algo-1", "algo-2")},
    **{f"{name}-long": (name, "all", LONG) for name in ("torchrun", "mpi")},
}


@pytest.fixture(scope="module")
def results(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Mapping[str, Future[Stopped]]]:
    cases = {
        case: partial(stopped, kept=tmp_path_factory.mktemp(case), distribution=name, which=which, saves=saves)
        for case, (name, which, saves) in KINDS.items()
    }
    with beside.jobs(request, cases, {"TRAINWRIGHT_STARTUP_CHECK": "off"}) as found:
        yield found


@beside.parametrize(KINDS, "")
def test_every_rank_hears_of_a_stop(
    results: Mapping[str, Future[Stopped]], case: str, record_property: Callable[[str, object], None]
) -> None:
    distribution, which, saves = KINDS[case]
    result = results[case].result()
    beside.listed(record_property, "seconds after docker stop", case, result.seconds, PROCESSES[distribution])
    record_property("stopped", which)
    record_property("handler, seconds", saves)
    record_property("codes", str([one.code for one in result.hosts.values()]))
    assert len(result.began) == 2 * PROCESSES[distribution]
    assert result.saved == result.began, result.logs
    assert [one.code for one in result.hosts.values()] == [STOPPED, STOPPED], result.logs
