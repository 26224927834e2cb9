"""Test that the judge detects every fault planted into a good log. The code that plants them does not use the judge."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from logs import GOOD, LOGS, complete, judged, log, planted, state

ROW = re.compile(r"^(?P<lead>\D*?(?:\[1,0\]<stdout>:)?\s*)(?P<size>\d+) +(?P<count>\d+) +float +sum.*$", re.MULTILINE)


def rows(text: str) -> list[re.Match[str]]:
    return list(ROW.finditer(text))


def edited(text: str, row: int, edit: Callable[[list[str]], list[str]]) -> str:
    """Change the words of one row with `edit`."""
    match = rows(text)[row]
    lead = match["lead"]
    words = match[0][len(lead) :].split()
    return text[: match.start()] + lead + "  ".join(edit(words)) + text[match.end() :]


def scaled(word: str, factor: float) -> str:
    return f"{float(word) * factor:.2f}"


def wrong_value(text: str) -> str:
    return edited(text, -1, lambda words: [*words[:-1], "3"])


def missing_row(text: str) -> str:
    match = rows(text)[len(rows(text)) // 2]
    return text[: match.start()] + text[match.end() + 1 :]


def missing_last_row(text: str) -> str:
    match = rows(text)[-1]
    return text[: match.start()] + text[match.end() + 1 :]


def wrong_ranks(text: str) -> str:
    """Return every busbw as if there were twice as many nodes: 8 ranks become 16, 16 become 32."""
    return all_rows(text, lambda words: _busbw(words, 1.07))


def _busbw(words: list[str], factor: float) -> list[str]:
    last = len(words) - 1
    for column in (last - 5, last - 1):
        words[column] = scaled(words[column], factor)
    return words


def all_rows(text: str, edit: Callable[[list[str]], list[str]]) -> str:
    def changed(match: re.Match[str]) -> str:
        return match["lead"] + "  ".join(edit(match[0][len(match["lead"]) :].split()))

    return ROW.sub(changed, text)


def sockets(text: str) -> str:
    """Let NCCL of one rank say that it chose sockets, and then that it uses them."""
    said = "worker-1:25:25 [0] NCCL INFO Using network Socket\n"
    return f"{text}{said}worker-1:25:70 [0] NCCL INFO Channel 00/0 : 1[0] -> 8[0] [send] via NET/Socket/0\n"


def half_a_row(text: str) -> str:
    """Halve the speed of one row: its time is doubled, both bandwidths are halved."""

    def halve(words: list[str]) -> list[str]:
        last = len(words) - 1
        for column in (last - 7, last - 3):
            words[column] = scaled(words[column], 2)
        for column in (last - 6, last - 5, last - 2, last - 1):
            words[column] = scaled(words[column], 0.5)
        return words

    return edited(text, -1, halve)


def truncated(text: str) -> str:
    return text[: rows(text)[-1].start() + 60]


def truncated_in_the_average(text: str) -> str:
    return text[: text.index("# Avg bus bandwidth") + len("# Avg bus bandwidth    : 12")]


def two_nccl(text: str) -> str:
    return f"NCCL version 2.27.3+cuda12.8\n{text}NCCL version 2.30.7+cuda13.0\n"


def swapped(text: str) -> str:
    def swap(words: list[str]) -> list[str]:
        last = len(words) - 1
        for first in (last - 6, last - 2):
            words[first], words[first + 1] = words[first + 1], words[first]
        return words

    return all_rows(text, swap)


def another_row(text: str) -> str:
    """Replace this size's row by the row of another size."""
    other = rows(text)[-2][0].split()

    def take(words: list[str]) -> list[str]:
        return [*words[:-8], *other[-8:]]

    return edited(text, -1, take)


def the_row_before_again(text: str) -> str:
    match, other = rows(text)[-1], rows(text)[-2]
    return text[: match.start()] + other[0] + text[match.end() :]


def milliseconds(text: str) -> str:
    def convert(words: list[str]) -> list[str]:
        last = len(words) - 1
        for column in (last - 7, last - 3):
            words[column] = f"{float(words[column]) / 1000:.6f}"
        return words

    return all_rows(text, convert)


def gigabits(text: str) -> str:
    def convert(words: list[str]) -> list[str]:
        last = len(words) - 1
        for column in (last - 6, last - 5, last - 2, last - 1):
            words[column] = scaled(words[column], 8)
        return words

    return all_rows(text, convert)


def failed_words(text: str) -> str:
    return text.replace("# Out of bounds values : 0 OK", "# Out of bounds values : 4242 FAILED")


def crash(text: str) -> str:
    at = rows(text)[-1].end() + 1
    return text[:at] + "worker-1: Test NCCL failure all_reduce.cu:44 'unhandled system error'\n"


