"""Files written whole or not at all, and one writer at a time."""

import subprocess
import sys
from pathlib import Path

import pytest

from trainwright import files
from trainwright.files import write


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
from trainwright.files import only_one
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
    assert says(second) == f"another trainwright works in {tmp_path}; waiting for it\n"
    first.kill()  # even one that dies gives way
    first.communicate()
    assert says(second) == "mine\n"
    second.communicate()
    assert second.returncode == 0


def test_one_alone_says_nothing(tmp_path: Path) -> None:
    said: list[str] = []
    for _ in range(2):
        with files.only_one(tmp_path / "new", said.append):
            pass
    assert said == []
