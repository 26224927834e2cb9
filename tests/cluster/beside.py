"""Jobs that run beside each other: most of them only wait, and a test each after the other would take far longer.

A module that uses this is an xdist_group: each process that runs one of its tests would start all of its jobs.
"""

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest
from cluster import harness

AT_A_TIME = 4
Start = Callable[..., Any]  # a context manager: a job, whose hosts have not begun
Result = TypeVar("Result")


def wanted(request: pytest.FixtureRequest) -> list[str]:
    """The cases of a module that were not deselected."""
    found = {
        str(item.callspec.params["case"]): None
        for item in request.session.items
        if isinstance(item, pytest.Function) and item.module is request.module and "case" in item.fixturenames
    }
    return list(found)


@contextmanager
def jobs(
    request: pytest.FixtureRequest, cases: Mapping[str, Callable[[Start], Result]], environment: Mapping[str, str]
) -> Iterator[Mapping[str, Future[Result]]]:
    """What comes of each case that the module's tests ask for; a case is handed what starts a job."""
    image: str = request.getfixturevalue("image")
    folders: Path = request.getfixturevalue("tmp_path_factory").mktemp("jobs")  # which threads must not call

    def start(count: int, text: str, **options: Any) -> Any:
        folder = Path(tempfile.mkdtemp(dir=folders))
        given = {"begin": False, **options, "environment": {**environment, **options.get("environment", {})}}
        return harness.cluster(image, folder, count, text, **given)

    with ThreadPoolExecutor(AT_A_TIME) as beside:
        yield {name: beside.submit(cases[name], start) for name in wanted(request)}


def until(job: harness.Cluster, done: Callable[[], bool], within: float) -> None:
    """Waits for so many seconds at most. Fails at once where a host ends before."""
    limit = time.monotonic() + within
    while not done():
        for container in job.running.containers.values():
            container.reload()
        gone = [host for host, one in job.running.containers.items() if one.status == "exited"]
        if gone:
            time.sleep(1)  # what it said last may be on its way
            if done():
                return
        if gone or time.monotonic() > limit:
            pytest.fail(f"{', '.join(gone) or 'nobody'} ended before that:\n{job.said()}")
        time.sleep(0.2)


def listed(record: Callable[[str, object], None], what: str, case: str, seconds: float, processes: int = 1) -> None:
    """A row of the table, on a case of two hosts: seconds from what was done to them until the last one had ended."""
    words = case.split("-")
    kind = next((name for name in ("torchrun", "mpi", "tensorflow") if name in words), "plain")
    row = {"path": "sagemaker", "distribution": kind, "what": f"{what}: {case}", "hosts": 2, "processes": processes}
    for name, value in {**row, "seconds": round(seconds, 1)}.items():
        record(name, value)


def parametrize(names: Mapping[str, object], *beginnings: str) -> pytest.MarkDecorator:
    """Those cases whose names begin so; one of torchrun is for images with torch, one of mpi for those with mpi4py."""
    marks = {"torchrun": pytest.mark.component("torch"), "mpi": pytest.mark.component("mpi4py")}
    return pytest.mark.parametrize(
        "case",
        [
            pytest.param(name, marks=[mark for word, mark in marks.items() if word in name.split("-")], id=name)
            for name in names
            if name.startswith(beginnings)
        ],
    )
