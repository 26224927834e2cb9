"""What tests of an image share: which image, the one container it runs in, and what happens where it cannot run.

A test that could not run has proved nothing: it is skipped with "not run: <why>", counted at the end, and fails
under --require-engine. Nothing of this touches the engine before a test asks for it.
"""

import io
import os
import platform
import shutil
import signal
import tarfile
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import state

if TYPE_CHECKING:
    from trainwright.image.inputs import Inputs
    from trainwright.matrix.matrix import Intent, Recipe

ROOT = Path(__file__).parents[1]
NOT_RUN = "not run: "
NOT_APPLICABLE = pytest.StashKey[list[pytest.Item]]()  # tests of what a derived image may change
ABOUT = pytest.StashKey[list[tuple[str, object]]]()  # which image was tested, on what
TEST_LABEL = "io.trainwright.test"  # on every container of a test: `docker ps --filter label=...` finds left-overs


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("trainwright")
    group.addoption("--image", metavar="NAME", help="an image in the engine, or repository@digest, which is pulled")
    group.addoption("--variant", metavar="ID", help="which image of the matrix that is; default: the first default")
    group.addoption("--with", metavar="FILE", help="packages of a requirements file on top of that image, of which")
    group.addoption("--name", metavar="NAME", default="", help="the image's name says so: <id>-with-NAME")
    group.addoption("--kept", metavar="DIGEST", default="", help="of all that the outcomes of image tests depend on")
    group.addoption("--derived", action="store_true", help="the image is built on top of that variant's image")
    group.addoption(
        "--sdk", metavar="FOLDER", help="v2 and v3: virtual environments with SageMaker's SDK; default .sdk"
    )
    group.addoption("--require-engine", action="store_true", help="what could not run is a failure, not a skip")


def pytest_configure(config: pytest.Config) -> None:
    # What a shell starts in the background ignores Ctrl-C, and so would every program that a test interrupts.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    config.addinivalue_line("markers", "component(name): only for images that pin this component; else deselected")
    config.addinivalue_line("markers", "devel: only for images with compilers; else deselected")
    config.addinivalue_line("markers", "exact(why): not for a derived image, which may change this; else deselected")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """A component that the variant does not pin is no gap in its proof: its tests are deselected, not skipped."""
    if config.getoption("--derived"):
        exact = [item for item in items if item.get_closest_marker("exact")]
        config.stash[NOT_APPLICABLE] = exact
        config.hook.pytest_deselected(items=exact)
        items[:] = [item for item in items if item not in exact]
    needed = {item: {str(mark.args[0]) for mark in item.iter_markers("component")} for item in items}
    twins = {item for item in items if item.get_closest_marker("devel")}
    if twins or any(needed.values()):
        variant = _recipe(config, _intent()).variant
        kept = [item for item in items if needed[item] <= variant.pins.keys() and (variant.devel or item not in twins)]
        if len(kept) < len(items):
            config.hook.pytest_deselected(items=[item for item in items if item not in kept])
            items[:] = kept


@pytest.fixture(autouse=True)
def _as_a_new_process() -> Iterator[None]:
    """Nothing is remembered from the test before, nor for the next one."""
    state.forget()
    yield
    state.forget()


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("engine"):
        _need_engine()


def _need_engine() -> None:
    from trainwright.docker import engine

    if not engine.answers():
        pytest.skip(f"{NOT_RUN}no Docker engine answers")
    if not shutil.which("docker"):
        pytest.skip(f"{NOT_RUN}there is no docker client on PATH")


def _why_not_run(report: pytest.TestReport | pytest.CollectReport) -> str:
    """What stands behind "not run: " in a skip; "" for everything else."""
    reason = str(report.longrepr[2]) if report.skipped and isinstance(report.longrepr, tuple) else ""
    return reason.removeprefix("Skipped: ").partition(NOT_RUN)[2]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if (why := _why_not_run(report)) and item.config.getoption("--require-engine"):
        report.outcome, report.longrepr = "failed", f"{NOT_RUN}{why} (--require-engine)"
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reasons = Counter(_why_not_run(report) for report in terminalreporter.stats.get("skipped", []))
    if exact := terminalreporter.config.stash.get(NOT_APPLICABLE, []):
        terminalreporter.write_line(f"NOT APPLICABLE to a derived image: {len(exact)} tests", yellow=True)
        for item in exact:
            mark = item.get_closest_marker("exact")
            terminalreporter.write_line(f"  {item.nodeid.rpartition('/')[2]}: {mark.args[0] if mark else ''}")
    for why, count in reasons.items():
        if why:
            terminalreporter.write_line(f"NOT RUN: {count} test{'s' * (count > 1)} ({why})", yellow=True, bold=True)


