"""Test hostile writers of logs (a job, its libraries, another user) against every search in a log."""

import io
import re
import signal
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from trainwright.core import console
from trainwright.diagnose import causes, log_lines, nccl_debug, reader, watch
from trainwright.gate import judge, nccl_tests

ROOT = Path(__file__).parents[2]
ROWS = [row for file in (ROOT / causes.FOLDER).glob("*.toml") for row in tomllib.loads(file.read_text())["causes"]]
DATA = list(
    dict.fromkeys(
        text for row in ROWS for text in [*row.get("lines", []), *row.get("without", []), *row.get("until", [])]
    )
)
MOST = 400  # characters of a gap that no row of the data needs more of
ENDS_WHAT_HANGS = 300  # seconds: a search without end would take the whole run with it

# How a repeat, a set and a category look in what `re` has parsed a pattern into.
REPEATS = ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT")
ONE_OF = {"CATEGORY_DIGIT": "1", "CATEGORY_SPACE": " ", "CATEGORY_WORD": "a"}


def parsed(pattern: str, flags: int = 0) -> Any:
    return re._parser.parse(pattern, flags)  # type: ignore[attr-defined]


def repeats(tree: Any, within: int = 1) -> Iterator[tuple[Any, int]]:
    """Yield the upper bound of every repeat, with the product of those around it."""
    for operation, told in tree:
        if str(operation) in REPEATS:
            yield told[1], within
            yield from repeats(told[2], within * max(int(told[1]), 1))
        elif str(operation) == "SUBPATTERN":
            yield from repeats(told[3], within)
        elif str(operation) == "BRANCH":
            for branch in told[1]:
                yield from repeats(branch, within)
        elif str(operation) in ("ASSERT", "ASSERT_NOT"):
            yield from repeats(told[1], within)


def texts(tree: Any) -> list[str]:
    """Return some texts that a pattern matches, each repeat as short as possible."""
    found = [""]
    for operation, told in tree:
        parts = [""]
        match str(operation):
            case "LITERAL":
                parts = [chr(told)]
            case "ANY":
                parts = ["x"]
            case "IN":
                kind, value = told[0]
                parts = [chr(value) if str(kind) == "LITERAL" else ONE_OF.get(str(value), "a")]
            case "SUBPATTERN":
                parts = texts(told[3])[:6]
            case "BRANCH":
                parts = [text for branch in told[1] for text in texts(branch)[:2]]
            case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
                parts = [text * max(told[0], 1) for text in texts(told[2])[:4]]
        found = [text + part for text in found for part in parts][:24]
    return found


