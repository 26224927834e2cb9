"""Provide a registry in this process, images, and a publish.toml without pauses for tests of the client."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from registries import Registry, image, serving

from trainwright.registry import client

PUBLISH = """\
[transfer]
attempts = {attempts}
wait_seconds = 0.001
wait_most_seconds = 0.01
patience_seconds = 2
chunk_bytes = 1000
workers = 4
connect_seconds = 2
silence_seconds = {silence}
stored_bytes_per_second = {rate}
remember_days = 30
"""
ROOT = Path(__file__).parents[3]
BIG = bytes(range(256)) * 20  # six pieces
OTHER = "sha256:" + "2" * 64  # nobody has it


@pytest.fixture(autouse=True)
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return a function that writes a publish.toml with short waits; the store is empty, docker's client missing."""

    ours = (ROOT / "dockerfiles/publish.toml").read_text()
    others = re.sub(r"^\[transfer\]$.*?(?=^\[)", "", ours, flags=re.MULTILINE | re.DOTALL)

    def write(attempts: int = 4, silence: float = 5, rate: int = 1_000_000) -> None:
        own = PUBLISH.format(attempts=attempts, silence=silence, rate=rate)
        (tmp_path / "dockerfiles/publish.toml").write_text(own + others)

    (tmp_path / "dockerfiles").mkdir()
    write()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRAINWRIGHT_STORE", str(tmp_path / "store"))
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "docker"))
    return write


@pytest.fixture
def held() -> Iterator[Registry]:
    with serving() as found:
        yield found


@pytest.fixture
def place(held: Registry) -> str:
    return f"{held.address}/a"


@pytest.fixture
def layout(tmp_path: Path) -> Path:
    return image(tmp_path / "layout")


@pytest.fixture
def big(tmp_path: Path) -> Path:
    return image(tmp_path / "big", BIG)


def push(layout: Path, place: str) -> str:
    digest, manifest = client.manifest_of(layout)
    client.push(layout, place, digest)
    client.verify(place, digest, manifest)
    return digest


def notes(tmp_path: Path) -> list[str]:
    """List the records of unfinished uploads, without the lock files, which a killed process may leave."""
    return sorted(path.name for path in (tmp_path / "store/uploads").glob("*.json"))
