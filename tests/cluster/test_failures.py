"""What goes wrong in a job of two hosts: it ends everywhere, not with 0, and every host's failure file says why.

The jobs of this file run beside each other, as most of them only wait.
"""

import json
import re
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial

import pytest
from cluster import beside, harness, names
from cluster.beside import Start

from trainwright.jobs.containers import Ended, Host

pytestmark = [pytest.mark.component("sagemaker-training"), pytest.mark.xdist_group("failures")]
SHOWN = 1024  # what SageMaker makes FailureReason of
START = 150  # seconds until every rank trains, on a busy machine
LATE = 30  # seconds
QUICK = {"TRAINWRIGHT_STARTUP_CHECK": "off"}  # what it imports takes longer than all the rest
CAUSE = "the data is upside down"

TRAINS = """
import socket, sys, time
{first}
print("trains", flush=True)
{then}
"""
HOLDS = "time.sleep(600)"
MPI = "from mpi4py import MPI"
NOW = "/tmp/now"
RAISES = f"""
import os
if socket.gethostname() == "algo-2":
    while not os.path.exists("{NOW}"):
        time.sleep(0.1)
    raise RuntimeError("{CAUSE}")
time.sleep(600)
"""
FILLS = """
import os
if socket.gethostname() == "algo-2":
    while not os.path.exists("{now}"):
        time.sleep(0.1)
    os.makedirs("/opt/ml/output/data", exist_ok=True)
    try:
        with open("/opt/ml/output/data/fill", "wb", buffering=0) as file:
            while file.write(bytes(4096)):
                pass
    except OSError as problem:
        {then}
time.sleep(600)
"""


@dataclass
class Result:
    """How a job ended; `seconds` from the misfortune until the last host was gone."""

    hosts: dict[str, Ended]
    logs: dict[str, str]
    seconds: float

    def failure(self, host: str) -> str:
        return self.hosts[host].failure[:SHOWN]

    def shown(self) -> str:
        return "\n".join(f"== {host}: {self.hosts[host]}\n{said}" for host, said in self.logs.items())


CASES = dict[str, Callable[[Start], Result]]()


def case(run: Callable[[Start], Result]) -> Callable[[Start], Result]:
    CASES[run.__name__.replace("_", "-")] = run
    return run


def script(then: str = HOLDS, first: str = "") -> str:
    return TRAINS.format(first=first, then=then)


def over(job: harness.Cluster, began: float, *hosts: str) -> Result:
    ended = job.ended(START, hosts)
    return Result(ended, {host: job.said(host) for host in ended}, time.monotonic() - began)


def training(said: str) -> int:
    """How many ranks said that they train."""
    return len(re.findall(r"\btrains\b", said))


def trains(job: harness.Cluster) -> None:
    """Until each rank does; under MPI the main host prints what all say."""
    beside.until(job, lambda: training(job.said()) == 2, START)


def now(job: harness.Cluster) -> float:
    """What goes wrong does so from now on."""
    began = time.monotonic()
    assert job.run("algo-2", "touch", NOW)[0] == 0
    return began


def turned_down(job: harness.Cluster, **settings: int) -> None:
    """The launcher's own settings with these instead."""
    path = "/opt/trainwright/launcher/settings.json"
    for host in job.hosts:
        changed = {**json.loads(job.read(host, path)), **settings}
        job.running.containers[host].put_archive("/", names.packed({path: json.dumps(changed).encode()}))


# --- what goes wrong -------------------------------------------------------------------------------------------------


def a_rank_raises(start: Start, distribution: str, first: str = "") -> Result:
    with start(2, script(RAISES, first), distribution=distribution) as job:
        job.start()
        trains(job)
        return over(job, now(job))


for name, module in (("plain", ""), ("torchrun", ""), ("mpi", MPI), ("tensorflow", "")):
    CASES[f"raises-{name}"] = partial(a_rank_raises, distribution=name, first=module)


def a_host_dies(start: Start, distribution: str, which: str, first: str = "") -> Result:
    with start(2, script(first=first), distribution=distribution) as job:
        job.start()
        trains(job)
        began = time.monotonic()
        job.kill(which)
        return over(job, began)


for name, which, module in (
    ("plain", "algo-2", ""),
    ("plain", "algo-1", ""),
    ("torchrun", "algo-2", ""),
    ("mpi", "algo-2", MPI),
    ("mpi", "algo-1", MPI),
):
    CASES[f"dies-{name}-{which}"] = partial(a_host_dies, distribution=name, which=which, first=module)


@case
def late_worker_torchrun(start: Start) -> Result:
    with start(2, script("pass"), distribution="torchrun") as job:
        return comes_late(job, "algo-2")


@case
def late_main_mpi(start: Start) -> Result:
    with start(2, script("MPI.COMM_WORLD.Barrier()", MPI), distribution="mpi") as job:
        return comes_late(job, "algo-1")


def comes_late(job: harness.Cluster, late: str) -> Result:
    """Its name is not even known before it starts."""
    job.start(*(host for host in job.hosts if host != late))
    time.sleep(LATE)
    began = time.monotonic()
    job.start(late)
    return over(job, began)