def of_literals(pattern: str, flags: int = 0) -> list[str]:
    """Return long lines of a pattern's own words, complete or cut at each second point: the pattern never ends."""
    whole = texts(parsed(pattern, flags))
    pieces = dict.fromkeys(text[:cut] for text in whole for cut in range(len(text), 0, -2))
    lines = [piece * (log_lines.LOOKED_AT // len(piece)) for piece in pieces]
    # One beginning, and then what a gap takes: a word without end, or blanks.
    return lines + [
        (text[:-1] + filler * log_lines.LOOKED_AT)[: log_lines.LOOKED_AT] for text in whole for filler in "a 1"
    ]


@pytest.fixture
def ends() -> Iterator[None]:
    """End a test that hangs, even inside a search of `re`; it measures nothing else."""

    def end(*_: object) -> None:
        raise AssertionError(f"it has not ended after {ENDS_WHAT_HANGS} s")

    before = signal.signal(signal.SIGALRM, end)
    signal.alarm(ENDS_WHAT_HANGS)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def nested(pattern: str, flags: int = 0) -> list[Any]:
    """List repeats within repeats, such as (a+)+, which can split one text in too many ways."""
    return [
        most for most, within in repeats(parsed(pattern, flags)) if most > 1 and within > 1 and within * most > MOST
    ]


def test_a_gap_has_an_end() -> None:
    endless = re._constants.MAXREPEAT  # type: ignore[attr-defined]
    found = {
        pattern: [most for most, _ in repeats(parsed(pattern)) if most == endless or most > MOST] for pattern in DATA
    }
    assert {pattern: wrong for pattern, wrong in found.items() if wrong} == {}


@pytest.mark.parametrize("pattern", [r"(a+)+b", r"(?:a{1,9}b?){0,400}c", r"((x|y*)z?)*"])
def test_a_repeat_within_a_repeat_is_found(pattern: str) -> None:
    assert nested(pattern)


@pytest.mark.parametrize("pattern", DATA)
def test_a_cause_is_looked_for_in_its_own_words(pattern: str, ends: None) -> None:
    assert nested(pattern) == []
    compiled = re.compile(pattern)
    for line in of_literals(pattern):
        compiled.search(line)


SIGNS = ("-", " ", "a: ", "[x] ", "1", "> ", "| ", "1 - ", "a/")  # what stands before an error line, and its like


@pytest.mark.parametrize("sign", SIGNS)
def test_a_line_of_one_sign_is_compared_with_every_form_of_an_error_line(sign: str, ends: None) -> None:
    settings = tomllib.loads((ROOT / reader.FILE).read_text())
    lists = (
        "passed",
        "failed",
        "progress",
        "harmless",
        "recovered",
        "several",
        "informative",
        "consequences",
        "wrappers",
    )
    texts = [text for name in lists for text in settings[name]]
    texts += [form["line"] for form in settings["statements"]]
    texts += [f"^{settings['statement_prefix']}", settings["raised_again"], settings["no_progress"]]
    line = f"{(sign * log_lines.LOOKED_AT)[: log_lines.LOOKED_AT - 20]} things failed: no"
    for text in texts:
        re.search(text, line)


def patterns() -> Iterator[tuple[str, re.Pattern[str], bool]]:
    """Yield the patterns of the modules that read logs, and whether each is searched for anywhere in a line."""
    searched = {"PROCESS", "NETWORK", "PROVIDER", "CHANNEL", "NODES", "RANKS", "VARIABLE", "SPEAKER", "EXIT", "ERROR"}
    searched |= {"PLUGIN", "REFUSED", "ANSI", "ISO", "GLOG", "NUMBER"}
    modules: list[ModuleType] = [judge, log_lines, nccl_debug, nccl_tests]
    for module in modules:
        for name, value in vars(module).items():
            if isinstance(value, re.Pattern):
                anywhere = name in searched or (module is nccl_debug and name == "VERSION")
                yield f"{module.__name__}.{name}", value, anywhere


@pytest.mark.parametrize(("pattern", "anywhere"), [pytest.param(*row, id=name) for name, *row in patterns()])
def test_a_reader_looks_in_its_own_words(pattern: re.Pattern[str], anywhere: bool, ends: None) -> None:
    flags = pattern.flags & ~re.UNICODE
    assert nested(pattern.pattern, flags) == []
    look = pattern.search if anywhere else pattern.match
    for line in of_literals(pattern.pattern, flags):
        look(line)


LINES = {
    "glibc": "libnccl-net-ofi version `GLIBC_",
    "libfabric": "libnccl-net.so",
    "host": "a",
    "channel": " via NET/OFI/0",
    "prefixes": "0: ",
    "colours": "\x1b[",
    "network": "NCCL INFO Using network ",
    "blanks": " ",
    "header": "# nccl-tests version ",
}


@pytest.mark.parametrize("attack", LINES)
def test_a_line_without_end_is_read_to_its_end(attack: str, ends: None) -> None:
    """By the judge and by the watch, as `diagnose`, `attach` and `launch` read it, too."""
    words = " network via set version rovider is 'xit nccl anks nNodes"
    known, length = causes.load_causes(ROOT), 1 << 16
    hostile = (LINES[attack] * length)[: length - len(words)] + words
    judge.read([hostile], known)
    watch.load_watch(ROOT).line("", hostile, 0)


def test_what_stands_far_behind_in_a_line_is_not_looked_at() -> None:
    assert log_lines.unprefixed("a" * (1 << 16))[0] == "a" * log_lines.LOOKED_AT


ESCAPES = {
    "a title": "\x1b]0;pwned\x07",
    "the clipboard": "\x1b]52;c;cm0gLXJm\x07",
    "a CSI of one mark": "\x9b31m",
    "a report that is typed in": "\x1b[6n\x1bP$q\x1b\\",
    "a way back": "\r\x08\x08",
    "letters that run backwards": "\u202eevil\u202c",
}


@pytest.mark.parametrize("attack", ESCAPES)
@pytest.mark.parametrize("command", [["diagnose"], ["judge"], ["watch"], ["judge", "--json"]], ids=" ".join)
def test_no_mark_of_a_log_steers_a_terminal(attack: str, command: list[str], cli: Any, tmp_path: Path) -> None:
    log = tmp_path / f"log{ESCAPES[attack].replace('/', '')}.txt"
    words = f"{ESCAPES[attack]}OutOfMemoryError: CUDA out of memory{ESCAPES[attack]}\n"
    log.write_text(
        words + f"NCCL WARN Cuda failure {ESCAPES[attack]} out of memory\nncclSystemError {ESCAPES[attack]}\n"
    )
    ended = cli(ROOT, *command, str(log))
    shown = ended.out + ended.err
    assert "out of memory" in shown or "OutOfMemory" in shown
    assert [mark for mark in shown if not mark.isprintable() and mark not in "\n\t"] == []


@pytest.mark.parametrize("attack", ESCAPES)
def test_no_line_that_is_followed_steers_a_terminal(attack: str) -> None:
    """`attach` and `launch`: colours are a host's own to give, and nothing else is."""
    to = io.StringIO()
    console.log_printer(to)(f"algo-² | {ESCAPES[attack]}\x1b[31mred\x1b[0m")
    assert "\x1b[31mred\x1b[0m" in to.getvalue()
    shown = to.getvalue().replace("\x1b[31m", "").replace("\x1b[0m", "").rstrip("\n")
    assert shown.isprintable()


JSONS = {
    "nested 100,000 deep": "[" * 100_000,
    "an object nested 100,000 deep": '{"a":' * 100_000,
    "a rank of 60,000 digits": '{"nccl_version": 23007, "devices": [{"rank": ' + "9" * 60_000 + "}]}",
    "a rank of 60,000 digits as a word": '{"nccl_version": 23007, "devices": [{"rank": "' + "9" * 60_000 + '"}]}',
    "a number beyond all": '{"nccl_version": 1e999}',
    "a list in place of the settings": '{"nccl_version": 1, "config": [1]}',
}


@pytest.mark.parametrize("attack", JSONS)
@pytest.mark.parametrize("command", ["judge", "diagnose"])
def test_a_table_that_is_none_is_one_error(attack: str, command: str, cli: Any, tmp_path: Path) -> None:
    (tmp_path / "log.json").write_text(JSONS[attack])
    ended = cli(ROOT, command, str(tmp_path / "log.json"))
    assert ended.code != 1
    assert "Traceback" not in ended.err


def test_a_prefix_of_60_000_digits(cli: Any, tmp_path: Path) -> None:
    (tmp_path / "log").write_text(f"{'9' * 60_000}: # Rank {'9' * 60_000} Group 0 Pid 1 on a device 0 [0x1]\n")
    assert cli(ROOT, "judge", str(tmp_path / "log")).code not in (0, 1)
