"""Test hostile apt mirrors: the packages and indexes that they send. apt checks signatures; we limit sizes."""

import hashlib
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, cast

import pytest
from tenacity import wait_none

from trainwright.core import store
from trainwright.core.errors import LockError, TrainwrightError
from trainwright.lock import packages
from trainwright.matrix.model import Base, Package
from trainwright.resolve import apt

pytestmark = pytest.mark.usefixtures("bare_network")
GOOD = b"a package"
ROOT = Path(__file__).parents[2]
DAY = "Mon, 23 Nov 2026 00:00:00 GMT"
PEAK = 30_000_000  # bytes that an answer may take


def bomb() -> bytes:
    """Return 40 MB of zeros, compressed; they never lie in memory, which is measured."""
    made = zlib.compressobj(wbits=31)  # gzip
    return b"".join([*(made.compress(bytes(10**6)) for _ in range(40)), made.flush()])


def send(handler: BaseHTTPRequestHandler, content: bytes, status: int = 200, **headers: str) -> None:
    handler.send_response(status)
    for name, value in ({"Content-Length": str(len(content))} | headers).items():
        handler.send_header(name.replace("_", "-"), value)
    handler.end_headers()
    handler.wfile.write(content)


def endless(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(200)
    handler.end_headers()
    for _ in range(200):
        handler.wfile.write(b"x" * 1_000_000)


def around(handler: BaseHTTPRequestHandler) -> None:
    send(handler, b"", 302, Location=handler.path)


ANSWERS: dict[str, Callable[[BaseHTTPRequestHandler], None]] = {
    "other bytes": lambda handler: send(handler, b"A PACKAGE"),
    "more bytes": lambda handler: send(handler, GOOD + b"!"),
    "fewer bytes": lambda handler: send(handler, GOOD[:-1]),
    "nothing": lambda handler: send(handler, b""),
    "a body without end": endless,
    "a bomb as an encoding": lambda handler: send(handler, bomb(), Content_Encoding="gzip"),
    "a length that is a lie": lambda handler: send(handler, b"A PACKAGE", Content_Length="9"),
    "a redirect in a circle": around,
    "a redirect to a file": lambda handler: send(handler, b"", 302, Location="file:///etc/passwd"),
    "a redirect to nowhere": lambda handler: send(handler, b"", 302, Location="http://["),
    "a redirect to this host": lambda handler: send(handler, b"", 302, Location="http://127.0.0.1:1/"),
    "a page in its place": lambda handler: send(handler, b"<html>sign in</html>", Content_Type="text/html"),
    "a part of another file": lambda handler: send(handler, b"kage", 206, Content_Range="bytes 5-8/9"),
}


@pytest.fixture
def mirror() -> Iterator[Callable[[Callable[[BaseHTTPRequestHandler], None]], str]]:
    """Return a function that starts a mirror with this answer and returns its address."""
    servers: list[ThreadingHTTPServer] = []

    def serve(answer: Callable[[BaseHTTPRequestHandler], None]) -> str:
        def do_get(handler: BaseHTTPRequestHandler) -> None:
            try:
                answer(handler)
            except OSError:
                handler.close_connection = True  # who asked has had enough

        one = {"do_GET": do_get, "log_message": lambda *_: None}
        handler = cast(type[BaseHTTPRequestHandler], type("Mirror", (BaseHTTPRequestHandler,), one))
        servers.append(ThreadingHTTPServer(("127.0.0.1", 0), handler))
        Thread(target=servers[-1].serve_forever, args=(0.01,), daemon=True).start()
        return f"http://127.0.0.1:{servers[-1].server_port}"

    yield serve
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize("attack", ANSWERS)
def test_what_is_not_the_locked_package_is_one_error_and_nothing_of_it_is_kept(
    attack: str, mirror: Any, intent: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = mirror(ANSWERS[attack])
    monkeypatch.setenv("TRAINWRIGHT_MIRRORS", f"debian={address} debian-security={address}")
    base: Base = intent.components.bases["debian-12"].model_copy(update={"snapshots": {}})
    said = Package(
        **{"name": "a", "version": "1", "architecture": "amd64", "archive": "debian", "filename": "pool/a.deb"},
        size=len(GOOD),
        sha256=hashlib.sha256(GOOD).hexdigest(),
    )
    wanted = apt.wanted(base, [said], packages.epoch_of({"Date": DAY}))
    monkeypatch.setattr(store, "wait_exponential_jitter", lambda **_: wait_none())
    refused, lost = None, dict[str, str]()
    tracemalloc.start()
    try:
        lost = store.fetch(wanted)
    except TrainwrightError as error:
        refused = error
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < PEAK
    assert refused or said.sha256 in lost  # gone from where it was, and nobody else has it
    assert refused is None or refused.fix
    assert not [path for path in store.root().rglob("*") if path.is_file()]


def test_the_package_itself_is_taken(mirror: Any) -> None:
    """That the others are refused is not the test's own doing."""
    sha256 = hashlib.sha256(GOOD).hexdigest()
    address = mirror(lambda handler: send(handler, GOOD))
    assert store.fetch([store.Wanted(name="a", sha256=sha256, size=len(GOOD), urls=[f"{address}/a"])]) == {}
    assert store.has(sha256)


NAMES = [
    "../../escaped",
    "/escaped",
    "pool/../../../escaped",
    "..",
    ".",
    "",
    "pool/\x00",
    "pool/a\n b",
    "pool//a",
    "~/../a",
]


@pytest.mark.parametrize("name", NAMES)
def test_a_file_name_of_an_index_leads_nowhere_else(name: str) -> None:
    """Signed by whom one trusts, or edited in the lock: packages are laid out in a folder by these names."""
    stanza = {"Package": "a", "Version": "1", "Architecture": "amd64", "Archive": "debian", "Filename": name}
    stanza |= {"Size": str(len(GOOD)), "SHA256": hashlib.sha256(GOOD).hexdigest()}
    with pytest.raises(LockError):
        packages.reduce(stanza, "debian")
    with pytest.raises(LockError):
        packages.parse(packages.dump({"Intent": "0" * 64, "Date": DAY}, {"a": stanza}), "debian-12.packages")


def test_the_file_names_of_all_locks_are_file_names() -> None:
    for path in (ROOT / "dockerfiles/locks").glob("*.packages"):
        assert packages.parse(path.read_text(), path.name)
