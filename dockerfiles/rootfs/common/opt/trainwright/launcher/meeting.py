"""Keep the state of the job's other hosts up to date, in one background thread. sides.py has the two roles."""

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
ENDS = ("failed", "lost", "stop")  # kinds of events that end a job; the first such event is the cause


@dataclass(frozen=True)
class Event:
    """Describe what a host reported, or what was observed of it. All hosts get the same event that ends the job.

    `kind` is "failed", "stop", "lost" or "ended"; `cause` is a sentence for a failure file.
    """

    kind: str
    host: str
    code: int = 0
    cause: str = ""


class Meeting:
    """Hold the state of the other hosts. One thread sends and receives until close(); all methods are thread-safe."""

    def __init__(self, world: World, settings: Settings) -> None:
        self.world, self.settings = world, settings
        self.cards: dict[str, Card] = {}
        self.gone = ""  # why the main host was lost before all hosts had joined
        self._met = False
        self._events: deque[Event] = deque()
        self._verdict: Event | None = None
        self._all_ended = False
        self._links: list[Link] = []
        self._closing: float | None = None  # when to close, even if a peer has not read the last message
        self._changed = threading.Condition()  # guards everything above; reentrant, so that signal handlers may use it
        self._selector = selectors.DefaultSelector()
        self._wake_reader, self._wake_writer = socket.socketpair()
        for end in (self._wake_reader, self._wake_writer):
            end.setblocking(False)
        self._selector.register(self._wake_reader, links.READ, self._woken)
        self._turned_at = self._beat_at = time.monotonic()
        self._thread = threading.Thread(target=self._run, daemon=True, name="trainwright-watch")

    def wait(self, timeout: float) -> bool:
        """Wait up to `timeout` seconds until all hosts have joined. Raises LauncherError if one ends the job first."""
        with self._changed:
            self._changed.wait_for(lambda: self._met or self._verdict or self.gone, timeout)
            if self._verdict and not self._met:
                raise LauncherError(
                    f"{self._verdict.host}: {self._verdict.cause}", "it ended the job while the hosts joined"
                )
            return self._met

    # --- for the launcher ------------------------------------------------------------------------------------------

    def say(self, kind: str, code: int = 0, cause: str = "") -> None:
        """Report that this host's ranks "ended", or "failed" with code and cause, or that all hosts must "stop"."""
        with self._changed:
            self._said(Event(kind, self.world.host, code, cause[: self.settings["failure_characters"]]))
        self._wake()

    def heard(self, timeout: float) -> Event | None:
        """Return the next event, or None after `timeout` seconds. Each host gets the event that ends the job once."""
        with self._changed:
            self._changed.wait_for(lambda: bool(self._events), timeout)
            return self._events.popleft() if self._events else None

    @property
    def ends(self) -> str:
        """Return why the job ends, or "". Unlike heard(), this leaves the event in the queue."""
        return f"{self._verdict.host}: {self._verdict.cause or self._verdict.kind}" if self._verdict else ""

    def all_ended(self, timeout: float) -> bool:
        """Wait up to `timeout` seconds until all hosts ended with 0 or the job failed. Returns whether all ended."""
        with self._changed:
            self._changed.wait_for(lambda: self._all_ended or self._verdict, timeout)
            return self._all_ended

    def close(self) -> None:
        """Close all connections once the peers have read the last messages, or after farewell_seconds."""
        with self._changed:
            if self._closing is None:
                self._closing = time.monotonic() + self.settings["farewell_seconds"]
                for link in self._links:
                    if link.host and not link.left:
                        link.send({"kind": "bye"})
        self._wake()
        if self._thread.is_alive():
            self._thread.join()

    # --- the thread --------------------------------------------------------------------------------------------------

    def _wake(self) -> None:
        with contextlib.suppress(OSError):  # full: the thread is already being woken; closed: the thread has ended
            self._wake_writer.send(b"!")

    def _woken(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._wake_reader.recv(links.CHUNK)

    def _run(self) -> None:
        try:
            while self._turn():
                pass
        except Exception as problem:  # a defect of this thread must end the job, not go unnoticed
            with self._changed:
                self._decide(Event("lost", self.world.host, 1, f"its connection thread failed: {problem!r}"))
        finally:
            for key in list(self._selector.get_map().values()):
                key.fileobj.close()  # type: ignore[union-attr]
            self._selector.close()
            self._wake_writer.close()

    def _turn(self) -> bool:
        ready = self._selector.select(self.settings["heartbeat_seconds"] / 4)
        with self._changed:
            now = time.monotonic()
            self._skip_pause(now)
            for key, _ in ready:
                key.data()
            self._beat(now)
            self._drop_silent(now)
            for link in list(self._links):
                self._flush(link)
            self._changed.notify_all()
            # close() does not wait for unauthenticated peers.
            return self._closing is None or (any(link.host for link in self._links) and now < self._closing)

    def _skip_pause(self, now: float) -> None:
        """Restart the silence timers after a pause of this process (SIGSTOP, no CPU): the peers were not silent."""
        gap, self._turned_at = now - self._turned_at, now
        if gap > self.settings["heartbeat_seconds"]:
            for link in self._links:
                link.heard_at += gap

    def _beat(self, now: float) -> None:
        if now >= self._beat_at and self._closing is None:
            self._beat_at = now + self.settings["heartbeat_seconds"]
            for link in self._links:
                if link.host and not link.left and not link.outbox:  # unsent data: the peer does not read, or is busy
                    link.send({"kind": "beat"})

    def _drop_silent(self, now: float) -> None:
        """Drop peers that have been silent for too long."""
        for link in list(self._links):
            patience = self.settings["silent_seconds" if link.host else "greeting_seconds"]
            if now - link.heard_at > patience and link.host:
                self._drop(link, f"no heartbeat from it for {patience:g} s: the host or its network hangs")
            elif now - link.heard_at > patience:
                self._drop(link, f"it did not identify itself within {patience:g} s")

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
            self._drop(link, f"it sent {problem}")
        else:
            if not more:
                gone = "its connection ended without a goodbye: it was killed, or its launcher died"
                self._drop(link, gone if link.host else "it disconnected without identifying itself")

    def _flush(self, link: Link) -> None:
        try:
            link.flush()
            if not link.outbox and not link.ending and (link.left or self._closing is not None):
                link.ending = True  # the peer closes after it has read everything: closing first could discard data
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
        """Make the first event the cause of the job's end and tell all hosts; later ones are its consequences."""
        if self._verdict is None and not self._all_ended:
            self._verdict = event
            self._events.append(event)
            self._tell(as_message(event))
            self._changed.notify_all()

    def _said(self, event: Event) -> None:
        """Handle an event of this host."""

    def _message(self, link: Link, message: Message) -> None:
        """Handle a peer's message. Raises WireError."""

    def _missed(self, link: Link, why: str) -> None:
        """Handle a connection that ended unexpectedly."""


class Alone(Meeting):
    """Replace a meeting for a host without peers: it opens no socket and has no events."""

    def __init__(self) -> None:
        """Skip Meeting's sockets and thread."""

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
