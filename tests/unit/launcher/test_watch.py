"""Hosts that wait for each other and hear why a job ends: real sockets, and real processes that are killed or stopped.

A host's name is an address of the loopback network here, so that names resolve as they would in a cluster.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import links
import pytest
import trust
import watch
from errors import LauncherError
from meeting import Alone, Event, Meeting
from worlds import World

LAUNCHER = Path(watch.__file__).parent
HOSTS = ("127.0.0.1", "127.0.0.2", "127.0.0.3")
MAIN, SECOND, THIRD = HOSTS
SECRET = "0123456789abcdef" * 4
BAD: list[dict[str, Any]] = [{"nonce": 1}, {"job": []}]
Cluster = Callable[..., list[Meeting]]


@pytest.fixture
def settings() -> dict[str, Any]:
    """The shape of settings.json, in a hurry, on a port that is free."""
    with socket.create_server(("", 0)) as server:
        port = server.getsockname()[1]
    return {
        "watch_port": port,
        "join_seconds": 20,
        "retry_seconds": 0.05,
        "report_seconds": 0.2,
        "greeting_seconds": 1,
        "heartbeat_seconds": 0.2,
        "silent_seconds": 2,
        "farewell_seconds": 2,
        "tell_seconds": 5,
        "greeting_bytes": 4096,
        "line_bytes": 1 << 20,
        "strangers": 8,
        "failure_characters": 64,
    }


def world(host: str, hosts: tuple[str, ...] = HOSTS, job: str = "job") -> World:
    return World("test", job, hosts, host, 1, "lo")


def secret() -> trust.Secret | None:
    return trust.take({trust.VARIABLE: SECRET})


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(16) as executor:
        yield executor


@pytest.fixture
def opened() -> Iterator[list[Meeting]]:
    meetings: list[Meeting] = []
    yield meetings
    closing = [threading.Thread(target=meeting.close) for meeting in meetings]
    for thread in closing:
        thread.start()
    for thread in closing:
        thread.join()
    left = [thread.name for thread in threading.enumerate() if thread.name.startswith("trainwright")]
    assert not left


@pytest.fixture
def start(pool: ThreadPoolExecutor, opened: list[Meeting], settings: dict[str, Any]) -> Callable[..., Future[Meeting]]:
    """A host joins, in a thread."""

    def one(host: str, key: trust.Secret | None = None, **changed: Any) -> Future[Meeting]:
        def enter() -> Meeting:
            where = changed.pop("world", world(host))
            meeting = watch.join(where, {**settings, **changed}, key, {"host": host})
            opened.append(meeting)
            return meeting

        return pool.submit(enter)

    return one


@pytest.fixture(params=["secret", "no secret"])
def cluster(request: pytest.FixtureRequest, start: Callable[..., Future[Meeting]]) -> Cluster:
    """All hosts, met; with a secret and without."""

    def met(hosts: tuple[str, ...] = HOSTS, **changed: Any) -> list[Meeting]:
        key = secret() if request.param == "secret" else None
        joining = [start(host, key, world=world(host, hosts), **changed) for host in hosts]
        return [future.result(20) for future in joining]

    return met


def verdicts(meetings: list[Meeting], seconds: float = 2) -> list[Event | None]:
    """The cause that each one heard; "ended" of others may come before it."""
    found = []
    for meeting in meetings:
        end = time.monotonic() + seconds
        while (event := meeting.heard(max(end - time.monotonic(), 0))) and event.kind == "ended":
            pass
        found.append(event)
    return found


# --- joining ---------------------------------------------------------------------------------------------------------


def test_all_hosts_see_what_all_show(cluster: Cluster) -> None:
    for meeting in cluster():
        assert meeting.cards == {host: {"host": host} for host in HOSTS}


def test_one_host_opens_no_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(socket, "socket")
    meeting = Alone()
    assert meeting.heard(0.01) is None
    meeting.say("stop")
    meeting.close()


@pytest.mark.parametrize("late", [MAIN, THIRD])
def test_who_is_late_is_waited_for(start: Any, late: str, capsys: pytest.CaptureFixture[str]) -> None:
    early = [start(host) for host in HOSTS if host != late]
    time.sleep(0.7)
    assert not any(future.done() for future in early)
    assert all(len(future.result(10).cards) == 3 for future in [*early, start(late)])
    said = [line for line in capsys.readouterr().err.splitlines() if f"waiting for {late}" in line]
    assert 1 <= len(said) <= 6  # every few tenths of a second here, not at every try


def test_a_name_that_comes_late_is_asked_for_again(
    start: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real, asked = socket.getaddrinfo, []

    def slow(host: str, *words: Any, **named: Any) -> Any:
        asked.append(host)
        if len(asked) <= 8:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return real(host, *words, **named)

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    hosts = (MAIN, SECOND)
    met = [start(host, world=world(host, hosts)) for host in hosts]
    assert all(len(future.result(10).cards) == 2 for future in met)
    assert len(asked) > 8
    assert "no such name" in capsys.readouterr().err


def test_a_resolver_that_hangs_ends_with_our_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    free = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: free.wait(10))
    begun = time.monotonic()
    with pytest.raises(links.Unreached, match="DNS does not answer"):
        links.connect("algo-1", 1, 0.2)
    assert time.monotonic() - begun < 2
    free.set()


def test_who_did_not_come_is_named_with_what_was_seen_of_it(start: Any, settings: dict[str, Any]) -> None:
    hosts = (MAIN, SECOND, THIRD, "algo-9.invalid")
    joining = [start(host, world=world(host, hosts), join_seconds=1) for host in (MAIN, SECOND)]
    told = []
    for future in joining:
        with pytest.raises(LauncherError) as failed:
            future.result(20)
        told.append(failed.value)
    assert told[0].what == f"{THIRD}, algo-9.invalid did not come within 1 s"
    assert f"{THIRD}: it answers on port" in told[0].why  # the main host itself does, on this machine
    assert "algo-9.invalid: no such name" in told[0].why or "algo-9.invalid: DNS does not answer" in told[0].why
    assert f"read the log of {THIRD}" in told[0].fix
    assert told[1].what.startswith(f"{MAIN}: {THIRD}, algo-9.invalid did not")


@pytest.mark.parametrize(("main", "why"), [(MAIN, "refused"), ("algo-9.invalid", ""), ("192.0.2.1", "")])
def test_a_main_host_that_never_answers(main: str, why: str, settings: dict[str, Any]) -> None:
    begun = time.monotonic()
    with pytest.raises(LauncherError, match=f"{main} was not reached within 0.5 s") as failed:
        watch.join(world(SECOND, (main, SECOND)), {**settings, "join_seconds": 0.5}, None, {})
    assert failed.value.why.startswith(why)
    assert time.monotonic() - begun < 4


def test_a_port_that_is_in_use_is_said(settings: dict[str, Any]) -> None:
    with links.listen(settings["watch_port"]), pytest.raises(LauncherError, match="cannot be opened"):
        watch.join(world(MAIN), settings, None, {})
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("trainwright-watch")]


def test_a_host_that_leaves_before_all_are_there_may_come_again(start: Any, settings: dict[str, Any]) -> None:
    main = start(MAIN)
    time.sleep(0.2)
    first = links.call(None, "job", MAIN, SECOND, settings["watch_port"], 1, 4096)
    first.send({"kind": "card", "card": {"host": "first"}})
    first.flush()
    time.sleep(0.4)
    first.sock.close()
    others = [start(host) for host in HOSTS[1:]]
    assert all(future.result(10).cards[SECOND] == {"host": SECOND} for future in [main, *others])


def test_a_stop_while_hosts_meet_reaches_who_is_in(settings: dict[str, Any], start: Any) -> None:
    """As the launcher's handler of SIGTERM does: it raises, wherever join() is."""
    code = f"""
import signal, sys, watch
from worlds import World
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
print("up", flush=True)
watch.join(World("test", "job", {HOSTS!r}, {MAIN!r}, 1, "lo"), {settings!r}, None, {{}})
"""
    with process(code) as main:
        second = start(SECOND)
        time.sleep(1)
        main.terminate()
        with pytest.raises(LauncherError, match="stopped while the hosts met"):
            second.result(5)
        assert main.wait(5) == 143


