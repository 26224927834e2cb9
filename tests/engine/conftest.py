"""A registry of the tests' own, and a proxy before it that misbehaves on request."""

import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from flaky import Faults, Flaky

CONFIG = """\
version: 0.1
log: {{level: error, accesslog: {{disabled: true}}}}
storage: {{filesystem: {{rootdirectory: {data}}}, delete: {{enabled: true}}}}
http: {{addr: "127.0.0.1:{port}"}}
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for(port: int) -> None:
    for _ in range(100):
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.05)
    raise TimeoutError(f"nothing listens on port {port}")


@pytest.fixture(scope="session")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """host:port of the distribution's docker-registry, empty at first."""
    if not shutil.which("docker-registry"):
        pytest.skip("not run: docker-registry is not installed; make engine")
    folder, port = tmp_path_factory.mktemp("registry"), free_port()
    (folder / "config.yml").write_text(CONFIG.format(data=folder / "data", port=port))
    server = subprocess.Popen(["docker-registry", "serve", folder / "config.yml"], stderr=subprocess.DEVNULL)
    wait_for(port)
    yield f"127.0.0.1:{port}"
    server.terminate()
    server.wait()


@pytest.fixture
def flaky(registry: str) -> Iterator[Flaky]:
    """The registry behind a proxy, and its faults."""
    host, port = registry.split(":")
    faults = Faults()

    class Proxy(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            pass

        def forward(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = self.rfile.read(length)
            if self.headers.get("Transfer-Encoding") == "chunked":
                while size := int(self.rfile.readline(), 16):
                    body += self.rfile.read(size)
                    self.rfile.readline()
                self.rfile.readline()
            if faults.hang and self.command == faults.hang:
                faults.hanging.set()
                faults.over.wait(60)
            if faults.strikes(f"{self.command} {self.path}"):
                self.send_response(500)
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            upstream = HTTPConnection(host, int(port), timeout=60)
            headers = {key: value for key, value in self.headers.items() if key != "Transfer-Encoding"}
            headers["Content-Length"] = str(len(body))
            upstream.request(self.command, self.path, body or None, headers)
            answer = upstream.getresponse()
            content = b"" if self.command == "HEAD" else answer.read()
            self.send_response(answer.status)
            for key, value in answer.getheaders():
                if key not in ("Transfer-Encoding", "Connection", "Content-Length", "Date"):
                    self.send_header(key, value)
            self.send_header("Content-Length", answer.getheader("Content-Length") or str(len(content)))
            self.end_headers()
            self.wfile.write(content)
            upstream.close()

        do_GET = do_HEAD = do_PUT = do_POST = do_PATCH = do_DELETE = forward

    server = ThreadingHTTPServer(("127.0.0.1", 0), Proxy)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield Flaky(f"127.0.0.1:{server.server_port}", faults)
    faults.over.set()
    server.shutdown()
