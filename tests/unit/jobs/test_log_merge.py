"""Test merging a job's log from pages: each event appears once, however late, disordered and divided the pages are."""

import random
from collections import Counter
from typing import NamedTuple

from hypothesis import event, given, settings
from hypothesis import strategies as st

from trainwright.jobs.log_merge import Event, Merged

LOOK_BACK, MARGIN = 100, 20
END = 2000


class Service:
    """A stand-in for CloudWatch: it shows events some time after their ingestion; pages are small or empty."""

    def __init__(self, events: list[tuple[Event, int]], seed: int) -> None:
        self.events, self.random = events, random.Random(seed)

    def pages(self, start: int, now: int) -> list[list[Event]]:
        seen = [one for one, visible in self.events if visible <= now and one.at >= start]
        rows = sorted(seen, key=lambda one: (one.at, one.ingested))
        found = []
        while rows:
            size = self.random.randint(0, 4)
            found.append(rows[:size])
            rows = rows[size:]
        return found


class Polls(NamedTuple):
    moments: list[int]
    breaks: list[int]  # after how many pages a poll has to start over


@st.composite
def logs(draw: st.DrawFn) -> list[tuple[Event, int]]:
    found = []
    for number in range(draw(st.integers(0, 40))):
        at = draw(st.integers(0, 1000))
        late = draw(st.sampled_from([0, 1, 30, LOOK_BACK - MARGIN, LOOK_BACK - MARGIN + 1, LOOK_BACK, 300, 900]))
        visible = at + late + draw(st.integers(0, MARGIN))
        stream = f"job/algo-{draw(st.integers(1, 2))}-1"
        found.append((Event(str(number), stream, at, at + late, f"{number}"), visible))
    return found


@st.composite
def polls(draw: st.DrawFn) -> Polls:
    moments = sorted(draw(st.lists(st.integers(0, END), max_size=25)))
    return Polls(moments, draw(st.lists(st.integers(0, 5), max_size=26)))


def followed(service: Service, plan: Polls, most_late: int = 1000) -> tuple[list[Event], Merged]:
    """Follow a log as following.py does; after the last poll, some events may not be visible yet."""
    merged, said = Merged(0, LOOK_BACK, MARGIN, most_late), list[Event]()
    breaks = [*plan.breaks, *[-1] * len(plan.moments)]
    for moment, after in zip(plan.moments, breaks, strict=False):
        merged.begin(moment)
        pages = service.pages(merged.start, moment)
        if after < len(pages):
            for page in pages[:after] if after >= 0 else []:
                said += merged.fresh(page)
            if after >= 0:
                pages = service.pages(merged.again(), moment)
        for page in pages:
            said += merged.fresh(page)
        merged.complete()
    for page in service.pages(merged.sweep(), END):
        said += merged.swept(page)
    return said, merged


@settings(max_examples=150)
@given(logs(), polls(), st.integers(0, 1 << 30))
def test_each_event_is_said_once_and_none_is_lost(log: list[tuple[Event, int]], plan: Polls, seed: int) -> None:
    said, _ = followed(Service(log, seed), plan)
    counts = Counter(one.id for one in said)
    event(f"late: {min(3, sum(one.ingested - one.at > LOOK_BACK - MARGIN for one, _ in log))}")
    assert {one.id for one, _ in log} == counts.keys()
    assert set(counts.values()) <= {1}


@settings(max_examples=100)
@given(st.lists(st.integers(0, 1000), max_size=60), polls(), st.integers(0, 1 << 30))
def test_what_is_ingested_in_order_is_said_in_order(times: list[int], plan: Polls, seed: int) -> None:
    log = [(Event(str(n), "job/algo-1-1", at, at + 5, ""), at + 5) for n, at in enumerate(sorted(times))]
    said, _ = followed(Service(log, seed), Polls(plan.moments, []))
    assert [one.id for one in said] == [one.id for one, _ in log]


def test_events_of_one_moment_keep_the_order_that_cloudwatch_gives() -> None:
    merged = Merged(0, LOOK_BACK, MARGIN, 10)
    page = [Event("b", "s", 5, 5, ""), Event("a", "s", 5, 5, ""), Event("c", "s", 4, 5, "")]
    assert [one.id for one in merged.fresh(page)] == ["c", "b", "a"]


def test_a_long_job_is_followed_in_the_memory_of_its_last_minutes() -> None:
    merged = Merged(0, LOOK_BACK, MARGIN, 10)
    for now in range(0, 100_000, 10):
        merged.begin(now)
        merged.fresh(Event(f"{now}-{n}", "s", now, now, "") for n in range(3))
        merged.complete()
    assert merged.remembered <= 3 * (LOOK_BACK / 10 + 1)


def test_a_first_look_at_a_long_log_remembers_little() -> None:
    merged = Merged(0, LOOK_BACK, MARGIN, 10)
    merged.begin(100_000)
    for at in range(0, 100_000, 10):
        merged.fresh([Event(str(at), "s", at, at, "")])
    assert merged.remembered <= LOOK_BACK / 10 + 1


@settings(max_examples=100)
@given(logs(), polls(), st.integers(0, 1 << 30))
def test_more_late_events_than_are_told_apart_are_not_said_twice(
    log: list[tuple[Event, int]], plan: Polls, seed: int
) -> None:
    said, merged = followed(Service(log, seed), plan, most_late=1)
    assert set(Counter(one.id for one in said).values()) <= {1}
    if len(said) < len(log):
        assert merged.overflowed
