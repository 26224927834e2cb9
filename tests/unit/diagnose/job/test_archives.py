"""Test archives of a job's logs: read as a folder, whatever packs them; nothing of one leaves its folder."""

import bz2
import contextlib
import gzip
import io
import lzma
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import zstandard
from unit.diagnose.answers import diagnosed

from trainwright.core.errors import ConfigError
from trainwright.diagnose.job import archives

LOGS = {
    "logs/rank-0.log": "step 1\nRuntimeError: Connection closed by peer [10.0.0.1]:99\n",
    "logs/rank-1.log": 'Traceback (most recent call last):\n  File "a.py", line 7, in main\nValueError: 3 channels\n',
    "model/weights.bin": "ValueError: no log\n",
}
PACKED: dict[str, Callable[[bytes], bytes]] = {
    "tar": bytes,
    "tar.gz": gzip.compress,
    "tar.bz2": bz2.compress,
    "tar.xz": lzma.compress,
    "tar.zst": zstandard.ZstdCompressor().compress,
}


def tarred(files: dict[str, str], change: Callable[[tarfile.TarInfo], object] = bool) -> bytes:
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as archive:
        for name, text in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(text)
            change(entry)
            archive.addfile(entry, io.BytesIO(text.encode()))
    return raw.getvalue()


def zipped(files: dict[str, str]) -> bytes:
    raw = io.BytesIO()
    with zipfile.ZipFile(raw, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return raw.getvalue()


def told(folder: Path, raw: bytes, name: str = "logs.tar") -> dict[str, Any]:
    (folder / name).write_bytes(raw)
    (row,) = diagnosed(folder / name)
    return row


@pytest.mark.parametrize("kind", [*PACKED, "zip"])
def test_an_archive_is_read_as_a_folder(kind: str, tmp_path: Path) -> None:
    row = told(tmp_path, zipped(LOGS) if kind == "zip" else PACKED[kind](tarred(LOGS)), "logs")
    assert (row["log"], row["cause"], row["job"]["failed_first"]) == ("2 ranks: 2 logs", "exception", [1])
    assert row["evidence"] == f"{tmp_path}/logs/logs/rank-1.log:3: ValueError: 3 channels"


def test_weights_are_not_unpacked(tmp_path: Path) -> None:
    (tmp_path / "archive").write_bytes(tarred(LOGS))
    archives.unpacked([str(tmp_path / "archive")], tmp_path / "into", {})
    assert {path.suffix for path in (tmp_path / "into").rglob("*.*")} == {".log"}


@pytest.mark.parametrize("pack", [bz2.compress, lzma.compress], ids=["bz2", "xz"])
def test_one_packed_log(pack: Callable[[bytes], bytes], tmp_path: Path) -> None:
    assert told(tmp_path, pack(LOGS["logs/rank-1.log"].encode()))["evidence"] == "line 3: ValueError: 3 channels"


def test_an_archive_from_standard_input(cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(zipped(LOGS))))
    assert "-/logs/rank-1.log:3: ValueError" in cli(Path(__file__).parents[4], "diagnose", "-").out


@pytest.mark.parametrize("name", ["../../out.log", "/out.log", "a/../../../out.log", "..\\..\\out.log"])
@pytest.mark.parametrize("pack", [tarred, zipped])
def test_no_file_lands_outside(name: str, pack: Callable[[dict[str, str]], bytes], tmp_path: Path) -> None:
    (tmp_path / "archive").write_bytes(pack({name: "text\n"}))
    (folder,), names = archives.unpacked([str(tmp_path / "archive")], tmp_path / "into" / "deep", {})
    written = [path for path in tmp_path.rglob("*.log") if path.is_file()]
    assert len(written) == 1
    assert Path(folder) in written[0].parents
    assert names[str(written[0])].endswith("/out.log")


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE])
def test_what_is_no_file_is_left_out(kind: bytes, tmp_path: Path) -> None:
    def change(entry: tarfile.TarInfo) -> None:
        entry.type, entry.linkname, entry.size = kind, "/etc/passwd", 0

    with pytest.raises(ConfigError, match="no log in this archive"):
        told(tmp_path, tarred({"out.log": ""}, change))