# --- who is no host of the job ---------------------------------------------------------------------------------------


def test_strangers_hold_up_nobody(start: Any, settings: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    main = start(MAIN, secret())
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
    begun = time.monotonic()
    others = [start(host, secret()) for host in HOSTS[1:]]
    assert all(len(future.result(10).cards) == 3 for future in [main, *others])
    assert time.monotonic() - begun < 3
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
    assert all(future.result(10) for future in [main, *others])
    for sock in crowd:
        sock.close()


def test_a_second_connection_of_a_host_that_is_in(start: Any, settings: dict[str, Any], capsys: Any) -> None:
    main, second = start(MAIN, secret()), start(SECOND, secret())
    time.sleep(0.7)
    with pytest.raises(trust.Refused, match="taken"):
        links.call(secret(), "job", MAIN, SECOND, settings["watch_port"], 1, 4096)
    assert all(future.result(10) for future in (main, second, start(THIRD, secret())))
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
        second.result(10)
    assert failed.value.what == here
    assert trust.VARIABLE in failed.value.fix
    with pytest.raises(LauncherError) as failed:
        main.result(10)
    assert "did not come within" in failed.value.what  # who has another address is not believed that it is this host
    assert there in failed.value.why
    assert there in capsys.readouterr().err


def test_a_host_that_says_itself_that_it_has_no_secret_is_not_waited_for(start: Any) -> None:
    hosts = (MAIN, "localhost", THIRD)  # the second one is at the address that its connections come from
    main, second, third = (
        start(host, secret() if host != "localhost" else None, world=world(host, hosts)) for host in hosts
    )
    began = time.monotonic()
    with pytest.raises(LauncherError, match="localhost has no job secret"):
        main.result(10)
    for future in (second, third):
        with pytest.raises(LauncherError):
            future.result(10)
    assert time.monotonic() - began < 3  # join_seconds is 20


def test_another_job_at_the_address_is_waited_out(start: Any, capsys: pytest.CaptureFixture[str]) -> None:
    hosts = (MAIN, SECOND)
    main = start(MAIN, world=world(MAIN, hosts, "old"), join_seconds=1)
    second = start(SECOND, world=world(SECOND, hosts, "new"))
    with pytest.raises(LauncherError):
        main.result(10)
    assert start(MAIN, world=world(MAIN, hosts, "new")).result(10)
    assert second.result(10)
    assert f"{MAIN} runs another job" in capsys.readouterr().err


# --- what is heard ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("who", [0, 1])
@pytest.mark.parametrize("kind", ["failed", "stop"])
def test_what_one_says_all_hear(cluster: Cluster, who: int, kind: str) -> None:
    meetings = cluster()
    begun = time.monotonic()
    meetings[who].say(kind, code=3, cause="ZeroDivisionError: division by zero " + "x" * 100)
    event = Event(kind, HOSTS[who], 3, ("ZeroDivisionError: division by zero " + "x" * 100)[:64])
    assert verdicts(meetings) == [event] * 3
    assert {meeting.ends for meeting in meetings} == {f"{event.host}: {event.cause}"}
    assert time.monotonic() - begun < 1
    assert not meetings[0].all_ended(0)


def test_the_first_cause_is_the_same_everywhere(cluster: Cluster) -> None:
    meetings = cluster()
    for meeting in meetings:  # all at once
        meeting.say("failed", code=1, cause=meeting.world.host)
    found = verdicts(meetings)
    assert len(set(found)) == 1
    assert found[0]
    assert found[0].cause in HOSTS
    assert verdicts(meetings, 0.3) == [None] * 3  # and only that one


def test_all_ended_is_for_all(cluster: Cluster) -> None:
    meetings = cluster()
    for meeting in meetings[:2]:
        meeting.say("ended")
    assert meetings[0].heard(1) == Event("ended", SECOND)
    assert meetings[2].heard(1) == Event("ended", MAIN)
    assert not meetings[0].all_ended(0.3)
    meetings[2].say("ended")
    assert all(meeting.all_ended(1) for meeting in meetings)


def test_hosts_part_in_peace(cluster: Cluster) -> None:
    """After all have ended nobody who leaves is lost, in whatever order they go."""
    meetings = cluster()
    for meeting in meetings:
        meeting.say("ended")
    assert all(meeting.all_ended(2) for meeting in meetings)
    for meeting in meetings:
        begun = time.monotonic()
        threads = threading.active_count()
        meeting.close()
        meeting.close()
        assert time.monotonic() - begun < 1.5
        assert threading.active_count() < threads
    assert [event for event in verdicts(meetings, 0) if event] == []


def test_the_last_word_is_heard_of_who_leaves_at_once(cluster: Cluster) -> None:
    for who in (0, 1):
        meetings = cluster()
        meetings[who].say("failed", code=3, cause="the end")
        meetings[who].close()
        others = [meeting for meeting in meetings if meeting is not meetings[who]]
        assert verdicts(others) == [Event("failed", HOSTS[who], 3, "the end")] * 2
        for meeting in others:
            meeting.close()


@pytest.mark.parametrize("who", [0, 1])
def test_to_leave_without_a_word_is_to_be_lost(cluster: Cluster, who: int) -> None:
    meetings = cluster()
    gone = meetings.pop(who)
    gone.close()
    for event in verdicts(meetings):
        assert event
        assert (event.kind, event.host) == ("lost", HOSTS[who])
        assert "it left before" in event.cause


def test_a_mistake_of_ours_does_not_look_like_peace(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    meetings = cluster()
    monkeypatch.setattr(meetings[1], "_beat", lambda _: 1 / 0)
    event = meetings[1].heard(2)
    assert event
    assert event.kind == "lost"
    assert "ZeroDivisionError" in event.cause
    assert [found.kind for found in verdicts([meetings[0], meetings[2]]) if found] == ["lost", "lost"]


# --- hosts that are killed, stopped or cut off -----------------------------------------------------------------------


class process:
    """A host as a process of its own, up to the line "up"."""

    def __init__(self, code: str) -> None:
        words = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(LAUNCHER)!r})\n{code}"]
        self.running = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)

    def __enter__(self) -> subprocess.Popen[str]:
        assert self.running.stdout
        assert self.running.stdout.readline() == "up\n"
        return self.running

    def __exit__(self, *_: object) -> None:
        self.running.kill()
        self.running.communicate()


