"""Test the diagnosis of a job that hangs and of whose ranks none shows an error."""

import json
from pathlib import Path

import pytest
from unit.diagnose.job_logs import answer, dump, of_files, states, write


def test_dumps_beside_logs_without_an_error_show_a_hang(tmp_path: Path) -> None:
    for rank in range(4):
        (tmp_path / f"fr_trace_{rank}").write_text(json.dumps(dump(rank, *["all_reduce"] * (1 if rank == 2 else 2))))
        (tmp_path / f"rank-{rank}.log").write_text(f"rank {rank} of 4\nstep 1 loss 2.0\n")
    row = answer(tmp_path)
    assert (row["cause"], row["job"]["failed_first"]) == ("rank-late", [2])
    assert row["what"].startswith("rank 2: when the dumps were written, the others waited in a collective")
    (tmp_path / "rank-0.log").write_text("rank 0 of 4\nstep 1 loss 2.0\nTraining completed.\n")
    assert answer(tmp_path)["cause"] == "none"


@pytest.mark.parametrize(
    ("lasts", "told"),
    [
        ((52, 52, 49, 52), "; rank 2 logged steps up to 49, the others up to 52 and for longer"),
        ((52, 49, 49, 49), ""),
        ((52, 49, 49, 52), ""),
        ((9, 9), ""),
    ],
)
def test_of_a_silent_hang_the_ranks_that_came_less_far_are_named(
    tmp_path: Path, lasts: tuple[int, ...], told: str
) -> None:
    logs = ["".join(f"2026-11-28 10:00:{n:02d} step {n} loss 2.1\n" for n in range(last + 1)) for last in lasts]
    row = of_files(tmp_path, logs)
    assert row["cause"] == "unknown"
    assert row["what"].endswith(f"none says that the job ended well{told}")
    assert ("last line of rank 2: " in row["evidence"]) is bool(told)
    assert row["fix"].startswith("look first at rank 2 (py-spy" if told else "keep the output")


@pytest.mark.parametrize("label", ["{}: ", "[rank{}]: "])
def test_a_silent_hang_in_one_log(tmp_path: Path, label: str) -> None:
    lines = [
        f"{label.format(rank)}2026-11-28 10:00:{n:02d} step {n} loss 2.1\n"
        for n in range(9)
        for rank in range(4)
        if (rank, n) != (2, 8)
    ]
    row = answer(write(tmp_path, {"job.log": "".join(lines)}) / "job.log")
    assert "; rank 2 logged steps up to 7, the others up to 8 and for longer" in row["what"]
    assert states(row) == {0: "fine", 1: "fine", 2: "late", 3: "fine"}
    lines.append("ERROR: the data server is gone: connection refused\n")  # of no rank
    assert answer(write(tmp_path, {"job.log": "".join(lines)}) / "job.log")["cause"] == "stated"


@pytest.mark.parametrize("stamp", ["", "2026-11-28 10:00:{:02d} "])
def test_a_rank_that_counts_anew_is_not_behind(tmp_path: Path, stamp: str) -> None:
    """Without times nothing says which of two steps came first."""
    logs = ["".join(f"{stamp.format(n)}epoch 1 step {n}\n" for n in range(40)) for _ in range(3)]
    logs[1] += f"{stamp.format(50)}epoch 2 step 2\n"
    assert "logged steps" not in of_files(tmp_path, logs)["what"]
