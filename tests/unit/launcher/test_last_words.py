"""Test the failure file: the host, the exit code, and the lines of the script's output that explain the failure."""

from pathlib import Path

import failures
import pytest

TRACE = 'Traceback (most recent call last):\n  File "train.py", line 7, in <module>\n    step()\n'
RAISED = f"{TRACE}ValueError: the data is upside down\n"


def test_who_and_what_come_first() -> None:
    assert failures.text("algo-2", 3, "", 100) == "algo-2: exit code 3"
    assert failures.text("algo-2", 137, "x\n", 100) == "algo-2: exit code 137 (SIGKILL)\nx"


@pytest.mark.parametrize(("returncode", "code"), [(0, 0), (3, 3), (-9, 137), (-15, 143)])
def test_exit_code(returncode: int, code: int) -> None:
    assert failures.exit_code(returncode) == code


def test_the_last_traceback() -> None:
    said = failures.last_words(f"step 1\r step 2\n{RAISED.replace('upside', 'inside')}\nlater\n{RAISED}", 1024)
    assert said == RAISED.strip()


@pytest.mark.parametrize("tag", ["[1,3]<stderr>:", "[rank3]: ", "[1,3]<stderr>:[rank3]: "])
def test_a_traceback_whose_lines_are_tagged(tag: str) -> None:
    assert failures.last_words("".join(f"{tag}{line}\n" for line in RAISED.splitlines()), 1024) == RAISED.strip()


def test_the_exception_outlives_its_frames_and_what_was_said_after_it() -> None:
    frames = "".join(f'  File "deep.py", line {line}, in deep\n    deep()\n' for line in range(100))
    said = failures.last_words(f"{TRACE}{frames}ValueError: upside down\n" + "noise\n" * 3, 200)
    assert "ValueError: upside down" in said
    assert "line 99" in said
    assert "line 1," not in said
    assert len(said) <= 200


def test_an_exception_longer_than_the_file() -> None:
    said = failures.last_words(f"{TRACE}ValueError: {'x' * 500}\n", 100)
    assert said.startswith("ValueError: xxx")
    assert len(said) <= 100


def test_no_traceback() -> None:
    assert failures.last_words("one\n\ntwo\nthree\n", 9) == "two\nthree"
    assert failures.last_words("x" * 50, 9) == "x" * 9
    assert failures.last_words("", 9) == ""


def test_a_script_that_says_why_itself_is_not_corrected(tmp_path: Path) -> None:
    place = tmp_path / "failure"
    place.write_text("my own words")
    failures.write(place, "ours")
    assert place.read_text() == "my own words"


def test_what_an_earlier_start_left_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`success` is SageMaker's: beside a file of somebody's choice it may be anything."""
    for name in ("failure", "success", "why"):
        (tmp_path / name).touch()
    failures.begin(tmp_path / "why")
    failures.succeed(tmp_path / "why")
    assert {path.name for path in tmp_path.iterdir()} == {"failure", "success"}
    monkeypatch.setattr(failures, "OUTPUT", tmp_path)
    failures.begin(tmp_path / "failure")
    assert list(tmp_path.iterdir()) == []
    failures.succeed(tmp_path / "failure")
    assert [path.name for path in tmp_path.iterdir()] == ["success"]


def test_a_place_that_cannot_be_written(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    failures.write(tmp_path / "file/failure", "why")
    failures.write(Path("/dev/full"), "why")
    assert capfd.readouterr().err.count("cannot be written") == 2


def test_place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(failures, "OUTPUT", tmp_path / "none")
    assert failures.place({}) is None
    assert failures.place({failures.VARIABLE: "/x/y"}) == Path("/x/y")
    monkeypatch.setattr(failures, "OUTPUT", tmp_path)
    assert failures.place({}) == tmp_path / "failure"
