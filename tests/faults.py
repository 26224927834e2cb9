"""Run a proxy in front of a registry that causes faults, on request or by a seed, and counts them."""

import base64
import hashlib
import json
import random
import re
import select
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple, cast

from layouts import MANIFEST

ROOT = Path(__file__).parents[1]
# Kind of fault to the requests (`METHOD path`) that it can strike.
ANY, UPLOAD = r"\w+ /v2/.", r"(PATCH|PUT) \S+/blobs/uploads/"
DOWNLOAD = r"GET \S+/(blobs|manifests)/sha256:"
KINDS = {
    "500": ANY,
    "502": ANY,
    "503 with Retry-After": ANY,
    "429 with Retry-After": ANY,
    "reset before the answer": ANY,
    "reset in an upload": UPLOAD,
    "hang before the answer": ANY,
    "hang in an upload": UPLOAD,
    "hang in a download": DOWNLOAD,
    "truncated download": DOWNLOAD,
    "blob lost after its upload": r"PUT \S+/blobs/uploads/",
    "blob lost after the manifest": r"PUT \S+/manifests/sha256:",
    "corrupted upload": UPLOAD,
    "corrupted download": DOWNLOAD,
    "lying digest": r"(GET|HEAD) \S+/manifests/",
    "expired token": ANY,
    "forgotten upload": UPLOAD,
    "lost answer": r"(POST|PATCH|PUT|DELETE) /v2/.",
    "slow link": ANY,
}
WITH_BODY = {"reset in an upload", "hang in an upload", "corrupted upload"}  # an empty one has no middle
RETRY_AFTER = 1  # seconds; the header knows no fractions
PIECES, SLOW = 8, 0.02  # of a body on a slow link, and seconds before each
USER = "AWS"


@dataclass
class Strike:
    """A fault: it passes `later` requests of its kind, and then hits the next `times`."""

    kind: str
    later: int = 0
    times: int = 1


class Faults:
    """The faults that the proxy is to cause, and counts of those that it caused."""

    def __init__(self) -> None:
        self.left: dict[str, int] = {}  # `method path-part` to how often it answers 500 before it works
        self.hang = ""  # a method that is never answered
        self.hanging = threading.Event()
        self.over = threading.Event()
        self.strikes: list[Strike] = []
        self.fired: Counter[str] = Counter()
        self.password = ""  # what the proxy asks for; "": nothing
        self.immutable = False  # a tag stays what it is, decided in one place as ECR does
        self.early: list[str] = []  # requests that came again before the Retry-After was over
        self.until: dict[str, float] = {}
        self.seen: list[str] = []
        self.lock = threading.Lock()
        self.tags = threading.Lock()

    def plan(self, seed: int) -> None:
        """Plan one to four faults; sometimes one that lasts longer than all retries."""
        chance = random.Random(seed)
        kinds = sorted(KINDS)
        self.strikes = [
            Strike(
                kinds[seed % len(kinds)] if not number else chance.choice(kinds),  # every kind has its turn
                chance.choice([0, 0, 1, 2, 3, 5, 8]),
                chance.choice([1, 1, 1, 1, 2, 3, 100]),
            )
            for number in range(chance.choice([1, 1, 2, 3, 4]))
        ]

    def strike(self, request: str, length: int) -> str:
        """Return the fault for this request, or ""."""
        with self.lock:
            self.seen.append(request)
            for pattern, count in self.left.items():
                method, part = pattern.split(" ")
                if count and request.startswith(method) and part in request:
                    self.left[pattern] = count - 1
                    return "500"
            for strike in self.strikes:
                if not strike.times or not re.match(KINDS[strike.kind], request):
                    continue
                if strike.kind in WITH_BODY and length < 2:
                    continue
                if strike.kind == "expired token" and not self.password:
                    continue
                if strike.later:
                    strike.later -= 1
                    continue
                strike.times -= 1
                self.fired[strike.kind] += 1
                if strike.kind == "expired token":
                    self.password = f"token-{len(self.seen)}"
                return strike.kind
        return ""

    def credentials(self) -> tuple[str, str]:
        """Return the credentials that a publisher gets."""
        return USER, self.password

    def admits(self, authorization: str) -> bool:
        said = base64.b64encode(f"{USER}:{self.password}".encode()).decode()
        return not self.password or authorization == f"Basic {said}"

    def wait(self, request: str) -> None:
        """Refuse this request as too early for a while."""
        self.until[request] = time.monotonic() + RETRY_AFTER

    def note(self, request: str) -> None:
        if request.startswith("POST"):  # of several blobs at once: these cannot be told apart
            return
        if time.monotonic() < self.until.pop(request, 0) - 0.05:  # clocks of two processes
            self.early.append(request)


