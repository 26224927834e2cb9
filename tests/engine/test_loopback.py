"""Test `trainwright registry`, with its own port and folder, as people and `make push` use it."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest

from trainwright.build import loopback
from trainwright.core import host_settings
from trainwright.docker import engine

ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.engine, pytest.mark.registry]

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def command(tmp_path: Path, port: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    monkeypatch.setenv("TRAINWRIGHT_REGISTRY_DATA", str(tmp_path / "data"))

    def run(word: str, at: int | str = port, *more: str) -> subprocess.CompletedProcess[str]:
        program = [str(Path(sys.executable).with_name("trainwright")), "registry", word, *more]
        env = os.environ | {"TRAINWRIGHT_REGISTRY_PORT": str(at)}
        return subprocess.run(program, cwd=ROOT, env=env, capture_output=True, text=True, timeout=120)

    yield run
    run("down")


def answers(port: int) -> bool:
    try:
        with urlopen(f"http://127.0.0.1:{port}/v2/", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def container() -> str:
    found = loopback._container(host_settings.registry_data())
    return str(found.id) if found else ""


def test_up_prints_the_address_of_one_that_answers_and_again_of_the_same(
    command: Run, tmp_path: Path, port: int
) -> None:
    up = command("up")
    assert (up.returncode, up.stdout) == (0, f"127.0.0.1:{port}\n"), up.stderr
    assert answers(port)
    first, again = container(), command("up")
    assert (again.returncode, again.stdout, again.stderr) == (0, f"127.0.0.1:{port}\n", "")
    assert container() == first != ""
    status = command("status")
    assert f"127.0.0.1:{port}, container trainwright-registry-" in status.stdout
    assert f"data      {tmp_path}/data" in status.stdout
    said = json.loads(command("status", port, "--json").stdout)
    assert (said["running"], said["address"], said["data"]) == (True, f"127.0.0.1:{port}", f"{tmp_path}/data")
    assert said["bytes"] >= len(str(port))  # of the file that remembers the port


def test_it_runs_as_the_user_and_nobody_else_reaches_it(command: Run, tmp_path: Path, port: int) -> None:
    command("up")
    found = engine.client().containers.get(container()).attrs
    rootless = any("rootless" in word for word in engine.client().info()["SecurityOptions"])
    assert found["Config"]["User"] == ("0:0" if rootless else f"{os.getuid()}:{os.getgid()}")  # which is the user there
    assert found["HostConfig"]["PortBindings"] == {"5000/tcp": [{"HostIp": "127.0.0.1", "HostPort": str(port)}]}
    with urlopen(f"http://127.0.0.1:{port}/v2/a/blobs/uploads/", data=b"") as answer:  # its data are the user's
        assert answer.status == 202
    written = [path for path in (tmp_path / "data").rglob("*") if path.name != "port"]
    assert {path.stat().st_uid for path in written} == {os.getuid()}


def test_a_strangers_port_is_refused_where_it_was_asked_for(command: Run, port: int) -> None:
    """Whatever listens there, `up` would take it for the registry that it just started."""
    with socket.create_server(("127.0.0.1", port)):
        up, status = command("up"), command("status").stdout
    assert (up.returncode, up.stdout) == (10, "")
    assert f"port {port} on 127.0.0.1 is in use" in up.stderr
    assert f"TRAINWRIGHT_REGISTRY_PORT={port + 1}" in up.stderr
    assert f"not running; port {port} is in use by" in status


def test_without_a_port_the_next_free_one_is_taken_and_remembered(
    command: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TRAINWRIGHT_REGISTRY_PORT", raising=False)
    taken = host_settings.host(ROOT).registry.port
    (tmp_path / "data").mkdir()
    up = None
    try:
        with socket.create_server(("127.0.0.1", taken)):
            up = command("up", "")
    except OSError:  # somebody else has it already: all the better
        up = command("up", "")
    assert up.returncode == 0, up.stderr
    assert up.stdout.strip() == host_settings.registry_address(ROOT) != f"127.0.0.1:{taken}"
    command("down", "")
    assert command("up", "").stdout == up.stdout  # though the first one may be free again: addresses of images name it


@pytest.mark.parametrize("given", ["abc", "50 00", "-1", "0", "65536", "123456789012345678901234567890"])
def test_what_is_no_port_is_a_usage_error(command: Run, given: str) -> None:
    up = command("up", given)
    assert (up.returncode, up.stdout) == (2, "")
    assert f"TRAINWRIGHT_REGISTRY_PORT='{given}' is not a port number" in up.stderr


def test_another_port_does_not_get_a_second_registry_on_the_same_data(command: Run, port: int) -> None:
    command("up")
    other = command("up", port + 1)
    assert (other.returncode, other.stdout) == (10, "")
    assert f"already runs at 127.0.0.1:{port}, not at 127.0.0.1:{port + 1}" in other.stderr
    assert "registry down" in other.stderr
    assert answers(port)


def test_down_stops_it_and_keeps_the_data(command: Run, tmp_path: Path, port: int) -> None:
    command("up")
    kept = tmp_path / "data/docker/registry/v2/kept"
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.touch()
    down = command("down")
    assert down.returncode == 0
    assert f"Its data stays in {tmp_path}/data" in down.stderr
    assert not answers(port)
    assert kept.exists()
    again = command("down")
    assert json.loads(command("down", port, "--json").stdout) == {"stopped": "", "data": f"{tmp_path}/data"}
    assert (again.returncode, "nothing to stop" in again.stderr) == (0, True)
    assert "not running; start it:  trainwright registry up" in command("status").stdout


def test_what_ended_with_its_engine_starts_again(command: Run, port: int) -> None:
    command("up")
    before = container()
    engine.client().containers.get(before).kill()
    assert command("up").stdout == f"127.0.0.1:{port}\n"
    assert container() not in ("", before)
