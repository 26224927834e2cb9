"""Test hosts of one job that wait for each other, and learn at once of a host that failed before it joined."""

import socket
import threading
import time
from typing import Any

import links
import pytest
import watch
from errors import LauncherError
from meeting import Alone
from meetings import HOSTS, MAIN, SECOND, THIRD, Cluster, process, secret, world


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
    early = [start(host, retry_seconds=0.005, report_seconds=0.5) for host in HOSTS if host != late]
    time.sleep(0.8)
    assert not any(future.done() for future in early)
    assert all(len(future.result(60).cards) == 3 for future in [*early, start(late)])
    said = [line for line in capsys.readouterr().err.splitlines() if f"waiting for {late}" in line]
    assert 1 <= len(said) <= 50  # now and then, and not at each of the hundreds of tries


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
    assert all(len(future.result(60).cards) == 2 for future in met)
    assert len(asked) > 8
    assert "no such name" in capsys.readouterr().err


def test_a_resolver_that_hangs_ends_with_our_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    free = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: free.wait(10))
    with pytest.raises(links.Unreached, match="DNS does not answer"):
        links.connect("algo-1", 1, 0.2)
    free.set()


def test_who_did_not_come_is_named_with_what_was_seen_of_it(start: Any, settings: dict[str, Any]) -> None:
    hosts = (MAIN, SECOND, THIRD, "algo-9.invalid")
    joining = [start(host, world=world(host, hosts), join_seconds=1) for host in (MAIN, SECOND)]
    told = []
    for future in joining:
        with pytest.raises(LauncherError) as failed:
            future.result(60)
        told.append(failed.value)
    assert told[0].what == f"{THIRD}, algo-9.invalid did not join within 1 s"
    assert f"{THIRD}: it answers on port" in told[0].why  # the main host itself does, on this machine
    assert "algo-9.invalid: no such name" in told[0].why or "algo-9.invalid: DNS does not answer" in told[0].why
    assert f"read the log of {THIRD}" in told[0].fix
    assert told[1].what.startswith(f"{MAIN}: {THIRD}, algo-9.invalid did not")


@pytest.mark.parametrize(("main", "why"), [(MAIN, "refused"), ("algo-9.invalid", ""), ("192.0.2.1", "")])
def test_a_main_host_that_never_answers(main: str, why: str, settings: dict[str, Any]) -> None:
    with pytest.raises(LauncherError, match=f"{main} was not reached within 0.5 s") as failed:
        watch.join(world(SECOND, (main, SECOND)), {**settings, "join_seconds": 0.5}, None, {})
    assert failed.value.why.startswith(why)


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
    assert all(future.result(60).cards[SECOND] == {"host": SECOND} for future in [main, *others])


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
        with pytest.raises(LauncherError, match="stopped while the hosts joined"):
            second.result(60)
        assert main.wait(5) == 143


@pytest.mark.parametrize("who", [MAIN, THIRD])
def test_who_failed_before_it_could_join_says_so(who: str, start: Any, settings: dict[str, Any]) -> None:
    others = [start(host, secret()) for host in HOSTS if host != who]
    time.sleep(0.3)
    watch.tell(world(who), settings, secret(), 5, "this image differs")
    for future in others:
        with pytest.raises(LauncherError, match=f"{who}: this image differs"):
            future.result(60)


def test_to_tell_is_bounded_where_nobody_listens(settings: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    for host in (MAIN, THIRD):
        watch.tell(world(host), {**settings, "tell_seconds": 0.5}, None, 5, "cause")
    assert "could not be told that this one failed" in capsys.readouterr().err


def test_a_long_cause_in_any_language_is_told(start: Any, settings: dict[str, Any]) -> None:
    """Six bytes a character, and more than who has not said who it is may send."""
    main = start(MAIN, secret(), failure_characters=1024)
    time.sleep(0.3)
    watch.tell(world(THIRD), {**settings, "failure_characters": 1024}, secret(), 5, "é" * 2000)
    with pytest.raises(LauncherError, match="é" * 1024):
        main.result(60)
