"""Test tables: numbers, brackets and missing values are shown literally, and a pipe gets whole lines."""

import json
import re
import shutil
from typing import Any

import pytest

from trainwright.build.state import Done
from trainwright.core import console
from trainwright.core.errors import BuildError, printable
from trainwright.matrix.records import Drift, Image


def shown(capsys: pytest.CaptureFixture[str], *rows: dict[str, Any]) -> list[str]:
    console.show(list(rows), as_json=False)
    return capsys.readouterr().out.splitlines()


def test_yes_no_and_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(capsys, {"a": True, "b": False, "c": None, "d": "x"})[1].split() == ["yes", "x"]


def test_numbers_stay_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    """`drift 1` is not `drift yes`, and `drift 0` is not an empty cell."""
    assert shown(capsys, {"zero": 0, "one": 1, "half": 0.5})[1].split() == ["0", "1", "0.5"]


def test_ends_of_lines_and_blanks_stay_readable() -> None:
    assert printable("a\r\nb\n") == "a\nb\n"
    assert printable("10%\r20%\x1b[2J") == "10% 20%\ufffd[2J"
    assert printable("1\u00a0000 files\u202e") == "1\u00a0000 files\ufffd"
    assert printable("\tFehler: Ger\u00e4t fehlt \u274c") == "\tFehler: Ger\u00e4t fehlt \u274c"