def member(host: str, settings: dict[str, Any], then: str = "meeting.heard(60)") -> process:
    return process(f"""
import time, trust, watch
from worlds import World
print("up", flush=True)
secret = trust.take({{"{trust.VARIABLE}": "{SECRET}"}})
meeting = watch.join(World("test", "job", {HOSTS!r}, {host!r}, 1, "lo"), {settings!r}, secret, {{}})
{then}
""")


@pytest.mark.parametrize("victim", [MAIN, THIRD])
def test_a_host_that_is_killed_is_lost_at_once(victim: str, start: Any, settings: dict[str, Any]) -> None:
    with member(victim, settings) as killed:
        meetings = [future.result(10) for future in [start(host, secret()) for host in HOSTS if host != victim]]
        begun = time.monotonic()
        killed.kill()
        for event in verdicts(meetings):
            assert event
            assert (event.kind, event.host) == ("lost", victim)
            assert "killed" in event.cause or "broke" in event.cause
        assert time.monotonic() - begun < 1


@pytest.mark.parametrize("victim", [MAIN, THIRD])
def test_a_host_that_stands_still_is_lost_after_a_while_and_not_before(
    victim: str, start: Any, settings: dict[str, Any]
) -> None:
    with member(victim, settings) as stopped:
        meetings = [future.result(10) for future in [start(host, secret()) for host in HOSTS if host != victim]]
        stopped.send_signal(signal.SIGSTOP)
        assert verdicts(meetings, 0.5) == [None] * 2  # silent_seconds is 2
        stopped.send_signal(signal.SIGCONT)
        assert verdicts(meetings, 0.7) == [None] * 2
        begun = time.monotonic()
        stopped.send_signal(signal.SIGSTOP)
        for event in verdicts(meetings, 5):
            assert event
            assert (event.kind, event.host) == ("lost", victim)
            assert "nothing was heard from it for 2 s" in event.cause
        assert 1.5 < time.monotonic() - begun < 4


