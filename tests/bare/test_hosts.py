"""Test the README's first command and `make unit` in containers that stand for minimal hosts: `make test-bare`.

Each container has the engine's socket, this host's network, and its files under the same paths as on this host, so that
the engine mounts the right files. It has its own home, store and registry. Python, git and make are Debian's; the
docker client and buildx are this host's.
"""

import json
import os
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import pytest
import tiny
import tomlkit
from bare.proxy import serving

from trainwright.core.host_settings import pip_settings
from trainwright.docker import engine
from trainwright.matrix.matrix import load_intent
from trainwright.resolve import apt

ROOT = Path(__file__).parents[2]
FIRST, UNIT = ["make", "build", "push", "FRAMEWORK=pytorch"], ["make", "unit"]
PACKAGES = ("python3", "python3-venv", "git", "make")
SOCKET = Path("/var/run/docker.sock")
PLUGIN = "/usr/local/libexec/docker/cli-plugins/docker-buildx"
PATHS = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# The archives are those that the image itself names.
SOURCES = "/etc/apt/sources.list"
# The index of one archive of two; the last command fails if there is none.
PARTIAL = f"""\
grep -m 1 '^deb ' {SOURCES} >/tmp/one.list
apt-get update -o Dir::Etc::SourceParts=/dev/null -o Dir::Etc::SourceList=/tmp/one.list
ls /var/lib/apt/lists/*_main_binary*_Packages*
"""
pytestmark = pytest.mark.engine


class Kind(NamedTuple):
    """A kind of host: what root prepares there, the user who then works, and whether there is a company's proxy."""

    prepare: str
    user: str = "0:0"
    proxy: bool = False


KINDS = {
    "partial-lists": Kind(PARTIAL),
    "user": Kind("true", user="4321:{group}"),
    "bare": Kind("rm -rf /usr/bin/apt* /usr/bin/dpkg* /etc/apt /var/lib/apt /var/lib/dpkg"),
    "proxy": Kind(f"sed -i s/http:/https:/ {SOURCES} && grep https: {SOURCES}", proxy=True),
}


