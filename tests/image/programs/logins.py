"""Logins for mpirun, with the real sshd and ssh on loopback: who has the key gets one command, nobody else anything.

tests/image/test_openssh.py runs this in a container of the image: its launcher, its OpenSSH, as root.
"""

import re
import shlex
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

sys.path.insert(0, "/opt/trainwright/launcher")

import ssh
from errors import LauncherError
from worlds import World

MAIN, WORKER = "127.0.0.1", "127.0.0.2"
WORLD = World("test", "job", (MAIN, WORKER), MAIN, 1, "lo")
KEY = "ssh-ed25519 " + "A" * 68


def free_port() -> int:
    with socket.create_server(("", 0)) as server:
        port: int = server.getsockname()[1]
    return port


def meeting(host: str, settings: dict[str, Any], cards: dict[str, Any]) -> Any:
    return SimpleNamespace(world=replace(WORLD, host=host), settings=settings, cards=cards, ends="")


@pytest.fixture
def settings() -> dict[str, Any]:
    return {
        "ssh_port": free_port(),
        "ssh_seconds": 10,
        "ssh_connect_seconds": 5,
        "ssh_silent_times": 3,
        "ssh_asked_at_once": 4,
        "program_seconds": 30,
        "retry_seconds": 0.02,
        "silent_seconds": 20,
        "strangers": 64,
    }


@pytest.fixture
def keys(settings: dict[str, Any]) -> Iterator[Callable[[], ssh.Keys]]:
    made: list[ssh.Keys] = []

    def one() -> ssh.Keys:
        made.append(ssh.make_keys(settings))
        return made[-1]

    yield one
    for each in made:
        ssh.remove(each)
        assert not each.folder.exists()


@pytest.fixture
def serving() -> Iterator[list[subprocess.Popen[bytes]]]:
    servers: list[subprocess.Popen[bytes]] = []
    yield servers
    for server in servers:
        server.terminate()
        server.wait(10)


@pytest.fixture
def pair(settings: dict[str, Any], keys: Any, serving: Any, tmp_path: Path) -> tuple[list[str], ssh.Keys, ssh.Keys]:
    """A worker that serves; the first host's command, and both hosts' keys."""
    main, worker = keys(), keys()
    cards = {MAIN: {ssh.CARD: main.public}, WORKER: {ssh.CARD: worker.public}}
    environ = {"PATH": "/opt/venv/bin:/usr/bin:/bin", "SM_HPS": '{"a": "it\'s"}\n$(touch /tmp/x) `x`', "odd%name": "1"}
    with (tmp_path / "log").open("wb") as log:
        serving.append(ssh.serve(worker, meeting(WORKER, settings, cards), environ, log))
    return shlex.split(ssh.agent(main, meeting(MAIN, settings, cards))), main, worker


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, capture_output=True, text=True, timeout=30, stdin=subprocess.DEVNULL)


