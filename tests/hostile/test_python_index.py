"""Test hostile Python indexes and mirrors: the files that they offer, and where they redirect passwords."""

import gzip
import io
import tarfile
import tracemalloc
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from trainwright.core import store
from trainwright.core.errors import LockError, TrainwrightError
from trainwright.core.store import Wanted
from trainwright.matrix.model import Base
from trainwright.resolve import pypi

pytestmark = pytest.mark.usefixtures("bare_network")
HUGE = 30_000_000  # bytes, which are 30 kB packed
PEAK = 25_000_000  # bytes that an answer may take, unpacked and parsed
HEAD = b"Metadata-Version: 2.1\nName: a\nVersion: 1\n"


def wheel(path: Path, metadata: bytes | None, compression: int = zipfile.ZIP_DEFLATED) -> str:
    with zipfile.ZipFile(path / "a-1-py3-none-any.whl", "w", compression) as archive:
        archive.writestr("a.py", "")
        if metadata is not None:
            archive.writestr("a-1.dist-info/METADATA", metadata)
    return "a-1-py3-none-any.whl"


def lies(path: Path) -> str:
    """Write a wheel whose zip headers say that METADATA has 100 bytes, although it is huge."""
    file = path / wheel(path, HEAD + b"Description: " + b" " * HUGE)
    content, size = bytearray(file.read_bytes()), (len(HEAD) + len(b"Description: ") + HUGE).to_bytes(4, "little")
    while (place := content.find(size)) >= 0:
        content[place : place + 4] = (100).to_bytes(4, "little")
    file.write_bytes(content)
    return file.name


def encrypted(path: Path) -> str:
    file = path / wheel(path, HEAD)
    content = bytearray(file.read_bytes())
    for sign, at in ((b"PK\3\4", 6), (b"PK\1\2", 8)):
        place = -1
        while (place := content.find(sign, place + 1)) >= 0:
            content[place + at] |= 1
    file.write_bytes(content)
    return file.name