@pytest.fixture(scope="session")
def debian(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Build an image of Debian 12 with Python, git and make, by our own builder."""
    tree = tmp_path_factory.mktemp("debian")
    tiny.plant(tree)
    bases = tomlkit.parse((tree / "dockerfiles/bases.toml").read_text())
    bases["bases"]["debian-12"]["packages"].extend(PACKAGES)
    (tree / "dockerfiles/bases.toml").write_text(tomlkit.dumps(bases))
    for words in (["lock"], ["build", "--framework", "tiny"]):
        done = tiny.trainwright(tree, *words)
        assert done.returncode == 0, done.stderr
    name = json.loads((tree / "out" / tiny.ID / "docker-bake.json").read_text())["target"]["image"]["tags"][0]
    yield name
    engine.remove(name)


@pytest.fixture
def work(debian: str) -> Iterator[Path]:
    """Make a folder with a clone, and remove it afterwards, with files of any owner."""
    folder = Path(tempfile.mkdtemp(prefix="trainwright-bare-", dir="/var/tmp"))
    subprocess.run(["git", "clone", "--quiet", "--no-hardlinks", ROOT, folder / "clone"], check=True)
    for name in ("home", "proxy"):
        (folder / name).mkdir()
    yield folder
    whole = ["--volume", f"{folder}:{folder}", debian, "sh", "-c", f"rm -rf {folder}/*"]
    subprocess.run(["docker", "run", "--rm", "--user", "0", *whole], check=True)
    folder.rmdir()


def mounted(work: Path) -> dict[str, str]:
    """Map each mounted path of this host to the container's path: socket, client, folder, and local package indexes."""
    client = shutil.which("docker")
    assert client
    found = {str(SOCKET): str(SOCKET), str(Path(client).resolve()): "/usr/local/bin/docker", str(work): str(work)}
    found[str(engine.buildx().resolve())] = PLUGIN
    settings = pip_settings()
    for word in " ".join(settings.get(name, "") for name in ("index-url", "extra-index-url", "find-links")).split():
        path = str(Path(urlsplit(word).path).parent) if word.startswith("file:") else word  # its files lie beside it
        if path.startswith("/") and Path(path).exists():
            found[path] = path
    return found


def snapshots_answer() -> bool:
    (host,) = {urlsplit(url).hostname for url in load_intent(ROOT).components.bases["debian-12"].snapshots.values()}
    try:
        socket.create_connection((str(host), 443), 10).close()
    except OSError:
        return False
    return True


def environment(work: Path, authority: bytes, bare: bool) -> dict[str, str]:
    """Return this host's settings for mirrors, indexes and CAs, as the container needs them."""
    found = {"HOME": f"{work}/home", "PATH": PATHS, "TRAINWRIGHT_STORE": f"{work}/store"}
    if (
        bare and not snapshots_answer()
    ):  # then a host without apt has no source of packages but a mirror that it is told
        base = load_intent(ROOT).components.bases["debian-12"]
        found["TRAINWRIGHT_MIRRORS"] = " ".join(f"{name}={url}" for name, url in apt.mirrors(base).items())
        print(f"the snapshot archive does not answer here; {found['TRAINWRIGHT_MIRRORS']}", file=sys.stderr)
    found |= {"TRAINWRIGHT_REGISTRY_DATA": f"{work}/registry", "LC_ALL": "C.UTF-8"}
    settings = pip_settings()
    for name in ("index-url", "extra-index-url", "find-links", "trusted-host"):
        if name in settings:
            found[f"PIP_{name.upper().replace('-', '_')}"] = settings[name]
    for name in (
        "TRAINWRIGHT_MIRRORS",
        "HTTP_PROXY",
        "HTTPS_PROXY",
        "NO_PROXY",
        "http_proxy",
        "https_proxy",
        "no_proxy",
    ):
        if os.environ.get(name):
            found[name] = os.environ[name]
    if "cert" in settings or authority:
        own = Path(settings["cert"]).read_bytes() if "cert" in settings else b""
        (work / "ca.pem").write_bytes(own + authority)
        found |= {"PIP_CERT": f"{work}/ca.pem", "TRAINWRIGHT_CA": f"{work}/ca.pem"}
    return found


class Host:
    """A running container that stands for a host."""

    def __init__(self, image: str, work: Path, environment: Mapping[str, str]) -> None:
        words = [word for source, target in mounted(work).items() for word in ("--volume", f"{source}:{target}")]
        words += [word for name, value in environment.items() for word in ("--env", f"{name}={value}")]
        command = ["docker", "run", "--detach", "--init", "--network", "host", "--shm-size", "2g", *words, image]
        started = subprocess.run([*command, "sleep", "infinity"], check=True, capture_output=True, text=True)
        self.name, self.work = started.stdout.strip(), work

    def run(self, user: str, *words: str) -> str:
        """Run a command and return its standard output; its standard error goes to ours."""
        began = time.monotonic()
        command = ["docker", "exec", "--user", user, "--workdir", f"{self.work}/clone", self.name, *words]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
        print(
            f"{shlex.join(words)[:60]}: {time.monotonic() - began:.0f} s, exit code {done.returncode}", file=sys.stderr
        )
        assert done.returncode == 0, done.stdout[-5000:]
        return done.stdout

    def stop_registry(self, user: str) -> None:
        """Stop the registry that the first command started, if it came that far."""
        command = ["docker", "exec", "--user", user, "--workdir", f"{self.work}/clone", self.name]
        subprocess.run([*command, ".venv/bin/trainwright", "registry", "down"], capture_output=True)


@pytest.mark.parametrize("name", KINDS)
def test_the_first_command_and_the_unit_tests(name: str, debian: str, work: Path) -> None:
    kind = KINDS[name]
    user = kind.user.format(group=SOCKET.stat().st_gid)
    with ExitStack() as stack:
        proxy = stack.enter_context(serving(work / "proxy")) if kind.proxy else None
        settings = environment(work, proxy.authority if proxy else b"", name == "bare")
        if proxy:
            settings |= {f"{word}_proxy": proxy.address for word in ("http", "https")} | {
                "no_proxy": "127.0.0.1,localhost"
            }
        host = Host(debian, work, settings)
        stack.callback(subprocess.run, ["docker", "rm", "--force", host.name], capture_output=True)
        host.run("0", "sh", "-c", f"set -e\n(\n{kind.prepare}\n) >&2\nchown -R {user} {work}")
        stack.callback(host.stop_registry, user)
        said = host.run(user, *FIRST)
        assert "@sha256:" in said
        host.run(user, *UNIT)
        assert "@sha256:" in host.run(user, *FIRST)  # nothing to do
        (out,) = (json.loads(path.read_text()) for path in (work / "clone/out").glob("*/image.json"))
        print(f"{name}: {out['id']} {out['digest']}", file=sys.stderr)
        assert not proxy or (proxy.opened and not proxy.plain), "some of it went past the proxy's TLS"
