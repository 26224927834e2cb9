"""Implement the two roles: the main host, which decides which event came first, and the members, which join it."""

import time

import links
import trust
from errors import LauncherError, note
from links import Link
from meeting import ENDS, Card, Event, Meeting, Settings, as_event, as_message
from wire import Message, Seal, WireError, number, shown, text
from worlds import World


class Main(Meeting):
    """Accept members until all have joined, relay their events, and decide which event that ends the job came first."""

    def __init__(self, world: World, settings: Settings, secret: trust.Secret | None, card: Card) -> None:
        port = settings["watch_port"]
        try:
            self._listener = links.listen(port)
        except OSError as problem:
            fix = f"stop the process that uses the port on {world.host}: another job's launcher, or this job's script"
            raise LauncherError(f"port {port} cannot be opened", problem.strerror or str(problem), fix) from None
        super().__init__(world, settings)
        self.absent: dict[str, str] = {}  # host that has not joined -> what was seen of it
        self.without_secret: dict[str, str] = {}  # host that reports that it has no secret -> its IP address
        self.told: set[str] = set()  # hosts that connected after the job had ended
        self.cards[world.host] = card
        self._secret = secret
        self._ended: set[str] = set()
        self._noted: set[tuple[str, str]] = set()
        self._listener.setblocking(False)
        self._selector.register(self._listener, links.READ, self._accept)
        self._thread.start()

    def missing(self) -> list[str]:
        with self._changed:
            return [host for host in self.world.hosts if host not in self.cards]

    def _accept(self) -> None:
        if self._met:
            return
        try:
            sock, address = self._listener.accept()
        except OSError as problem:
            self._note("a client", f"accept failed: {problem.strerror or problem}")
            return
        strangers = [link for link in self._links if not link.host]
        if len(strangers) >= self.settings["strangers"]:
            self._drop(strangers[0], "too many connections that have not identified themselves")
        link = Link(sock, self.settings["greeting_bytes"])
        link.address = str(address[0]).removeprefix("::ffff:")
        link.steps = trust.admit(self._secret, self.world.job, self.world.main, self.world.hosts, self._is_in)
        next(link.steps)
        self._watch(link)

    def _is_in(self, host: str) -> bool:
        return any(link.host == host and not link.left for link in self._links)

    def _note(self, who: str, why: str) -> None:
        """Note a refused connection: each reason once, and at most `strangers` lines, so that the log stays short."""
        if (who, why) not in self._noted and len(self._noted) < self.settings["strangers"]:
            self._noted.add((who, why))
            note(f"connection from {who} refused: {why}")

    def _greet(self, link: Link, message: Message) -> None:
        assert link.steps is not None
        try:
            link.send(link.steps.send(message) or {})
        except StopIteration as done:
            link.host, (sends, receives), last = done.value
            link.send(last)
            link.sends, link.receives = Seal(sends), Seal(receives)
            link.lines.limit = self.settings["line_bytes"]
            link.heard_at = time.monotonic()
            if self._verdict:
                link.send(as_message(self._verdict))
                self.told.add(link.host)
        except trust.Refused as refused:
            why = trust.REFUSALS[refused.code][1].format(host=shown(refused.host))
            if refused.host in self.world.hosts and refused.code != "taken":
                self.absent[refused.host] = why
                if refused.code == "wants secret":
                    self.without_secret[refused.host] = link.address
            self._note(link.address, why)
            link.send({"refused": refused.code})
            link.left = True  # the connection closes once the peer has read the refusal

    def _message(self, link: Link, message: Message) -> None:
        if not link.left:
            (self._hear if link.host else self._greet)(link, message)

    def _hear(self, link: Link, message: Message) -> None:
        kind, host = text(message, "kind", 16), link.host
        if kind == "card" and host not in self.cards:
            self._take(link, message)
        elif kind == "bye":
            link.left = True
            self._left(host, "it left before its ranks had ended")
        elif kind in ENDS or kind == "ended":
            cause = text(message, "cause")[: self.settings["failure_characters"]]
            self._said(Event(kind, host, number(message, "code"), cause))

    def _take(self, link: Link, message: Message) -> None:
        if not isinstance(message.get("card"), dict):
            raise WireError("a message without a valid card")
        self.cards[link.host] = message["card"]
        self.absent.pop(link.host, None)
        self.without_secret.pop(link.host, None)
        if len(self.cards) == len(self.world.hosts) and self._verdict is None:
            self._met = True
            self._tell({"kind": "met", "cards": self.cards})
            self._selector.unregister(self._listener)  # all hosts have joined, so the port closes
            self._listener.close()
            for stranger in [other for other in self._links if not other.host]:
                stranger.left = True
                self._drop(stranger, "")

    def _said(self, event: Event) -> None:
        if event.kind != "ended":
            return self._decide(event)
        self._ended.add(event.host)
        if event.host == self.world.host:
            self._tell(as_message(event))
        else:
            self._events.append(event)
        if len(self._ended) == len(self.world.hosts) and self._verdict is None:
            self._all_ended = True
            self._tell({"kind": "done"})
        return None

    def _missed(self, link: Link, why: str) -> None:
        if link.host:
            self._left(link.host, why)
        elif not self._met:
            self._note(link.address, why)

    def _left(self, host: str, why: str) -> None:
        if not self._met:
            self.cards.pop(host, None)  # it may join again
            self.absent[host] = f"it joined and then left: {why}"
            note(f"{host} joined and then left: {why}")
        elif host not in self._ended:
            self._decide(Event("lost", host, 1, why))


class Member(Meeting):
    """Connect to the main host, report this host's events to it and receive those of the others."""

    def __init__(self, world: World, settings: Settings, link: Link, card: Card | None) -> None:
        """Start the connection. `card`: None for a host that only reports its failure and does not join."""
        super().__init__(world, settings)
        link.lines.limit = settings["line_bytes"]
        if card is not None:
            link.send({"kind": "card", "card": card})
        self._watch(link)
        self._thread.start()

    def _said(self, event: Event) -> None:
        self._tell(as_message(event))

    def _message(self, link: Link, message: Message) -> None:
        kind = text(message, "kind", 16)
        if kind == "met" and isinstance(message.get("cards"), dict):
            self.cards, self._met = message["cards"], True
        elif kind in ENDS:
            self._decide(as_event(message))
        elif kind == "ended":
            self._events.append(as_event(message))
        elif kind == "done":
            self._all_ended = self._verdict is None
        elif kind == "bye":
            link.left = True
            self._missed(link, "it left before all hosts had ended")

    def _missed(self, link: Link, why: str) -> None:  # noqa: ARG002
        if self._met:
            self._decide(Event("lost", self.world.main, 1, why))
        else:
            self.gone = why
