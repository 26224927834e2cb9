"""Test the store: it keeps no unverified and no incomplete file, and survives network faults."""

import errno
import os
import shutil
import signal
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from tenacity import wait_none

from trainwright.core import certificates, store
from trainwright.core.errors import BuildError, EnvironmentProblem
from trainwright.core.store import Wanted

BODY = bytes(range(256)) * 1000  # 256 kB
SUM = sha256(BODY).hexdigest()
TRUST = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "wait_exponential_jitter", lambda **_: wait_none())
    monkeypatch.setattr(certificates, "pip_settings", dict)  # a third of a second
    monkeypatch.setattr(ssl, "create_default_context", lambda: TRUST)  # 30 ms a time, and loopback needs none


def wanted(*urls: str, digest: str = SUM, size: int | None = len(BODY)) -> Wanted:
    return Wanted(name="a file", sha256=digest, size=size, urls=list(urls))


def kept() -> list[str]:
    """List everything below the store, also incomplete files."""
    return sorted(path.name for path in store.root().rglob("*") if path.is_file() or path.name.startswith(".partial"))


def test_from_a_server(site: Any) -> None:
    got: list[int] = []
    assert store.fetch([wanted(site.offer("file", BODY))], got.append) == {}
    assert store.path_of(SUM).read_bytes() == BODY
    assert sum(got) == len(BODY)
    assert kept() == [SUM]


def test_from_a_folder(tmp_path: Path) -> None:
    (tmp_path / "a file+1").write_bytes(BODY)
    assert store.fetch([wanted((tmp_path / "a file+1").as_uri())]) == {}
    assert kept() == [SUM]
    assert (tmp_path / "a file+1").exists()  # copied, not taken


def test_what_is_there_is_not_fetched_again(site: Any) -> None:
    url = site.offer("file", BODY)
    store.fetch([wanted(url)])
    store.fetch([wanted(url)])
    assert len(site.asked) == 1


def test_the_same_file_asked_for_twice_is_fetched_once(site: Any) -> None:
    url = site.offer("file", BODY)
    store.fetch([wanted(url), wanted(url)])
    assert len(site.asked) == 1


def test_stored_files_cannot_be_written_by_accident(site: Any) -> None:
    store.fetch([wanted(site.offer("file", BODY))])
    assert store.path_of(SUM).stat().st_mode & 0o777 == 0o444


# --- what a network does -----------------------------------------------------------------------------------------


def test_goes_on_where_the_line_broke(site: Any, faults: Any) -> None:
    assert store.fetch([wanted(site.offer("file", BODY, faults.breaks))]) == {}
    assert store.path_of(SUM).read_bytes() == BODY
    assert [ranged for _, ranged in site.asked] == ["", f"bytes={len(BODY) // 2}-"]


def test_starts_over_where_the_server_knows_no_ranges(site: Any, faults: Any) -> None:
    def whole(handler: Any, body: bytes) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    assert store.fetch([wanted(site.offer("file", BODY, faults.breaks, whole))]) == {}
    assert store.path_of(SUM).read_bytes() == BODY


def test_500_twice_and_then_works(site: Any, faults: Any) -> None:
    assert store.fetch([wanted(site.offer("file", BODY, faults.fails(500), faults.fails(503)))]) == {}
    assert kept() == [SUM]


def test_404_is_lost_and_not_asked_again(site: Any) -> None:
    lost = store.fetch([wanted(f"{site.address}/gone")])
    assert list(lost) == [SUM]
    assert "404" in lost[SUM]
    assert f"{site.address}/gone" in lost[SUM]
    assert len(site.asked) == 1
    assert kept() == []


def test_file_that_is_not_in_the_folder_is_lost(tmp_path: Path) -> None:
    assert list(store.fetch([wanted((tmp_path / "gone").as_uri())])) == [SUM]


def test_the_next_address_is_tried(site: Any, faults: Any) -> None:
    broken = site.offer("broken", BODY, *[faults.breaks] * 9)
    assert store.fetch([wanted(f"{site.address}/gone", broken, site.offer("file", BODY))]) == {}
    assert store.path_of(SUM).read_bytes() == BODY  # and not appended to what the broken one sent


