"""Provide fixtures for unit tests: a host without settings, a checkout, the CLI, and a web server on loopback."""

import functools
import gc
import io
import os
import re
import shutil
import ssl
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count, islice
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event, Thread
from typing import Any
from zipfile import ZipFile

import pytest
import typer.main
from hypothesis import settings
from typer.main import get_command_from_info
from typer.models import CommandInfo
from unit import validated
from unit.emitted import IMAGE, TOKEN, Emit

from trainwright import cli as command_line
from trainwright import commands
from trainwright.core import certificates, host_settings
from trainwright.core.process import run
from trainwright.core.toml import parse
from trainwright.docker import engine
from trainwright.image import inputs, templates
from trainwright.jobs import emit as jobs_emit
from trainwright.lock import lockfile, packages
from trainwright.matrix.matrix import Intent, Recipe, load_intent
from trainwright.matrix.model import Lock
from trainwright.resolve import pypi, resolve

ROOT = Path(__file__).parents[2]
settings.register_profile("unit", max_examples=30, deadline=None, database=None)
settings.load_profile("unit")


SHARED_MEMORY, ROOM = Path("/dev/shm"), 4 << 30  # bytes; folders of all tests of a run take 0.5 GB


def _in_memory() -> bool:
    """Return whether shared memory can take the folders of tests; on a disk they cost a quarter of all processor time.

    In a container it is small, and programs may not start there.
    """
    if not os.access(SHARED_MEMORY, os.W_OK):
        return False
    about = os.statvfs(SHARED_MEMORY)
    return not about.f_flag & os.ST_NOEXEC and about.f_bavail * about.f_frsize >= ROOM


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "waits: takes seconds; begins first, so that nobody waits for it in the end")
    if _in_memory():
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(SHARED_MEMORY))


def pytest_collection_finish() -> None:
    """Exempt what was imported and collected from garbage collection, which else looks at it again and again."""
    gc.freeze()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Move slow tests to the front of each worker's first share, which worksteal assigns."""
    waiting = [item for item in items if item.get_closest_marker("waits")]
    others = iter([item for item in items if not item.get_closest_marker("waits")])
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    left, dealt = len(items), list[pytest.Item]()
    for worker in range(workers):
        share = left // (workers - worker)
        left -= share
        first = waiting[worker::workers]
        dealt += [*first, *islice(others, max(0, share - len(first)))]
    items[:] = [*dealt, *others]


def _pip(words: list[str], **how: Any) -> str:
    """Ask pip only if a test sets a PIP_ variable, because each question takes a third of a second."""
    return run(words, **how) if any(name.startswith("PIP_") for name in os.environ) else ""


