"""Merge pages of CloudWatch into the log of a job: each event once, none lost, in the memory of its last minutes. Pure.

FilterLogEvents is used, not GetLogEvents, because it finds a job's streams by prefix, including those that a restart
adds, gives every event an id, and answers sorted by time (API reference of both). A token of GetLogEvents moves forward
along a stream in the order of timestamps, so an event that is ingested behind it is never seen; no call filters by the
time of ingestion (aws/aws-sdk#213). Therefore each poll begins `look_back` before the last complete one, and ids show
what is new (aws/aws-cli#5107 does so for the newest timestamp alone, and loses late events).

The polls cover an event that was ingested no more than look_back - margin after its own timestamp: if readers see it
`margin` after that, one poll has it in its window, however far apart the polls are. A later event belongs to the sweep
over the whole log at the end, unless a poll saw it by chance; the ids of those few are kept.
"""

from collections.abc import Iterable
from typing import NamedTuple


class Event(NamedTuple):
    id: str
    stream: str
    at: int  # milliseconds since 1970, by the host's clock
    ingested: int  # the same, by CloudWatch's clock
    text: str


class Merged:
    """The state of a merge: a poll is begin(), fresh() of each page, and complete(); it asks from `start` on.

    All times are in milliseconds of the service's clock.
    """

    def __init__(self, since: int, look_back: int, margin: int, most_late: int) -> None:
        self.since, self.start = since, since
        self._look_back, self._on_time, self._most_late = look_back, look_back - margin, most_late
        self._held: dict[str, int] = {}  # id to timestamp, of events that a later poll may see again
        self._late = set[str]()  # ids of printed events that the polls do not cover
        self._next = self._position = since  # of this poll: the last timestamp that it has reached

    def begin(self, now: int) -> None:
        """Begin a poll; once it is complete, events before the look-back are not requested again."""
        self._next = max(self._next, now - self._look_back)
        self._position = self.start

    def fresh(self, page: Iterable[Event]) -> list[Event]:
        """Return the new events of a page, in the order of time."""
        new = []
        for event in sorted(page, key=lambda one: one.at):  # stable: events of one moment keep their order
            self._position = max(self._position, event.at)
            if event.id in self._held:
                continue
            self._held[event.id] = event.at
            if event.id in self._late:
                continue
            if self._is_late(event) and len(self._late) < self._most_late:
                self._late.add(event.id)
            new.append(event)
        self._forget(min(self._next, self._position))
        return new

    def again(self) -> int:
        """Return where a poll resumes if its token is rejected, which works because pages are in the order of time."""
        return max(self.start, min(self._next, self._position))

    def complete(self) -> None:
        self.start = max(self.start, self._next)

    def sweep(self) -> int:
        """Begin the sweep over the whole log; return the time to request from."""
        self._position = self.since
        return self.since

    def swept(self, page: Iterable[Event]) -> list[Event]:
        """Return the events of a page of the sweep that no poll has seen."""
        if self.overflowed:
            return self.fresh(event for event in page if event.at >= self.start)
        return self.fresh(event for event in page if event.at >= self.start or self._is_late(event))

    @property
    def overflowed(self) -> bool:
        """Return whether late events reached the limit; unseen ones are then not printed, as they may be duplicates."""
        return len(self._late) >= self._most_late

    @property
    def remembered(self) -> int:
        return len(self._held) + len(self._late)

    def _is_late(self, event: Event) -> bool:
        return event.ingested - event.at > self._on_time

    def _forget(self, before: int) -> None:
        if self._held and min(self._held.values()) < before:
            self._held = {name: at for name, at in self._held.items() if at >= before}
