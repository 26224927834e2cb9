"""The judge on real logs: what each of them proves, and which fault planted into a good one goes unnoticed (none)."""

import gzip
import json
import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from trainwright import causes, judge, judging
from trainwright.commands import gating  # noqa: F401  # it registers its commands
from trainwright.commands.options import app
from trainwright.judge import Verdict
from trainwright.witnesses import Declared

ROOT = Path(__file__).parents[2]
LOGS = Path(__file__).parent / "nccl-tests"
EXPECTED: dict[str, Any] = tomllib.loads((LOGS / "expected.toml").read_text())
GOOD = sorted(name for name, said in EXPECTED.items() if said["verdict"] == "pass")


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


def judged(path: Path, **declared: Any) -> Verdict:
    (found,) = judging.verdicts(ROOT, [str(path)], Declared(**declared))
    return found


def log(name: str) -> Path:
    (path,) = LOGS.glob(f"{name}*.txt")
    return path


def state(found: Verdict, check: str) -> str:
    return next(row.state for row in found.checks if row.name == check)


# --- real logs -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", EXPECTED)
def test_every_log_gets_its_verdict(name: str) -> None:
    found, said = judged(LOGS / f"{name}.txt"), EXPECTED[name]
    assert found.verdict == said["verdict"]
    if "cause" in said:
        assert found.cause == said["cause"]
    if "peak_busbw" in said:
        assert found.peak_busbw == pytest.approx(said["peak_busbw"])
    if "ranks" in said:
        bounds = [(low, high) for low, high in found.ranks if low is not None and high is not None]
        assert all(low <= count <= high for count, (low, high) in zip(said["ranks"], bounds, strict=True))


def test_what_is_declared_is_held_against_the_log() -> None:
    one_node = log("05")
    assert judged(one_node).verdict == "pass"
    assert judged(one_node, world_size=8).verdict == "pass"
    sold = judged(one_node, world_size=16)
    assert (sold.verdict, sold.cause, sold.declared_ranks) == ("fail", "rank-count", 16)
    assert judged(one_node, nodes=2, instance="p5.48xlarge").cause == "rank-count"
    assert judged(log("16"), nodes=2).cause == "rank-count"  # the header names one host
    assert judged(one_node, exit_code=0).verdict == "pass"
    assert judged(one_node, exit_code=7).cause == "exit-code"
    assert judged(log("12"), pins={"nccl": "2.29.3"}).verdict == "incomplete"
    assert judged(log("12"), pins={"nccl": "2.30.7"}).cause == "two-nccl"
    assert state(judged(one_node, pins={"nccl": "2.30.7"}), "nccl version") == "not established"


def test_a_declared_instance_needs_its_witnesses() -> None:
    """EFA, its NICs and GPUDirect are promised by the instance: a log that says nothing of them proves nothing."""
    found = judged(log("03"), instance="p5.48xlarge", nodes=2)
    assert found.verdict == "incomplete"
    assert {check: state(found, check) for check in ("transport", "nics", "gpudirect", "floor")} == {
        "transport": "not established",
        "nics": "not established",
        "gpudirect": "not established",
        "floor": "pass",
    }
    old = judged(log("07"), instance="p4d.24xlarge", nodes=2)
    assert (state(old, "transport"), state(old, "gpudirect"), state(old, "floor")) == ("pass", "pass", "pass")
    assert state(judged(log("08"), instance="p4d.24xlarge", nodes=2), "floor") == "fail"  # 32.8 GB/s of 50


def test_every_pin_that_a_log_can_show(tmp_path: Path) -> None:
    said = "h:1:2 [0] NCCL INFO NET/OFI Initializing aws-ofi-nccl 1.21.1\n"
    path = planted(tmp_path, said + log("20").read_text(), str)
    right = {"nccl": "2.29.7", "nccl-tests": "2.18.0", "aws-ofi-nccl": "1.21.1"}
    assert judged(path, pins=right).verdict == "pass"
    for name in right:
        wrong = judged(path, pins=right | {name: "1.0.0"})
        assert (wrong.verdict, wrong.cause) == ("fail", "two-nccl" if name == "nccl" else "other-version")
    assert judged(log("20"), pins=right).verdict == "incomplete"


