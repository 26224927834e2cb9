"""What unit tests share: a host with nothing on it, a checkout of one's own, the CLI, and a web server on loopback."""

import functools
import os
import re
import shutil
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from typing import Any
from zipfile import ZipFile

import pytest
from hypothesis import settings

from trainwright import certificates, engine, indexes, inputs, lock, locking, packages
from trainwright import cli as command_line
from trainwright.config import parse
from trainwright.matrix import Intent, load_intent
from trainwright.model import Lock

ROOT = Path(__file__).parents[2]
settings.register_profile("unit", max_examples=30, deadline=None, database=None)
settings.load_profile("unit")


@pytest.fixture(autouse=True)
def _bare_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No engine, no registry, no account, a store of its own, and nothing remembered from another test."""
    for name in list(os.environ):
        if name.startswith(("AWS_", "TRAINWRIGHT_", "PIP_", "UV_")) or name in ("REGISTRY", "FORCE_COLOR", "NO_COLOR"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "no-credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "no-config"))
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/no.sock")
    monkeypatch.setenv("TRAINWRIGHT_STORE", str(tmp_path / "store"))
    monkeypatch.setenv("TRAINWRIGHT_REGISTRY_PORT", "1")
    cached = (engine.client, engine.buildx, indexes.pip_settings)  # the real ones, whatever a test puts there
    for function in cached:
        function.cache_clear()
    yield
    monkeypatch.undo()  # back into a folder that stays
    for function in cached:
        function.cache_clear()


@pytest.fixture(scope="session")
def intent() -> Intent:
    """The intent of this very checkout, read once."""
    return load_intent(ROOT)


@pytest.fixture(scope="session")
def memory() -> Iterator[Path]:
    """A folder in memory: pytest keeps what lies in tmp_path, and removes it slowly."""
    with TemporaryDirectory(
        prefix="trainwright-", dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    ) as folder:
        yield Path(folder)


@pytest.fixture
def tree(memory: Path) -> Iterator[Path]:
    """A checkout of our own, to break; always in one place, so that templates nobody broke stay compiled.

    Nothing is proved in it.
    """
    root = memory / "checkout"
    shutil.copytree(ROOT / "dockerfiles", root / "dockerfiles", ignore=shutil.ignore_patterns("proofs"))
    (root / "scripts").mkdir()
    for name in ("bootstrap-base.sh", "engine.sh"):  # one that is part of the key, and one that is not
        shutil.copy(ROOT / "scripts" / name, root / "scripts")
    yield root
    shutil.rmtree(root)


@pytest.fixture
def edit() -> Callable[[Path, str, str], None]:
    """Replace what a pattern matches, once; a pattern that matches nothing is a broken test, not a passed one."""

    def replace(path: Path, pattern: str, new: str) -> None:
        text, count = re.subn(pattern, lambda _: new, path.read_text(), count=1, flags=re.MULTILINE)
        assert count == 1, f"{pattern} is not in {path}"
        path.write_text(text)

    return replace


@pytest.fixture
def settle() -> Callable[[Path], None]:
    """Make every lock of a tree answer its intent, as `trainwright lock` does, without resolving anything."""

    def rewrite(root: Path) -> None:
        intent = load_intent(root)
        bases = {(variant.base, False) for variant in intent.variants}
        bases |= {(variant.base, True) for variant in intent.variants if lock.compiles(intent, variant)}
        for base, tools in sorted(bases):
            path = inputs.packages_path(intent, base, tools)
            if not path.exists():  # of a base whose images await something
                continue
            header, stanzas = packages.parse(path.read_text(), path.name)
            fresh = {**header, "Intent": inputs.packages_intent(intent, base, tools)}
            if fresh != header:
                path.write_text(packages.dump(fresh, stanzas))
        for variant in {variant.lock: variant for variant in inputs.held(intent)}.values():
            path, digest = inputs.lock_path(intent, variant), lock.intent_digest(intent, variant)
            held = parse(path.read_text(), Lock, path.name)
            if held.intent != digest:
                sources = locking.lock_sources(intent, variant)
                path.write_text(lock.dump(held.model_copy(update={"intent": digest, "sources": sources})))

    return rewrite


@dataclass
class Ended:
    """How a command ended: exit code, standard output, standard error."""

    code: int
    out: str
    err: str


Cli = Callable[..., Ended]


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Cli:
    """The command line, in this process: `cli(root, "list", "--json")`."""

    def call(root: Path, *words: str) -> Ended:
        monkeypatch.chdir(root)
        monkeypatch.setattr(sys, "argv", ["trainwright", *words])
        engine.client.cache_clear()
        capfd.readouterr()
        with pytest.raises(SystemExit) as ended:
            command_line.main()
        return Ended(int(ended.value.code or 0), *capfd.readouterr())

    return call


Fault = Callable[[BaseHTTPRequestHandler, bytes], None]


@dataclass
class Site:
    """Files behind http://127.0.0.1; `faults` of a path are acted out first, one a request."""

    address: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    faults: dict[str, list[Fault]] = field(default_factory=dict)
    asked: list[tuple[str, str]] = field(default_factory=list)  # path, Range header

    def offer(self, name: str, body: bytes, *faults: Fault) -> str:
        """Put a file there; its address."""
        self.files[f"/{name}"] = body
        self.faults[f"/{name}"] = list(faults)
        return f"{self.address}/{name}"


