"""scripts/registry.sh, with a port and a folder of its own: what people and `make push` get from it."""

import os
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts/registry.sh"
pytestmark = pytest.mark.registry

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def script(tmp_path: Path, port: int) -> Iterator[Run]:
    if not shutil.which("docker-registry"):
        pytest.skip("not run: docker-registry is not installed; make engine")

    def run(command: str, at: int | str = port) -> subprocess.CompletedProcess[str]:
        own = {"TRAINWRIGHT_REGISTRY_PORT": str(at), "TRAINWRIGHT_REGISTRY_DATA": str(tmp_path / "data")}
        return subprocess.run([SCRIPT, command], env=os.environ | own, capture_output=True, text=True, timeout=60)

    yield run
    run("down")


def answers(port: int) -> bool:
    try:
        with urlopen(f"http://127.0.0.1:{port}/v2/", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def test_up_prints_the_address_of_one_that_answers(script: Run, port: int) -> None:
    up = script("up")
    assert (up.returncode, up.stdout) == (0, f"127.0.0.1:{port}\n")
    assert answers(port)


def test_up_again_is_the_same_one(script: Run, tmp_path: Path, port: int) -> None:
    script("up")
    pid = (tmp_path / "data/registry.pid").read_text()
    again = script("up")
    assert (again.returncode, again.stdout, again.stderr) == (0, f"127.0.0.1:{port}\n", "")
    assert (tmp_path / "data/registry.pid").read_text() == pid


def test_status_says_whether_it_runs_and_how_to_change_that(script: Run, tmp_path: Path, port: int) -> None:
    assert "not running; start it:  scripts/registry.sh up" in script("status").stdout
    script("up")
    status = script("status")
    assert status.returncode == 0
    assert f"127.0.0.1:{port}, pid {(tmp_path / 'data/registry.pid').read_text().strip()};" in status.stdout
    assert f"data      {tmp_path}/data" in status.stdout


def test_a_strangers_port_is_refused(script: Run, port: int) -> None:
    """Whatever listens there, `up` would take it for the registry that it just started."""
    with socket.create_server(("127.0.0.1", port)):
        up = script("up")
        status = script("status").stdout
    assert (up.returncode, up.stdout) == (10, "")
    assert f"port {port} on 127.0.0.1 is in use" in up.stderr
    assert f"TRAINWRIGHT_REGISTRY_PORT={port + 1}" in up.stderr
    assert f"ours is not running; port {port} is held by" in status


@pytest.mark.parametrize("given", ["abc", "50 00", "-1", "0", "65536", "123456789012345678901234567890"])
def test_what_is_no_port_is_a_usage_error(script: Run, given: str) -> None:
    up = script("up", given)
    assert (up.returncode, up.stdout) == (2, "")
    assert f"TRAINWRIGHT_REGISTRY_PORT='{given}' is not a port number" in up.stderr


def test_another_port_does_not_get_a_second_registry_on_the_same_data(script: Run, port: int) -> None:
    script("up")
    other = script("up", port + 1)
    assert (other.returncode, other.stdout) == (10, "")
    assert f"already runs at 127.0.0.1:{port}, not at 127.0.0.1:{port + 1}" in other.stderr
    assert "registry.sh down" in other.stderr
    assert answers(port)


def test_down_stops_it_and_keeps_the_data(script: Run, tmp_path: Path, port: int) -> None:
    script("up")
    kept = tmp_path / "data/docker/registry/v2/kept"
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.touch()
    down = script("down")
    assert down.returncode == 0
    assert f"Its data stays in {tmp_path}/data" in down.stderr
    assert not answers(port)
    assert kept.exists()


def test_down_again_has_nothing_to_stop(script: Run) -> None:
    script("up")
    script("down")
    again = script("down")
    assert again.returncode == 0
    assert "nothing to stop" in again.stderr


def test_a_pid_file_that_names_a_stranger_stops_nobody(script: Run, tmp_path: Path) -> None:
    """Pids are given anew after a reboot."""
    with subprocess.Popen(["sleep", "60"]) as stranger:
        (tmp_path / "data").mkdir()
        (tmp_path / "data/registry.pid").write_text(f"{stranger.pid}\n")
        assert "nothing to stop" in script("down").stderr
        assert stranger.poll() is None
        stranger.terminate()
