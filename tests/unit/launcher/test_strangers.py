"""Who is no host of the job, or cannot prove that it is one: sent away, noted once, and nobody waits for it."""

import json
import os
import socket
import time
from contextlib import suppress
from typing import Any

import links
import pytest
import trust
from errors import LauncherError
from meetings import HOSTS, MAIN, SECOND, SECRET, THIRD, Cluster, secret, world

BAD: list[dict[str, Any]] = [{"nonce": 1}, {"job": []}]


def test_strangers_hold_up_nobody(start: Any, settings: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    main = start(MAIN, secret(), greeting_seconds=300)
    time.sleep(0.2)
    strangers = []
    port = settings["watch_port"]
    said = [b"", b"GET / HTTP/1.1\r\n\r\n", os.urandom(3000), b"x" * 100_000, b"- {}\n", b'- {"kind":"failed"}\n']
    hello = {"hello": "trainwright", "version": 1, "job": "job", "nonce": "0" * 64, "secret": True}
    said += [f"- {json.dumps({**hello, 'host': host})}\n".encode() for host in ("algo-7", MAIN, SECOND)]
    said += [b"- " + json.dumps({**hello, "host": SECOND, **bad}).encode() + b"\n" for bad in BAD]
    for data in said:
        sock = socket.create_connection((MAIN, port))
        with suppress(OSError):
            sock.sendall(data)
        strangers.append(sock)  # and stays: half of them say nothing more
    for _ in range(20):
        socket.create_connection((MAIN, port)).close()  # a scanner
    others = [start(host, secret()) for host in HOSTS[1:]]
    assert all(len(future.result(60).cards) == 3 for future in [main, *others])
    for sock in strangers:
        sock.close()
    lines = [line for line in capsys.readouterr().err.splitlines() if "not let in" in line]
    assert len(lines) == len(set(lines))
    assert any("algo-7 is no host of this job" in line for line in lines)


def test_more_silent_connections_than_are_kept(start: Any, settings: dict[str, Any]) -> None:
    main = start(MAIN, greeting_seconds=30)
    time.sleep(0.2)
    crowd = [socket.create_connection((MAIN, settings["watch_port"])) for _ in range(60)]
    for sock in crowd[: 60 - settings["strangers"]]:
        sock.settimeout(5)
        assert sock.recv(1) == b""  # the oldest had to go
    others = [start(host) for host in HOSTS[1:]]
    assert all(future.result(60) for future in [main, *others])
    for sock in crowd:
        sock.close()


def test_a_second_connection_of_a_host_that_is_in(start: Any, settings: dict[str, Any], capsys: Any) -> None:
    main, second = start(MAIN, secret()), start(SECOND, secret())
    time.sleep(0.7)
    with pytest.raises(trust.Refused, match="taken"):
        links.call(secret(), "job", MAIN, SECOND, settings["watch_port"], 1, 4096)
    assert all(future.result(60) for future in (main, second, start(THIRD, secret())))
    assert f"somebody else came as {SECOND}" in capsys.readouterr().err


def test_after_all_met_nobody_can_come(cluster: Cluster, settings: dict[str, Any]) -> None:
    cluster()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((MAIN, settings["watch_port"]))


@pytest.mark.parametrize(
    ("ours", "theirs", "here", "there"),
    [
        (SECRET, "f" + SECRET[1:], f"the secret of this host is not the one of {MAIN}", f"secret of {SECOND} is not"),
        (None, SECRET, f"{MAIN} has a job secret, and this host has none", f"{SECOND} has no job secret"),
        (SECRET, None, f"this host has a job secret, and {MAIN} has none", f"{SECOND} has a job secret"),
    ],
)
def test_hosts_that_do_not_have_the_same_secret(
    ours: str | None, theirs: str | None, here: str, there: str, start: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    hosts = (MAIN, SECOND)
    keys = [trust.take({trust.VARIABLE: key} if key else {}) for key in (theirs, ours)]
    main, second = (
        start(host, key, world=world(host, hosts), join_seconds=1.5) for host, key in zip(hosts, keys, strict=True)
    )
    with pytest.raises(LauncherError) as failed:
        second.result(60)
    assert failed.value.what == here
    assert trust.VARIABLE in failed.value.fix
    with pytest.raises(LauncherError) as failed:
        main.result(60)
    assert "did not come within" in failed.value.what  # who has another address is not believed that it is this host
    assert there in failed.value.why
    assert there in capsys.readouterr().err


def test_a_host_that_says_itself_that_it_has_no_secret_is_not_waited_for(start: Any) -> None:
    hosts = (MAIN, "localhost", THIRD)  # the second one is at the address that its connections come from
    main, second, third = (
        start(host, secret() if host != "localhost" else None, world=world(host, hosts)) for host in hosts
    )
    with pytest.raises(LauncherError, match="localhost has no job secret"):
        main.result(60)
    for future in (second, third):
        with pytest.raises(LauncherError):
            future.result(60)


def test_another_job_at_the_address_is_waited_out(start: Any, capsys: pytest.CaptureFixture[str]) -> None:
    hosts = (MAIN, SECOND)
    main = start(MAIN, world=world(MAIN, hosts, "old"), join_seconds=1)
    second = start(SECOND, world=world(SECOND, hosts, "new"))
    with pytest.raises(LauncherError):
        main.result(60)
    assert start(MAIN, world=world(MAIN, hosts, "new")).result(60)
    assert second.result(60)
    assert f"{MAIN} runs another job" in capsys.readouterr().err
