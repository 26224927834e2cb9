"""Test the output of the commands that judge: on declared values, on missing ones, and on files that are not logs."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hosts import LOGS, ROOT

Cli = Callable[..., Any]
EFA = (
    "07_ok_p4d_2node_efa_old_error_column_interleaved_log.txt"  # 16 ranks on two p4d.24xlarge, of four interfaces each
)


# --- interfaces ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("found", "declared", "state", "evidence"),
    [
        (4, [], "pass", "4 on each of 16 ranks"),
        (3, [], "fail", "3 on each rank, p4d.24xlarge has 4"),
        (3, ["--nics", "3"], "pass", "3 on each of 16 ranks, and p4d.24xlarge has 4; 3 are declared"),
        (4, ["--nics", "3"], "fail", "4 on each rank, p4d.24xlarge has 4; 3 are declared"),
        (2, ["--nics", "3"], "fail", "2 on each rank, p4d.24xlarge has 4; 3 are declared"),
    ],
)
def test_fewer_interfaces_are_a_pass_where_they_are_declared(
    cli: Cli, tmp_path: Path, found: int, declared: list[str], state: str, evidence: str
) -> None:
    log = tmp_path / "log"
    text = (LOGS / EFA).read_text()
    log.write_text(text.replace("Selected Provider is efa", f"Selected Provider is efa (found {found} nics)"))
    ended = cli(ROOT, "judge", str(log), "--instance", "p4d.24xlarge", "--nodes", "2", *declared, "--json")
    (said,) = json.loads(ended.out)
    (check,) = [one for one in said["checks"] if one["name"] == "nics"]
    assert (check["state"], check["evidence"]) == (state, evidence)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--nodes", "2"], "comes from the instance type"),
        (["--nodes", "1", "--instance", "p4d.24xlarge"], "one node does not use EFA"),
        (["--nodes", "2", "--instance", "p4d.24xlarge"], "p4d.24xlarge has 4"),
    ],
)
def test_interfaces_that_nothing_is_held_against_are_refused(cli: Cli, words: list[str], said: str) -> None:
    ended = cli(ROOT, "judge", str(LOGS / EFA), "--nics", "5", *words)
    assert (ended.code, ended.out) == (2, "")
    assert said in ended.err


def test_an_image_that_nobody_knows_is_refused_before_anything_is_judged(cli: Cli) -> None:
    for words, said in (
        (["nope", GOOD], "unknown image 'nope'"),
        (["pytorch-2.15-cu132-py313-ec2", "-"], "requires a file, not standard input"),
    ):
        ended = cli(ROOT, "judge", "--record", *words)
        assert (ended.code, ended.out) == (2, "")
        assert said in ended.err


# --- what nobody declared --------------------------------------------------------------------------------------------

GOOD, WRONG, SOCKETS, CUT = (
    str(LOGS / name)
    for name in (
        "05_ok_p5_1node_8gpu_nvlink.txt",
        "30_fail_wrong_values_rtx3090_2node.txt",
        "43_fail_bad_socket_ifname.txt",
        "02_ok_p5_2node_efa_16rank_slurm.txt",
    )
)
NOT_JUDGED = "speed and transport are not judged: give --instance TYPE and --nodes NUMBER"


def test_a_pass_without_an_instance_says_what_it_is_not_about(cli: Cli) -> None:
    ended = cli(ROOT, "judge", GOOD)
    assert (ended.code, NOT_JUDGED in ended.err) == (0, True)
    assert "1 table\n" in ended.out
    assert NOT_JUDGED not in cli(ROOT, "judge", GOOD, "--instance", "p5.48xlarge", "--nodes", "1").err


def test_a_tolerance_of_nothing_is_refused(cli: Cli) -> None:
    ended = cli(ROOT, "judge", GOOD, "--tolerance", "0.1")
    assert (ended.code, ended.out) == (2, "")
    assert "--tolerance requires --baseline" in ended.err


def test_a_folder_is_no_log_of_the_judge(cli: Cli) -> None:
    ended = cli(ROOT, "judge", str(LOGS))
    assert (ended.code, ended.out) == (2, "")
    assert "expected a log file, found a folder" in ended.err


def test_what_was_not_recorded_is_said(cli: Cli) -> None:
    identity = "pytorch-2.15-cu132-py313-sagemaker"
    ended = cli(ROOT, "judge", CUT, "--record", identity)
    assert ended.code == 7
    assert f"no gate was recorded for {identity}" in ended.err
    assert "no gate was recorded" not in cli(ROOT, "judge", CUT).err


def test_each_log_keeps_its_own_cause(cli: Cli) -> None:
    ended = cli(ROOT, "judge", SOCKETS, WRONG, GOOD)
    assert ended.code == 6
    summary = ended.err[ended.err.index("2 of 3 logs: fail") :]
    for log, cause in ((SOCKETS, "socket-ifname"), (WRONG, "wrong-values")):
        assert f"{log}: fail ({cause}): " in summary
    assert "see the fix of each log above" in summary
    assert "NCCL_SOCKET_IFNAME=^lo" not in summary  # the fix of one of them


# --- diagnose --------------------------------------------------------------------------------------------------------


def diagnosed(cli: Cli, log: str) -> dict[str, str]:
    ended = cli(ROOT, "diagnose", log, "--json")
    (row,) = json.loads(ended.out)
    assert ended.code == (7 if row["cause"] == "unknown" else 0)
    assert isinstance(row, dict)
    return row


def test_a_text_about_failures_is_no_failure(cli: Cli) -> None:
    row = diagnosed(cli, str(ROOT / "README.md"))
    assert row["cause"] == "unknown"
    assert row["what"].startswith("no line proves a cause")


@pytest.mark.parametrize(
    "line",
    [
        "host:1:1 [0] NCCL INFO Bootstrap : Using eth0:10.0.0.1<0>",
        "NCCL version 2.30.7+cuda13.2",
        "[rank0]:[E ProcessGroupNCCL.cpp:616] watchdog thread",
        "gate: all_reduce begins",
        '{"version": 1, "nccl_version": 23007, "results": [',
    ],
)
def test_an_unknown_cause_comes_with_a_next_step(cli: Cli, tmp_path: Path, line: str) -> None:
    log = tmp_path / "log"
    log.write_text(f"starting\n{line}\n" if line[0] != "{" else line)
    row = diagnosed(cli, str(log))
    assert row["cause"] == "unknown"
    table = line[0] == "{"
    assert row["what"].startswith("no line proves a cause; the log has no table" if table else "of its 2 lines none")
    assert "NCCL_DEBUG=INFO" in row["fix"]


def test_a_cause_keeps_its_own_fix(cli: Cli) -> None:
    assert diagnosed(cli, SOCKETS)["fix"].startswith("unset NCCL_SOCKET_IFNAME")
    said = cli(ROOT, "diagnose", GOOD)  # a sentence for the person who is on call
    assert (said.code, said.out.splitlines()[0]) == (0, f"{GOOD}: no failure found")
    assert "it ended well" in said.out.splitlines()[1]
    assert diagnosed(cli, GOOD) == {"log": GOOD, "cause": "none", "what": "", "evidence": "", "then": "", "fix": ""}
