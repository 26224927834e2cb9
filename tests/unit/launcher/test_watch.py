"""Test hosts that have met: all learn the same cause of the job's end, and all close their connections."""

import threading

import pytest
from meeting import Event
from meetings import HOSTS, MAIN, SECOND, Cluster, verdicts


@pytest.mark.parametrize("who", [0, 1])
@pytest.mark.parametrize("kind", ["failed", "stop"])
def test_what_one_says_all_hear(cluster: Cluster, who: int, kind: str) -> None:
    meetings = cluster()
    meetings[who].say(kind, code=3, cause="ZeroDivisionError: division by zero " + "x" * 100)
    event = Event(kind, HOSTS[who], 3, ("ZeroDivisionError: division by zero " + "x" * 100)[:64])
    assert verdicts(meetings) == [event] * 3
    assert {meeting.ends for meeting in meetings} == {f"{event.host}: {event.cause}"}
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
    meetings = cluster(farewell_seconds=600)
    for meeting in meetings:
        meeting.say("ended")
    assert all(meeting.all_ended(60) for meeting in meetings)
    for meeting in meetings:
        threads = threading.active_count()
        meeting.close()  # nobody is waited for
        meeting.close()
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
