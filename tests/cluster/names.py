"""A name server that is no good at first, for the hosts of a job; and files as the engine takes them."""

import io
import socket
import struct
import tarfile
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PHASE_SECONDS = 6  # of the first question for a host's name
PHASES = ("silent", "unknown", "wrong")  # and then right
NOBODY = "192.0.2.1"  # RFC 5737: leads nowhere
NO_SUCH_NAME, A = 3, 1


def packed(files: Mapping[str, bytes]) -> bytes:
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as into:
        for path, content in files.items():
            entry = tarfile.TarInfo(path.lstrip("/"))
            entry.size, entry.mode = len(content), 0o644
            into.addfile(entry, io.BytesIO(content))
    return archive.getvalue()


def asked(query: bytes) -> tuple[str, int, int]:
    """Of a query: the name, its type, and where the question ends (RFC 1035, 4.1)."""
    labels, at = list[str](), 12
    while length := query[at]:
        labels.append(query[at + 1 : at + 1 + length].decode("ascii"))
        at += 1 + length
    return ".".join(labels), struct.unpack("!H", query[at + 1 : at + 3])[0], at + 5


def answer(query: bytes, end: int, address: str | None, code: int = 0) -> bytes:
    """A reply with one address, or none."""
    record = b"\xc0\x0c" + struct.pack("!HHIH", A, 1, 1, 4) + socket.inet_aton(address) if address else b""
    return query[:2] + struct.pack("!HHHHH", 0x8180 | code, 1, bool(address), 0, 0) + query[12:end] + record


class Server:
    """Answers hosts of a network from its gateway. `heard` is in which phases it was asked for one of them."""

    def __init__(self, resolv: Path) -> None:
        self.volumes = {"/etc/resolv.conf": (resolv, "ro")}
        self.heard = list[str]()
        self._resolv, self._socket = resolv, socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.settimeout(1)
        self._over, self._serving = threading.Event(), threading.Thread()

    def answer(self, job: Any, who: Mapping[str, str], phases: Sequence[str] = ()) -> None:
        """From now on, each name with the address of that container, which runs; before that all the phases."""
        network = job.running.network
        gateway = network.attrs["IPAM"]["Config"][0]["Gateway"]
        addresses = {name: job.address(host) for name, host in who.items()}
        self._socket.bind((gateway, 53))
        self._resolv.write_text(f"nameserver {gateway}\noptions timeout:1 attempts:1\n")
        self._serving = threading.Thread(target=self._serve, args=(addresses, [*phases, "right"]), daemon=True)
        self._serving.start()

    def _serve(self, addresses: Mapping[str, str], phases: Sequence[str]) -> None:
        began = 0.0
        while not self._over.is_set():
            try:
                query, client = self._socket.recvfrom(512)
            except TimeoutError:
                continue
            name, kind, end = asked(query)
            began = began or (time.monotonic() if name in addresses else 0.0)
            phase = phases[min(int((time.monotonic() - began) / PHASE_SECONDS), len(phases) - 1)]
            if name in addresses:
                self.heard.append(phase)
            if phase == "silent":
                continue
            if phase == "unknown" or name not in addresses:
                reply = answer(query, end, None, NO_SUCH_NAME)
            else:
                right = addresses[name] if phase == "right" else NOBODY
                reply = answer(query, end, right if kind == A else None)
            self._socket.sendto(reply, client)

    def close(self) -> None:
        self._over.set()
        if self._serving.is_alive():
            self._serving.join()
        self._socket.close()


@contextmanager
def server() -> Iterator[Server]:
    with tempfile.TemporaryDirectory() as folder:
        resolv = Path(folder, "resolv.conf")
        resolv.touch()
        made = Server(resolv)
        try:
            yield made
        finally:
            made.close()