def test_keys_are_private_and_new_every_time(keys: Any) -> None:
    one, other = keys(), keys()
    assert one.public != other.public
    assert stat.S_IMODE(one.folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((one.folder / "key").stat().st_mode) == 0o600
    assert "trainwright" not in one.public  # nothing of the host, either


def test_the_first_host_gets_in_and_has_the_workers_environment(pair: Any) -> None:
    command, _, _ = pair
    done = run(*command, WORKER, 'echo "$PATH"; echo "$SM_HPS"; env | grep -c "^SSH_CONNECTION"; exit 7')
    assert done.returncode == 7
    assert done.stdout == '/opt/venv/bin:/usr/bin:/bin\n{"a": "it\'s"}\n$(touch /tmp/x) `x`\n0\n'
    assert done.stderr == ""


def test_nothing_but_a_command_can_be_had(pair: Any, settings: dict[str, Any]) -> None:
    command, _, _ = pair
    forward = ["-o", "ClearAllForwardings=no", "-o", "ExitOnForwardFailure=yes", "-N"]
    for words in ([*forward, "-R", "0:127.0.0.1:1"], ["-o", "ClearAllForwardings=no", "-W", "127.0.0.1:22"]):
        done = run("timeout", "5", *command, *words, WORKER)
        assert done.returncode not in (0, 124)
    assert "PTY allocation request failed" in run(*command, "-tt", WORKER, "tty").stderr


@pytest.mark.parametrize(
    "how",
    [
        ["-o", "PreferredAuthentications=password,keyboard-interactive", "-o", "BatchMode=no"],
        ["-o", "PreferredAuthentications=none"],
        ["-o", "PreferredAuthentications=hostbased,gssapi-with-mic"],
    ],
)
def test_without_the_key_nobody_gets_in(pair: Any, how: list[str]) -> None:
    command, _, _ = pair
    done = run(*command[:1], *how, *command[1:], WORKER, "true")
    assert done.returncode == 255
    assert "Permission denied (publickey)" in done.stderr


def test_another_key_does_not_open(pair: Any, keys: Any) -> None:
    """An outsider with the same image makes its own; and the worker's own key opens nothing, either."""
    command, main, worker = pair
    for other in (keys(), worker):
        for name in ("config", "known_hosts"):
            text = (main.folder / name).read_text().replace(str(main.folder), str(other.folder))
            (other.folder / name).write_text(text)
        done = run(command[0], "-F", str(other.folder / "config"), WORKER, "true")
        assert done.returncode == 255
        assert "Permission denied" in done.stderr


def test_another_user_does_not_get_in(pair: Any) -> None:
    command, _, _ = pair
    done = run(*command, "-l", "nobody", WORKER, "true")
    assert done.returncode == 255
    assert "Permission denied" in done.stderr


def test_another_host_at_the_address_is_not_logged_in_to(pair: Any, keys: Any) -> None:
    command, main, worker = pair
    known = (main.folder / "known_hosts").read_text()
    (main.folder / "known_hosts").write_text(known.replace(worker.public, keys().public))
    done = run(*command, WORKER, "true")
    assert done.returncode == 255
    assert "Host key verification failed" in done.stderr
    (main.folder / "known_hosts").write_text("")
    assert "No ED25519 host key is known" in run(*command, WORKER, "true").stderr


def test_refusals_are_in_the_log(pair: Any, tmp_path: Path) -> None:
    command, _, _ = pair
    run(*command, "-o", "PreferredAuthentications=password", WORKER, "true")
    run(*command, "-l", "nobody", WORKER, "true")
    said, end = "", time.monotonic() + 10
    while said.count("[preauth]") < 2 and time.monotonic() < end:
        time.sleep(0.02)
        said = (tmp_path / "log").read_text()
    assert "Connection closed by authenticating user root" in said
    assert re.search("User nobody (from 127.0.0.1 )?not allowed", said)  # no login shell in Debian 13: other words


def test_a_worker_that_does_not_serve_is_named(settings: dict[str, Any], keys: Any) -> None:
    main = keys()
    hasty = {**settings, "ssh_seconds": 0.2}
    cards = {MAIN: {ssh.CARD: main.public}, WORKER: {ssh.CARD: KEY}}
    with pytest.raises(LauncherError, match=r"mpirun cannot log in to all workers within 0\.2 s") as failed:
        ssh.agent(main, meeting(MAIN, hasty, cards))
    assert f"{WORKER}: " in failed.value.why
    assert "Connection refused" in failed.value.why


def test_a_worker_that_failed_is_not_waited_for(settings: dict[str, Any], keys: Any) -> None:
    main = keys()
    cards = {MAIN: {ssh.CARD: main.public}, WORKER: {ssh.CARD: KEY}}
    ended = meeting(MAIN, {**settings, "ssh_seconds": 3600}, cards)
    ended.ends = f"{WORKER}: no memory"
    with pytest.raises(LauncherError) as failed:
        ssh.agent(main, ended)
    assert "no memory" in failed.value.why


def test_a_port_that_is_in_use_is_said(settings: dict[str, Any], keys: Any) -> None:
    worker = keys()
    with (
        socket.create_server(("", settings["ssh_port"])),
        pytest.raises(LauncherError, match="cannot be opened for sshd"),
    ):
        ssh.serve(worker, meeting(WORKER, settings, {MAIN: {ssh.CARD: KEY}}), {})


def test_a_crowd_of_strangers_does_not_shut_the_first_host_out(pair: Any, settings: dict[str, Any]) -> None:
    command, _, _ = pair
    crowd = [socket.create_connection((WORKER, settings["ssh_port"])) for _ in range(30)]
    assert run(*command, WORKER, "true").returncode == 0
    for sock in crowd:
        sock.close()
