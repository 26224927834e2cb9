"""A wide-area link on loopback: every byte, either way, arrives half a round trip later; TLS handshakes included."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress


@contextmanager
def link(target: str, round_trip: float) -> Iterator[str]:
    """host:port in front of `target`, on the same address, so that its certificate holds; seconds."""
    host, port = target.rsplit(":", 1)
    listener = socket.create_server((host, 0))

    def pump(source: socket.socket, sink: socket.socket) -> None:
        """What comes in goes out after half a round trip, whatever is under way meanwhile."""
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
