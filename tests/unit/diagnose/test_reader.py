"""Test the reading of logs: the words that find lines, blocks as single lines, packed and damaged files, memory."""

import gzip
import io
import re
import tracemalloc
from pathlib import Path

import pytest
import zstandard
from unit.diagnose.answers import lines

from trainwright.diagnose import log_lines, reader
from trainwright.diagnose.anchors import literals
from trainwright.diagnose.answer import Answer, answer
from trainwright.diagnose.causes import Cause, Conditions, load_causes
from trainwright.diagnose.reader import Reader

ROOT = Path(__file__).parents[3]
CAUSES, SETTINGS = load_causes(ROOT), reader.load_settings(ROOT)
TEXTS = [row["text"] for row in lines()]
TEXTS += [path.read_text() for path in sorted((Path(__file__).parent / "logs").rglob("*.log"))]
READER = Reader(CAUSES, SETTINGS)  # compiled once, as a job's diagnosis does for its many logs
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"
RAISED = """Traceback (most recent call last):
  File "/opt/ml/code/train.py", line 7, in main
    step(batch)
ValueError: 3 channels expected"""


def read(text: str | bytes) -> Reader:
    one = READER.fresh()
    one.read(io.BytesIO(text.encode() if isinstance(text, str) else text))
    return one


def fed(text: str) -> Reader:
    one = READER.fresh()
    for number, line in enumerate(text.removesuffix("\n").split("\n"), 1):
        one.feed(line, number)
    return one


def cause(text: str | bytes) -> str:
    found = answer(read(text))
    return found.finding.cause.id if found.finding else found.state


@pytest.mark.parametrize(
    ("expression", "found"),
    [
        (r"CUDA out of memory|oom-kill", ["CUDA out of memory", "oom-kill"]),
        (r"(?:abcd|bcdef)?ghij+k", ["ghij"]),
        (r"ab[|(]cdefg{0,3}h", ["cdef"]),
        (r"(^|[ :])(srun|mpirun): command not found", [": command not found"]),
        (r"\b(first|second)\b", ["first", "second"]),
        (r"\d{1,3} (?!nothing)wordy?", ["word"]),
        (r"a\.b\\c\d", [r"a.b\c"]),
    ],
)
def test_the_literals_of_an_expression(expression: str, found: list[str]) -> None:
    assert literals(expression) == found


@pytest.mark.parametrize("expression", [r"\d+", "abc", "(abcd)?", "abcd|ab", "(?i)abcdef", "(?:abcd|b)"])
def test_an_expression_that_needs_no_literal_is_refused(expression: str) -> None:
    with pytest.raises(ValueError, match=r"literal|flag"):
        literals(expression)
    with pytest.raises(ValueError, match=r"literal|flag"):
        Cause(id="a", what="b", lines=[expression], fix="c", seen="d")


def test_the_words_find_each_line_that_a_row_looks_for() -> None:
    places = {row for one in SETTINGS.places for row in one.lines}
    expressions = [(text, re.compile(text)) for text in READER.conditions.texts]
    for text in TEXTS:
        one, raw = read(text), text.splitlines()
        lines = [log_lines.unprefixed(line)[0] for line in raw]
        there = {
            row
            for row, expression in expressions
            if any(map(expression.search, lines + (raw if row in places else [])))
        }
        assert {one.conditions.texts[number] for number in one.conditions.met} == there, text


TYPESET = "page typeset\n" * 30
BAR = "".join(f"\r 24%| {n}/9000 [09:42<28:57, 1.30s/it]" for n in range(5))
OPENING = "+ python train.py --data /desk\nreading the data of the desk\n"
AGAIN = [
    f"{BAR}slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-11-29T19:33:02 ***\n",  # behind a bar
    f"{OPENING}{OOM}\n{OPENING}{TYPESET}",  # a second run
    f"{OOM}\n" * 5 + TYPESET,  # its first two lines are the same
    f"{OPENING}{OPENING}{RAISED}\n",
]


def test_single_lines_give_the_answer_of_the_whole_log() -> None:
    """`watch` and `attach` read lines, `diagnose` reads blocks."""

    def told(found: Answer) -> tuple[str, str, str, str]:
        return found.state, found.what, found.evidence, found.fix

    for text in [*TEXTS, *AGAIN]:
        assert told(answer(read(text))) == told(answer(fed(text))), text


def test_steps_are_counted_after_each_error() -> None:
    """Whichever word shows a step, and also after the same error again. The errors here hold no suspicious word."""
    few, sockets = "0/3 nodes are available: 3 Insufficient nvidia.com/gpu.", "NET/OFI Selected Provider is tcp"
    found = read("\n".join([few, "loss 0.5", "step 2", few, "loss 0.4", "step 3", "12 tokens/s", sockets, ""]))
    places = {one.number: one for one in found.conditions.met.values()}
    assert (places[1].progress, places[8].progress) == (0, 5)
    assert [(number, progress) for number, _, progress in places[1].later] == [(4, 2)]
    calm = read("\n".join([few, *["step 1"] * 4, few, *["step 1"] * 3, ""]))  # the fourth is not counted
    assert {one.later[-1][2] for one in calm.conditions.met.values() if one.later} == {3}
    assert calm.conditions.progress == 6


def test_a_literal_of_several_alternatives_finds_each() -> None:
    conditions = Conditions([r"abcd\d|\dabcd|efgh"])
    assert conditions.anchors == [b"abcd", b"efgh"]
    lines = (b"an abcd1", b"1abcd", b"an efgh", b"abcd")
    assert [conditions.may_meet(0, 0, line) for line in lines] == [True, True, False, False]
    assert conditions.may_meet(0, 1, lines[2])


