"""Test what recorder dumps, NCCL's watchdog and its communicators say of a job: who called what, who came late."""

import json
import pickle
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from unit.diagnose.job_logs import CLOSED, RAISED, WAITED, answer, dump, of_files, of_rank, write

from trainwright.commands import register

register(["diagnose"])


@pytest.mark.parametrize(
    ("usual", "odd", "cause", "told"),
    [
        (("all_reduce", "barrier", "all_reduce"), ("all_reduce", "all_reduce"), "collective-mismatch", "collective 2"),
        (("all_reduce", "barrier"), ("all_reduce",), "rank-late", "did not call collective 2"),
        (("all_reduce",), ("all_reduce", "all_reduce"), "collective-mismatch", "which no other rank called"),
    ],
)
@pytest.mark.parametrize("packed", [False, True])
def test_dumps_name_the_rank(
    tmp_path: Path, usual: tuple[str, ...], odd: tuple[str, ...], cause: str, told: str, packed: bool
) -> None:
    for rank in range(4):
        value = dump(rank, *(odd if rank == 1 else usual))
        data = pickle.dumps(value, 2) if packed else json.dumps(value).encode()
        (tmp_path / f"fr_trace_{rank}").write_bytes(data)
        (tmp_path / f"job-{rank}.log").write_text(of_rank(rank, CLOSED if rank == 1 else WAITED))
    row = answer(tmp_path)
    assert (row["cause"], row["job"]["failed_first"]) == (cause, [1])
    assert told in row["evidence"]


SIZES = """terminate called after throwing an instance of 'gloo::EnforceNotMet'
  what():  [enforce fail at /src/gloo/transport/tcp/pair.cc:456] op.preamble.length <= op.nbytes. 48 vs 40."""


@pytest.mark.parametrize(("recorded", "ranks"), [([0, 2, 3], [1]), ([0], []), ([0, 1, 2, 3], [])])
def test_a_rank_that_gloo_ended_for_a_size_is_the_odd_one_if_all_others_recorded_alike(
    tmp_path: Path, recorded: list[int], ranks: list[int]
) -> None:
    for rank in range(4):
        (tmp_path / f"job-{rank}.log").write_text(SIZES if rank == 1 else of_rank(rank, CLOSED))
        if rank in recorded:
            (tmp_path / f"fr_trace_{rank}").write_text(json.dumps(dump(rank, "all_reduce", "all_reduce")))
    row = answer(tmp_path)
    assert (row["cause"], row["job"]["failed_first"]) == ("collective-mismatch", ranks)


def test_what_the_watchdog_of_nccl_says(tmp_path: Path) -> None:
    def text(rank: int, enqueued: int) -> str:
        head = f"[rank{rank}]:[E1124 10:00:01.1 ProcessGroupNCCL.cpp:"
        told = f"{head}632] [Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=8)\n"
        told += f"{head}2268] [PG ID 0 PG GUID 0(default_pg) Rank {rank}] failure detected by watchdog"
        told += " at work sequence id: 8"
        return f"{told} PG status: last enqueued work: {enqueued}, last completed work: 7\n"

    log = tmp_path / "train.log"
    log.write_text("".join(text(rank, 7 if rank == 5 else 11) for rank in range(8)))
    row = answer(log)
    assert (row["cause"], row["job"]["failed_first"]) == ("rank-late", [5])
    log.write_text("".join(text(rank, 8 if rank == 5 else 11) for rank in range(8)))  # it waits there as the others do
    assert answer(log)["job"]["failed_first"] == []
    most = "".join(text(rank, 11) for rank in range(8) if rank != 3)
    for head, found in (("", []), ("rank 0 of 8\n", [3])):  # a part of a log may lack a rank for other reasons
        log.write_text(head + most)
        assert answer(log)["job"]["failed_first"] == found
    log.write_text("".join(text(rank, 11) for rank in range(8)))
    row = answer(log)
    assert (row["cause"], row["job"]["failed_first"]) == ("timeout", [])