def test_a_damaged_archive(tmp_path: Path) -> None:
    for name, raw in (("a.tar", tarred(LOGS)[:700]), ("a.tar.gz", gzip.compress(tarred(LOGS))[:-20])):
        with pytest.raises(ConfigError, match="cannot be read"):
            told(tmp_path, raw, name)


def test_a_zip_with_a_password(tmp_path: Path) -> None:
    raw = zipped(LOGS)
    for mark in (b"PK\x03\x04", b"PK\x01\x02"):  # the bit for "encrypted" of each file, in both of its headers
        at = 6 if mark == b"PK\x03\x04" else 8
        parts = raw.split(mark)
        raw = mark.join(
            [parts[0], *(part[: at - 4] + bytes([part[at - 4] | 1]) + part[at - 3 :] for part in parts[1:])]
        )
    with pytest.raises(ConfigError) as refused:
        told(tmp_path, raw)
    assert "password" in (refused.value.why or "")


@pytest.mark.parametrize(("limit", "most"), [("LARGEST", 40), ("MOST_FILES", 1)])
def test_an_archive_without_an_end(limit: str, most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, limit, most)
    with pytest.raises(ConfigError) as refused:
        told(tmp_path, tarred(LOGS))
    assert "more than" in (refused.value.why or "")


def test_an_archive_without_a_log(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as refused:
        told(tmp_path, tarred({"weights.bin": "x"}))
    assert refused.value.where == str(tmp_path / "logs.tar")
    with pytest.raises(ConfigError) as refused:
        told(tmp_path, zipped({"a.log": ""}))
    assert refused.value.where == str(tmp_path / "logs.tar")


def test_an_archive_that_begins_with_a_log_of_several_hosts(tmp_path: Path) -> None:
    rows = [f"node{number % 2}: step {number}\n" for number in range(40)]
    text = "".join([*rows, *(f"node1: {line}\n" for line in LOGS["logs/rank-1.log"].splitlines())])
    assert "node1 failed first: the program raised ValueError" in told(tmp_path, tarred({"train.log": text}))["what"]


@pytest.mark.parametrize("pack", PACKED.values(), ids=PACKED)
def test_one_wrong_byte(pack: Callable[[bytes], bytes], tmp_path: Path) -> None:
    """Whatever a byte does to an archive: an answer, or one sentence."""
    raw = bytearray(pack(tarred(LOGS)))
    for at in range(10, len(raw), max(1, len(raw) // 40)):
        raw[at] ^= 0x55
        with contextlib.suppress(ConfigError):
            told(tmp_path, bytes(raw))
        raw[at] ^= 0x55


def test_a_checksum_at_the_end_is_compared(tmp_path: Path) -> None:
    raw = bytearray(gzip.compress(tarred(LOGS)))
    raw[-6] ^= 0x55
    with pytest.raises(ConfigError, match="cannot be read"):
        told(tmp_path, bytes(raw))


def test_members_that_take_no_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "MOST_MEMBERS", 5)
    with pytest.raises(ConfigError) as refused:
        told(tmp_path, tarred({f"{number}.py": "" for number in range(9)}))
    assert "members" in (refused.value.why or "")
    deep = {"/".join(["a"] * 1800) + "/x.log": "ValueError: no", **LOGS}
    assert told(tmp_path, tarred(deep))["job"]["failed_first"] == [1]


def test_the_place_of_an_archive_says_no_rank(tmp_path: Path) -> None:
    for name in ("a.tar", "b.tar"):
        (tmp_path / name).write_bytes(tarred({"stdout.log": LOGS["logs/rank-1.log"]}))
    assert not any("rank" in row["what"] for row in diagnosed(tmp_path / "a.tar", tmp_path / "b.tar"))
