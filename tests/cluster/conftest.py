"""Jobs of several hosts in real containers: the fixture `cluster`, and the table of what ran where, how long."""

import json
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from cluster import cases, harness


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("trainwright")
    group.addoption("--table", metavar="FOLDER", type=Path, help="gets cluster.json and cluster.md")


def pytest_configure(config: pytest.Config) -> None:
    # Else SIGTERM, as `timeout` sends it, would end pytest before a job's containers are removed.
    signal.signal(signal.SIGTERM, signal.default_int_handler)


@pytest.fixture
def cluster(
    request: pytest.FixtureRequest, declared: Any, image: str, tmp_path: Path
) -> Iterator[Callable[..., harness.Cluster]]:
    """Start a job: cluster(2, SCRIPT, distribution="mpi"). All of it is gone after the test, whatever happens.

    The first job of a test stands in the table, as `what`, else under the name of the test; unless it is not `listed`.
    """
    said: dict[str, object] = {"variant": declared.variant.id, "components": " ".join(sorted(declared.variant.pins))}
    with ExitStack() as stack:
        started = list[harness.Cluster]()

        def start(
            count: int, script: str | Path, what: str = "", listed: bool = True, **options: Any
        ) -> harness.Cluster:
            folder = tmp_path / f"job-{len(started)}"
            folder.mkdir()
            job = stack.enter_context(harness.cluster(image, folder, count, script, **options))
            started.append(job)
            if listed and len(started) == 1:
                said.update(
                    what=what or request.node.name.removeprefix("test_"),
                    path=options.get("platform", "sagemaker"),
                    distribution=options.get("distribution", "torchrun"),
                    hosts=count,
                    processes=options.get("processes", 1),
                )
            return job

        yield start
        if started:
            seconds = [one.seconds for job in started for one in job.over.values()]
            said["seconds"] = round(max(seconds), 1) if seconds else ""
        request.node.user_properties += said.items()


# --- the table -----------------------------------------------------------------------------------------------------


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """What JUnit holds, as one table; under xdist the first process has the reports of all."""
    tests = dict[str, tuple[str, dict[str, Any]]]()
    for report in (one for some in terminalreporter.stats.values() for one in some):
        if isinstance(report, pytest.TestReport):
            outcome, properties = tests.get(report.nodeid, ("passed", {}))
            worse = "failed" if "failed" in (report.outcome, outcome) else "skipped" if report.skipped else outcome
            tests[report.nodeid] = worse, properties | dict(report.user_properties)
    ran = [one for one in tests.values() if "what" in one[1]]
    if not ran:
        return
    whose = next((said for _, said in ran if "variant" in said), {})
    image = whose.get("variant") or config.getoption("--variant") or config.getoption("--image")
    found = cases.rows(ran, str(whose["components"]).split() if whose else None)
    about = {name: whose.get(name) for name in ("name", "image", "architecture", "cpus", "engine")}
    table = cases.markdown(f"Jobs of several hosts: {image}", found)
    terminalreporter.write_line(f"\n{table}")
    if folder := config.getoption("--table"):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "cluster.md").write_text(table)
        whole = {"id": image, "about": about, "rows": found}
        (folder / "cluster.json").write_text(json.dumps(whole, indent=1) + "\n")
