"""The source of a job: the same bytes for the same files, all of them and no other ones."""

import io
import os
import tarfile
from pathlib import Path

import pytest

from trainwright import packing
from trainwright.errors import ConfigError

SKIP = [".git", "__pycache__"]
MOST = 1_000_000


def lay(folder: Path) -> Path:
    for name in ("train.py", "model/net.py", "requirements.txt", ".git/config", "model/__pycache__/net.pyc"):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    (folder / "run.sh").write_text("#!/bin/sh")
    (folder / "run.sh").chmod(0o700)
    return folder


def test_the_same_files_are_the_same_bytes(tmp_path: Path) -> None:
    first, names = packing.pack(lay(tmp_path / "a"), SKIP, MOST)
    assert first[4:8] == bytes(4)  # gzip's own time: two packs of one second would hide it
    other = lay(tmp_path / "b")
    (other / "train.py").chmod(0o600)
    for path in other.rglob("*"):
        os.utime(path, (1, 1))
    assert packing.pack(other, SKIP, MOST) == (first, names)
    assert names == sorted(["model/net.py", "requirements.txt", "run.sh", "train.py"])
    (other / "train.py").write_text("other")
    assert packing.pack(other, SKIP, MOST)[0] != first


def test_it_unpacks_to_what_was_there(tmp_path: Path) -> None:
    content, names = packing.pack(lay(tmp_path / "a"), SKIP, MOST)
    with tarfile.open(fileobj=io.BytesIO(content), mode="r:gz") as archive:
        archive.extractall(tmp_path / "out", filter="data")
        assert {entry.name: entry.mode for entry in archive}["run.sh"] == 0o755
        assert {(entry.uid, entry.gid, entry.mtime) for entry in archive} == {(0, 0, 0)}
    for name in names:
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "a" / name).read_bytes()


def test_links(tmp_path: Path) -> None:
    """One inside becomes its file; one that leads outside would be refused on each host, minutes later."""
    folder = lay(tmp_path / "a")
    (folder / "again.py").symlink_to("train.py")
    assert "again.py" in packing.pack(folder, SKIP, MOST)[1]
    (tmp_path / "outside").write_text("x")
    (folder / "out.py").symlink_to(tmp_path / "outside")
    with pytest.raises(ConfigError, match=r"out\.py leads out of the source"):
        packing.pack(folder, SKIP, MOST)
    (folder / "out.py").unlink()
    for target in ("model", "nowhere"):
        (folder / "other").symlink_to(target)
        with pytest.raises(ConfigError, match="other is no link to a file"):
            packing.pack(folder, SKIP, MOST)
        (folder / "other").unlink()


def test_data_beside_the_script_is_refused_before_it_is_sent(tmp_path: Path) -> None:
    folder = lay(tmp_path / "a")
    (folder / "data.bin").write_bytes(os.urandom(50_000))
    with pytest.raises(ConfigError, match=r"more than 0\.04 MB") as raised:
        packing.pack(folder, SKIP, 40_000)
    assert "data.bin" in raised.value.why
    assert "--channel" in raised.value.fix
