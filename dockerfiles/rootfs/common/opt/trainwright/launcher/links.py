"""Open connections between two hosts, with a timeout on every wait, and explain why a host cannot be reached."""

import selectors
import socket
import threading
import time
from collections.abc import Generator, Iterator
from typing import Any

import trust
from wire import Lines, Message, Seal, WireError

CHUNK = 1 << 16
READ, WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE


class Unreached(Exception):
    """Raised if a host does not answer; the text says why. A later try may succeed."""


class Link:
    """Hold a non-blocking connection with its input and output buffers."""

    def __init__(self, sock: socket.socket, limit: int) -> None:
        self.sock = sock
        self.lines = Lines(limit)
        self.sends, self.receives = Seal(None), Seal(None)
        self.outbox = bytearray()
        self.address = ""  # the peer's IP address
        self.host = ""  # the peer's host name, once the handshake is complete
        self.steps: Generator[Message | None, Message, Any] | None = None  # the handshake, until it is complete
        self.heard_at = time.monotonic()
        self.left = False  # the peer said goodbye or was refused: the end of its connection is expected
        self.ending = False  # the last byte to the peer is sent
        self.awaits = READ  # events that the selector waits for

    def send(self, message: Message) -> None:
        self.outbox += self.sends.seal(message)

    def flush(self) -> None:
        """Send as much of the output buffer as the kernel accepts now. Raises OSError."""
        while self.outbox:
            try:
                del self.outbox[: self.sock.send(self.outbox)]
            except BlockingIOError:
                return

    def receive(self) -> bool:
        """Read what has arrived. Returns False at the end of the stream. Raises OSError."""
        try:
            data = self.sock.recv(CHUNK)
        except BlockingIOError:
            return True
        self.lines.feed(data)
        return bool(data)

    def messages(self) -> Iterator[Message]:
        """Yield the complete messages of the input buffer. Raises WireError for an invalid one."""
        while (line := self.lines.next()) is not None:
            yield self.receives.open(line)


def listen(port: int) -> socket.socket:
    """Listen on all addresses of this host, IPv6 and IPv4. Raises OSError."""
    if socket.has_dualstack_ipv6():
        try:
            return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=1024)
        except OSError:
            pass  # a container may support IPv6 without having an address; any other error recurs below
    return socket.create_server(("", port), backlog=1024)


def addresses(host: str, port: int, seconds: float) -> list[tuple[Any, ...]]:
    """Resolve a host name, in at most `seconds`, whatever the resolver's own timeout is. Raises Unreached."""
    found: list[Any] = []

    def ask() -> None:
        try:
            found.append(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        except (OSError, UnicodeError) as problem:
            found.append(problem)

    asking = threading.Thread(target=ask, daemon=True, name="trainwright-resolve")
    asking.start()
    asking.join(seconds)
    if not found or (isinstance(found[0], socket.gaierror) and found[0].errno == socket.EAI_AGAIN):
        raise Unreached("DNS does not answer")
    if isinstance(found[0], Exception):
        raise Unreached("no such name")
    return [(family, address) for family, _, _, _, address in found[0]]


def connect(host: str, port: int, seconds: float) -> socket.socket:
    """Connect to the first address that answers. Raises Unreached."""
    why = "no such name"
    for family, address in addresses(host, port, seconds):
        sock = socket.socket(family, socket.SOCK_STREAM)
        sock.settimeout(seconds)
        try:
            sock.connect(address)
        except OSError as problem:
            sock.close()
            why = _why(problem, f"{address[0]}:{port}")
        else:
            return sock
    raise Unreached(why)


def _why(problem: OSError, place: str) -> str:
    if isinstance(problem, ConnectionRefusedError):
        return f"refused: nothing listens at {place}"
    if isinstance(problem, TimeoutError):
        return f"no answer from {place}"
    return f"{problem.strerror or problem}: {place}"


def why_absent(host: str, port: int, seconds: float) -> str:
    """Explain, as far as it can be seen from here, why a host did not join."""
    try:
        connect(host, port, seconds).close()
    except Unreached as problem:
        if str(problem).startswith("refused"):
            return "its container runs, but its launcher did not connect"
        return str(problem)
    return f"it answers on port {port}, but its launcher did not connect"


def call(secret: trust.Secret | None, job: str, main: str, host: str, port: int, seconds: float, limit: int) -> Link:
    """Connect a member to the main host and complete the handshake. Raises Unreached and trust.Refused."""
    deadline = time.monotonic() + seconds
    sock = connect(main, port, seconds)
    link = Link(sock, limit)
    steps = trust.enter(secret, job, main, host)
    try:
        message = next(steps)
        while True:
            sock.settimeout(_left(deadline))
            sock.sendall(link.sends.seal(message))
            message = steps.send(_next(link, deadline))
    except StopIteration as done:
        sends, receives = done.value
        link.sends, link.receives, link.host = Seal(sends), Seal(receives), main
        sock.setblocking(False)
        link.heard_at = time.monotonic()
        return link
    except TimeoutError:
        sock.close()
        raise Unreached(f"it accepted the connection, but did not answer within {seconds:g} s") from None
    except OSError as problem:
        sock.close()
        raise Unreached(f"its connection broke: {problem.strerror or problem}") from None
    except WireError as problem:
        sock.close()
        raise Unreached(f"the process that answers there is not a launcher: it sent {problem}") from None
    except BaseException:
        sock.close()
        raise


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def _next(link: Link, deadline: float) -> Message:
    """Wait for the next message of the handshake. Raises OSError and WireError."""
    while True:
        for message in link.messages():
            return message
        link.sock.settimeout(_left(deadline))
        if not link.receive():
            raise ConnectionError(0, "closed by the other end")