def test_one_process_may_have_all_gpus_of_a_node(tmp_path: Path) -> None:
    """-g 8: 16 ranks, and two processes that say what they found."""
    text, said = complete(), list[str]()
    for rank in range(16):
        host = rank // 8
        text = re.sub(rf"(Rank +{rank} Pid +)\d+( on \S+-)\d", rf"\g<1>{77}\g<2>{host}", text)
    lines = [line for line in text.splitlines(keepends=True) if "NCCL INFO" not in line]
    for host in (0, 1):
        name = f"nccl-tests-efa-16-worker-{host}:77:77 [0] NCCL INFO"
        said.append(f"{name} NET/OFI Selected provider is efa, fabric is efa (found 4 nics)\n")
        said.append(f"{name} Using network AWS Libfabric\n{name} Channel 00 : 1 -> 8 via NET/AWS Libfabric/1/GDRDMA\n")
    found = judged(planted(tmp_path, "".join(said + lines), str), instance="p4d.24xlarge", nodes=2)
    assert (state(found, "transport"), found.verdict) == ("pass", "pass"), found.checks
    assert judged(tmp_path / "log.txt", instance="ml.p4d.24xlarge", nodes=2).verdict == "pass"


WHOLE = ("all_reduce", "broadcast", "alltoall")


def a_gate() -> str:
    """What our runner writes: several collectives one after the other, each with processes of its own."""
    parts = ["gate: image host/x@sha256:" + "a" * 64]
    for number, name in enumerate(WHOLE):
        shape = {"all_reduce": ("sum -1 268435456", 1.875), "broadcast": ("none 0 268435456", 1.0)}
        words, factor = shape.get(name, ("none -1 16777216", 0.9375))
        redop, root, count = words.split()
        side = f"53687.1  20.00  {20 * factor:.2f}  0"
        parts.append(f"gate: {name} begins")
        for rank in range(16):
            said = f"host-{rank // 8}:{100 * number + rank}:{rank} [0] NCCL INFO"
            parts.append(f"{said} NET/OFI Selected provider is efa, fabric is efa (found 4 nics)")
            parts.append(f"{said} Using network Libfabric")
            parts.append(f"{said} Channel 00/0 : 0[0] -> 8[0] [send] via NET/Libfabric/0/GDRDMA")
        parts += [
            f"# Collective test starting: {name}_perf",
            "# size count type redop root " + "time algbw busbw #wrong " * 2,
        ]
        parts.append(f"1073741824 {count} float {redop} {root} {side} {side}")
        parts += ["# Out of bounds values : 0 OK", f"# Avg bus bandwidth    : {20 * factor:g}"]
        parts += [f"# Collective test concluded: {name}_perf", f"gate: {name} exited with code 0"]
    return "\n".join(parts) + "\n"


def test_a_whole_gate(tmp_path: Path) -> None:
    declared = {"instance": "p4d.24xlarge", "nodes": 2}
    good = judged(planted(tmp_path, a_gate(), str), **declared)
    assert (good.verdict, set(good.collectives)) == ("pass", set(WHOLE)), [c for c in good.checks if c.state != "pass"]
    for mutation, verdict in (
        (lambda text: text + "gate: reduce begins\n", "incomplete"),  # and nothing more
        (lambda text: text + "gate: interrupted\n", "fail"),
        (lambda text: text + "# nThread 1 nGpus 1 minBytes 8 maxBytes 16 step: 2(factor)\n", "incomplete"),
        (lambda text: re.sub(r"host-1:2\d\d:.*\n", "", text), "incomplete"),  # its ranks said nothing in the last test
        (
            lambda text: re.sub("53687.1  20.00  18.75", "10737418  0.10  0.09", text).replace(": 18.75", ": 0.09"),
            "fail",
        ),
        (lambda text: text.replace("starting: broadcast", "starting: all_gather"), "fail"),
        (lambda text: text.replace("20.00  20.00", "20.00  37.50"), "fail"),  # of a broadcast
        (lambda text: text + "efa-counters before h0 0\nefa-counters after h0 99000000000\n", "incomplete"),  # of one
    ):
        path = planted(tmp_path, a_gate(), mutation)
        assert path.read_text() != a_gate()
        assert judged(path, **declared).verdict == verdict, path.read_text()[-300:]
    assert judged(planted(tmp_path, a_gate(), str), **declared, world_size=8).verdict == "fail"


