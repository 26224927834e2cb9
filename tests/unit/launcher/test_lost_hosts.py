"""Test hosts, as real processes, that are killed, stopped or hang: they count as lost, and the others do not."""

import signal
import socket
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from meetings import HOSTS, LATER, MAIN, THIRD, member, secret, verdicts


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
def test_a_host_that_stands_still_is_lost_after_a_while_and_not_before(start: Any, settings: dict[str, Any]) -> None:
    """Of two jobs at once: in one it is the main host, in the other one a member."""
    with ExitStack() as running:
        stopped, meetings = [], []
        for victim in (MAIN, THIRD):
            with socket.create_server(("", 0)) as free:
                port = {"watch_port": free.getsockname()[1]}
            stopped.append(running.enter_context(member(victim, {**settings, **port})))
            others = [start(host, secret(), **port) for host in HOSTS if host != victim]
            meetings += [future.result(60) for future in others]

        def signalled(number: int) -> None:
            for one in stopped:
                one.send_signal(number)

        signalled(signal.SIGSTOP)
        assert verdicts(meetings, 0.25) == [None] * 4  # silent_seconds is 2
        signalled(signal.SIGCONT)
        assert verdicts(meetings, 0.35) == [None] * 4
        signalled(signal.SIGSTOP)
        for place, event in enumerate(verdicts(meetings)):
            assert event
            assert (event.kind, event.host) == ("lost", (MAIN, THIRD)[place // 2])
            assert "no heartbeat from it for 2 s" in event.cause


def test_who_was_stopped_itself_does_not_call_the_others_lost(
    start: Any, settings: dict[str, Any], tmp_path: Path
) -> None:
    """A laptop that slept, a debugger: its own clock went on, and nothing of what came meanwhile is read yet.

    The others say nothing, so that it sees its clock before anything of theirs.
    """
    clock = tmp_path / "clock"
    code = f"""
import meeting as own, os, types
later = lambda: time.monotonic() + {LATER} * os.path.exists({str(clock)!r})
own.time = types.SimpleNamespace(monotonic=later)
print("in", flush=True)
while not os.path.exists({str(clock)!r}): time.sleep(0.01)
print(meeting.heard(0.5), flush=True)
print(meeting.heard(60).kind, flush=True)
"""
    with member(THIRD, {**settings, "silent_seconds": LATER / 2}, code) as stopped:
        joining = [start(host, secret(), silent_seconds=LATER) for host in HOSTS[:2]]
        meetings = [future.result(60) for future in joining]
        for meeting in meetings:
            meeting.settings["heartbeat_seconds"] = LATER
        assert stopped.stdout
        assert stopped.stdout.readline() == "in\n"
        time.sleep(0.3)  # by now it has read the last heartbeat; if not, the test sees less, and is green
        stopped.send_signal(signal.SIGSTOP)
        clock.touch()
        stopped.send_signal(signal.SIGCONT)
        assert stopped.stdout.readline() == "None\n"
        meetings[0].say("stop")
        assert stopped.stdout.readline() == "stop\n"


@pytest.mark.waits
def test_a_host_that_is_busy_is_not_lost(start: Any, settings: dict[str, Any]) -> None:
    busy = "while True: sum(range(10**5))"
    with member(THIRD, settings, busy):
        meetings = [future.result(60) for future in [start(host, secret()) for host in HOSTS[:2]]]
        assert verdicts(meetings, 1.2) == [None] * 2