def test_a_rank_that_waits_in_an_earlier_collective_is_not_late(tmp_path: Path) -> None:
    """Messages to it were lost: the others completed that collective and wait in the next one."""
    for text, found in ((WAITED, []), (CLOSED, [1])):
        for rank in range(4):
            (tmp_path / f"fr_trace_{rank}").write_text(
                json.dumps(dump(rank, *["all_reduce"] * (1 if rank == 1 else 2)))
            )
            (tmp_path / f"job-{rank}.log").write_text(of_rank(rank, text if rank == 1 else WAITED))
        assert answer(tmp_path)["job"]["failed_first"] == found


def nccl_dump(rank: int, calls: list[tuple[str, int]], world: int = 4, waits: int = 1) -> bytes:
    """Return a dump as NCCL's watchdog writes it; the last calls still wait. `calls`: group, number of elements."""
    seqs = Counter[str]()
    entries = list[dict[str, Any]]()
    for number, (group, size) in enumerate(calls):
        seqs[group] += 1
        done = number < len(calls) - waits
        entries.append({
            "pg_id": 0 if group == "all" else 1, "process_group": (group, ""), "collective_seq_id": seqs[group],
            "profiling_name": "nccl:all_reduce", "input_sizes": [[size]], "input_dtypes": ["Float"],
            "time_created_ns": 10**9 + number, "state": "completed" if done else "scheduled", "retired": done,
        })  # fmt: skip
    config = {"0": {"name": "all", "ranks": str(list(range(world)))}}
    return pickle.dumps({"version": "2.10", "pg_config": config, "entries": entries}, 2)


def watchdog(rank: int, at: str, text: str) -> str:
    return f"[rank{rank}]:[E1126 10:{at}.000001 ProcessGroupNCCL.cpp:689] [Rank {rank}] {text}\n"


TIMED_OUT = "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=9, OpType=ALLREDUCE, NumelIn=4, NumelOut=4)"
REMOTE = "Collective WorkNCCL(SeqNum=4) raised the following async exception: NCCL error: remote process exited or"
ABORTS = "Process group watchdog thread terminated with exception: NCCL error: remote process exited or"
Calls = list[tuple[str, int]]
STEP = [("pair", 150), ("all", 4)]


def of_pairs(tmp_path: Path, odd: Calls, usual: Calls, waits: int = 2) -> dict[str, Any]:
    """Return the answer for four ranks, of which 0 and 2, and 1 and 3 have a group, if rank 2 calls something else."""
    for rank in range(4):
        pair = f"pair{rank % 2}"
        calls = [(group.replace("pair", pair), size) for group, size in (odd if rank == 2 else usual)]
        (tmp_path / f"nccl_trace_rank_{rank}").write_bytes(nccl_dump(rank, calls, waits=waits))
        (tmp_path / f"job-{rank}.log").write_text(watchdog(rank, "37:24", TIMED_OUT))
    return answer(tmp_path)


@pytest.mark.parametrize("ahead", [0, 3])  # steps that were called while the first one hung
@pytest.mark.parametrize(
    "odd",
    [
        [("pair", 7), ("all", 4)],
        [("pair", 150), ("pair", 150), ("all", 4)],
        [("all", 4)],
        [("all", 4), ("pair", 150)],
    ],
    ids=["misshapen", "doubled", "skipped", "order"],
)
def test_all_calls_of_all_ranks_show_which_of_two_ranks_is_wrong(tmp_path: Path, odd: Calls, ahead: int) -> None:
    """A group of two has no majority; the other pair's calls, in the order of all groups, are the measure."""
    row = of_pairs(tmp_path, STEP * 4 + odd + STEP * ahead, STEP * (5 + ahead), waits=2 + 2 * ahead)
    assert (row["cause"], row["job"]["failed_first"]) == ("collective-mismatch", [2])
    assert "rank 2 called" in row["evidence"]