class Fired:
    """The faults of the seeded runs; printed after all tests."""

    def __init__(self) -> None:
        self.seeds: set[int] = set()
        self.kinds: Counter[str] = Counter()

    def add(self, seeds: Iterable[int], fired: Mapping[str, int]) -> None:
        self.seeds.update(seeds)
        self.kinds.update(fired)

    def __str__(self) -> str:
        struck = ", ".join(f"{kind} {count}" for kind, count in self.kinds.most_common())
        seeds = f"{len(self.seeds)} seeded runs (seeds {min(self.seeds)} to {max(self.seeds)})"
        return f"{self.kinds.total()} faults of {len(self.kinds)} kinds fired in {seeds}: {struck}"


FIRED = Fired()


class Flaky(NamedTuple):
    address: str  # host:port of the proxy
    faults: Faults


class Proxy(BaseHTTPRequestHandler):
    """The proxy: it passes each request on completely, or applies a fault to it."""

    protocol_version = "HTTP/1.1"
    faults: Faults
    upstream: str

    def log_message(self, *_: object) -> None:
        pass

    def forward(self) -> None:
        with suppress(OSError):  # whoever asked is gone
            self._forward()

    do_GET = do_HEAD = do_PUT = do_POST = do_PATCH = do_DELETE = forward

    def _forward(self) -> None:
        faults, request = self.faults, f"{self.command} {self.path}"
        faults.note(request.partition("?")[0])
        length = int(self.headers.get("Content-Length") or 0)
        known = faults.admits(self.headers.get("Authorization", ""))
        kind = faults.strike(request, length) if known else ""  # what is not let in is no fault
        if kind in ("reset in an upload", "hang in an upload"):
            return self._break_off(length, hang=kind.startswith("hang"))
        body = self._body(length, slow=kind == "slow link")
        if faults.hang and self.command == faults.hang:
            faults.hanging.set()
            faults.over.wait(60)
        if not known or kind == "expired token":
            return self._say(401, "UNAUTHORIZED", {"WWW-Authenticate": 'Basic realm="registry"'})
        if kind == "hang before the answer":
            return self._hang()
        if kind == "reset before the answer":
            return self._reset()
        if kind in ("500", "502"):
            return self._answer(int(kind), {}, b"", b"")  # as a gateway says it, which is no registry
        if kind.endswith("Retry-After"):
            faults.wait(request.partition("?")[0])
            return self._say(int(kind[:3]), "TOOMANYREQUESTS", {"Retry-After": str(RETRY_AFTER)})
        if kind == "forgotten upload":
            self._ask("DELETE", self.path)
            return self._say(404, "BLOB_UPLOAD_UNKNOWN")
        if kind == "corrupted upload":
            body = corrupted(body)
        if faults.immutable and re.match(r"PUT \S+/manifests/(?!sha256:)", request):
            with faults.tags:
                if self._taken(body):
                    return self._say(400, "TAG_INVALID")
                return self._pass_on(kind, body)
        return self._pass_on(kind, body)

    def _pass_on(self, kind: str, body: bytes) -> None:
        status, headers, content = self._ask(self.command, self.path, body, dict(self.headers.items()))
        if kind == "lost answer":
            return self._reset()
        if kind.startswith("blob lost") and status == 201:
            self._lose(body)
        if kind == "lying digest" and "Docker-Content-Digest" in headers:
            headers["Docker-Content-Digest"] = "sha256:" + hashlib.sha256(self.path.encode()).hexdigest()
        if kind == "corrupted download" and status == 200:
            content = corrupted(content)
        if kind in ("truncated download", "hang in a download") and len(content) > 1:
            self._answer(status, headers, content, content[: len(content) // 2])
            return self._hang() if kind.startswith("hang") else self._reset()
        return self._answer(status, headers, content, content, slow=kind == "slow link")

    # --- what it does to the registry ---

    def _ask(
        self, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None
    ) -> tuple[int, dict[str, str], bytes]:
        """Ask the registry behind the proxy; return 502 if it does not answer."""
        sent = {key: value for key, value in (headers or {}).items() if key not in ("Transfer-Encoding", "Expect")}
        upstream = HTTPConnection(self.upstream, timeout=60)
        try:
            upstream.request(method, path, body or None, sent | {"Content-Length": str(len(body))})
            answer = upstream.getresponse()
            content = answer.read()
        except (OSError, HTTPException):
            return 502, {}, b""
        finally:
            upstream.close()
        kept = {
            key: value
            for key, value in answer.getheaders()
            if key not in ("Transfer-Encoding", "Connection", "Date") and (key != "Content-Length" or method == "HEAD")
        }
        return answer.status, kept, content

    def _lose(self, body: bytes) -> None:
        """Delete the blob of this upload, or the first layer of this manifest, from the repository."""
        repository = self.path.split("/blobs/")[0].split("/manifests/")[0]
        found = re.search(r"digest=(sha256(?::|%3A)\w+)", self.path, re.IGNORECASE)
        digest = found[1] if found else json.loads(body)["layers"][0]["digest"]
        self._ask("DELETE", f"{repository}/blobs/{re.sub('%3A', ':', digest, flags=re.IGNORECASE)}")

    def _taken(self, body: bytes) -> bool:
        """Return whether the tag names a manifest other than the one that is being sent."""
        _, headers, _ = self._ask("HEAD", self.path, headers={"Accept": MANIFEST})
        held = headers.get("Docker-Content-Digest", "")
        return bool(held) and held != "sha256:" + hashlib.sha256(body).hexdigest()

    # --- what it does to whoever asks ---

    def _body(self, length: int, slow: bool = False) -> bytes:
        body = b"".join(self._pieces(length)) if slow else self.rfile.read(length)
        if self.headers.get("Transfer-Encoding") == "chunked":
            while size := int(self.rfile.readline(), 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        return body

    def _pieces(self, length: int) -> Iterator[bytes]:
        step = length // PIECES + 1
        for start in range(0, length, step):
            time.sleep(SLOW)
            yield self.rfile.read(min(step, length - start))

    def _break_off(self, length: int, hang: bool) -> None:
        """Send half of the body to the registry; then close the connection, or stay silent."""
        half = self.rfile.read(length // 2)
        upstream = HTTPConnection(self.upstream, timeout=60)
        upstream.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
        for key, value in self.headers.items():
            upstream.putheader(key, value)
        upstream.endheaders(half)
        if hang:
            self._hang()
        upstream.close()
        self._reset()

    def _hang(self) -> None:
        """Stay silent until the client closes the connection or the test ends."""
        while not self.faults.over.wait(0.02):
            readable, _, _ = select.select([self.connection], [], [], 0)
            if readable and not self.connection.recv(1 << 16):
                break
        self.close_connection = True

    def _reset(self) -> None:
        """Close the connection with a TCP RST."""
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True
        for held in (self.rfile, self.wfile, self.connection):
            held.close()

    def _say(self, status: int, code: str, headers: dict[str, str] | None = None) -> None:
        content = json.dumps({"errors": [{"code": code, "message": f"by order of the test: {code}"}]}).encode()
        self._answer(status, headers or {}, content, content)

    def _answer(self, status: int, headers: dict[str, str], content: bytes, sent: bytes, slow: bool = False) -> None:
        self.send_response(status)
        for key, value in ({"Content-Length": str(len(content))} | headers).items():
            self.send_header(key, value)
        self.end_headers()
        if self.command == "HEAD":
            return
        step = len(sent) // PIECES + 1 if slow else len(sent) or 1
        for start in range(0, len(sent), step):
            time.sleep(SLOW if slow else 0)
            self.wfile.write(sent[start : start + step])
        self.wfile.flush()

    def finish(self) -> None:
        with suppress(OSError, ValueError):  # closed already: a reset
            super().finish()


def corrupted(content: bytes) -> bytes:
    """Return the content with one bit changed."""
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :] if content else content


class Server(ThreadingHTTPServer):
    def handle_error(self, *_: object) -> None:
        pass  # a client that is killed is what some tests are about


@contextmanager
def before(registry: str) -> Iterator[Flaky]:
    """Start a proxy in front of the registry at host:port."""
    faults = Faults()
    handler = cast(type[Proxy], type("Handler", (Proxy,), {"faults": faults, "upstream": registry}))
    server = Server(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield Flaky(f"127.0.0.1:{server.server_port}", faults)
    finally:
        faults.over.set()
        server.shutdown()
        server.server_close()


def shorten(tree: Path, **transfer: Any) -> None:
    """Change [transfer] of a checkout's publish.toml, which is this project's where the checkout has none.

    Without `transfer`: what fails is tried as often as elsewhere, after pauses that a test can wait for.
    """
    import tomlkit

    file = tree / "dockerfiles/publish.toml"
    policy = tomlkit.parse((file if file.exists() else ROOT / "dockerfiles/publish.toml").read_text())
    policy["transfer"].update(transfer or {"wait_seconds": 0.02, "wait_most_seconds": 0.2})
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(tomlkit.dumps(policy))
