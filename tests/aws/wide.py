"""Simulate a wide-area link on loopback: every byte arrives half a round trip later, also of TLS handshakes."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress


@contextmanager
def link(target: str, round_trip: float) -> Iterator[str]:
    """Delay a connection by `round_trip` seconds; yield host:port of a relay in front of `target`, on the same address.

    Because the address is the same, the certificate of the target is valid for the relay.
    """
    host, port = target.rsplit(":", 1)
    listener = socket.create_server((host, 0))

    def pump(source: socket.socket, sink: socket.socket) -> None:
        """Forward received data with a delay of half a round trip, without waiting for earlier data."""
        pending: list[tuple[float, bytes]] = []
        arrived = threading.Condition()

        def deliver() -> None:
            with suppress(OSError):
                while True:
                    with arrived:
                        arrived.wait_for(lambda: pending)
                        due, piece = pending.pop(0)
                    time.sleep(max(0.0, due - time.monotonic()))
                    if not piece:
                        sink.shutdown(socket.SHUT_WR)
                        return
                    sink.sendall(piece)

        threading.Thread(target=deliver, daemon=True).start()
        piece = b"."
        while piece:
            try:
                piece = source.recv(1 << 16)
            except OSError:
                piece = b""
            with arrived:
                pending.append((time.monotonic() + round_trip / 2, piece))
                arrived.notify()

    def serve() -> None:
        with suppress(OSError):
            while True:
                client, _ = listener.accept()
                threading.Thread(target=connect, args=(client,), daemon=True).start()

    def connect(client: socket.socket) -> None:
        time.sleep(round_trip)  # of the connection itself
        server = socket.create_connection((host, int(port)))
        for one in (client, server):
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threading.Thread(target=pump, args=(server, client), daemon=True).start()
        pump(client, server)

    threading.Thread(target=serve, daemon=True).start()
    yield f"{host}:{listener.getsockname()[1]}"
    listener.close()