@pytest.mark.parametrize(
    ("odd", "usual", "waits"),
    [
        ([("own", 9), *STEP * 5], STEP * 5, 2),  # something else from the start
        (STEP * 4, STEP * 5, 2),  # behind: it may come yet
        (STEP * 4 + STEP[1:], STEP * 5, 0),  # it waits for nothing
    ],
)
def test_ranks_that_do_other_things_all_the_time_or_wait_for_nothing_are_not_accused(
    tmp_path: Path, odd: Calls, usual: Calls, waits: int
) -> None:
    """As the stages of a pipeline do."""
    assert of_pairs(tmp_path, odd, usual, waits)["cause"] != "collective-mismatch"


def test_without_the_dump_of_each_rank_the_order_of_all_calls_shows_nothing(tmp_path: Path) -> None:
    of_pairs(tmp_path, STEP * 4 + [("pair", 7), ("all", 4)], STEP * 5)
    (tmp_path / "nccl_trace_rank_3").unlink()
    assert answer(tmp_path)["job"]["failed_first"] == []


def test_a_rank_that_comes_late_waits_itself_later_on(tmp_path: Path) -> None:
    """NCCL's watchdog writes all dumps when the first time is up: there, the late rank has ended what it called."""
    for rank in range(3):
        calls = [("all", 4)] * (4 if rank == 1 else 5)
        (tmp_path / f"nccl_trace_rank_{rank}").write_bytes(nccl_dump(rank, calls, world=3, waits=int(rank != 1)))
        (tmp_path / f"job-{rank}.log").write_text(watchdog(rank, "38:55", TIMED_OUT))
    row = answer(tmp_path)
    assert (row["cause"], row["job"]["failed_first"]) == ("rank-late", [1])


@pytest.mark.parametrize(("closed", "cause"), [("37:07", "rank-gone"), ("38:30", "rank-silent")])
def test_a_connection_that_closes_before_any_rank_waited_in_vain_is_that_of_a_dead_rank(
    tmp_path: Path, closed: str, cause: str
) -> None:
    """Those that waited in vain end, too, and close theirs: that comes later."""
    texts = [watchdog(0, closed, REMOTE), "rank 1 of 4\n", *(watchdog(rank, "37:21", TIMED_OUT) for rank in (2, 3))]
    row = of_files(tmp_path, texts)
    assert (row["cause"], row["job"]["failed_first"]) == (cause, [1])


@pytest.mark.parametrize(("aborts", "found"), [(ABORTS, ("exception", [1])), ("", ("crash", [0]))])
def test_the_watchdogs_abort_of_its_own_process_is_a_consequence(
    tmp_path: Path, aborts: str, found: tuple[str, list[int]]
) -> None:
    died = "2026-11-26 10:36:00 E failed (exitcode: -6) local_rank: 0 (pid: 2158) of binary: /usr/bin/python3\n"
    raised = f"2026-11-26 10:37:00 E\n{of_rank(1, RAISED)}"
    texts = [(watchdog(0, "35:58", aborts) if aborts else "") + died, raised, watchdog(2, "36:10", REMOTE)]
    row = of_files(tmp_path, texts, "node-{}.log")
    assert (row["cause"], row["job"]["failed_first"]) == found


def test_the_watchdogs_line_names_the_rank_within_its_group(tmp_path: Path) -> None:
    """Rank 0 of the group 5 is the job's rank 2; it had called fewer of its collectives when the first time was up."""
    status = (
        "failure detected by watchdog at work sequence id: 5 PG status: last enqueued work: {}, last completed work: 4"
    )
    signal = "Received a dump signal due to a collective timeout from  rank 1. Last enqueued NCCL work: {}, "
    signal += "last completed NCCL work: 3."
    texts = list[str]()
    for rank in range(6):
        head = f"[rank{rank}]:[E1126 10:37:24.9 ProcessGroupNCCL.cpp:1] [PG ID 1 PG GUID 5 Rank {rank - 2}] "
        mine = [signal.format(4), status.format(5)] if rank == 2 else [status.format(5)]
        texts.append("".join(f"{head}{text}\n" for text in mine) if rank > 1 else f"rank {rank} of 6\n")
    row = of_files(tmp_path, texts)
    assert (row["cause"], row["job"]["failed_first"]) == ("rank-late", [2])


