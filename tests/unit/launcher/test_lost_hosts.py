"""Test hosts, as real processes, that are killed, stopped or hang: they count as lost, and the others do not."""

import signal
import time
from typing import Any

import pytest
from meetings import HOSTS, MAIN, THIRD, member, secret, verdicts


@pytest.mark.parametrize("victim", [MAIN, THIRD])
def test_a_host_that_is_killed_is_lost_at_once(victim: str, start: Any, settings: dict[str, Any]) -> None:
    with member(victim, settings) as killed:
        meetings = [future.result(60) for future in [start(host, secret()) for host in HOSTS if host != victim]]
        killed.kill()
        for event in verdicts(meetings):
            assert event
            assert (event.kind, event.host) == ("lost", victim)
            assert "killed" in event.cause or "broke" in event.cause


@pytest.mark.waits
@pytest.mark.parametrize("victim", [MAIN, THIRD])
def test_a_host_that_stands_still_is_lost_after_a_while_and_not_before(
    victim: str, start: Any, settings: dict[str, Any]
) -> None:
    with member(victim, settings) as stopped:
        meetings = [future.result(60) for future in [start(host, secret()) for host in HOSTS if host != victim]]
        stopped.send_signal(signal.SIGSTOP)
        assert verdicts(meetings, 0.5) == [None] * 2  # silent_seconds is 2
        stopped.send_signal(signal.SIGCONT)
        assert verdicts(meetings, 0.7) == [None] * 2
        stopped.send_signal(signal.SIGSTOP)
        for event in verdicts(meetings):
            assert event
            assert (event.kind, event.host) == ("lost", victim)
            assert "no heartbeat from it for 2 s" in event.cause


@pytest.mark.waits
def test_who_was_stopped_itself_does_not_call_the_others_lost(start: Any, settings: dict[str, Any]) -> None:
    """A laptop that slept, a debugger: its own clock went on, and nothing of what came meanwhile is read yet."""
    patient = {**settings, "silent_seconds": 60}
    code = "print(meeting.heard(4), flush=True)"
    with member(THIRD, settings, code) as stopped:
        others = [start(host, secret(), **{"silent_seconds": patient["silent_seconds"]}) for host in HOSTS[:2]]
        meetings = [future.result(60) for future in others]
        stopped.send_signal(signal.SIGSTOP)
        time.sleep(3)
        stopped.send_signal(signal.SIGCONT)
        assert stopped.stdout
        assert stopped.stdout.readline() == "None\n"
        assert len(meetings) == 2


@pytest.mark.waits
def test_a_host_that_is_busy_is_not_lost(start: Any, settings: dict[str, Any]) -> None:
    busy = "while True: sum(range(10**5))"
    with member(THIRD, settings, busy):
        meetings = [future.result(60) for future in [start(host, secret()) for host in HOSTS[:2]]]
        assert verdicts(meetings, 1.2) == [None] * 2