def test_half_the_speed_of_a_tree(tmp_path: Path) -> None:
    """Log 01 is of two p4de: half of what a tree reaches there is more than a ring's floor."""
    text = re.sub("^0: ", "", log("01").read_text() + "# Avg bus bandwidth    : 1\n", flags=re.MULTILINE)
    found = judged(planted(tmp_path, text, half_of_all), instance="p4de.24xlarge", nodes=2)
    assert (state(found, "floor"), state(judged(log("01"), instance="p4de.24xlarge", nodes=2), "floor")) == (
        "fail",
        "pass",
    )


def test_too_fast_to_be_true() -> None:
    """482 GB/s are of p5, and not of two p4d."""
    assert state(judged(log("03"), instance="p5.48xlarge", nodes=2), "ceiling") == "pass"
    assert state(judged(log("01"), instance="p4de.24xlarge", nodes=2), "ceiling") == "pass"  # 78 of 50: a tree
    assert judged(log("03"), instance="p4d.24xlarge", nodes=2).cause == "inconsistent"


def test_no_floor_is_ungraded(tmp_path: Path) -> None:
    found = judged(planted(tmp_path, complete(), lambda text: text), instance="c5n.18xlarge", nodes=2)
    assert state(found, "floor") == "not established"
    found = judged(log("16"), instance="g5.48xlarge", nodes=1)
    assert next(row.evidence for row in found.checks if row.name == "floor").startswith("ungraded")


def test_the_gate_of_a_peer_passes_this() -> None:
    """Exit code 3, 4,242 wrong values, 5.37 GB/s on two p4d: awk on one line of it finds 5.37, and 5.37 >= 3."""
    found = judged(log("07"), instance="p4d.24xlarge", nodes=2)
    assert found.verdict != "fail"
    text = log("07").read_text()
    row = re.search(r"^.*  1073741824 .*$", text, re.MULTILINE)
    assert row
    slow = row[0].replace("5e-07", "4242").replace("22.66   42.48", " 2.86    5.37").replace("47392", "374912")
    path = Path(str(log("07")))
    verdict = judge_text(text.replace(row[0], slow), exit_code=3, instance="p4d.24xlarge", nodes=2)
    failed = {check.name for check in verdict.checks if check.state == "fail"}
    assert verdict.verdict == "fail", path
    assert failed >= {"exit code", "wrong values", "average", "floor"}


def judge_text(text: str, **declared: Any) -> Verdict:
    rows = causes.load_causes(ROOT)
    from trainwright import floors, instances

    said = Declared(**declared)
    return judge.judge(
        "log",
        judge.read(text.splitlines(keepends=True), rows),
        said,
        instances.load_instances(ROOT).get(said.instance),
        floors.load_floors(ROOT),
        rows,
    )


# --- faults planted into good logs -----------------------------------------------------------------------------------
# The mutator works on text alone and knows nothing of the judge.

ROW = re.compile(r"^(?P<lead>\D*?(?:\[1,0\]<stdout>:)?\s*)(?P<size>\d+) +(?P<count>\d+) +float +sum.*$", re.MULTILINE)


def rows(text: str) -> list[re.Match[str]]:
    return list(ROW.finditer(text))


def edited(text: str, row: int, edit: Callable[[list[str]], list[str]]) -> str:
    """The words of one row as `edit` makes them."""
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
    """Every busbw as twice as many nodes would have it: 8 ranks become 16, 16 become 32."""
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
    """NCCL of one rank says that it took sockets, and then that it uses them."""
    said = "worker-1:25:25 [0] NCCL INFO Using network Socket\n"
    return f"{text}{said}worker-1:25:70 [0] NCCL INFO Channel 00/0 : 1[0] -> 8[0] [send] via NET/Socket/0\n"


