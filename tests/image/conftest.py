"""What image tests share: the expectations that are data, our programs inside the container, and the layers."""

import tempfile
import tomllib
from collections.abc import Callable, Generator, Mapping
from pathlib import Path
from typing import Any

import pytest
from saved import Saved, kinds, read

from trainwright.build import kept
from trainwright.docker import engine
from trainwright.image.inputs import Inputs
from trainwright.matrix.instances import architectures
from trainwright.matrix.matrix import Intent, load_intent

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "long(seconds): takes so long with its group, roughly; the longest begin first")


@pytest.hookimpl(tryfirst=True)  # before xdist looks for groups, or it finds none of these
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "saved" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("layers"))  # one process reads them, once
            item.add_marker(pytest.mark.long(seconds=10))
    items.sort(key=_seconds, reverse=True)  # so that the processes end at about the same time


def _seconds(item: pytest.Item) -> float:
    mark = item.get_closest_marker("long")
    return float(mark.kwargs["seconds"]) if mark else 0


# --- outcomes that are kept: --kept is the digest of all that they depend on, computed by build/image_tests.py --------

CHECK = "image-test"
FOUND = pytest.StashKey[kept.Kept]()
PASSED = pytest.StashKey[list[str]]()  # the phases of a test that passed just now
OWN = pytest.StashKey[list[Any]]()  # what the test itself has measured


def _on(item: pytest.Item) -> dict[str, str]:
    return {"on": item.config.getoption("--kept"), "test": item.nodeid}


def pytest_runtest_setup(item: pytest.Item) -> None:
    """A test that passed with the same digest is not run again: it starts nothing and reads nothing."""
    if not item.config.getoption("--kept") or not isinstance(item, pytest.Function):
        return
    if found := kept.find(CHECK, _on(item)):
        item.stash[FOUND] = found
        item.fixturenames = ["image"] if "image" in item.fixturenames else []
        item.user_properties += [(name, value) for name, value in found.outcome] + [("kept", found.when)]


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    return True if FOUND in pyfuncitem.stash else None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    passed = item.stash.setdefault(PASSED, [])
    if report.passed and not hasattr(report, "wasxfail"):
        passed.append(str(report.when))
    if report.when == "call":
        item.stash[OWN] = list(item.user_properties)
    if passed == ["setup", "call", "teardown"] and item.config.getoption("--kept") and FOUND not in item.stash:
        kept.keep(CHECK, _on(item), item.stash[OWN])
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    passed = [dict(report.user_properties) for report in terminalreporter.stats.get("passed", [])]
    if when := sorted(str(row["kept"]) for row in passed if "kept" in row):
        said = f"KEPT: {len(when)} of {len(passed)} outcomes, from {when[0]} to {when[-1]}"
        terminalreporter.write_line(f"{said}: image, tests, code, data, tools and kind of host are the same")


# --- what image tests share ------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def expected(declared: Inputs) -> dict[str, Any]:
    """expected.toml: what an image may and may not hold, each line with its reason."""
    text = (HERE / "expected.toml").read_text()
    data: dict[str, Any] = tomllib.loads(
        text.replace("{site}", f"opt/venv/lib/python{declared.variant.python}/site-packages")
    )
    return data


@pytest.fixture(scope="session")
def derived(pytestconfig: pytest.Config) -> bool:
    """Whether the image under test is built on top of that of the variant."""
    return bool(pytestconfig.getoption("--derived"))


@pytest.fixture(scope="session")
def config(image: str) -> dict[str, Any]:
    """The image's configuration, as a container gets it."""
    found: dict[str, Any] = engine.client().images.get(image).attrs["Config"]
    return found


@pytest.fixture(scope="session")
def intent() -> Intent:
    """The intent of this very checkout, read once."""
    return load_intent(ROOT)


@pytest.fixture(scope="session")
def fleet(intent: Intent, declared: Inputs) -> list[str]:
    """Architectures of the GPUs that this variant is for, as compilers count them: 80, 90. None: wherever it runs."""
    return architectures(declared.variant.instances, intent.instances)


@pytest.fixture(scope="session")
def lacking(fleet: list[str]) -> Callable[[list[str]], list[str]]:
    """Which of these GPUs cannot run machine code built for others: it runs from its own minor number upwards."""

    def without(built: list[str]) -> list[str]:
        assert built, "the search has lost its object"
        return [own for own in fleet if not any(own[:-1] == code[:-1] and own[-1] >= code[-1] for code in built)]

    return without


@pytest.fixture(scope="session")
def nccl_number(declared: Inputs) -> int:
    """The pinned NCCL as it counts itself: 2.30.7 is 23007."""
    major, minor, patch = map(int, declared.pins["nccl"].split("."))
    return major * 10000 + minor * 100 + patch


@pytest.fixture(scope="session")
def programs(container: Any, pack: Callable[[Mapping[str, bytes]], bytes]) -> str:
    """The folder in the container where programs/ lies."""
    files = {f"programs/{path.name}": path.read_bytes() for path in (HERE / "programs").iterdir() if path.is_file()}
    container.put_archive("/", pack(files))
    return "/programs"


@pytest.fixture(scope="session")
def saved(image: str, expected: dict[str, Any], derived: bool) -> Saved:
    """All layers, each read once: what a later layer hides is still in the image."""
    with tempfile.TemporaryDirectory(prefix="trainwright-layers-") as folder:
        layout = Path(folder, "layout")
        save = engine.save_as_it_is if derived else engine.save  # ours ships packed, another one as the engine has it
        save(image, layout)
        return read(layout, kinds(expected["secrets"]), kinds(expected["secrets_in_words"]))