@pytest.hookimpl(wrapper=True, optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> Generator[None, int, int]:
    """Use more workers than cores, because many tests wait; but at most 16, because each one collects all tests."""
    cores = yield
    return cores if "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ else max(cores, min(2 * cores, 16))


_context, _default = certificates.context, functools.cache(certificates.context)


def _contexts(bundle: str) -> ssl.SSLContext:
    """Share the TLS context of the system's CAs: to read them takes longer than most tests."""
    own = bundle or any(name in os.environ for name in ("SSL_CERT_FILE", "SSL_CERT_DIR"))
    return _context(bundle) if own else _default(bundle)


_command = functools.cache(lambda info, how: get_command_from_info(info, **dict(how)))


def _commands(command_info: CommandInfo, **how: Any) -> Any:
    """Cache typer's commands, which typer makes anew for each command line; all of them are known here."""
    return _command(command_info, tuple(how.items()))


_numbers = count()


@pytest.fixture
def tmp_path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make the folder of a test where pytest would; pytest lists all folders of earlier tests to number each new one.

    That took more time than most tests. pytest keeps the folders, as its own.
    """
    name = re.sub(r"\W", "_", request.node.name)[:30]
    path = tmp_path_factory.getbasetemp() / f"{name}{next(_numbers)}"
    path.mkdir(mode=0o700)
    return path


@pytest.fixture
def registered() -> dict[str, Any]:
    """Map the words of each command to typer's command."""
    return commands.every()


@pytest.fixture(autouse=True)
def _bare_machine(tmp_path: Path, memory: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Remove engine, registry, account and store from the environment, and forget what earlier tests cached."""
    for name in list(os.environ):
        ours = name.startswith(("AWS_", "TRAINWRIGHT_", "PIP_", "UV_")) or name in (
            "REGISTRY",
            "FORCE_COLOR",
            "NO_COLOR",
        )
        if ours or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "no-credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "no-config"))
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/no.sock")
    monkeypatch.setenv("TRAINWRIGHT_STORE", str(tmp_path / "store"))
    monkeypatch.setattr(templates, "folder", lambda: memory / "templates")  # nothing follows from it; it saves time
    monkeypatch.setenv("TRAINWRIGHT_REGISTRY_PORT", "1")
    monkeypatch.setattr(typer.main, "get_command_from_info", _commands)
    monkeypatch.setattr(host_settings, "run", _pip)
    monkeypatch.setattr(certificates, "context", _contexts)
    validated.remember(monkeypatch, memory / "templates")
    yield
    monkeypatch.undo()  # back into a folder that stays


@pytest.fixture(scope="session")
def intent() -> Intent:
    """Return the intent of this checkout, read once."""
    return load_intent(ROOT)


@pytest.fixture(scope="session")
def memory() -> Iterator[Path]:
    """Make a folder in memory, because pytest keeps the files of tmp_path and removes them slowly."""
    with TemporaryDirectory(
        prefix="trainwright-", dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    ) as folder:
        yield Path(folder)


Lying = dict[str, tuple[int, ...]]


def _lying(folder: str, found: Lying | None = None) -> Lying:
    """Map each path below a folder to what changes when the file is written."""
    found = {} if found is None else found
    for entry in os.scandir(folder):
        about = entry.stat(follow_symlinks=False)
        if entry.is_dir(follow_symlinks=False):
            found[entry.path] = (about.st_mode,)
            if about.st_mode & stat.S_IRWXU != stat.S_IRWXU:  # else only root removes what lies in it
                Path(entry.path).chmod(about.st_mode | stat.S_IRWXU)
            _lying(entry.path, found)
        else:
            found[entry.path] = (about.st_mode, about.st_ino, about.st_size, about.st_mtime_ns)
    return found


class Checkout:
    """A copy of the files that define images. Restoring it takes a tenth of the time of another copy."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.lying = self.copied()

    def copied(self) -> Lying:
        shutil.copytree(
            ROOT / "dockerfiles", self.root / "dockerfiles", ignore=shutil.ignore_patterns("proofs", "__pycache__")
        )
        (self.root / "scripts").mkdir()
        shutil.copy2(ROOT / "scripts/engine.py", self.root / "scripts")  # no script is part of a key
        return _lying(str(self.root))

    def mend(self) -> None:
        """Restore the copy: remove what was added, copy again what was changed or removed, with its old time."""
        self.root.chmod(self.root.stat().st_mode | stat.S_IRWXU)
        found = _lying(str(self.root))
        for path in found.keys() - self.lying.keys():
            if stat.S_ISDIR(found[path][0]):
                shutil.rmtree(path, ignore_errors=True)  # perhaps it lay in another one, which went before
            else:
                Path(path).unlink(missing_ok=True)
        changed = [path for path, about in self.lying.items() if found.get(path) != about]
        if any(stat.S_ISDIR((found.get(path) or self.lying[path])[0]) for path in changed):
            shutil.rmtree(self.root)
            self.lying = self.copied()
            return
        for path in changed:
            Path(path).unlink(missing_ok=True)
            shutil.copy2(ROOT / Path(path).relative_to(self.root), path)
            about = os.lstat(path)
            self.lying[path] = (about.st_mode, about.st_ino, about.st_size, about.st_mtime_ns)


@pytest.fixture(scope="session")
def lasting(memory: Path) -> Checkout:
    return Checkout(memory / "checkout")


@pytest.fixture
def whole(lasting: Checkout) -> Iterator[Path]:
    """Yield a checkout that a test may change; its path is always the same, so that templates stay compiled.

    It has no proof records.
    """
    yield lasting.root
    lasting.mend()


ROW = re.compile(
    r"^\[\[frameworks\.(\w+)\.rows\]\].*?(?=^\[\[frameworks|^\[frameworks\.\w+\]|\Z)", re.MULTILINE | re.DOTALL
)
# A stack with the remarks above it.
STACK = re.compile(r"(?:^#.*\n)*^\[stacks\.([\w-]+)(?:\.pins)?\]\n(?:[^\[#].*\n|\n)*", re.MULTILINE)
# Rows of matrix.toml: one of each kind, so that every component has its pin; of the other frameworks the first one.
FEW = {"pytorch": {0, 1, 2, 3, 17, 18, 19}, "jax": {0, 1}}
BOTH = {("pytorch", 0), ("pytorch", 3), ("base", 0)}  # framework and row: with images of both targets, not of one


@pytest.fixture
def tree(whole: Path) -> Path:
    """Return a checkout with all images; a module whose tests often load all of them overrides it with `few`."""
    return whole


@pytest.fixture
def few(whole: Path) -> Path:
    """Return a checkout with a third of the images."""
    counted: dict[str, int] = {}

    def kept(row: re.Match[str]) -> str:
        number = counted[row[1]] = counted.get(row[1], -1) + 1
        text = row[0] if number in FEW.get(row[1], {0}) else ""
        return (
            text
            if (row[1], number) in BOTH
            else text.replace('targets = ["ec2", "sagemaker"]', 'targets = ["sagemaker"]')
        )

    path = whole / "dockerfiles/matrix.toml"
    text = ROW.sub(kept, path.read_text())
    used = set(re.findall(r'^stack = "(.*)"', text, re.MULTILINE))
    path.write_text(STACK.sub(lambda found: found[0] if found[1] in used else "", text))
    intent = load_intent(whole)
    locks = {inputs.lock_path(Recipe(intent, variant)) for variant in intent.variants}
    for lock_file in (whole / "dockerfiles/locks").glob("*.toml"):
        if lock_file not in locks:
            lock_file.unlink()
    return whole


@pytest.fixture
def foreign(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], None]:
    """Return a function that makes another user the owner of a folder: really if we are root, else apparently."""

    def give(folder: Path) -> None:
        if own := os.geteuid():
            monkeypatch.setattr(os, "geteuid", lambda: own + 1)
        else:
            os.chown(folder, 4711, -1)

    return give


@pytest.fixture
def edit() -> Callable[[Path, str, str], None]:
    """Return a function that replaces one match of a pattern; a pattern without a match is an error of the test."""

    def replace(path: Path, pattern: str, new: str) -> None:
        text, count = re.subn(pattern, lambda _: new, path.read_text(), count=1, flags=re.MULTILINE)
        assert count == 1, f"{pattern} is not in {path}"
        path.write_text(text)

    return replace


@pytest.fixture
def settle() -> Callable[[Path], None]:
    """Return a function that makes every lock of a tree current, as `trainwright lock` does, without resolving."""

    def rewrite(root: Path) -> None:
        intent = load_intent(root)
        bases = {(variant.base, False) for variant in intent.variants}
        bases |= {(recipe.variant.base, True) for recipe in intent.recipes if recipe.compiles}
        for base, tools in sorted(bases):
            path = inputs.packages_path(intent, base, tools)
            if not path.exists():  # of a base whose images await something
                continue
            header, stanzas = packages.parse(path.read_text(), path.name)
            fresh = {**header, "Intent": inputs.packages_intent(intent, base, tools)}
            if fresh != header:
                path.write_text(packages.dump(fresh, stanzas))
        for recipe in {recipe.variant.lock: recipe for recipe in inputs.held(intent)}.values():
            path, digest = inputs.lock_path(recipe), lockfile.intent_digest(recipe)
            text = path.read_text()
            held = parse(text, Lock, path.name)
            if held.intent != digest:
                sources = resolve.lock_sources(recipe)
                if sources == held.sources:  # one line: to write it whole takes a hundred times as long
                    path.write_text(text.replace(f'intent = "{held.intent}"', f'intent = "{digest}"', 1))
                else:
                    path.write_text(lockfile.dump(held.model_copy(update={"intent": digest, "sources": sources})))

    return rewrite


@dataclass
class Ended:
    """The end of a command: exit code, standard output, standard error."""

    code: int
    out: str
    err: str


Cli = Callable[..., Ended]


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Cli:
    """Return a function that runs the command line in this process: `cli(root, "list", "--json")`."""

    def call(root: Path, *words: str) -> Ended:
        monkeypatch.chdir(root)
        monkeypatch.setattr(sys, "argv", ["trainwright", *words])
        engine.client.cache_clear()
        capfd.readouterr()
        with pytest.raises(SystemExit) as ended:
            command_line.main()
        return Ended(int(ended.value.code or 0), *capfd.readouterr())

    return call


@pytest.fixture
def emit(cli: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Emit:
    """Return a function that runs `emit` in a folder of a checkout, with a script; all submissions have one name."""
    monkeypatch.setattr(jobs_emit, "new_token", lambda: TOKEN)
    folder = tmp_path / "checkout"
    folder.mkdir()
    (folder / "dockerfiles").symlink_to(ROOT / "dockerfiles")
    (folder / "train.py").write_text("print('$(HOME)')\n")

    def run(on: str, *words: str, image: str = IMAGE, script: str = "train.py") -> Any:
        return cli(folder, "emit", image, script, "--on", on, *words)

    return run


Fault = Callable[[BaseHTTPRequestHandler, bytes], None]


@dataclass
class Site:
    """Files behind http://127.0.0.1; the `faults` of a path are applied first, one for each request."""

    address: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    faults: dict[str, list[Fault]] = field(default_factory=dict)
    asked: list[tuple[str, str]] = field(default_factory=list)  # path, Range header

    def offer(self, name: str, body: bytes, *faults: Fault) -> str:
        """Add a file to the site, and return its address."""
        self.files[f"/{name}"] = body
        self.faults[f"/{name}"] = list(faults)
        return f"{self.address}/{name}"


@contextmanager
def _serving(certificate: Path | None = None) -> Iterator[Site]:
    """Serve a site; over TLS if `certificate` is given, a PEM file with its key."""
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
    """Make a folder with a CA (ca.pem), a certificate for 127.0.0.1 that it signed (server.pem), and an unrelated CA.

    server.pem contains its key; the unrelated CA is public.pem.
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
    """Serve a site behind https://, with a certificate that no system trusts."""
    with _serving(authority / "server.pem") as held:
        yield held


@pytest.fixture
def bare_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Set an empty home and only the system's CA, and do not ask pip, which takes a third of a second."""
    for name in list(os.environ):
        if name.startswith(("GIT_", "SSL_CERT_")) or name.endswith("_CA_BUNDLE"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(certificates, "pip_settings", dict)
    monkeypatch.setattr(pypi, "pip_settings", functools.cache(lambda: {}))


def _fails(status: int) -> Fault:
    def act(handler: BaseHTTPRequestHandler, body: bytes) -> None:
        handler.send_response(status)
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    return act


def _breaks(handler: BaseHTTPRequestHandler, body: bytes) -> None:
    """Announce the whole body, send half of it, and close the connection."""
    handler.send_response(200)
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body[: len(body) // 2])
    handler.wfile.flush()
    handler.close_connection = True


def _drips(handler: BaseHTTPRequestHandler, body: bytes) -> None:
    """Send slowly: 20 kB, then a pause, and so on."""
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
    crawls: Fault  # until the test is over, and never to the end of the body


@pytest.fixture
def faults() -> Iterator[Faults]:
    over = Event()

    def crawls(handler: BaseHTTPRequestHandler, body: bytes) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", str(1 << 30))
        handler.end_headers()
        while not over.wait(0.05):
            handler.wfile.write(body[:1000])
            handler.wfile.flush()

    yield Faults(fails=_fails, breaks=_breaks, drips=_drips, crawls=crawls)
    over.set()


@pytest.fixture
def wheel() -> Callable[..., str]:
    """Return a function that writes a tiny installable wheel into a folder and returns its sha256."""

    def make(folder: Path, name: str, version: str, requires: tuple[str, ...] = (), tag: str = "py3-none-any") -> str:
        path, info = folder / f"{name}-{version}-{tag}.whl", f"{name}-{version}.dist-info"
        needs = "".join(f"Requires-Dist: {line}\n" for line in requires)
        contents = {
            f"{name}.py": f"version = {version!r}\n",
            f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}",
            f"{info}/WHEEL": f"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: {tag}\n",
        }
        record = "".join(f"{file},,\n" for file in [*contents, f"{info}/RECORD"])
        whole = _zipped(tuple({**contents, f"{info}/RECORD": record}.items()))
        path.write_bytes(whole)
        return sha256(whole).hexdigest()

    return make


@functools.cache
def _zipped(files: tuple[tuple[str, str], ...]) -> bytes:
    """Return a zip archive; many tests of a worker have the same wheels."""
    held = io.BytesIO()
    with ZipFile(held, "w") as archive:
        for file, text in files:
            archive.writestr(file, text)
    return held.getvalue()
