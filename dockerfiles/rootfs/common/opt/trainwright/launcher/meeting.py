"""What a host knows of the others of its job, and the one thread that keeps it so. Which side it is on: sides.py."""

import contextlib
import functools
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import links
from errors import LauncherError
from links import Link
from wire import Message, WireError, number, text
from worlds import World

Settings = Mapping[str, Any]
Card = dict[str, Any]
ENDS = ("failed", "lost", "stop")  # what ends a job: the first of them is the cause


@dataclass(frozen=True)
class Event:
    """What another host said, or what was seen of it; of the causes that end a job, the same one on all hosts.

    `kind` is "failed", "stop", "lost" or "ended"; `cause` is a sentence for a failure file.
    """

    kind: str
    host: str
    code: int = 0
    cause: str = ""


class Meeting:
    """What a host knows of the others. One thread moves bytes until close(); everything else may be called by any."""

    def __init__(self, world: World, settings: Settings) -> None:
        self.world, self.settings = world, settings
        self.cards: dict[str, Card] = {}
        self.gone = ""  # why the main host is, before all had met
        self._met = False
        self._events: deque[Event] = deque()
        self._verdict: Event | None = None
        self._all_ended = False
        self._links: list[Link] = []
        self._closing: float | None = None  # when to leave, whoever has not read our last word
        self._changed = threading.Condition()  # holds everything above; reentrant, so that signal handlers may say
        self._selector = selectors.DefaultSelector()
        self._bell, self._rope = socket.socketpair()
        for end in (self._bell, self._rope):
            end.setblocking(False)
        self._selector.register(self._bell, links.READ, self._rung)
        self._turned_at = self._beat_at = time.monotonic()
        self._thread = threading.Thread(target=self._run, daemon=True, name="trainwright-watch")

    def wait(self, timeout: float) -> bool:
        """Whether all hosts have met, waiting so many seconds. Raises LauncherError where one ends the job before."""
        with self._changed:
            self._changed.wait_for(lambda: self._met or self._verdict or self.gone, timeout)
            if self._verdict and not self._met:
                raise LauncherError(
                    f"{self._verdict.host}: {self._verdict.cause}", "it ended the job while the hosts met"
                )
            return self._met

    # --- for the launcher ------------------------------------------------------------------------------------------

    def say(self, kind: str, code: int = 0, cause: str = "") -> None:
        """That this host's ranks "ended", or "failed" with this exit code and cause, or that all are to "stop"."""
        with self._changed:
            self._said(Event(kind, self.world.host, code, cause[: self.settings["failure_characters"]]))
        self._ring()

    def heard(self, timeout: float) -> Event | None:
        """The next event, waiting so many seconds for it. The cause that ends the job comes once, on every host."""
        with self._changed:
            self._changed.wait_for(lambda: bool(self._events), timeout)
            return self._events.popleft() if self._events else None

    @property
    def ends(self) -> str:
        """Why the job ends, where it does; unlike heard(), this takes nothing from anybody."""
        return f"{self._verdict.host}: {self._verdict.cause or self._verdict.kind}" if self._verdict else ""

    def all_ended(self, timeout: float) -> bool:
        """Whether all hosts ended well, waiting so many seconds for it or for the contrary."""
        with self._changed:
            self._changed.wait_for(lambda: self._all_ended or self._verdict, timeout)
            return self._all_ended

    def close(self) -> None:
        """Leaves, once what was said is read, or after farewell_seconds; then no thread and no socket is left."""
        with self._changed:
            if self._closing is None:
                self._closing = time.monotonic() + self.settings["farewell_seconds"]
                for link in self._links:
                    if link.host and not link.left:
                        link.send({"kind": "bye"})
        self._ring()
        if self._thread.is_alive():
            self._thread.join()

    # --- the thread --------------------------------------------------------------------------------------------------

    def _ring(self) -> None:
        with contextlib.suppress(OSError):  # full: it rings already; closed: nobody is left to wake
            self._rope.send(b"!")

    def _rung(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._bell.recv(links.CHUNK)

    def _run(self) -> None:
        try:
            while self._turn():
                pass
        except Exception as problem:  # a mistake of ours must not look like peace
            with self._changed:
                self._decide(Event("lost", self.world.host, 1, f"its watch ended: {problem!r}"))
        finally:
            for key in list(self._selector.get_map().values()):
                key.fileobj.close()  # type: ignore[union-attr]
            self._selector.close()
            self._rope.close()

    def _turn(self) -> bool:
        ready = self._selector.select(self.settings["heartbeat_seconds"] / 4)
        with self._changed:
            now = time.monotonic()
            self._forgive(now)
            for key, _ in ready:
                key.data()
            self._beat(now)
            self._look(now)
            for link in list(self._links):
                self._flush(link)
            self._changed.notify_all()
            # A stranger is not waited for.
            return self._closing is None or (any(link.host for link in self._links) and now < self._closing)

    def _forgive(self, now: float) -> None:
        """Where this host itself was stopped or starved, nobody else was silent."""
        gap, self._turned_at = now - self._turned_at, now
        if gap > self.settings["heartbeat_seconds"]:
            for link in self._links:
                link.heard_at += gap

    def _beat(self, now: float) -> None:
        if now >= self._beat_at and self._closing is None:
            self._beat_at = now + self.settings["heartbeat_seconds"]
            for link in self._links:
                if link.host and not link.left and not link.outbox:  # who does not read needs no more to read
                    link.send({"kind": "beat"})

    def _look(self, now: float) -> None:
        """Who has been silent for too long."""
        for link in list(self._links):
            patience = self.settings["silent_seconds" if link.host else "greeting_seconds"]
            if now - link.heard_at > patience and link.host:
                self._drop(link, f"nothing was heard from it for {patience:g} s: it, or its network, stands still")
            elif now - link.heard_at > patience:
                self._drop(link, f"it did not say within {patience:g} s who it is")

    def _watch(self, link: Link) -> None:
        link.sock.setblocking(False)
        self._links.append(link)
        self._selector.register(link.sock, links.READ, functools.partial(self._read, link))

    def _read(self, link: Link) -> None:
        if link not in self._links:
            return
        try:
            more = link.receive()
            for message in link.messages():
                if link.host:
                    link.heard_at = time.monotonic()
                self._message(link, message)
                if link not in self._links:
                    return
        except OSError as problem:
            self._drop(link, f"its connection broke: {problem.strerror or problem}")
        except WireError as problem:
            self._drop(link, f"it said {problem}")
        else:
            if not more:
                gone = "its connection ended without a goodbye: it was killed, or its launcher died"
                self._drop(link, gone if link.host else "it went without saying who it is")

    def _flush(self, link: Link) -> None:
        try:
            link.flush()
            if not link.outbox and not link.ending and (link.left or self._closing is not None):
                link.ending = True  # the other end reads all of it, and then closes: to close first could tear it up
                link.sock.shutdown(socket.SHUT_WR)
        except OSError as problem:
            self._drop(link, f"its connection broke: {problem.strerror or problem}")
        else:
            awaits = links.READ | (links.WRITE if link.outbox else 0)
            if awaits != link.awaits:
                link.awaits = awaits
                self._selector.modify(link.sock, awaits, functools.partial(self._read, link))

    def _drop(self, link: Link, why: str) -> None:
        self._links.remove(link)
        self._selector.unregister(link.sock)
        link.sock.close()
        if not link.left and self._closing is None:
            self._missed(link, why)

    def _tell(self, message: Message) -> None:
        for link in self._links:
            if link.host and not link.left and self._closing is None:
                link.send(message)

    def _decide(self, event: Event) -> None:
        """The first cause stays; what follows follows from it."""
        if self._verdict is None and not self._all_ended:
            self._verdict = event
            self._events.append(event)
            self._tell(as_message(event))
            self._changed.notify_all()

    def _said(self, event: Event) -> None:
        """This host has something to say."""

    def _message(self, link: Link, message: Message) -> None:
        """One came. Raises WireError."""

    def _missed(self, link: Link, why: str) -> None:
        """A connection ended that should not have."""


class Alone(Meeting):
    """A host that nobody watches and that watches nobody: it never hears anything, and no socket is opened."""

    def __init__(self) -> None:
        """None of what a meeting has."""

    def say(self, kind: str, code: int = 0, cause: str = "") -> None:
        pass

    def heard(self, timeout: float) -> Event | None:
        time.sleep(timeout)
        return None

    def close(self) -> None:
        pass


def as_message(event: Event) -> Message:
    return {"kind": event.kind, "host": event.host, "code": event.code, "cause": event.cause}


def as_event(message: Message) -> Event:
    return Event(text(message, "kind"), text(message, "host"), number(message, "code"), text(message, "cause"))