def half_a_row(text: str) -> str:
    """One row at half its speed: time doubled, both bandwidths halved."""

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
    """The row of another size under this one's size."""
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


def planted(folder: Path, text: str, mutation: Callable[[str], str]) -> Path:
    (folder / "log.txt").write_text(mutation(text))
    return folder / "log.txt"


@pytest.mark.parametrize("name", GRAMMARS)
@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.__name__)
def test_no_planted_fault_passes(tmp_path: Path, name: str, mutation: Callable[[str], str]) -> None:
    text = log(name).read_text()
    if mutation(text).split() == text.split():
        assert (mutation, name) == (swapped, "20")  # of two ranks, algbw is busbw
        return
    assert judged(planted(tmp_path, text, mutation)).verdict in ("fail", "incomplete")


@pytest.mark.parametrize("name", GOOD)
def test_no_false_alarm(name: str) -> None:
    assert judged(LOGS / f"{name}.txt").verdict == "pass"


# --- faults that only a declared instance shows ----------------------------------------------------------------------


def complete() -> str:
    """Log 07 as a plugin of today would have it: with the number of NICs, and what the EFA devices counted."""
    today = "Selected provider is efa, fabric is efa (found 4 nics)"
    text = log("07").read_text().partition("## --- verbatim")[2].replace("Selected Provider is efa", today)
    return text + "".join(f"efa-counters before h{n} 0\nefa-counters after h{n} 900000000000\n" for n in (0, 1))


def half_of_all(text: str) -> str:
    """All of it at half the speed, in time, bandwidths and average alike: no row contradicts another one."""

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


# --- grammars --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "prefix",
    ["0: ", " 0: ", "[1,0]<stdout>:", "[1,mpirank:0,algo-1]<stdout>:", "[prterun-host-1@1,0]<stdout>: ", "\t",
     "worker-0  | ", "2026-11-22T04:00:00.123Z ", "[pod/nccl-launcher-x7/main] ", "\x1b[0m",
     "2026-11-22T04:00:00Z [1,0]<stdout>:"],
)  # fmt: skip
def test_any_prefix(prefix: str, tmp_path: Path) -> None:
    lines = [line for line in log("16").read_text().splitlines(keepends=True) if not line.startswith("##")]
    found = judged(planted(tmp_path, "".join(prefix + line for line in lines), str))
    assert (found.verdict, found.ranks, found.peak_busbw) == ("pass", [(8, 8)], 470.73)


def test_lines_of_nccl_between_everything(tmp_path: Path) -> None:
    lines = log("16").read_text().splitlines(keepends=True)
    text = "".join(f"{line}host:1:2 [0] NCCL INFO Using network Socket\n" for line in lines)
    text += "host:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM\n"
    assert judged(planted(tmp_path, text, str)).verdict == "pass"  # of one node: that line is no fault there