def test_brackets_are_text(capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(capsys, {"why": "[red]no [/opt] such [Errno 2]"})[1].strip() == "[red]no [/opt] such [Errno 2]"


def test_a_pipe_gets_one_line_a_row(capsys: pytest.CaptureFixture[str]) -> None:
    assert len(shown(capsys, {"id": "i" * 60, "digest": "sha256:" + "d" * 64, "why": "w " * 30})) == 2


@pytest.mark.parametrize("length", [47, 78, 120])
def test_the_first_column_is_whole_on_a_terminal_of_80_columns(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, length: int
) -> None:
    """An id is there to be copied; what does not fit beside it goes over several lines."""
    monkeypatch.setenv("FORCE_COLOR", "1")  # a terminal, for rich
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm")
    long = {"id": "i" * length, "digest": "sha256:" + "0" * 64, "why": "w " * 90, "mark": "x"}
    lines = [re.sub(r"\x1b\[[\d;]*m", "", line) for line in shown(capsys, long, {**long, "id": "other"})]
    assert sum("i" * length in line for line in lines) == 1
    assert sum(line.count("0") for line in lines) == 2 * 64
    if length < 70:
        assert max(map(len, lines)) <= 80
        assert len(lines) < 200


@pytest.mark.parametrize(
    ("width", "names"),
    [
        (150, ["id", "state", "default", "tested", "reason"]),
        (120, ["id", "state", "default", "reason"]),
        (100, ["id", "state", "reason"]),
    ],
)
def test_a_narrow_terminal_leaves_out_what_the_reason_needs(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, width: int, names: list[str]
) -> None:
    for name, value in (("FORCE_COLOR", "1"), ("COLUMNS", str(width)), ("TERM", "xterm"), ("NO_COLOR", "1")):
        monkeypatch.setenv(name, value)
    row = {
        "id": "i" * 45,
        "state": "unproved",
        "default": True,
        "tested": "make test" + " by hand",
        "reason": "w " * 60,
    }
    console.show([row, row], as_json=False, spare=("tested", "default"))
    said = capsys.readouterr()
    lines = [re.sub(r"\x1b\[[\d;]*m", "", line) for line in said.out.splitlines()]
    assert lines[0].split() == names
    assert max(map(len, lines)) <= width
    assert max(line.count("w") for line in lines[1:]) >= console.ROOM // 2 - 1
    less = [name for name in ("tested", "default") if name not in names]
    assert said.err == (f"left out on {width} columns: {', '.join(less)}; --json has all\n" if less else "")
    monkeypatch.setenv("COLUMNS", "80")
    console.show([row | {"reason": "short"}], as_json=False, spare=("tested", "default"))
    assert "default" in capsys.readouterr().out  # a short reason needs no room
    monkeypatch.delenv("FORCE_COLOR")
    console.show([row], as_json=False, spare=("tested", "default"))
    assert "tested" in capsys.readouterr().out  # a pipe has no width


def test_a_digest_in_a_sentence_is_brief() -> None:
    digest = "sha256:" + "0123456789abcdef" * 4
    assert console.brief(f"published as {digest}; x") == "published as sha256:0123456789ab...; x"
    assert console.brief("sha256:012") == "sha256:012"


@pytest.mark.parametrize("cells", [("a", "b"), ("", "two\nlines"), ("x" * 40, "a  b"), (None, True), (0, 1.5)])
def test_a_pipe_gets_the_table_that_a_terminal_of_any_width_gets(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, cells: tuple[Any, Any]
) -> None:
    rows = [{"id": "one", "a": cells[0], "why": cells[1]}, {"id": "another", "a": cells[1], "why": cells[0]}]
    plain = shown(capsys, *rows)
    for name, value in (("FORCE_COLOR", "1"), ("COLUMNS", "300"), ("TERM", "xterm"), ("NO_COLOR", "1")):
        monkeypatch.setenv(name, value)
    assert [re.sub(r"\x1b\[[\d;]*m", "", line).rstrip() for line in shown(capsys, *rows)] == plain


@pytest.mark.parametrize("terminal", [False, True])
def test_a_value_stands_under_its_own_heading(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, terminal: bool
) -> None:
    """Whatever the order of a row's keys, and where it has fewer of them."""
    if terminal:
        monkeypatch.setenv("FORCE_COLOR", "1")
    lines = shown(capsys, {"id": "one", "why": "because"}, {"why": "reason", "id": "two"}, {"id": "three"})
    assert [re.sub(r"\x1b\[[\d;]*m", "", line).split() for line in lines[1:]] == [
        ["one", "because"],
        ["two", "reason"],
        ["three"],
    ]


def test_nothing_to_show(capsys: pytest.CaptureFixture[str]) -> None:
    console.show([], as_json=True)
    assert json.loads(capsys.readouterr().out) == []
    shown(capsys)


@pytest.mark.parametrize(
    ("size", "said"), [(None, ""), (0, "0.0 MB"), (999_900_000, "999.9 MB"), (1_234_000_000, "1.23 GB")]
)
def test_human(size: float | None, said: str) -> None:
    assert console.human(size) == said


def done(**changes: object) -> Done:
    image = Image(id="some-image", key="a" * 64, size=123_400_000).model_copy(update=changes)
    return Done(image, "pushed", "because", 1.25)


def test_final_table(capsys: pytest.CaptureFixture[str]) -> None:
    digest = "sha256:" + "d" * 64
    uri = f"127.0.0.1:5000/x@{digest}"
    console.final([done(digest=digest, uri=uri, drift=[Drift(package="git", locked="1", used="2")])], as_json=False)
    said = capsys.readouterr().out
    for part in ("some-image", "a" * 12, "123.4 MB", "1.2 s", digest, "because", uri):
        assert part in said
    assert "a" * 13 not in said


@pytest.mark.parametrize(
    ("action", "said"), [("pushed", True), ("skip", True), ("build", False), ("reuse", False), ("would push", False)]
)
def test_an_address_is_for_copying_only_where_a_registry_has_it(
    capsys: pytest.CaptureFixture[str], action: str, said: bool
) -> None:
    """image.json remembers an address; whether anything is there now, only a push or a skip has asked."""
    row = done(digest="sha256:1", uri="127.0.0.1:5000/x@sha256:1")
    row.action = action
    console.final([row], as_json=False)
    assert ("127.0.0.1:5000/x@sha256:1" in capsys.readouterr().out.splitlines()) == said


def test_final_json_is_image_json_and_what_was_done(capsys: pytest.CaptureFixture[str]) -> None:
    console.final([done()], as_json=True)
    (row,) = json.loads(capsys.readouterr().out)
    assert row.keys() == Image(id="", key="").to_json().keys() | {"action", "reason", "seconds"}
    assert (row["digest"], row["size"], row["action"]) == (None, 123_400_000, "pushed")


def test_complaint(capsys: pytest.CaptureFixture[str]) -> None:
    console.complain(BuildError("it broke", where="here:1", why="one\ntwo", fix="mend"), as_json=False)
    ended = capsys.readouterr()
    assert ended.out == ""
    assert ended.err.splitlines() == [
        "error: it broke",
        "  where: here:1",
        "  why:   one",
        "         two",
        "  fix:   mend",
    ]


def test_progress_without_a_terminal_is_lines(capsys: pytest.CaptureFixture[str]) -> None:
    with console.progress(2_000_000) as (say, advance):
        say("a line")
        advance(1)
    ended = capsys.readouterr()
    assert ended.out == ""
    assert ended.err.splitlines() == ["fetching 2.0 MB", "a line"]


def test_each_command_of_a_fix_can_be_pasted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    fix = "trainwright build a && trainwright push a\ntrainwright list\na word of trainwright list"
    said = ".venv/bin/trainwright build a && .venv/bin/trainwright push a\n.venv/bin/trainwright list"
    assert console.pasteable(fix) == f"{said}\na word of trainwright list"
