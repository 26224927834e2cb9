"""The log of a job out of pages of CloudWatch: each event once, none lost, in the memory of its last minutes. Pure.

Why FilterLogEvents, and not GetLogEvents: it finds a job's streams by prefix, also those that a restart adds, gives
every event an id, and answers sorted by time (API reference of both). A token of GetLogEvents goes forward along a
stream in the order of timestamps, so an event that is ingested behind it is never seen; that no call filters by the
time of ingestion is aws/aws-sdk#213. So each poll begins `look_back` before the last complete one, and ids tell what is
new (aws/aws-cli#5107 does so for the newest timestamp alone, and loses what comes late).

An event is of the polls where it was ingested no more than look_back - margin after its own timestamp: if readers see
it `margin` after that, one poll has it in its window, however far the polls lie apart. Whatever comes later is of the
sweep over the whole log at the end, unless a poll saw it by chance: the ids of those few are kept.
"""

from collections.abc import Iterable
from typing import NamedTuple


class Event(NamedTuple):
    id: str
    stream: str
    at: int  # milliseconds since 1970, as the host says
    ingested: int  # the same, as CloudWatch says
    text: str


class Merged:
    """A poll is begin(), fresh() of each of its pages, and complete(); `start` is from when on it has to ask.

    All times in milliseconds, of the service's clock.
    """

    def __init__(self, since: int, look_back: int, margin: int, most_late: int) -> None:
        self.since, self.start = since, since
        self._look_back, self._on_time, self._most_late = look_back, look_back - margin, most_late
        self._held: dict[str, int] = {}  # id to timestamp, of what a later poll may see again
        self._late = set[str]()  # of what was printed, and is not of the polls
        self._next = self._position = since  # of this poll: the last timestamp that it has come to

    def begin(self, now: int) -> None:
        """A poll begins: what happened before the look-back is not asked for again once it is complete."""
        self._next = max(self._next, now - self._look_back)
        self._position = self.start

    def fresh(self, page: Iterable[Event]) -> list[Event]:
        """What was not there before, in the order of time."""
        new = []
        for event in sorted(page, key=lambda one: one.at):  # stable: what came first at one moment stays first
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
        """Where a poll goes on whose token is no longer taken: pages are in the order of time."""
        return max(self.start, min(self._next, self._position))

    def complete(self) -> None:
        self.start = max(self.start, self._next)

    def sweep(self) -> int:
        """The look over the whole log begins: from when on it has to ask."""
        self._position = self.since
        return self.since

    def swept(self, page: Iterable[Event]) -> list[Event]:
        """What no poll has seen, of a page of the look over the whole log."""
        if self.overflowed:
            return self.fresh(event for event in page if event.at >= self.start)
        return self.fresh(event for event in page if event.at >= self.start or self._is_late(event))

    @property
    def overflowed(self) -> bool:
        """More came late than is told apart: what came late and was not seen is not printed, for it might be twice."""
        return len(self._late) >= self._most_late

    @property
    def remembered(self) -> int:
        return len(self._held) + len(self._late)

    def _is_late(self, event: Event) -> bool:
        return event.ingested - event.at > self._on_time

    def _forget(self, before: int) -> None:
        if self._held and min(self._held.values()) < before:
            self._held = {name: at for name, at in self._held.items() if at >= before}
