"""Test a host without apt: apt runs in a container with this host's proxy and credentials, and leaves no traces.

Needs the distribution's mirror, and a host with apt to compare with.
"""

import json
import os
import shutil
from base64 import b64encode
from collections.abc import Callable, Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from uuid import uuid4

import pytest
from tiny import built_in_this_run, store_of_this_run, trainwright

from trainwright.core import mirrors
from trainwright.core.errors import EnvironmentProblem
from trainwright.docker import engine
from trainwright.matrix.matrix import load_intent
from trainwright.resolve import apt, apt_container

pytestmark = pytest.mark.engine
ROOT = Path(__file__).parents[2]


@pytest.fixture
def without_apt(tmp_path: Path) -> str:
    """Return a PATH with every program of this host except apt's."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for place in os.environ["PATH"].split(os.pathsep):
        for program in Path(place).glob("*"):
            if not program.name.startswith("apt") and not (folder / program.name).exists():
                (folder / program.name).symlink_to(program)
    return str(folder)


def left() -> list[Any]:
    return list(engine.client().containers.list(all=True, filters={"label": apt_container.LABEL}))


@pytest.fixture(scope="module")
def built() -> Iterator[Path]:
    with store_of_this_run():
        yield built_in_this_run()


def test_the_same_lock_without_apt(
    built: Path, tmp_path: Path, without_apt: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without apt an update adds the package that was taken out of the lock, and changes nothing else."""
    if not shutil.which("apt-get"):
        pytest.skip("not run: apt-get is not on this host, so there is nothing to compare with")
    tree, base = tmp_path / "tree", load_intent(ROOT).components.bases["debian-12"]
    shutil.copytree(built, tree, ignore=shutil.ignore_patterns("out", "locks"))
    words = (f"{name}={address}" for name, address in apt.mirrors(base).items())
    monkeypatch.setenv("TRAINWRIGHT_MIRRORS", " ".join(words))  # without apt its sources say nothing
    refused = trainwright(tree, "lock", PATH=without_apt)
    assert refused.returncode == 10, refused.stderr
    assert "no debian base for" in refused.stderr
    shutil.copytree(built / "dockerfiles/locks", tree / "dockerfiles/locks")
    packages = tree / "dockerfiles/locks/debian-12.packages"
    held = packages.read_text()
    package = next(stanza for stanza in held.split("\n\n") if stanza.startswith("Package: tzdata\n"))
    packages.write_text(held.replace(f"{package}\n\n", ""))
    done = trainwright(tree, "lock", "--update", "--json", PATH=without_apt)
    assert done.returncode == 0, done.stderr
    assert [(row["lock"], row["name"], row["old"]) for row in json.loads(done.stdout)] == [("debian-12", "tzdata", "")]


@pytest.fixture
def proxy() -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Start a proxy that answers 404; yield its address, and a list of requests: address and Authorization."""
    asked: list[tuple[str, str]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append((self.path, self.headers.get("Authorization", "")))
            self.send_error(404)

        def log_message(self, *_: Any) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", asked
        server.shutdown()


def test_credentials_and_proxy_reach_the_container_and_nothing_stays(
    proxy: tuple[str, list[tuple[str, str]]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address, asked = proxy
    password = f"secret-{uuid4().hex}"
    (tmp_path / "netrc").write_text(f"machine http://mirror.invalid login me password {password}\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    monkeypatch.setenv("HTTP_PROXY", address)
    monkeypatch.setenv("http_proxy", address)
    (tmp_path / "mirror").mkdir()
    monkeypatch.setenv("TRAINWRIGHT_MIRRORS", f"debian=http://mirror.invalid/debian debian-security={tmp_path}/mirror")
    base = load_intent(ROOT).components.bases["debian-12"]
    name = apt_container.image(load_intent(ROOT), "debian-12")
    place = partial(apt_container.workplace, name, env=mirrors.proxies())
    with pytest.raises(EnvironmentProblem, match="the package index cannot be fetched") as raised:  # of neither archive
        apt.resolve(base, ["bash"], "", place)
    assert "in a container of trainwright/apt:" in raised.value.where
    assert password not in str(raised.value.as_dict())
    assert f"file:{tmp_path}/mirror bookworm-security Release" in raised.value.why  # it was there to be read
    said = f"Basic {b64encode(f'me:{password}'.encode()).decode()}"
    assert ("http://mirror.invalid/debian/dists/bookworm/InRelease", said) in asked
    assert left() == []


def test_a_container_that_was_interrupted_is_gone() -> None:
    def interrupted(run: Callable[..., str]) -> None:
        assert run(["id", "-u"], error=EnvironmentProblem) == "0\n"
        assert len(left()) == 1
        raise KeyboardInterrupt

    name = apt_container.image(load_intent(ROOT), "debian-12")
    with pytest.raises(KeyboardInterrupt), apt_container.workplace(name, [], [], {}) as run:
        interrupted(run)
    assert left() == []
