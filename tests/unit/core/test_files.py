"""Test that files are written completely or not at all, by one writer at a time."""

import io
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from trainwright.core import files
from trainwright.core.errors import EnvironmentProblem
from trainwright.core.files import write


def test_write(tmp_path: Path) -> None:
    write(tmp_path / "new/file", "é\n")
    assert (tmp_path / "new/file").read_bytes() == "é\n".encode()
    assert (tmp_path / "new/file").stat().st_mode & 0o777 == 0o644


def test_an_interrupted_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    write(tmp_path / "file", "old")
    monkeypatch.setattr(Path, "chmod", interrupt)  # the last step before the new one takes its place
    with pytest.raises(KeyboardInterrupt):
        write(tmp_path / "file", "new")
    assert [path.read_text() for path in tmp_path.glob(".*file*")] == []
    assert (tmp_path / "file").read_text() == "old"


def test_text_that_cannot_be_written_leaves_the_old_file(tmp_path: Path) -> None:
    write(tmp_path / "file", "old")
    with pytest.raises(UnicodeEncodeError):
        write(tmp_path / "file", "\ud800")
    assert (tmp_path / "file").read_text() == "old"
    assert len(list(tmp_path.iterdir())) == 1 + (tmp_path / "store").exists()


HOLD = """
import sys
from pathlib import Path
from trainwright.core.files import only_one
with only_one(Path(sys.argv[1]), lambda line: print(line, flush=True)):
    print("mine", flush=True)
    sys.stdin.read()
"""


def test_the_second_waits_and_says_so(tmp_path: Path) -> None:
    def start() -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [sys.executable, "-c", HOLD, tmp_path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def says(child: "subprocess.Popen[str]") -> str:
        assert child.stdout is not None
        return child.stdout.readline()

    first = start()
    assert says(first) == "mine\n"
    second = start()
    said = says(second)
    assert said.startswith(f"another trainwright process is working in {tmp_path}: process {first.pid} since 20")
    assert "waiting for it" in said
    first.kill()  # even one that dies gives way
    first.communicate()
    assert says(second) == "mine\n"
    second.communicate()
    assert second.returncode == 0


def test_who_does_not_wait_hears_for_whom(tmp_path: Path) -> None:
    said = list[str]()
    with files.only_one(tmp_path, said.append):
        other = files.only_one(tmp_path, said.append, wait=False)
        with pytest.raises(EnvironmentProblem, match="another trainwright process is working in") as error, other:
            pass
        assert f"process {os.getpid()} since 20" in error.value.why
        assert "--no-wait" in error.value.fix
    with files.only_one(tmp_path, said.append, wait=False):
        pass
    (tmp_path / "file").touch()
    with pytest.raises(EnvironmentProblem, match="cannot be written"), files.only_one(tmp_path / "file/x", said.append):
        pass
    assert said == []


def test_one_alone_says_nothing(tmp_path: Path) -> None:
    said: list[str] = []
    for _ in range(2):
        with files.only_one(tmp_path / "new", said.append):
            pass
    assert said == []


def test_what_a_killed_writer_left_is_removed_and_nothing_of_a_person(tmp_path: Path) -> None:
    left = [".a.toml.x1_y2z3q", ".debian-12.packages.abcdefgh", ".image.json.01234567", ".key.a_b_c_d_"]
    theirs = [".gitignore", ".a.toml", ".notes.settings", ".a.toml.backup", "a.toml", ".a.toml.UPPERCAS"]
    for name in [*left, *theirs]:
        (tmp_path / name).touch()
    (tmp_path / ".b.toml.abcdefgh").mkdir()
    files.tidy(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {*theirs, ".b.toml.abcdefgh"}
    files.tidy(tmp_path / "nosuch")


@pytest.mark.parametrize("filters", [True, False])
def test_what_leads_out_of_the_folder_is_not_unpacked(
    tmp_path: Path, filters: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python 3.11.2, Debian 12's, has no filters."""
    if not filters:
        monkeypatch.delattr(tarfile, "data_filter", raising=False)
    links = {"in": "a/file", "a/up": "../in", "out": "../../etc", "far": "/etc", "a/out": "../../x"}
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name in ("a/file", "..data", "../escaped", "/tmp/absolute"):
            archive.addfile(tarfile.TarInfo(name))
        for name, target in links.items():
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname = tarfile.SYMTYPE, target
            archive.addfile(entry)
        pipe = tarfile.TarInfo("pipe")
        pipe.type = tarfile.FIFOTYPE
        archive.addfile(pipe)
    packed.seek(0)
    with tarfile.open(fileobj=packed) as archive:
        files.unpack(archive, tmp_path / "out")
    found = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if not path.is_dir())
    assert found == ["out/..data", "out/a/file", "out/a/up", "out/in"]


def test_a_folder_as_an_archive_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read by another program, and by ourselves as a stream."""
    monkeypatch.setattr(files, "PIECE", 600)
    contents = {"empty": b"", "a/block": bytes(512), "a/odd": b"x" * 1301, "b": b"linked to"}
    for name, content in contents.items():
        write(tmp_path / "in" / name, content)
    (tmp_path / "in/b").rename(tmp_path / "b")
    (tmp_path / "in/b").symlink_to(tmp_path / "b")
    for folder in ("out", "theirs"):
        (tmp_path / folder).mkdir()
    packed = b"".join(files.packed(tmp_path / "in"))
    subprocess.run(["tar", "-x", "-C", tmp_path / "theirs"], input=packed, check=True)
    stream = io.BufferedReader(files.Pieces([packed[:700], packed[700:]]))
    with tarfile.open(fileobj=stream, mode="r|") as archive:
        files.unpack(archive, tmp_path / "out")
    for place in (tmp_path / "out", tmp_path / "theirs"):
        found = {str(path.relative_to(place)): path.read_bytes() for path in place.rglob("*") if path.is_file()}
        assert found == contents