# --- which image ---------------------------------------------------------------------------------------------------


def _intent() -> "Intent":
    from trainwright.matrix.matrix import load_intent

    return load_intent(ROOT)


def _recipe(config: pytest.Config, intent: "Intent") -> "Recipe":
    from trainwright.lock import additions
    from trainwright.matrix.matrix import select

    wanted = config.getoption("--variant")
    found = select(intent, None, wanted)[0] if wanted else next(one for one in intent.recipes if one.variant.default)
    if requirements := config.getoption("--with"):
        return additions.on_top(found, requirements, config.getoption("--name"))
    return found


@pytest.fixture(scope="session")
def declared(pytestconfig: pytest.Config) -> "Inputs":
    """What the variant says that its image is: pins, locks, key, name."""
    from trainwright.image import child

    intent = _intent()
    return child.load(_recipe(pytestconfig, intent))


@pytest.fixture(scope="session")
def held(declared: "Inputs") -> list[str]:
    """Python packages that a job must not move: those of the framework, or of every component where there is none."""
    from trainwright.lock.lockfile import python_name

    recipe = declared.recipe
    packages = {pin: python_name(recipe, pin) for pin in recipe.pins}
    own = [packages[pin] for pin in packages if recipe.component(pin).position == "framework"]
    return sorted(filter(None, own)) or sorted(filter(None, packages.values()))


@pytest.fixture(scope="session")
def image(pytestconfig: pytest.Config, declared: "Inputs") -> str:
    """The name of the image under test, which the engine holds.

    The report of the tests says which it was and what it ran on: `trainwright record` reads that.
    """
    from trainwright.build import proof_code
    from trainwright.docker import engine

    _need_engine()
    name = pytestconfig.getoption("--image") or declared.name
    if engine.image_id(name) is None and "@sha256:" in name:
        engine.client().images.pull(name)
    if engine.image_id(name) is None:
        pytest.skip(f"{NOT_RUN}the engine holds no image {name}; trainwright build {declared.variant.id}")
    says = engine.client().images.get(name).labels.get("io.trainwright.id")
    if says != declared.variant.id:
        raise pytest.UsageError(f"{name} calls itself {says}, not {declared.variant.id}: say --variant {says}")
    host = {"architecture": platform.machine(), "cpus": os.cpu_count(), "engine": engine.facts()["version"]}
    recipe = declared.recipe
    code = {f"code-{kind}": proof_code.digest_of(recipe, kind) for kind in proof_code.kinds(recipe)}
    pytestconfig.stash[ABOUT] = list({"name": name, "image": engine.image_id(name), **host, **code}.items())
    return str(name)


def pytest_runtest_teardown(item: pytest.Item) -> None:
    """Into the report of each test: a property of the whole one is lost where several processes share the tests."""
    if "image" in getattr(item, "fixturenames", ()):
        about = item.config.stash.get(ABOUT, None)
        item.user_properties += about or []


# --- the container -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def container(image: str) -> Iterator[Any]:
    """One container for all tests of an image. It has no network: nothing that a test sees was fetched just now."""
    from trainwright.docker import engine

    # Without this, SIGTERM would end pytest before anything is put away.
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    options = {
        "command": ["sleep", "infinity"],
        "init": True,  # reaps what mpirun and sshd leave behind
        "network_mode": "none",
        "hostname": "algo-1",
        "extra_hosts": {"algo-1": "127.0.0.1"},  # as on SageMaker, a host can resolve its own name
        "labels": {TEST_LABEL: "image"},
    }
    try:
        with engine.container(image, **options) as running:
            yield running
    finally:
        signal.signal(signal.SIGTERM, before)


@pytest.fixture(scope="session")
def host(container: Any) -> Iterator[Any]:
    """The container as testinfra sees it."""
    import inside

    with inside.host(container.id) as running:
        yield running


def tar_of(files: Mapping[str, bytes]) -> bytes:
    """A tar archive of path to content, executable: the engine takes files in no other way."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for path, content in files.items():
            entry = tarfile.TarInfo(path.lstrip("/"))
            entry.size, entry.mode = len(content), 0o755
            archive.addfile(entry, io.BytesIO(content))
    return packed.getvalue()


@pytest.fixture(scope="session")
def pack() -> Callable[[Mapping[str, bytes]], bytes]:
    return tar_of
