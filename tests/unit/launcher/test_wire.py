"""Test messages between hosts: framed, sealed, and never mistaken for other messages."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wire import Lines, Message, Seal, WireError, number, shown, text

KEY = b"k" * 32
MESSAGE = {"kind": "failed", "code": 3, "cause": "line one\nline two é"}


def test_a_message_comes_through_as_it_was() -> None:
    line = Seal(KEY).seal(MESSAGE)
    assert line.count(b"\n") == 1
    assert Seal(KEY).open(line.rstrip(b"\n")) == MESSAGE


@pytest.mark.parametrize("key", [KEY, None])
def test_what_was_changed_on_the_way_is_no_message(key: bytes | None) -> None:
    """Without a key only the frame can be checked; that is what having no secret means."""
    line = Seal(key).seal(MESSAGE).rstrip(b"\n")
    changed = line.replace(b'"code":3', b'"code":0')
    assert changed != line
    if key is None:
        assert Seal(None).open(changed)["code"] == 0
    else:
        with pytest.raises(WireError, match="MAC"):
            Seal(key).open(changed)


@given(st.integers(0, 200), st.integers(1, 255))
def test_no_bit_can_be_changed(place: int, difference: int) -> None:
    line = bytearray(Seal(KEY).seal(MESSAGE).rstrip(b"\n"))
    line[place % len(line)] ^= difference
    with pytest.raises(WireError):
        Seal(KEY).open(bytes(line))


def test_a_message_opens_once_and_in_its_place() -> None:
    sender, receiver = Seal(KEY), Seal(KEY)
    first, second = (sender.seal({"kind": "beat"}).rstrip(b"\n") for _ in range(2))
    assert receiver.open(first)
    with pytest.raises(WireError, match="MAC"):
        receiver.open(first)
    with pytest.raises(WireError, match="MAC"):
        Seal(KEY).open(second)


def test_a_message_of_another_key_or_of_none_is_refused() -> None:
    for other in (b"x" * 32, None):
        with pytest.raises(WireError):
            Seal(KEY).open(Seal(other).seal(MESSAGE).rstrip(b"\n"))
        with pytest.raises(WireError):
            Seal(other).open(Seal(KEY).seal(MESSAGE).rstrip(b"\n"))


@pytest.mark.parametrize(
    "line", [b"", b"-", b"- ", b"- []", b"- 1", b"- {", b"GET / HTTP/1.1\r", b"\xff\xfe", b"- " + b"[" * 100_000]
)
def test_garbage_is_said_to_be_none(line: bytes) -> None:
    with pytest.raises(WireError):
        Seal(None).open(line)


@given(st.binary(max_size=300))
def test_whatever_comes_nothing_else_is_raised(line: bytes) -> None:
    with pytest.raises(WireError):
        Seal(KEY).open(line)


@given(st.lists(st.integers(1, 7), max_size=60))
def test_lines_do_not_depend_on_how_their_bytes_come(sizes: list[int]) -> None:
    data, lines, found = b"one\ntwo\n\nthree\n", Lines(10), []
    for size in [*sizes, len(data)]:
        lines.feed(data[:size])
        data = data[size:]
        while (line := lines.next()) is not None:
            found.append(line)
    assert found == [b"one", b"two", b"", b"three"]


@pytest.mark.parametrize("data", [b"x" * 11, b"x" * 11 + b"\n"])
def test_a_line_that_does_not_end_is_not_kept(data: bytes) -> None:
    lines = Lines(10)
    lines.feed(data)
    with pytest.raises(WireError, match="more than 10 bytes"):
        lines.next()


def test_fields_are_what_they_must_be() -> None:
    assert text({"host": "algo-1"}, "host") == "algo-1"
    assert number({"code": -9}, "code") == -9
    texts: list[Message] = [{}, {"host": 1}, {"host": "x" * 300}]
    for message in texts:
        with pytest.raises(WireError, match="valid host"):
            text(message, "host", 256)
    numbers: list[Message] = [{}, {"code": True}, {"code": "1"}, {"code": 1.0}]
    for message in numbers:
        with pytest.raises(WireError, match="valid code"):
            number(message, "code")


def test_what_a_stranger_says_cannot_forge_lines_of_a_log() -> None:
    assert shown("algo-1\nerror: \x1b[2J") == "algo-1\\nerror: \\x1b[2J"
    assert len(shown("x" * 1000)) == 64
