"""Test the archive of a job's source: it has all files and no others, and the same files give the same bytes."""

import io
import os
import tarfile
from pathlib import Path
from typing import Any

import pytest

from trainwright.core.errors import ConfigError
from trainwright.core.files import unpack
from trainwright.jobs import source

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
    first, names = source.pack(lay(tmp_path / "a"), SKIP, MOST)
    assert first[4:8] == bytes(4)  # gzip's own time: two packs of one second would hide it
    other = lay(tmp_path / "b")
    (other / "train.py").chmod(0o600)
    for path in other.rglob("*"):
        os.utime(path, (1, 1))
    assert source.pack(other, SKIP, MOST) == (first, names)
    assert names == sorted(["model/net.py", "requirements.txt", "run.sh", "train.py"])
    (other / "train.py").write_text("other")
    assert source.pack(other, SKIP, MOST)[0] != first


def test_it_unpacks_to_what_was_there(tmp_path: Path) -> None:
    content, names = source.pack(lay(tmp_path / "a"), SKIP, MOST)
    with tarfile.open(fileobj=io.BytesIO(content), mode="r:gz") as archive:
        unpack(archive, tmp_path / "out")
        assert {entry.name: entry.mode for entry in archive}["run.sh"] == 0o755
        assert {(entry.uid, entry.gid, entry.mtime) for entry in archive} == {(0, 0, 0)}
    for name in names:
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "a" / name).read_bytes()


def test_links(tmp_path: Path) -> None:
    """One inside becomes its file; one that leads outside would be refused on each host, minutes later."""
    folder = lay(tmp_path / "a")
    (folder / "again.py").symlink_to("train.py")
    assert "again.py" in source.pack(folder, SKIP, MOST)[1]
    (tmp_path / "outside").write_text("x")
    (folder / "out.py").symlink_to(tmp_path / "outside")
    with pytest.raises(ConfigError, match=r"out\.py is a link out of the source"):
        source.pack(folder, SKIP, MOST)
    (folder / "out.py").unlink()
    for target in ("model", "nowhere"):
        (folder / "other").symlink_to(target)
        with pytest.raises(ConfigError, match="other is a link, but not to a file"):
            source.pack(folder, SKIP, MOST)
        (folder / "other").unlink()


@pytest.mark.parametrize(
    ("name", "refused"),
    [
        ("profile.py", True),
        ("queue/__init__.py", True),
        ("queue/data.py", False),  # no package: Python finds its own one
        ("model/types.py", False),
        ("code.txt", False),
        ("step_profile.py", False),
    ],
)
def test_a_module_that_hides_one_of_python_itself(tmp_path: Path, name: str, refused: bool) -> None:
    path = lay(tmp_path / "a") / name
    path.parent.mkdir(exist_ok=True)
    path.touch()
    if not refused:
        source.pack(tmp_path / "a", SKIP, MOST)
        source.refuse_hiding(source.modules(tmp_path / "a"), tmp_path / "a")
        return
    with pytest.raises(ConfigError, match=f"{name} has the name of a standard module of Python"):
        source.pack(tmp_path / "a", SKIP, MOST)
    with pytest.raises(ConfigError, match=name):
        source.refuse_hiding(source.modules(tmp_path / "a"), tmp_path / "a")


def test_a_run_here_refuses_it_too(cli: Any, tmp_path: Path) -> None:
    (tmp_path / "dockerfiles").symlink_to(Path(__file__).parents[3] / "dockerfiles")
    (tmp_path / "profile.py").touch()
    ended = cli(tmp_path, "run", "image", "profile.py")
    assert ended.code == 2
    assert "profile.py has the name of a standard module of Python" in ended.err


def test_data_beside_the_script_is_refused_before_it_is_sent(tmp_path: Path) -> None:
    folder = lay(tmp_path / "a")
    (folder / "data.bin").write_bytes(os.urandom(50_000))
    with pytest.raises(ConfigError, match=r"larger than 0\.04 MB") as raised:
        source.pack(folder, SKIP, 40_000)
    assert "data.bin" in raised.value.why
    assert "--channel" in raised.value.fix
