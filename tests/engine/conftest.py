"""A registry of the tests' own, and a proxy before it that misbehaves on request."""

import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from engines import REGISTRY
from faults import FIRED, Flaky, before


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for(port: int) -> None:
    for _ in range(100):
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.05)
    raise TimeoutError(f"nothing listens on port {port}")


@contextmanager
def serving(folder: Path) -> Iterator[str]:
    """host:port of the distribution's docker-registry with its data in a folder."""
    if not shutil.which("docker-registry"):
        pytest.skip("not run: docker-registry is not installed; make engine")
    port = free_port()
    (folder / "config.yml").write_text(REGISTRY.format(data=folder / "data", port=port))
    server = subprocess.Popen(["docker-registry", "serve", folder / "config.yml"], stderr=subprocess.DEVNULL)
    try:
        wait_for(port)
        yield f"127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait()


@pytest.fixture(scope="session")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A registry for all tests of a run, empty at first."""
    with serving(tmp_path_factory.mktemp("registry")) as address:
        yield address


@pytest.fixture
def a_registry() -> Iterator[Callable[[Path], str]]:
    """Further registries, each in a folder of its own."""
    with ExitStack() as stack:
        yield lambda folder: stack.enter_context(serving(folder))


@pytest.fixture
def flaky(registry: str) -> Iterator[Flaky]:
    """The registry behind a proxy, and its faults."""
    with before(registry) as proxy:
        yield proxy


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A worker of xdist tells the process that started it."""
    if FIRED.seeds and hasattr(session.config, "workeroutput"):
        session.config.workeroutput["faults"] = [sorted(FIRED.seeds), dict(FIRED.kinds)]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    if told := getattr(node, "workeroutput", {}).get("faults"):
        FIRED.add(*told)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if FIRED.seeds:
        terminalreporter.write_line(str(FIRED))
