"""A registry of the tests' own, and a proxy before it that misbehaves on request."""

import shutil
import socket
import subprocess
import time
from collections.abc import Iterator

import pytest
from faults import Flaky, before

CONFIG = """\
version: 0.1
log: {{level: error, accesslog: {{disabled: true}}}}
storage: {{filesystem: {{rootdirectory: {data}}}, delete: {{enabled: true}}}}
http: {{addr: "127.0.0.1:{port}"}}
"""


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


@pytest.fixture(scope="session")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """host:port of the distribution's docker-registry, empty at first."""
    if not shutil.which("docker-registry"):
        pytest.skip("not run: docker-registry is not installed; make engine")
    folder, port = tmp_path_factory.mktemp("registry"), free_port()
    (folder / "config.yml").write_text(CONFIG.format(data=folder / "data", port=port))
    server = subprocess.Popen(["docker-registry", "serve", folder / "config.yml"], stderr=subprocess.DEVNULL)
    wait_for(port)
    yield f"127.0.0.1:{port}"
    server.terminate()
    server.wait()


@pytest.fixture
def flaky(registry: str) -> Iterator[Flaky]:
    """The registry behind a proxy, and its faults."""
    with before(registry) as proxy:
        yield proxy
