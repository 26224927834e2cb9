"""Test connections from outside the job: each is rejected and noted once, and delays no host."""

import json
import os
import socket
import struct
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import links
import pytest
import trust
from errors import LauncherError
from meetings import HOSTS, MAIN, SECOND, SECRET, THIRD, Cluster, answering, on_the_way, secret, verdicts, world

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
    lines = [line for line in capsys.readouterr().err.splitlines() if "connection from" in line]
    assert len(lines) == len(set(lines))
    assert any("algo-7 is not a host of this job" in line for line in lines)


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
    assert f"{SECOND} has already joined from another connection" in capsys.readouterr().err


def test_after_all_met_nobody_can_come(cluster: Cluster, settings: dict[str, Any]) -> None:
    cluster()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((MAIN, settings["watch_port"]))


@pytest.mark.parametrize(
    ("ours", "theirs", "here", "there"),
    [
        (
            SECRET,
            "f" + SECRET[1:],
            f"this host and {MAIN} have different job secrets",
            f"{SECOND} and this host have different",
        ),
        (None, SECRET, f"{MAIN} has a job secret, but this host has none", f"{SECOND} has no job secret"),
        (SECRET, None, f"this host has a job secret, but {MAIN} has none", f"{SECOND} has a job secret"),
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
    assert "did not join within" in failed.value.what  # who has another address is not believed that it is this host
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


# --- who says a little at a time, or leaves at once -------------------------------------------------------------------


def test_who_says_a_byte_now_and_then_does_not_stay(start: Any, settings: dict[str, Any]) -> None:
    """The limit is for the whole greeting: each byte does not start it anew."""
    main = start(MAIN, secret())
    time.sleep(0.2)
    with socket.create_connection((MAIN, settings["watch_port"])) as sock, suppress(ConnectionError):
        while True:  # until it is sent away
            sock.sendall(b"-")
            time.sleep(0.05)
    assert all(future.result(60) for future in [main, *(start(host, secret()) for host in HOSTS[1:])])


def test_who_resets_or_half_closes_in_the_middle_holds_up_nobody(start: Any, settings: dict[str, Any]) -> None:
    main = start(MAIN, secret(), greeting_seconds=300)
    time.sleep(0.2)
    halves = []
    for number in range(100):
        sock = socket.create_connection((MAIN, settings["watch_port"]))
        sock.sendall(b'- {"hello":"trainwright",'[: number % 25])
        if number % 2:
            sock.shutdown(socket.SHUT_WR)
            halves.append(sock)
        else:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # closed by a reset
            sock.close()
    for sock in halves:  # none keeps a place: the main host closes its end, too
        sock.settimeout(30)
        assert not sock.recv(1)
        sock.close()
    assert all(future.result(60) for future in [main, *(start(host, secret()) for host in HOSTS[1:])])


def test_all_that_a_member_would_say_sent_at_once(start: Any, settings: dict[str, Any]) -> None:
    """A greeting, a guess at the proof and an order to fail, before the main host has said its number."""
    main = start(MAIN, secret())
    time.sleep(0.2)
    hello = {"hello": "trainwright", "version": 1, "job": "job", "host": SECOND, "nonce": "0" * 64, "secret": True}
    said = [hello, {"proof": ""}, {"kind": "card", "card": {}}, {"kind": "failed", "code": 1, "cause": "stranger"}]
    with socket.create_connection((MAIN, settings["watch_port"])) as sock:
        sock.sendall(b"".join(b"- " + json.dumps(message).encode() + b"\n" for message in said))
        joined = [main, *(start(host, secret()) for host in HOSTS[1:])]
        assert [len(future.result(60).cards) for future in joined] == [3, 3, 3]
    assert all(not future.result().ends for future in joined)


# --- who sits on the way ----------------------------------------------------------------------------------------------


def test_what_a_member_said_before_lets_nobody_in_later(start: Any, settings: dict[str, Any], capsys: Any) -> None:
    heard = []

    def listen(line: bytes, back: bool) -> bytes:
        heard.extend([] if back else [line])
        return line

    main, port = start(MAIN, secret()), settings["watch_port"]
    time.sleep(0.2)
    with on_the_way(port, listen) as relayed:
        links.call(secret(), "job", MAIN, SECOND, relayed, 5, 4096).sock.close()
    assert len(heard) == 2  # its greeting and its proof
    with socket.create_connection((MAIN, port)) as sock:
        sock.sendall(b"".join(heard))
        while sock.recv(1 << 16):  # until it is sent away
            pass
    assert all(future.result(60) for future in [main, *(start(host, secret()) for host in HOSTS[1:])])
    assert f"{SECOND} and this host have different job secrets" in capsys.readouterr().err


FORGED = b'- {"kind":"stop","host":"127.0.0.1","code":0,"cause":"forged"}\n'
CHANGES: dict[str, Callable[[bytes], bytes]] = {
    "twice": lambda line: line + line,
    "not at all": lambda _: b"",
    "with another after it": lambda line: line + FORGED,
    "with a bit turned": lambda line: line[:70] + bytes([line[70] ^ 1]) + line[71:],
    "as text without an end": lambda line: line.rstrip(b"\n") + b"x" * (2 << 20),
}


@pytest.mark.parametrize("how", CHANGES)
@pytest.mark.parametrize("from_main", [True, False], ids=["to a member", "to the main host"])
def test_a_message_that_is_changed_on_the_way_is_a_lost_host(
    how: str, from_main: bool, start: Any, settings: dict[str, Any]
) -> None:
    """And never one of which somebody on the way decides what it says."""
    changing = threading.Event()

    def change(line: bytes, back: bool) -> bytes:
        return CHANGES[how](line) if changing.is_set() and back == from_main and len(line) > 70 else line

    hosts = (MAIN, SECOND)
    with on_the_way(settings["watch_port"], change) as relayed:
        joining = [
            start(MAIN, secret(), world=world(MAIN, hosts)),
            start(SECOND, secret(), world=world(SECOND, hosts), watch_port=relayed),
        ]
        met = [future.result(60) for future in joining]
        changing.set()  # from here on they send heartbeats alone
        ends = verdicts(met)
    assert [event.kind if event else "none" for event in ends] == ["lost", "lost"]
    assert not any("forged" in event.cause for event in ends if event)


# --- who answers as the main host -------------------------------------------------------------------------------------


def echo(sock: socket.socket) -> None:
    while data := sock.recv(1 << 16):
        sock.sendall(data)


def said(data: bytes) -> Callable[[socket.socket], None]:
    def answer(sock: socket.socket) -> None:
        sock.recv(1 << 16)
        sock.sendall(data)
        sock.recv(1 << 16)

    return answer


def without_end(sock: socket.socket) -> None:
    while True:
        sock.sendall(b"x" * (1 << 16))


NUMBERS = b'{"nonce":"' + b"0" * 64 + b'","secret":true}'
FALSE_MAIN_HOSTS: dict[str, Callable[[socket.socket], None]] = {
    "it echoes": echo,
    "a line without end": without_end,
    "nothing": lambda _: time.sleep(60),
    "the end, at once": lambda _: None,
    "nested": said(b"- " + b"[" * 4000 + b"\n"),
    "a number of 4,000 digits": said(b'- {"nonce":' + b"9" * 4000 + b',"secret":true}\n'),
    "not a number": said(b'- {"nonce":NaN,"secret":true}\n'),
    "a refusal that steers a terminal": said(b'- {"refused":"\\u001b]52;c;AAAA\\u0007"}\n'),
    "a refusal that is none": said(b'- {"refused":["secret"]}\n'),
    "that it has no secret": said(b'- {"nonce":"' + b"0" * 64 + b'","secret":false}\n'),
    "numbers, and no proof": said(b"- " + NUMBERS + b'\n- {"proof":""}\n'),
    "numbers, and the proof in another alphabet": said(b"- " + NUMBERS + b'\n- {"proof":"\\u0660\\ud800"}\n'),
    "two keys of one name": said(b'- {"secret":true,"nonce":"","nonce":"' + b"0" * 64 + b'"}\n- {"proof":"00"}\n'),
}


@pytest.mark.parametrize("what", FALSE_MAIN_HOSTS)
def test_no_member_goes_on_with_who_only_says_that_it_is_the_main_host(what: str) -> None:
    with (
        answering(FALSE_MAIN_HOSTS[what]) as port,
        pytest.raises((links.Unreached, trust.Refused)) as ended,
    ):
        links.call(secret(), "job", MAIN, SECOND, port, 2, 4096)
    assert str(ended.value).isprintable()
