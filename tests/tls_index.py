"""Serve a Python index with TLS, a password and a certificate of our own CA, at an address that containers reach."""

import base64
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple

import pytest
from wheel import wheel

from trainwright.docker import engine

USER, PASSWORD = "user", "pass-of-this-test"


class Index(NamedTuple):
    """The index's address with user and password, and the CA file."""

    address: str
    ca: Path


class Handler(SimpleHTTPRequestHandler):
    def do_GET(self) -> None:
        wanted = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        if self.headers.get("Authorization") == f"Basic {wanted}":
            return super().do_GET()
        self.send_response(401)
        self.send_header("WWW-Authenticate", 'Basic realm="index"')
        self.send_header("Content-Length", "0")
        self.end_headers()
        return None


@contextmanager
def serving(folder: Path, *names: str) -> Iterator[Index]:
    """Serve an index with a wheel 1.0 of each name. Skip if the engine has no bridge on this machine."""
    networks = engine.client().networks.list(names=["bridge"])
    if not networks:
        pytest.skip("not run: the engine has no bridge")
    host = networks[0].attrs["IPAM"]["Config"][0]["Gateway"]
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=our CA"]
    made += ["-addext", f"subjectAltName=IP:{host}", "-keyout", "ca.key", "-out", "ca.pem"]
    subprocess.run(made, cwd=folder, check=True, capture_output=True)
    for name in names:
        place = folder / "index/simple" / name
        place.mkdir(parents=True)
        file, content = wheel(name, "1.0")
        (place / file).write_bytes(content)
        (place / "index.html").write_text(f'<a href="{file}">{file}</a>')
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "ca.pem", folder / "ca.key")
    try:
        server = ThreadingHTTPServer((host, 0), partial(Handler, directory=str(folder / "index")))
    except OSError as error:
        pytest.skip(f"not run: {host} is no address of this machine: {error}")
    with server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield Index(f"https://{USER}:{PASSWORD}@{host}:{server.server_port}/simple", folder / "ca.pem")
        server.shutdown()