@contextmanager
def _serving(certificate: Path | None = None) -> Iterator[Site]:
    """A site of its own; over TLS where there is a certificate (a PEM file, its key with it)."""
    held = Site()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            ranged = self.headers.get("Range", "")
            held.asked.append((self.path, ranged))
            body = held.files.get(self.path)
            if body is None:
                self.send_error(404)
            elif held.faults.get(self.path):
                held.faults[self.path].pop(0)(self, body)
            else:
                start = int(ranged.removeprefix("bytes=").rstrip("-")) if ranged else 0
                self.send_response(206 if ranged else 200)
                self.send_header("Content-Length", str(len(body) - start))
                self.send_header("Content-Type", "text/html" if self.path.endswith("/") else "text/plain")
                self.end_headers()
                self.wfile.write(body[start:])

        do_HEAD = do_GET

        def log_message(self, *_: Any) -> None: ...

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: Any) -> None: ...  # a client that hangs up is what some tests are about

    with Server(("127.0.0.1", 0), Handler) as server:
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            server.socket = context.wrap_socket(server.socket, server_side=True)
        held.address = f"{'https' if certificate else 'http'}://127.0.0.1:{server.server_port}"
        Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield held
        server.shutdown()


@pytest.fixture
def site() -> Iterator[Site]:
    with _serving() as held:
        yield held


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a throw-away CA (ca.pem), what it vouches for (127.0.0.1: server.pem, with its key), and another
    CA that knows nothing of it (public.pem).
    """
    folder = tmp_path_factory.mktemp("authority")
    new = "openssl req -x509 -days 2 -nodes -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -subj"
    for words in (
        f"{new} /CN=public -keyout public.key -out public.pem",
        f"{new} /CN=corporate -keyout ca.key -out ca.pem",
        f"{new} /CN=server -CA ca.pem -CAkey ca.key -keyout server.key -out server.pem "
        "-addext basicConstraints=critical,CA:FALSE -addext subjectAltName=IP:127.0.0.1",
    ):
        subprocess.run(words.split(), cwd=folder, check=True, capture_output=True)
    with (folder / "server.pem").open("a") as file:
        file.write((folder / "server.key").read_text())
    return folder


@pytest.fixture
def tls_site(authority: Path) -> Iterator[Site]:
    """The same behind https://, by a certificate that no system trusts."""
    with _serving(authority / "server.pem") as held:
        yield held


@pytest.fixture
def bare_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A home without settings, no proxy, no CA but the system's, and pip not asked: that takes a third of a second."""
    for name in list(os.environ):
        if name.lower().endswith("_proxy") or name.startswith(("GIT_", "SSL_CERT_")) or name.endswith("_CA_BUNDLE"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(certificates, "pip_settings", dict)
    monkeypatch.setattr(indexes, "pip_settings", functools.cache(lambda: {}))


def _fails(status: int) -> Fault:
    def act(handler: BaseHTTPRequestHandler, body: bytes) -> None:
        handler.send_response(status)
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    return act


def _breaks(handler: BaseHTTPRequestHandler, body: bytes) -> None:
    """Promise everything, send half, hang up."""
    handler.send_response(200)
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body[: len(body) // 2])
    handler.wfile.flush()
    handler.close_connection = True


def _drips(handler: BaseHTTPRequestHandler, body: bytes) -> None:
    """A slow line: 20 kB, a pause, 20 kB, a pause ..."""
    handler.send_response(200)
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    for start in range(0, len(body), 20_000):
        handler.wfile.write(body[start : start + 20_000])
        handler.wfile.flush()
        time.sleep(0.1)


@dataclass
class Faults:
    fails: Callable[[int], Fault]
    breaks: Fault
    drips: Fault


@pytest.fixture
def faults() -> Faults:
    return Faults(fails=_fails, breaks=_breaks, drips=_drips)


@pytest.fixture
def wheel() -> Callable[..., str]:
    """Write a tiny installable wheel into a folder; its sha256."""

    def make(folder: Path, name: str, version: str, requires: tuple[str, ...] = (), tag: str = "py3-none-any") -> str:
        path, info = folder / f"{name}-{version}-{tag}.whl", f"{name}-{version}.dist-info"
        needs = "".join(f"Requires-Dist: {line}\n" for line in requires)
        contents = {
            f"{name}.py": f"version = {version!r}\n",
            f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}",
            f"{info}/WHEEL": f"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: {tag}\n",
        }
        record = "".join(f"{file},,\n" for file in [*contents, f"{info}/RECORD"])
        with ZipFile(path, "w") as archive:
            for file, text in {**contents, f"{info}/RECORD": record}.items():
                archive.writestr(file, text)
        return sha256(path.read_bytes()).hexdigest()

    return make
