"""Test every format of a log of nccl-tests: with prefixes, one file per collective, without MPI, with -J."""

import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest
from logs import LOGS, judged, log, planted, state


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


@pytest.mark.parametrize("name", ["03", "05", "15", "16", "20"])
def test_footers_without_their_mark(name: str, tmp_path: Path) -> None:
    """Some launchers, and cuts at the front of a line, take the "#" of the footers away; the numbers stay."""
    text, count = re.subn(r"#(?= *(Out of bounds values|Avg bus bandwidth))", " ", log(name).read_text())
    assert count == 2
    without, with_mark = judged(planted(tmp_path, text, str)), judged(log(name))
    assert without.verdict == with_mark.verdict == "pass"
    assert without.checks == with_mark.checks
    one_footer = judged(planted(tmp_path, re.sub(r"(?m)^.*Avg bus bandwidth.*\n?", "", text), str))
    assert (one_footer.verdict, state(one_footer, "footer")) == ("incomplete", "not established")


FOOTER = "Out of bounds values : 2 FAILED"


@pytest.mark.parametrize(
    "footer",
    [f"# {FOOTER}", f" {FOOTER}", FOOTER, f"[1,0]<stdout>: {FOOTER}", f" 0: {FOOTER}", f"[pod/x/main]  {FOOTER}",
     f"a prefix that nobody knows> # {FOOTER}", "# Out of bounds values : 2 FAI", " Out of bounds values : 2",
     "Avg bus bandwidth    : 448.212 FAILED", "x> Avg bus bandwidth : -nan FAILED"],
)  # fmt: skip
def test_a_refusal_as_the_only_footer_fails(footer: str, tmp_path: Path) -> None:
    """Wrong values are never hidden by what stands in front of the line that says so, or by its lost end."""
    lines = [line for line in log("16").read_text().splitlines() if "Out of bounds" not in line and "Avg" not in line]
    rest = judged(planted(tmp_path, "\n".join(lines) + "\n", str))
    assert rest.verdict == "incomplete"
    found = judged(planted(tmp_path, "\n".join([*lines, footer]) + "\n", str))
    assert (found.verdict, state(found, "footer")) == ("fail", "fail")
    assert found.cause == ("wrong-values" if "values" in footer else "low-bandwidth")
    assert judged(planted(tmp_path, footer + "\n", str)).verdict == "fail"  # of a log that lost all else


def test_a_footer_behind_an_unknown_prefix_proves_nothing(tmp_path: Path) -> None:
    text = re.sub(r"#(?= *(Out of bounds values|Avg bus bandwidth))", "unknown> #", log("16").read_text())
    assert judged(planted(tmp_path, text, str)).verdict == "incomplete"


@pytest.mark.parametrize(
    "row",
    ["1e999", "nan", "inf", "-nan", "1e-999", "9" * 50, "9" * 5000, "1.2.3", "1e5e5"],
    ids=lambda row: f"{row[:6]}-{len(row)}",
)
@pytest.mark.parametrize("place", ["470.73", "2147483648", "448.212", "Rank  0", "minBytes 268435456"])
def test_numbers_without_sense(row: str, place: str, tmp_path: Path) -> None:
    """Of a damaged log: no traceback, and no pass of results that cannot be read; headers may be missing."""
    text = log("16").read_text()
    assert place in text
    word = re.search(r"\S+$", place)
    assert word
    found = judged(planted(tmp_path, text.replace(place, place.replace(word[0], row)), str))
    assert found.verdict in ("incomplete", "fail") or not place[0].isdigit()


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
    assert judged(planted(tmp_path, one, str)).verdict != "pass"


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


def test_json_as_nccl_tests_wrote_it() -> None:
    """all_reduce_perf -J of version 2.19.6 on one H200: its list of errors has one that is empty."""
    found = judged(LOGS / "json_h200_1gpu_testsv2.19.6.json")
    assert (found.verdict, state(found, "errors"), state(found, "completion")) == ("incomplete", "pass", "pass")


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


def test_what_other_parts_of_nccl_print_within_rows_is_said(tmp_path: Path) -> None:
    """NCCL_DEBUG_SUBSYS with TUNING, two hosts that shared one H200: a line of NCCL between the parts of each row."""
    told = "node-1:3420:3420 [0] NCCL INFO AllReduce: 8 Bytes -> Algo RING proto SIMPLE channel{Lo..Hi}={0..0}\n"
    text = log("50").read_text()
    row = r"(?m)^( +\d+ +\d+ +float +\w+ +-1)( +\S.*\n)"
    found = judged(planted(tmp_path, re.sub(row, rf"\1{told}\2", text, count=3), str))
    said = {check.name: check for check in found.checks}
    for name in ("completion", "sizes"):
        assert said[name].state == "not established"
        assert "is cut, or mixed with other text" in said[name].evidence
    assert "NCCL_DEBUG_SUBSYS=INIT,NET,ENV" in said["completion"].evidence
    assert found.cause == "tcp-provider"


@pytest.mark.parametrize("collective", ["broadcast", "reduce", "sendrecv", "all_reduce", "alltoallv"])
def test_one_rank_communicates_nothing(collective: str, tmp_path: Path) -> None:
    """As on one GPU: busbw is algbw for some, and 0 for others."""
    busbw = 0.87 if collective in ("broadcast", "reduce", "sendrecv") else 0.0
    text = f"""# Collective test starting: {collective}_perf
# nThread 1 nGpus 1 minBytes 1048576 maxBytes 1048576 step: 4(factor) warmup iters: 1 iters: 20 validation: 1
#  Rank  0 Group  0 Pid   4771 on         vm device  0 [0000:00:06] NVIDIA H200
#     size      count    type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong
   1048576     262144   float    none      -1  1199.81    0.87    {busbw}      0  1199.81    0.87    {busbw}      0
# Out of bounds values : 0 OK
# Avg bus bandwidth    : {busbw}
# Collective test concluded: {collective}_perf
"""
    found = judged(planted(tmp_path, text, str))
    assert (found.verdict, state(found, "rank count")) == ("incomplete", "not established")
    assert judged(planted(tmp_path, text, str), world_size=1).verdict == "pass"


def test_alltoallv_shares_a_message_as_alltoall_does(tmp_path: Path) -> None:
    text = """# Collective test starting: alltoallv_perf
#     size      count    type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong
   1048576     131072   float    none      -1  1048.58    1.00    0.50      0  1048.58    1.00    0.50    N/A
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 0.5
"""
    found = judged(planted(tmp_path, text, str))
    assert (found.collectives, found.ranks, state(found, "rank count")) == (["alltoallv"], [(2, 2)], "pass")