def test_windows_line_ends_and_bytes_that_are_no_text(tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    path.write_bytes(b"\xff\xfe\x00 junk\r\n" + log("16").read_bytes().replace(b"\n", b"\r\n"))
    assert judged(path).verdict == "pass"


def test_packed_by_gzip(tmp_path: Path) -> None:
    with gzip.open(tmp_path / "log.gz", "wb") as stream:
        stream.write(log("16").read_bytes())
    assert judged(tmp_path / "log.gz").verdict == "pass"


def test_without_mpi_each_process_is_one_rank(tmp_path: Path) -> None:
    """mpirun of a nccl-tests that was built without MPI: n tables of one rank each, all at once."""
    one = (
        "# nThread 1 nGpus 1 minBytes 8 maxBytes 16 step: 2(factor) warmup iters: 5 iters: 20 validation: 1\n"
        "#  Rank  0 Group  0 Pid     25 on host device  0 [0x1b] NVIDIA H100\n"
        "# size  count   type   redop  root   time algbw busbw #wrong   time algbw busbw #wrong\n"
        "    8      2  float     sum    -1   4.20  0.00  0.00      0   0.20  0.04  0.00      0\n"
        "   16      4  float     sum    -1   4.20  0.00  0.00      0   0.20  0.08  0.00      0\n"
        "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 0\n"
    )
    mixed = "".join(f"[1,{rank}]<stdout>:{line}\n" for line in one.splitlines() for rank in (0, 1))
    found = judged(planted(tmp_path, mixed, str))
    assert (found.verdict, found.cause, found.ranks) == ("fail", "rank-count", [(1, 1), (1, 1)])
    alone = judged(planted(tmp_path, one, str))
    assert (alone.verdict, judged(tmp_path / "log.txt", world_size=1).verdict) == (
        "fail",
        "fail",
    ) or alone.verdict != "pass"


@pytest.mark.parametrize(
    ("redop", "root", "count", "busbw", "ranks"),
    [
        ("sum", "-1", 268435456, 187.5, (16, 16)),  # all_reduce
        ("none", "-1", 16777216, 93.75, (16, 16)),  # all_gather, alltoall: count is of one rank
        ("sum", "-1", 16777216, 93.75, (16, 16)),  # reduce_scatter
        ("none", "0", 268435456, 100.0, (None, None)),  # broadcast
        ("sum", "0", 268435456, 100.0, (None, None)),  # reduce
        ("none", "-1", 268435456, 100.0, (None, None)),  # sendrecv
    ],
)
def test_each_collective_has_its_own_factor(
    tmp_path: Path, redop: str, root: str, count: int, busbw: float, ranks: tuple[int | None, int | None]
) -> None:
    side = f"10737.4  100.00  {busbw:.2f}  0"
    text = (
        "# size count type redop root time algbw busbw #wrong time algbw busbw #wrong\n"
        f"1073741824 {count} float {redop} {root} {side} {side}\n"
        f"# Out of bounds values : 0 OK\n# Avg bus bandwidth    : {busbw:g}\n"
    )
    found = judged(planted(tmp_path, text, str))
    assert (found.verdict, found.ranks) == ("pass", [ranks])
    assert judged(tmp_path / "log.txt", world_size=16).verdict == "pass"
    other = judged(tmp_path / "log.txt", world_size=8)
    assert (other.verdict == "fail") == (ranks != (None, None))


def test_per_iteration_columns_and_timestamps(tmp_path: Path) -> None:
    side = "10737.4  100.00  187.50  0  10700.0 10800.0 10790.0 0.50"
    names = "time algbw busbw #wrong i_min i_max i_p99 i_cv%"
    text = (
        f"# size count type redop root {names} {names} timestamp\n"
        f"1073741824 268435456 float sum -1 {side} {side} 2026-11-22 04:00:00\n"
        "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 187.5\n"
    )
    assert judged(planted(tmp_path, text, str)).ranks == [(16, 16)]


def test_nothing_in_it(tmp_path: Path) -> None:
    """A bad option prints usage, and nccl-tests exit with 0."""
    path = planted(tmp_path, "USAGE: all_reduce_perf\n", str)
    assert (judged(path).verdict, judged(path, exit_code=0).verdict) == ("incomplete", "incomplete")
    (tmp_path / "log.txt").write_text("")
    assert judged(path).verdict == "incomplete"


def test_values_that_were_not_checked(tmp_path: Path) -> None:
    text = re.sub(r"      0( |$)", r"    N/A\1", log("15").read_text(), flags=re.MULTILINE)
    found = judged(planted(tmp_path, text, str))
    assert (found.verdict, state(found, "wrong values")) == ("incomplete", "not established")


# --- -J --------------------------------------------------------------------------------------------------------------


def written(**more: Any) -> dict[str, Any]:
    side = {"time": 10737.418240, "alg_bw": 100.0, "bus_bw": 187.5, "nwrong": 0.0}
    return {
        "version": 3,
        "start_time": "x",
        "args": ["/opt/nccl-tests/bin/all_reduce_perf", "-J", "x"],
        "env": ["AWS_SECRET_ACCESS_KEY=s3cret", "NCCL_DEBUG=INFO"],
        "nccl_version": 23007,
        "config": {
            "minimum_bytes": 1 << 30,
            "maximum_bytes": 1 << 30,
            "step_factor": 2,
            "validation": 1,
            "devices": [{"rank": rank, "group": 0, "hostname": f"h{rank // 8}"} for rank in range(16)],
        },
        "results": [
            {
                "size": 1 << 30,
                "count": 1 << 28,
                "type": "float",
                "redop": "sum",
                "root": "    -1",
                "out_of_place": side,
                "in_place": side,
            }
        ],
        "out_of_bounds": {"count": 0, "okay": "true"},
        "average_bus_bandwidth": {"bandwidth": 187.5, "okay": "unchecked"},
        "end_time": "y",
    } | more


def test_json_is_judged_as_a_table(tmp_path: Path) -> None:
    path = tmp_path / "log.json"
    path.write_text(json.dumps(written()))
    found = judged(path)
    assert (found.verdict, found.ranks, found.peak_busbw, found.declared_ranks) == ("pass", [(16, 16)], 187.5, 16)
    assert judged(path, pins={"nccl": "2.30.7"}).verdict == "pass"
    path.write_text(json.dumps(written(out_of_bounds={"count": 2, "okay": "false"})))
    assert judged(path).cause == "wrong-values"
    path.write_text(json.dumps(written(end_time=None))[:-300])  # it is written at the end: a crash leaves half of it
    assert judged(path).verdict == "incomplete"
    data = written()
    del data["average_bus_bandwidth"]
    path.write_text(json.dumps(data))
    assert judged(path).verdict == "incomplete"


# --- the command -----------------------------------------------------------------------------------------------------


def run(*words: str) -> tuple[int, Any]:
    from trainwright.errors import TrainwrightError

    done = CliRunner().invoke(app, words)
    code = done.exception.exit_code if isinstance(done.exception, TrainwrightError) else done.exit_code
    return code, done


@pytest.mark.parametrize(("name", "code"), [("03", 0), ("30", 6), ("01", 7)])
def test_the_exit_code_is_the_verdict(name: str, code: int) -> None:
    found, done = run("judge", str(log(name)), "--json")
    assert found == code
    (verdict,) = json.loads(done.stdout)
    assert verdict.keys() >= {"file", "verdict", "ranks", "declared_ranks", "peak_busbw", "cause", "checks"}
    assert {row["state"] for row in verdict["checks"]} <= {"pass", "fail", "not established", "not applicable"}


def test_one_bad_log_among_good_ones() -> None:
    assert run("judge", str(log("03")), str(log("01")), str(log("30")), "--json")[0] == 6


def test_bad_options(tmp_path: Path) -> None:
    assert run("judge", str(log("03")), "--instance", "p5.48xlrge")[0] == 2
    assert run("judge", str(log("03")), "--collective", "allreduce")[0] == 2
    assert run("judge", str(log("03")), "--pins", "nothing")[0] == 2
    assert run("judge", str(tmp_path / "none"))[0] == 2
    assert run("judge", str(tmp_path))[0] == 2


def test_every_cause_is_in_the_published_list() -> None:
    known = {cause.id for cause in causes.load_causes(ROOT)}
    assert {*judge.FIRST.values(), *judge.LAST.values(), "tcp-provider"} - {""} <= known
    for cause in causes.load_causes(ROOT):
        assert "" not in (cause.what, cause.fix, cause.seen)
        for line in cause.lines:
            re.compile(line)


def test_diagnose_names_one_cause_and_its_line() -> None:
    code, done = run("diagnose", str(log("37")), str(log("19")), str(log("03")), "--json")
    rows = json.loads(done.stdout)
    assert code == 0
    assert [row["cause"] for row in rows] == ["libcudart", "unknown", "none"]
    assert "libcudart.so: cannot open shared object file" in rows[0]["evidence"]
    assert rows[0]["fix"]