def test_nobody_offers_it() -> None:
    assert "no address is known for a file" in store.fetch([wanted()])[SUM]


def test_lost_ones_do_not_stop_the_others(site: Any) -> None:
    lost = store.fetch([wanted(f"{site.address}/gone", digest="0" * 64), wanted(site.offer("file", BODY))])
    assert list(lost) == ["0" * 64]
    assert kept() == [SUM]


def test_no_server_at_all(site: Any) -> None:
    """An outage is not an absence: nothing may take the place of what is only out of reach."""
    with pytest.raises(EnvironmentProblem, match="cannot be fetched") as raised:
        store.fetch([wanted("http://127.0.0.1:1/file")])
    assert "127.0.0.1:1" in raised.value.why


@pytest.mark.parametrize("status", [401, 403, 429, 500])
def test_a_refusal_is_not_an_absence(site: Any, faults: Any, status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "wait_exponential_jitter", lambda **_: wait_none())
    with pytest.raises(EnvironmentProblem):
        store.fetch([wanted(site.offer("file", BODY, *[faults.fails(status)] * 9), f"{site.address}/gone")])


def test_gone_from_the_first_address_is_gone_even_if_the_second_is_out_of_reach(site: Any) -> None:
    assert list(store.fetch([wanted(f"{site.address}/gone", "http://127.0.0.1:1/file")])) == [SUM]