def test_what_each_watchdog_waited_for_shows_another_call_without_dumps(tmp_path: Path) -> None:
    status = "[PG ID 0 PG GUID 0(default_pg) Rank {}]  failure detected by watchdog at work sequence id: 9 "
    status += "PG status: last enqueued work: 9, last completed work: 8"
    texts = [
        watchdog(rank, "37:24", TIMED_OUT.replace("NumelIn=4", "NumelIn=7") if rank == 1 else TIMED_OUT)
        + f"[rank{rank}]:[E1126 10:37:24.9 ProcessGroupNCCL.cpp:2303] {status.format(rank)}\n"
        for rank in range(3)
    ]
    row = of_files(tmp_path, texts)
    assert (row["cause"], row["job"]["failed_first"]) == ("collective-mismatch", [1])
    assert "NumelIn=7" in row["evidence"]


@pytest.mark.parametrize(("world", "named"), [(4, True), (3, False)])
def test_before_watchdogs_named_groups_three_ranks_alike_show_that_another_one_differs(
    tmp_path: Path, world: int, named: bool
) -> None:
    """PyTorch 2.2: a group of two that counts alike may be another one. DeepSpeed tells of the end in one long line."""
    said = [watchdog(rank, "37:24", TIMED_OUT.replace("=4", "=7") if rank == 1 else TIMED_OUT) for rank in range(world)]
    ended = f"[2026-11-26 10:38:00,001] [ERROR] [launch.py:325:sigkill_handler] ['python', {', '.join(['--a'] * 200)}]"
    ended += " exits with return code = -6\n"
    row = answer(write(tmp_path, {"train.log": "".join(said) + ended}))
    assert row["cause"] == ("collective-mismatch" if named else "timeout")
    assert row["job"]["failed_first"] == ([1] if named else [])


@pytest.mark.parametrize(
    ("odd", "label"),
    [("OpType=ALLREDUCE, NumelIn=7, NumelOut=7", "[Rank 1]"), ("OpType=GATHER, NumelIn=4, NumelOut=32", "[Rank 5]")],
    ids=["several groups", "the root of a gather"],
)
def test_without_the_names_of_groups_other_sizes_may_be_right(tmp_path: Path, odd: str, label: str) -> None:
    """PyTorch 2.2: a rank that has another number in its group shows that there are several groups."""
    usual = odd.replace("=7", "=4").replace("NumelOut=32", "NumelOut=0")
    call = TIMED_OUT.partition("OpType")[0]
    texts = [watchdog(rank, "37:24", f"{call}{odd if rank == 0 else usual})") for rank in range(4)]
    texts.append(watchdog(5, "37:24", f"{call}{usual})").replace("[Rank 5]", label))
    row = answer(write(tmp_path, {"train.log": "".join(texts)}))
    assert row["cause"] == "timeout"


def test_whose_collective_a_line_names_is_kept_apart_in_one_log_of_all(tmp_path: Path) -> None:
    called = "[E1126 10:37:24.1 ProcessGroupNCCL.cpp:1] [Rank {}] " + TIMED_OUT
    status = "[E1126 10:37:24.2 ProcessGroupNCCL.cpp:2] [PG ID 0 PG GUID 0(default_pg) Rank {}]  "
    status += (
        "failure detected by watchdog at work sequence id: 9 PG status: last enqueued work: 9, last completed work: 8"
    )
    lines = [called.format(0), called.format(2).replace("NumelIn=4", "NumelIn=7"), status.format(0), status.format(2)]
    lines += [text.format(rank) for rank in (1, 3, 4, 5) for text in (called, status)]
    row = answer(write(tmp_path, {"train.log": "\n".join(lines) + "\n"}))
    assert (row["cause"], row["job"]["failed_first"]) == ("collective-mismatch", [2])