def test_who_was_stopped_itself_does_not_call_the_others_lost(start: Any, settings: dict[str, Any]) -> None:
    """A laptop that slept, a debugger: its own clock went on, and nothing of what came meanwhile is read yet."""
    patient = {**settings, "silent_seconds": 60}
    code = "print(meeting.heard(4), flush=True)"
    with member(THIRD, settings, code) as stopped:
        others = [start(host, secret(), **{"silent_seconds": patient["silent_seconds"]}) for host in HOSTS[:2]]
        meetings = [future.result(10) for future in others]
        stopped.send_signal(signal.SIGSTOP)
        time.sleep(3)
        stopped.send_signal(signal.SIGCONT)
        assert stopped.stdout
        assert stopped.stdout.readline() == "None\n"
        assert len(meetings) == 2


def test_a_host_that_is_busy_is_not_lost(start: Any, settings: dict[str, Any]) -> None:
    busy = "while True: sum(range(10**5))"
    with member(THIRD, settings, busy):
        meetings = [future.result(10) for future in [start(host, secret()) for host in HOSTS[:2]]]
        assert verdicts(meetings, 1.2) == [None] * 2


# --- a host that failed before ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("who", [MAIN, THIRD])
def test_who_failed_before_it_could_join_says_so(who: str, start: Any, settings: dict[str, Any]) -> None:
    others = [start(host, secret()) for host in HOSTS if host != who]
    time.sleep(0.3)
    begun = time.monotonic()
    watch.tell(world(who), settings, secret(), 5, "this image differs")
    for future in others:
        with pytest.raises(LauncherError, match=f"{who}: this image differs"):
            future.result(5)
    assert time.monotonic() - begun < 3


def test_to_tell_is_bounded_where_nobody_listens(settings: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    for host in (MAIN, THIRD):
        begun = time.monotonic()
        watch.tell(world(host), {**settings, "tell_seconds": 0.5}, None, 5, "cause")
        assert time.monotonic() - begun < 2
    assert "do not know that this one failed" in capsys.readouterr().err


def test_a_long_cause_in_any_language_is_told(start: Any, settings: dict[str, Any]) -> None:
    """Six bytes a character, and more than who has not said who it is may send."""
    main = start(MAIN, secret(), failure_characters=1024)
    time.sleep(0.3)
    watch.tell(world(THIRD), {**settings, "failure_characters": 1024}, secret(), 5, "é" * 2000)
    with pytest.raises(LauncherError, match="é" * 1024):
        main.result(5)
