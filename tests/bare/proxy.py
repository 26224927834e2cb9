"""Simulate a company's proxy: all traffic goes through it, and it decrypts TLS with its own certificate."""

import datetime
import select
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

PEM = serialization.Encoding.PEM


@dataclass
class Proxy:
    folder: Path
    address: str = ""
    opened: list[str] = field(default_factory=list)  # hosts whose TLS was opened
    plain: list[str] = field(default_factory=list)  # hosts that were asked without TLS
    key: ec.EllipticCurvePrivateKey = field(default_factory=lambda: ec.generate_private_key(ec.SECP256R1()))
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def authority(self) -> bytes:
        """Return the CA certificate that users of the proxy must trust."""
        return self._certificate("CA of a test's proxy", True).public_bytes(PEM)

    def context(self, host: str) -> ssl.SSLContext:
        """Return the TLS context with which the proxy stands in for a host."""
        file = self.folder / f"{host}.pem"
        with self.lock:
            if not file.exists():
                form = (PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
                file.write_bytes(self._certificate(host, False).public_bytes(PEM) + self.key.private_bytes(*form))
        found = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        found.load_cert_chain(file)
        return found

    def _certificate(self, name: str, authority: bool) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        issuer, subject = (
            x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)]) for text in ("CA of a test's proxy", name)
        )
        return (
            x509.CertificateBuilder(
                issuer, subject, self.key.public_key(), 1 if authority else x509.random_serial_number()
            )
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName([x509.DNSName(name.replace(" ", "-"))]), critical=False)
            .sign(self.key, hashes.SHA256())
        )


class Handler(BaseHTTPRequestHandler):
    proxy: Proxy

    def log_message(self, *_: object) -> None: ...

    def do_CONNECT(self) -> None:
        host, _, port = self.path.partition(":")
        self.proxy.opened.append(host)
        self.wfile.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        self.close_connection = True
        with suppress(OSError), self.proxy.context(host).wrap_socket(self.connection, server_side=True) as client:
            far = ssl.create_default_context().wrap_socket(
                socket.create_connection((host, int(port))), server_hostname=host
            )
            with far:
                join(client, far)

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        self.proxy.plain.append(str(parts.hostname))
        self.close_connection = True
        with suppress(OSError), socket.create_connection((str(parts.hostname), parts.port or 80)) as far:
            words = [f"{self.command} {parts._replace(scheme='', netloc='').geturl()} HTTP/1.1"]
            words += [f"{name}: {value}" for name, value in self.headers.items() if "connection" not in name.lower()]
            far.sendall("\r\n".join([*words, "Connection: close", "", ""]).encode())
            join(self.connection, far)

    do_HEAD = do_GET


def join(one: socket.socket, other: socket.socket) -> None:
    """Pass data in both directions until one side closes or both are silent."""
    while True:
        waiting = [side for side in (one, other) if isinstance(side, ssl.SSLSocket) and side.pending()]
        for side in waiting or select.select([one, other], [], [], 120)[0] or [None]:
            if side is None or not (said := side.recv(1 << 16)):
                return
            (other if side is one else one).sendall(said)


@contextmanager
def serving(folder: Path) -> Iterator[Proxy]:
    proxy = Proxy(folder)
    with ThreadingHTTPServer(("127.0.0.1", 0), type("Bound", (Handler,), {"proxy": proxy})) as server:
        server.daemon_threads = True
        proxy.address = f"http://127.0.0.1:{server.server_port}"
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield proxy
        server.shutdown()