MUTATIONS = [
    wrong_value,
    missing_row,
    missing_last_row,
    wrong_ranks,
    sockets,
    half_a_row,
    truncated,
    truncated_in_the_average,
    two_nccl,
    swapped,
    another_row,
    the_row_before_again,
    milliseconds,
    gigabits,
    failed_words,
    crash,
]
# mpirun's tags and no header; the old columns with NCCL's lines in between; one process; two ranks with every header
GRAMMARS = ["03", "07", "08", "15", "16", "20"]


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.__name__)
def test_no_planted_fault_passes(tmp_path: Path, mutation: Callable[[str], str]) -> None:
    for name in GRAMMARS:
        text = log(name).read_text()
        if mutation(text).split() == text.split():
            assert (mutation, name) == (swapped, "20")  # of two ranks, algbw is busbw
            continue
        assert judged(planted(tmp_path, text, mutation)).verdict in ("fail", "incomplete"), name


@pytest.mark.parametrize("name", GOOD)
def test_no_false_alarm(name: str) -> None:
    assert judged(LOGS / f"{name}.txt").verdict == "pass"


# --- faults that only a declared instance shows ----------------------------------------------------------------------


def half_of_all(text: str) -> str:
    """Halve the speed of all rows consistently: times, bandwidths and averages agree with each other."""

    def halve(words: list[str]) -> list[str]:
        for time in (-8, -4):
            twice = 2 * float(words[time])
            algbw = int(words[0]) / twice / 1000
            words[time : time + 3] = [f"{twice:.2f}", f"{algbw:.2f}", f"{algbw * 15 / 8:.2f}"]
        return words

    text = all_rows(text, halve)
    values = [float(match[0].split()[column]) for match in rows(text) for column in (-6, -2)]
    return re.sub(r"(# Avg bus bandwidth    : )\S+", rf"\g<1>{sum(values) / len(values):g}", text)


PLANTED = {
    "half_of_all": (half_of_all, "low-bandwidth"),
    "one_rank_on_sockets": (
        lambda text: text.replace("Using network AWS Libfabric", "Using network Socket", 1),
        "socket-fallback",
    ),
    "tcp_provider": (
        lambda text: text.replace("provider is efa, fabric is efa", "provider is tcp, fabric is tcp"),
        "tcp-provider",
    ),
    "too_few_nics": (lambda text: text.replace("found 4 nics", "found 2 nics"), "too-few-nics"),
    "one_rank_with_fewer": (lambda text: text.replace("found 4 nics", "found 3 nics", 1), "too-few-nics"),
    "no_gpudirect": (lambda text: text.replace("/GDRDMA", "", 1), "no-gpudirect"),
    "counters_stand_still": (lambda text: text.replace("after h1 900000000000", "after h1 4096"), "socket-fallback"),
    "other_nccl": (lambda text: text.replace("NCCL version 2.9.9", "NCCL version 2.8.4"), "two-nccl"),
}


def test_a_complete_log_of_a_declared_run_passes(tmp_path: Path) -> None:
    found = judged(
        planted(tmp_path, complete(), str), instance="p4d.24xlarge", nodes=2, exit_code=0, pins={"nccl": "2.9.9"}
    )
    assert found.verdict == "pass", [row for row in found.checks if row.state != "pass"]
    assert {row.name for row in found.checks if row.state != "pass"} == {"pins"}  # but NCCL, none is pinned


@pytest.mark.parametrize("name", PLANTED)
def test_what_a_declared_run_cannot_hide(tmp_path: Path, name: str) -> None:
    mutation, cause = PLANTED[name]
    path = planted(tmp_path, complete(), mutation)
    assert path.read_text() != complete()
    found = judged(path, instance="p4d.24xlarge", nodes=2, exit_code=0, pins={"nccl": "2.9.9"})
    assert (found.verdict, found.cause) == ("fail", cause)


def test_a_witness_that_is_half_there(tmp_path: Path) -> None:
    text = complete().replace("efa-counters after h1 900000000000\n", "")
    found = judged(planted(tmp_path, text, str), instance="p4d.24xlarge", nodes=2)
    assert (found.verdict, state(found, "efa counters")) == ("incomplete", "not established")


def test_half_the_speed_of_a_tree(tmp_path: Path) -> None:
    """Log 01 is of two p4de: half of what a tree reaches there is more than a ring's floor."""
    text = re.sub("^0: ", "", log("01").read_text() + "# Avg bus bandwidth    : 1\n", flags=re.MULTILINE)
    found = judged(planted(tmp_path, text, half_of_all), instance="p4de.24xlarge", nodes=2)
    assert (state(found, "floor"), state(judged(log("01"), instance="p4de.24xlarge", nodes=2), "floor")) == (
        "fail",
        "pass",
    )