def test_the_server_of_the_store_says_itself_that_others_did_not_come(tmp_path: Path) -> None:
    """It is rank 0, also where no label says so: only rank 4 of 5 is missing."""
    raised = RAISED.replace(
        "ValueError: 3 channels expected",
        "torch.distributed.DistStoreError: Timed out after 15 seconds waiting for clients. 4/5 clients joined.",
    )
    lost = "[rank{0}]:[W1126 10:39:32.8 TCPStore.cpp:125] [c10d] recvValue failed on SocketImpl(fd=45): "
    lost += "Failed to recv, got 0 bytes. Connection was likely closed.\n"
    text = f"using world size: 5\n{raised}\n" + "".join(lost.format(rank) for rank in (1, 2, 3))
    row = answer(write(tmp_path, {"node-0.log": text}))
    assert (row["cause"], row["job"]["failed_first"]) == ("rank-missing", [4])


def test_a_rank_that_ran_ahead_of_the_hang_called_no_collective_too_many(tmp_path: Path) -> None:
    """It looks at no result, so its calls do not wait; the others stand in the first one that hangs."""
    for rank in range(5):
        ahead = 2 if rank == 4 else 0
        data = nccl_dump(rank, [("all", 4)] * (5 + ahead), world=5, waits=1 + ahead)
        (tmp_path / f"nccl_trace_rank_{rank}").write_bytes(data)
        (tmp_path / f"job-{rank}.log").write_text(watchdog(rank, "37:24", TIMED_OUT))
    row = answer(tmp_path)
    assert (row["cause"], row["job"]["failed_first"]) == ("timeout", [])


def test_a_group_of_nccl_is_no_other_number_of_ranks(tmp_path: Path) -> None:
    """Seen on an H200: a rank of a group of two has another number in it."""
    init = "vm:1:1 [0] NCCL INFO ncclCommInitRankConfig comm 0x55 rank {} nranks {} cudaDev 0\n"
    files = {f"job-{rank}.log": f"rank {rank} of 4\n{init.format(rank % 2, 2)}" for rank in range(3)}
    files["job-0.log"] += "DistStoreError: Timed out after 15 seconds waiting for clients. 3/4 clients joined.\n"
    row = answer(write(tmp_path, files))
    assert (row["cause"], row["job"]["failed_first"], row["job"]["world"]) == ("rank-missing", [3], 4)


def test_a_group_of_nccl_shows_no_ranks_of_the_job(tmp_path: Path) -> None:
    init = "vm:1:1 [0] NCCL INFO ncclCommInitRank comm 0x55 rank {} nranks 2 cudaDev 0\n"
    files = {f"part-{rank}.log": f"rank {rank} of 4\n{init.format(rank % 2)}" for rank in (2, 3)}
    files["part-3.log"] += "DistStoreError: Timed out after 15 seconds waiting for clients. 2/4 clients joined.\n"
    assert answer(write(tmp_path, files))["job"]["failed_first"] == [0, 1]


def test_the_largest_communicator_of_nccl_has_all_ranks(tmp_path: Path) -> None:
    init = "vm:1:1 [0] NCCL INFO ncclCommInitRank comm 0x55 rank {} nranks {} cudaDev 0\n"
    files = {f"host-{letter}.log": init.format(rank, 2) for rank, letter in enumerate("ab")}
    files["host-a.log"] += init.format(0, 1)
    assert answer(write(tmp_path, files))["job"]["world"] == 2