def never_comes(start: Start, which: str) -> Result:
    """Not even its name does; the preflight of the others waits for that. This job has no secret."""
    environment = {**QUICK, "TRAINWRIGHT_PEER_WAIT": "10"}
    with start(2, script(), distribution="plain", environment=environment, secret=None) as job:
        there = [host for host in job.hosts if host != which]
        began = time.monotonic()
        job.start(*there)
        return over(job, began, *there)


def never_joins(start: Start, which: str) -> Result:
    """Its container runs, and no launcher in it. This job has no secret, which is said."""
    with start(2, script(), distribution="plain", secret=None) as job:
        turned_down(job, join_seconds=10)
        job.running.network.disconnect(job.running.containers[which])
        job.add(Host(name="asleep", command=["sleep", "600"], aliases=[which]))
        there = [host for host in job.hosts if host != which]
        began = time.monotonic()
        job.start("asleep", *there)
        return over(job, began, *there)


for which in ("algo-1", "algo-2"):
    CASES[f"never-comes-{which}"] = partial(never_comes, which=which)
    CASES[f"never-joins-{which}"] = partial(never_joins, which=which)


@case
def cut_off(start: Start) -> Result:
    with start(2, script(), distribution="plain") as job:
        job.start()
        trains(job)
        began = time.monotonic()
        job.cut("algo-2")
        return over(job, began)


@case
def hangs(start: Start) -> Result:
    """Its connections stay open and nothing answers; later it goes on, and must not train alone."""
    with start(2, script(), distribution="plain") as job:
        job.start()
        trains(job)
        began = time.monotonic()
        job.pause("algo-2")
        over(job, began, "algo-1")
        job.resume("algo-2")
        return over(job, began)


@case
def disk_full_raises(start: Start) -> Result:
    return disk_full(start, "raise")


@case
def disk_full_exits(start: Start) -> Result:
    return disk_full(start, "sys.exit(3)")


def disk_full(start: Start, then: str) -> Result:
    with start(
        2, script(FILLS.format(then=then, now=NOW)), distribution="plain", tmpfs={"/opt/ml/output": "size=64k"}
    ) as job:
        job.start()
        trains(job)
        return over(job, now(job))


@case
def names_are_wrong_at_first(start: Start) -> Result:
    """Nothing answers; then there is no such name; then it is somebody else's address; at last the right one."""
    with names.server() as server, start(2, script("pass"), distribution="plain", volumes=server.volumes) as job:
        began = time.monotonic()
        job.start()
        server.answer(job, {host: host for host in job.hosts}, names.PHASES)
        result = over(job, began)
        assert set(server.heard) >= {*names.PHASES, "right"}, server.heard
        return result


# --- and what must come of it ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def results(request: pytest.FixtureRequest) -> Iterator[Mapping[str, Future[Result]]]:
    with beside.jobs(request, CASES, QUICK) as found:
        yield found


@pytest.fixture
def result(results: Mapping[str, Future[Result]], case: str, record_property: Callable[[str, object], None]) -> Result:
    found = results[case].result()
    beside.listed(record_property, "seconds after a failure", case, found.seconds)
    for host, one in found.hosts.items():
        record_property(f"code of {host}", one.code)
    return found


@beside.parametrize(CASES, "raises", "disk-full")
def test_the_cause_is_in_the_failure_file_of_every_host(result: Result, case: str) -> None:
    """What lay on a disk that was full is gone with it: there the log has to do."""
    cause, code = {"disk-full-raises": ("No space left on device", 1), "disk-full-exits": ("exit code 3", 3)}.get(
        case, (CAUSE, 1)
    )
    for host, one in result.hosts.items():
        assert one.code == code, result.shown()
        assert cause in (result.logs[host] if case.startswith("disk") else result.failure(host)), result.shown()
        assert "algo-2" in (result.logs[host] if case.startswith("disk") else result.failure(host)), result.shown()


@beside.parametrize(CASES, "dies")
def test_a_host_that_is_killed_ends_the_job(result: Result, case: str) -> None:
    dead = case[-len("algo-1") :]
    (alive,) = result.hosts.keys() - {dead}
    assert result.hosts[alive].code not in (0, 137), result.shown()
    assert dead in result.failure(alive), result.shown()


@beside.parametrize(CASES, "late")
def test_a_host_that_comes_late_is_waited_for(result: Result) -> None:
    assert [one.code for one in result.hosts.values()] == [0, 0], result.shown()
    assert training("\n".join(result.logs.values())) == 2, result.shown()


@beside.parametrize(CASES, "never")
def test_who_never_comes_is_named(result: Result, case: str) -> None:
    absent = case[-len("algo-1") :]
    for host, one in result.hosts.items():
        assert one.code != 0, result.shown()
        assert absent in result.failure(host), result.shown()
        if case == "never-joins-algo-2":
            assert "this job has no secret" in result.logs[host]
        assert training(result.logs[host]) == 0


@beside.parametrize(CASES, "cut-off", "hangs")
def test_hosts_that_do_not_hear_of_each_other_end(result: Result) -> None:
    for host, other in (("algo-1", "algo-2"), ("algo-2", "algo-1")):
        assert result.hosts[host].code != 0, result.shown()
        assert other in result.failure(host), result.shown()


@beside.parametrize(CASES, "names")
def test_names_that_come_late_are_waited_for(result: Result) -> None:
    assert [one.code for one in result.hosts.values()] == [0, 0], result.shown()