def cut(make: Callable[[Path], str]) -> Callable[[Path], str]:
    def half(path: Path) -> str:
        file = path / make(path)
        content = file.read_bytes()
        file.write_bytes(content[: len(content) * 2 // 3])
        return file.name

    return half


def sdist(path: Path, members: dict[str, bytes], pax: dict[str, str] | None = None) -> str:
    with tarfile.open(path / "a-1.tar.gz", "w:gz", format=tarfile.PAX_FORMAT) as archive:
        for name, content in members.items():
            member = tarfile.TarInfo(f"a-1/{name}")
            member.size, member.pax_headers = len(content), pax or {}
            archive.addfile(member, io.BytesIO(content))
    return "a-1.tar.gz"


def link(path: Path) -> str:
    with tarfile.open(path / "a-1.tar.gz", "w:gz") as archive:
        for name, aim in (("PKG-INFO", "pyproject.toml"), ("pyproject.toml", "PKG-INFO")):
            member = tarfile.TarInfo(f"a-1/{name}")
            member.type, member.linkname = tarfile.SYMTYPE, f"a-1/{aim}"
            archive.addfile(member)
    return "a-1.tar.gz"


def blanks(path: Path) -> str:
    """Write a source distribution that unpacks to 3 GB: one large file before the metadata."""
    member = tarfile.TarInfo("a-1/big")
    member.size = 3_000_000_000
    with (path / "a-1.tar.gz").open("wb") as file:
        file.write(gzip.compress(member.tobuf()))
        block = gzip.compress(bytes(10_000_000))
        for _ in range(300):
            file.write(block)
    return "a-1.tar.gz"


FILES: dict[str, Callable[[Path], str]] = {
    "a wheel that unpacks to 30 MB": lambda path: wheel(path, HEAD + b"Description: " + b" " * HUGE),
    "the same by bzip2": lambda path: wheel(path, HEAD + b" " * HUGE, zipfile.ZIP_BZIP2),
    "the same by LZMA": lambda path: wheel(path, HEAD + b" " * HUGE, zipfile.ZIP_LZMA),
    "a wheel that lies about its size": lies,
    "a wheel with a password": encrypted,
    "a wheel without metadata": lambda path: wheel(path, None),
    "metadata that is no text": lambda path: wheel(path, HEAD + b"License: \xff\xfe\n"),
    "half a wheel": cut(lambda path: wheel(path, HEAD)),
    "an empty wheel": lambda path: _empty(path, "a-1-py3-none-any.whl"),
    "requirements nested deep": lambda path: wheel(
        path, HEAD + b"Requires-Dist: a; " + b"(" * 100_000 + b"python_version > '3'" + b")" * 100_000
    ),
    "a requirement that is none": lambda path: wheel(path, HEAD + b"Requires-Dist: ][\n"),
    "a marker that compares what it cannot": lambda path: wheel(path, HEAD + b"Requires-Dist: a; 'x' ~= 'y'\n"),
    "PKG-INFO of 30 MB": lambda path: sdist(path, {"PKG-INFO": HEAD + b" " * HUGE}),
    "a name of 30 MB": lambda path: sdist(path, {"PKG-INFO": HEAD}, {"comment": " " * HUGE}),
    "a file of 3 GB before it": blanks,
    "half a source distribution": cut(lambda path: sdist(path, {"x": bytes(range(256)) * 100, "PKG-INFO": HEAD})),
    "an empty source distribution": lambda path: _empty(path, "a-1.tar.gz"),
    "links in a circle": link,
}
PROJECTS: dict[str, Callable[[Path], str]] = {
    "pyproject.toml of 30 MB": lambda path: sdist(path, {"pyproject.toml": b" " * HUGE}),
    "no TOML": lambda path: sdist(path, {"pyproject.toml": b"["}),
    "TOML nested deep": lambda path: sdist(path, {"pyproject.toml": b"a = " + b"[" * 100_000}),
    "no text": lambda path: sdist(path, {"pyproject.toml": b"\xff"}),
    "a build system that is a word": lambda path: sdist(path, {"pyproject.toml": b"build-system = 'x'"}),
    "requirements that are a number": lambda path: sdist(path, {"pyproject.toml": b"[build-system]\nrequires = 5"}),
}


def _empty(path: Path, name: str) -> str:
    (path / name).touch()
    return name


@pytest.fixture
def peak() -> Iterator[Callable[[], int]]:
    """Return a function that returns the peak of Python's memory since the test began."""
    tracemalloc.start()
    yield lambda: tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()


@pytest.mark.parametrize("attack", FILES)
def test_a_file_that_no_package_is_made_of_is_one_error(
    attack: str, intent: Any, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    name = FILES[attack](tmp_path)
    base: Base = next(iter(intent.components.bases.values()))
    peak: Callable[[], int] = request.getfixturevalue("peak")  # now: what the attack itself takes does not count
    with pytest.raises(LockError):
        (pypi.needs(tmp_path / name, name, "3.11", base), pypi.licence(tmp_path / name, name))
    assert peak() < PEAK


@pytest.mark.parametrize("attack", PROJECTS)
def test_a_project_that_is_none_is_one_error(attack: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    name = PROJECTS[attack](tmp_path)
    peak: Callable[[], int] = request.getfixturevalue("peak")
    with pytest.raises(LockError):
        pypi.build_requirements(tmp_path / name)
    assert peak() < PEAK


ENTRIES: dict[str, dict[str, Any]] = {
    "no checksum": {"wheels": [{"url": "https://h/a-1-py3-none-any.whl", "hashes": {}}]},
    "another checksum": {"wheels": [{"url": "https://h/a-1-py3-none-any.whl", "hashes": {"md5": "0" * 32}}]},
    "a checksum that is none": {"wheels": [{"url": "https://h/a-1-py3-none-any.whl", "hashes": {"sha256": "../x"}}]},
    "a file without a name": {"sdist": {"url": "https://h/", "hashes": {"sha256": "0" * 64}}},
    "a file called ..": {"sdist": {"url": "https://h/x/%2e%2e", "hashes": {"sha256": "0" * 64}}},
    "a wheel that is none": {"wheels": [{"url": "https://h/a.whl", "hashes": {"sha256": "0" * 64}}]},
    "no address": {"wheels": [{"hashes": {"sha256": "0" * 64}}]},
}


@pytest.mark.parametrize("attack", ENTRIES)
def test_an_offer_that_is_none_is_one_error(attack: str, intent: Any) -> None:
    base: Base = next(iter(intent.components.bases.values()))
    with pytest.raises(LockError):
        pypi._best({"name": "a", "version": "1", **ENTRIES[attack]}, "3.11", base)


@pytest.mark.parametrize(
    "file",
    [
        "http://index.example/a.whl",
        "https://index.example:8443/a.whl",
        "https://index.example.evil/a.whl",
        "https://evil/index.example/a.whl",
        "https://index.example@evil/a.whl",
        "ftp://index.example/a.whl",
    ],
)
def test_an_indexs_password_goes_to_its_own_scheme_host_and_port(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"index-url": "https://me:secret@index.example/simple"}
    monkeypatch.setattr(pypi, "pip_settings", lambda: settings)
    assert pypi._with_credentials("https://index.example:443/a.whl") == "https://me:secret@index.example/a.whl"
    assert "secret" not in pypi._with_credentials(file)


def test_a_file_without_end_is_left_at_the_size_that_the_lock_says(site: Any, tmp_path: Path) -> None:
    address = site.offer("endless", b"x" * 50_000_000)
    got: list[int] = []
    with pytest.raises(TrainwrightError):
        store.fetch([Wanted(name="a", sha256="0" * 64, size=1000, urls=[address])], got.append)
    assert sum(got) < 10_000_000
    assert not list((tmp_path / "store").glob("*/*"))
