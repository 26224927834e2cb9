"""Jobs of several hosts in real containers: the fixture `cluster`, and the table of what ran where, how long."""

import io
import json
import signal
import tarfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from cluster import cases, harness

# What an image's environment says by now, and an older one's does not (dockerfiles/layers/sagemaker-training.j2).
NEWER = {"BASH_ENV": "/opt/trainwright/sdk/start.sh"}


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("trainwright")
    group.addoption(
        "--rootfs",
        metavar="FOLDER",
        type=Path,
        help="dockerfiles/rootfs of a checkout: its files replace those of an older image in each container",
    )
    group.addoption("--table", metavar="FOLDER", type=Path, help="gets cluster.json and cluster.md")


def pytest_configure(config: pytest.Config) -> None:
    # Else SIGTERM, as `timeout` sends it, would end pytest before a job's containers are removed.
    signal.signal(signal.SIGTERM, signal.default_int_handler)


def packed(folder: Path, site: str, parts: set[str], rendered: Mapping[str, str]) -> io.BytesIO:
    """The files of rootfs, and what is rendered beside them, where the layers put them (dockerfiles/layers/*.j2)."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as into:

        def add(path: Path, place: str) -> None:
            entry = into.gettarinfo(str(path), place.lstrip("/"))
            with path.open("rb") as content:
                into.addfile(entry.replace(uid=0, gid=0, uname="root", gname="root", deep=False), content)

        for path in sorted(path for path in (folder / "common").rglob("*") if path.is_file()):
            if "__pycache__" not in path.parts:
                add(path, str(path.relative_to(folder / "common")))
        if "sagemaker" in parts:
            for path in sorted((folder / "sagemaker").iterdir()):
                if path.is_file():
                    add(path, f"{site}/{path.name}" if path.suffix == ".py" else f"/opt/trainwright/bin/{path.name}")
            for path in sorted((folder / "sagemaker/sdk").iterdir()):
                if path.is_file():
                    add(path, f"/opt/trainwright/sdk/{path.name}")
        for place, text in rendered.items():
            entry = tarfile.TarInfo(place)
            entry.size = len(text.encode())
            into.addfile(entry, io.BytesIO(text.encode()))
    return archive


@pytest.fixture(scope="session")
def rootfs(pytestconfig: pytest.Config, declared: Any) -> io.BytesIO | None:
    """What replaces files of the image: nothing, unless --rootfs says so."""
    folder = pytestconfig.getoption("--rootfs")
    if folder is None:
        return None
    if not (folder / "common").is_dir():
        raise pytest.UsageError(f"--rootfs {folder} holds no folder common: say dockerfiles/rootfs of a checkout")
    variant = declared.variant
    site = f"/opt/venv/lib/python{variant.python}/site-packages"
    rendered = {"opt/trainwright/preflight.json": declared.text["requirements/preflight.json"]}
    return packed(folder, site, {variant.target}, rendered)


@pytest.fixture
def cluster(
    request: pytest.FixtureRequest, declared: Any, image: str, rootfs: io.BytesIO | None, tmp_path: Path
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
            if rootfs:
                options["environment"] = {**NEWER, **options.get("environment", {})}
            job = stack.enter_context(harness.cluster(image, folder, count, script, rootfs=rootfs, **options))
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
    of = f"launcher of {config.getoption('--rootfs')}, put into each container" if config.getoption("--rootfs") else ""
    about = {name: whose.get(name) for name in ("name", "image", "architecture", "cpus", "engine")}
    title = f"Jobs of several hosts: {image}" + (f" ({of})" if of else "")
    table = cases.markdown(title, found)
    terminalreporter.write_line(f"\n{table}")
    if folder := config.getoption("--table"):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "cluster.md").write_text(table)
        whole = {"id": image, "about": about, "launcher": of or "of the image", "rows": found}
        (folder / "cluster.json").write_text(json.dumps(whole, indent=1) + "\n")
