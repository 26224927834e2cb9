"""Provide registries for these tests, and a proxy in front of them that causes faults on request."""

import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from engines import registry_in
from faults import FIRED, Flaky, before
from pip_once import pip_asked_once
from striking import TRIED

MEANWHILE = 4  # files that need no image, while the first worker builds it: two for each of the other two


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def serving(folder: Path) -> Iterator[str]:
    """Serve a docker-registry with its data in a folder; yield host:port."""
    with registry_in(folder, free_port()) as address:
        yield address


@pytest.fixture(scope="session", autouse=True)
def _settings_of_pip() -> Iterator[None]:
    with pip_asked_once():
        yield


@pytest.fixture(scope="session")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Serve one registry for all tests of a run; it is empty at first."""
    with serving(tmp_path_factory.mktemp("registry")) as address:
        yield address


@pytest.fixture
def a_registry() -> Iterator[Callable[[Path], str]]:
    """Return a function that starts another registry, with its data in a folder."""
    with ExitStack() as stack:
        yield lambda folder: stack.enter_context(serving(folder))


@pytest.fixture
def flaky(registry: str) -> Iterator[Flaky]:
    """Put a proxy in front of the registry that causes faults on request."""
    with before(registry) as proxy:
        yield proxy


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put a file first that builds the image which files share; the others that need it come when it is there.

    With `--no-loadscope-reorder` workers take files in this order. No worker waits for that build. The last files are
    short, because one worker may run them alone.
    """
    files: dict[Path, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(item.path, []).append(item)
    longest = sorted(files.values(), key=len, reverse=True)
    needs = [tests for tests in longest if hasattr(getattr(tests[0], "module", None), "built_in_this_run")]
    needs.sort(key=lambda tests: "built" not in getattr(tests[0], "fixturenames", ()))  # by its first test, too
    others = [tests for tests in longest if tests not in needs]
    order = (*needs[:1], *others[:MEANWHILE], *needs[1:], *others[MEANWHILE:])
    items[:] = [item for tests in order for item in tests]


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Send the counts of faults and strikes from a worker of xdist to the process that started it."""
    if FIRED.seeds and hasattr(session.config, "workeroutput"):
        session.config.workeroutput["faults"] = [sorted(FIRED.seeds), dict(FIRED.kinds)]
    if TRIED and hasattr(session.config, "workeroutput"):
        session.config.workeroutput["strikes"] = [(*key, dict(counts)) for key, counts in TRIED.items()]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    if told := getattr(node, "workeroutput", {}).get("faults"):
        FIRED.add(*told)
    for command, attack, counts in getattr(node, "workeroutput", {}).get("strikes", []):
        TRIED[command, attack].update(counts)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if FIRED.seeds:
        terminalreporter.write_line(str(FIRED))
    if TRIED:
        terminalreporter.section("strikes")
    for (command, attack), counts in sorted(TRIED.items()):
        survived = counts["tried"] - counts["failed"]
        terminalreporter.write_line(f"{command:<14}{attack:<20} tried {counts['tried']:>4}  survived {survived:>4}")