@pytest.mark.parametrize("by", ["address", "netrc"])
def test_credentials(site: Any, by: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def guarded(handler: Any, body: bytes) -> None:
        right = handler.headers.get("Authorization") == "Basic bWU6czNjcmV0"  # me:s3cret
        handler.send_response(200 if right else 401)
        handler.send_header("Content-Length", str(len(body) if right else 0))
        handler.end_headers()
        handler.wfile.write(body if right else b"")

    url = site.offer("file", BODY, guarded, guarded)
    with pytest.raises(EnvironmentProblem):
        store.fetch([wanted(url)])
    password = "s3cret" if by == "netrc" else "another: the address goes first"
    (tmp_path / "netrc").write_text(f'machine 127.0.0.1 login me password "{password}"\n')
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    if by == "address":
        url = url.replace("://", "://me:s3cret@")
    assert store.fetch([wanted(url)]) == {}


def test_a_password_is_not_shown(site: Any) -> None:
    with pytest.raises(EnvironmentProblem) as raised:
        store.fetch([wanted("http://me:s3cret@127.0.0.1:1/file")])
    assert "s3cret" not in raised.value.why


def test_a_mirror_is_asked_instead(site: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of every address, and nobody else."""
    monkeypatch.setenv("TRAINWRIGHT_MIRRORS", f"https://upstream.invalid={site.address}/mirror")
    site.offer("mirror/a/file", BODY)
    assert store.fetch([wanted("https://upstream.invalid/a/file", size=None)]) == {}
    assert kept() == [SUM]


@pytest.mark.parametrize("body", [b"other bytes", None])
def test_a_mirror_that_is_no_good(site: Any, body: bytes | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other bytes are refused; one that does not answer is an error, and upstream is not asked behind its back."""
    upstream = site.offer("file", BODY)
    mirror = site.address + "/mirror" if body else "http://me:s3cret@127.0.0.1:1"
    monkeypatch.setenv("TRAINWRIGHT_MIRRORS", f"{site.address}={mirror}")
    site.offer("mirror/file", body or b"")
    with pytest.raises(BuildError if body else EnvironmentProblem) as raised:
        store.fetch([wanted(upstream)])
    assert raised.value.exit_code == (5 if body else 10)
    assert "s3cret" not in str(raised.value.as_dict())
    assert [path for path, _ in site.asked] == (["/mirror/file"] if body else [])
    assert kept() == []


def test_through_a_proxy(site: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    site.files["http://upstream.invalid/file"] = BODY
    for name in ("no_proxy", "NO_PROXY", "http_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HTTP_PROXY", site.address)
    assert store.fetch([wanted("http://upstream.invalid/file")]) == {}
    assert kept() == [SUM]


def test_endless_redirects_are_no_crash(site: Any) -> None:
    def again(handler: Any, body: bytes) -> None:
        handler.send_response(302)
        handler.send_header("Location", "/loop")
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    with pytest.raises(EnvironmentProblem):
        store.fetch([wanted(site.offer("loop", b"", *[again] * 100))])


def test_bytes_are_taken_as_they_are_stored(site: Any) -> None:
    """A server that labels a .tar.gz `Content-Encoding: gzip` must not make us hash what is inside it."""
    import gzip

    packed = gzip.compress(BODY, mtime=0)

    def labelled(handler: Any, body: bytes) -> None:
        handler.send_response(200)
        handler.send_header("Content-Encoding", "gzip")
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    digest = sha256(packed).hexdigest()
    assert store.fetch([wanted(site.offer("a.tar.gz", packed, labelled), digest=digest)]) == {}
    assert store.path_of(digest).read_bytes() == packed


def test_broken_just_before_the_end_of_a_chunked_answer(site: Any) -> None:
    """All bytes came, the last word did not: there is nothing left to ask for, and the file is not lost."""

    def unfinished(handler: Any, body: bytes) -> None:
        handler.send_response(200)
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        handler.wfile.write(b"%x\r\n%s\r\n" % (len(body), body))
        handler.close_connection = True

    def nothing_left(handler: Any, body: bytes) -> None:
        status = 416 if handler.headers.get("Range") else 200
        handler.send_response(status)
        handler.send_header("Content-Length", str(len(body) if status == 200 else 0))
        handler.end_headers()
        handler.wfile.write(body if status == 200 else b"")

    assert store.fetch([wanted(site.offer("file", BODY, unfinished, nothing_left, nothing_left))]) == {}


# --- what must not stay --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["http", "file"])
def test_wrong_checksum_is_refused_and_nothing_of_it_stays(site: Any, tmp_path: Path, kind: str) -> None:
    (tmp_path / "file").write_bytes(BODY)
    url = site.offer("file", BODY) if kind == "http" else (tmp_path / "file").as_uri()
    with pytest.raises(BuildError, match="the checksum of a file does not match") as raised:
        store.fetch([wanted(url, digest="0" * 64)])
    assert raised.value.exit_code == 5
    assert raised.value.where == url
    assert "0" * 64 in raised.value.why
    assert SUM in raised.value.why
    assert kept() == []


def test_wrong_checksum_loses_nothing_that_was_good(site: Any) -> None:
    store.fetch([wanted(site.offer("file", BODY))])
    with pytest.raises(BuildError):
        store.fetch([wanted(site.offer("other", b"other"), digest="0" * 64)])
    assert kept() == [SUM]


def test_ctrl_c_in_the_middle(site: Any) -> None:
    def interrupt(_: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store.fetch([wanted(site.offer("file", BODY))], interrupt)
    assert kept() == []


def test_ctrl_c_on_a_slow_line(site: Any, faults: Any) -> None:
    """A real SIGINT to a real process, whose download does not end by itself."""
    url = site.offer("file", BODY, faults.crawls)
    digest = sha256(BODY).hexdigest()
    code = f"from trainwright.core.store import *; fetch([Wanted(name='f', sha256={digest!r}, size=1, urls=[{url!r}])])"
    child = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True)
    until(lambda: any(name.startswith(".partial") for name in kept()) and site.asked)
    child.send_signal(signal.SIGINT)
    _, said = child.communicate(timeout=60)
    assert "KeyboardInterrupt" in said
    assert kept() == []


def until(true: Callable[[], object]) -> None:
    end = time.monotonic() + 60
    while not true():
        assert time.monotonic() < end, "it never came to pass"
        time.sleep(0.01)


# --- the disk ------------------------------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Mount a file system of 100 kB."""
    if not shutil.which("mount"):
        pytest.skip("not run: no mount")
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=100k", "tmpfs", disk], capture_output=True)
    if mounted.returncode:
        pytest.skip("not run: mounting a small disk takes root")
    monkeypatch.setenv("TRAINWRIGHT_STORE", str(disk / "store"))
    yield disk
    subprocess.run(["umount", disk], check=True)


def test_disk_that_is_full_in_the_middle(small_disk: Path, site: Any) -> None:
    """Nobody knows the size beforehand; the file does not fit."""
    with pytest.raises(EnvironmentProblem, match="no space left") as raised:
        store.fetch([wanted(site.offer("file", BODY), size=0)])
    assert raised.value.exit_code == 10
    assert "TRAINWRIGHT_STORE" in raised.value.fix
    assert kept() == []


def test_disk_that_is_too_small_from_the_start(site: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(".")._replace(free=len(BODY) - 1)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    with pytest.raises(EnvironmentProblem, match="no space left"):
        store.fetch([wanted(site.offer("file", BODY))])
    assert site.asked == []  # said before anything is fetched


def test_store_that_cannot_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, site: Any) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("TRAINWRIGHT_STORE", str(tmp_path / "file/store"))
    with pytest.raises(EnvironmentProblem) as raised:
        store.fetch([wanted(site.offer("file", BODY))])
    assert str(tmp_path / "file/store") in raised.value.where


# --- out of the store ------------------------------------------------------------------------------------------------


def test_place_links(site: Any, tmp_path: Path) -> None:
    store.fetch([wanted(site.offer("file", BODY))])
    for _ in range(2):  # the second time over the first
        store.place(SUM, tmp_path / "out/file", "a file")
    assert (tmp_path / "out/file").samefile(store.path_of(SUM))


def test_place_copies_to_another_disk(site: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def across(*_: object) -> None:
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    store.fetch([wanted(site.offer("file", BODY))])
    monkeypatch.setattr(os, "link", across)
    store.place(SUM, tmp_path / "file", "a file")
    assert (tmp_path / "file").read_bytes() == BODY


def test_tampered_file_is_found_and_removed(site: Any, tmp_path: Path) -> None:
    store.fetch([wanted(site.offer("file", BODY))])
    store.path_of(SUM).chmod(0o644)
    store.path_of(SUM).write_bytes(b"tampered")
    with pytest.raises(BuildError, match="a file has changed inside the store"):
        store.place(SUM, tmp_path / "file", "a file")
    assert not (tmp_path / "file").exists()
    assert not store.has(SUM)
    assert store.fetch([wanted(f"{site.address}/file")]) == {}  # as its remedy says


def test_two_fetches_of_the_same_file_at_once(site: Any) -> None:
    url = site.offer("file", BODY)
    results: list[object] = []
    threads = [threading.Thread(target=lambda: results.append(store.fetch([wanted(url)]))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [{}] * 4
    assert kept() == [SUM]
    assert store.sha256_of(store.path_of(SUM)) == SUM


HOLDS = """
import sys, time
from trainwright.core import store
with store.scratch() as folder:
    (folder / "half").write_text("x")
    print(folder, flush=True)
    time.sleep(60)
"""


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[Callable[[], tuple[subprocess.Popen[str], Path]]]:
    """Return a function that starts a process with a scratch folder that looks old; it returns process and folder."""
    started = []

    def start() -> tuple[subprocess.Popen[str], Path]:
        child = subprocess.Popen([sys.executable, "-c", HOLDS], stdout=subprocess.PIPE, text=True)
        started.append(child)
        assert child.stdout
        folder = Path(child.stdout.readline().strip())
        assert folder.parent == tmp_path / "store"
        os.utime(folder, (0, 0))
        return child, folder

    yield start
    for child in started:
        child.kill()
        child.wait()


def test_what_a_kill_left_behind_is_swept_and_what_somebody_works_in_is_not(holder: Any) -> None:
    dead, orphan = holder()
    dead.kill()
    dead.wait()
    _, used = holder()
    assert (orphan.exists(), used.exists()) == (False, True)
    with store.scratch() as folder:
        assert sorted(path.name for path in folder.parent.glob(".partial-*")) == sorted([folder.name, used.name])


def test_a_young_folder_is_nobodys_to_sweep(holder: Any) -> None:
    """Where the store is shared over NFS, another host's lock may not be seen."""
    dead, orphan = holder()
    os.utime(orphan)
    dead.kill()
    dead.wait()
    with store.scratch():
        assert orphan.exists()