def test_where_a_block_ends_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "step 1\n" * 3 + f"[rank3]: {RAISED.replace(chr(10), chr(10) + '[rank3]: ')}\n" + "x" * 50
    whole = answer(read(text)).evidence
    assert whole == "line 7: ValueError: 3 channels expected"
    for size in range(1, 60):
        monkeypatch.setattr(reader, "BLOCK", size)
        assert answer(read(text)).evidence == whole
        assert [read(run).runs for run in AGAIN] == [[], [4], [3], [3]]


def test_a_heading_is_read_with_the_words_below_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def said(below: str) -> str:
        text = f"[rank3]: Fatal error:\n{below}\n"
        whole = answer(read(text)).evidence
        assert answer(fed(text)).evidence == whole
        for size in (1, 30):
            monkeypatch.setattr(reader, "BLOCK", size)
            assert answer(read(text)).evidence == whole
        monkeypatch.undo()
        return whole

    assert said("[rank3]: -----\n\n[rank3]: no box for 54 ranks") == "line 1: Fatal error: no box for 54 ranks"
    assert said("[rank3]: cannot open the box") == "line 1: Fatal error: cannot open the box"
    assert "no box" not in said("\n" * 4 + "no box for 54 ranks")
    assert "box" not in said("2026-01-02 03:04:05 INFO the box is well")


def test_what_stands_behind_a_bar_of_hours_in_one_line_is_read_and_the_bar_is_no_progress_after_it() -> None:
    bar = "".join(f"\r 24%| {n}/9000 [09:42<28:57, 1.30s/it]" for n in range(3000))
    assert len(bar) > log_lines.LONGEST
    found = answer(read(f"{bar}slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-11-29T19:33:02 ***\n"))
    assert found.finding
    assert found.finding.cause.id == "cancelled"


@pytest.mark.parametrize(
    ("head", "what"),
    [(b"\0" * 5000, "cause"), (b"W\0" * 40, "cause"), (b"\x7fELF\0\0\1\2" * 900, "unknown")],
    ids=["zeros", "UTF-16", "a program"],
)
def test_zero_bytes_alone_make_no_log_a_binary(head: bytes, what: str) -> None:
    one = Reader(CAUSES, SETTINGS)
    one.read(io.BytesIO(head + f"\n{OOM}\n".encode()))
    assert answer(one).state == what


def test_a_line_is_looked_at_once_for_a_word_however_often_it_holds_it() -> None:
    channel = "gpu-1:7:7 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/Socket/0"
    assert read(f"{channel} {channel}\n{channel}\n").seen.channels == {"NET/Socket": 2}
    assert read(f"{channel}\r{channel}\n").seen.channels == {
        "NET/Socket": 2
    }  # a line that is drawn anew is another one


def test_what_a_progress_bar_overwrote_is_no_part_of_the_evidence() -> None:
    found = answer(read("\r".join(f"{n}%|###" for n in range(100)) + f"\r{OOM}\n"))
    assert found.evidence == f"line 1: {OOM}"


def test_colours_and_prefixes() -> None:
    assert (
        cause("algo-1 | \x1b[31mtorch.\x1b[0mOutOfMemoryError: \x1b[1mCUDA out of memory\x1b[0m\n") == "out-of-memory"
    )
    assert cause(f"2026-11-22T10:00:00.123Z [rank7]: {OOM}") == "out-of-memory"
    assert log_lines.unprefixed(f"[rank7]: 2026-11-22T10:00:00.123Z {OOM}") == (OOM, "7")


def test_packed_files_and_utf_16(tmp_path: Path) -> None:
    text = f"step 1\n{OOM}\n"
    for name, data in {
        "gz": gzip.compress(text.encode()),
        "zst": zstandard.compress(text.encode()[:9]) + zstandard.compress(text.encode()[9:]),
        "le": text.encode("utf-16"),
        "be": b"\xfe\xff" + text.encode("utf-16-be"),
    }.items():
        (tmp_path / name).write_bytes(data)
        one = Reader(CAUSES, SETTINGS)
        with log_lines.opened(str(tmp_path / name)) as stream:
            one.read(stream)
        assert answer(one).evidence == f"line 2: {OOM}", name


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"", "the log is empty"),
        (b"\x7fELF\x02\x01\x01\0\0\0", "it is not text"),
        (b"step 1\n\xe2\x82", "of its 2 lines none reports an error"),
    ],
)
def test_a_log_without_an_answer_gets_a_sentence(data: bytes, what: str) -> None:
    found = answer(read(data))
    assert found.state == "unknown"
    assert what in found.what
    assert found.fix


def test_memory_does_not_grow_with_the_log() -> None:
    class Endless(io.RawIOBase):
        def __init__(self, pieces: int) -> None:
            self.left = pieces

        def read(self, _: int = -1) -> bytes:
            self.left -= 1
            text = f"{OOM} {self.left}\n{RAISED}\nERROR {self.left}: x failed\nstep {self.left}\n" * 20
            return text.encode() if self.left >= 0 else b""

    def peak(pieces: int) -> int:
        one = Reader(CAUSES, SETTINGS)
        tracemalloc.start()
        one.read(Endless(pieces))  # type: ignore[arg-type]
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return most

    assert peak(60) < 2 * peak(15)


def test_credentials_in_evidence_are_masked() -> None:
    found = answer(
        read(RAISED.replace("3 channels expected", "bad token=hf_abcdefghijklmnopqrstuvw at https://u:p@host/"))
    )
    assert "hf_abc" not in found.evidence + found.what
    assert "u:p@" not in found.evidence + found.what
    quoted = answer(read("FATAL: login with password=hunter2000 was refused\n"))
    assert quoted.state == "cause"
    assert "FATAL: login with password=***" in quoted.evidence
    assert "hunter2000" not in quoted.evidence + quoted.what
