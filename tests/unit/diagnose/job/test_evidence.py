"""Test reading what lies beside logs: recorder dumps (JSON, pickle), hostile pickles, output of NCCL RAS."""

import json
import os
import pickle
from collections.abc import Callable
from typing import Any

import pytest

from trainwright.diagnose.job import ras, recorder
from trainwright.diagnose.job.unpickle import DEEPEST, Refused, unpickled


def content(**more: Any) -> dict[str, Any]:
    entry = {
        "collective_seq_id": 7,
        "input_dtypes": ["Float"],
        "input_sizes": [[4, 2]],
        "is_p2p": False,
        "process_group": ("0", "default_pg"),
        "profiling_name": "gloo:all_reduce",
        "retired": False,
        "state": "scheduled",
        "time_created_ns": 1_795_514_867_996_995_536,
    }
    config = {"": {"desc": "", "name": "", "ranks": "[0, 1, 2]"}}
    return {"version": "2.10", "entries": [entry, {**entry, "is_p2p": True}], "pg_config": config, **more}


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_a_dump_as_json_and_as_pickle(protocol: int) -> None:
    for data in (json.dumps(content()).encode(), pickle.dumps(content(), protocol)):
        assert recorder.is_dump(data)
        dump = recorder.dumped(data, "nccl_trace_rank_2")
        assert (dump.rank, dump.world) == (2, 3)
        (entry,) = dump.groups["0"]
        assert (entry.seq, entry.words, entry.completed) == (7, "all_reduce 4x2 Float", False)


class Evil:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("evil",)


def test_a_hostile_pickle_is_refused_and_nothing_runs(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for protocol in (0, 1, 2, 3, 4, 5):
        with pytest.raises(Refused, match="opcode"):
            unpickled(pickle.dumps({"version": "2.10", "entries": Evil()}, protocol))
    assert list(tmp_path.iterdir()) == []


def laughs() -> bytes:
    value: list[Any] = []
    for _ in range(DEEPEST - 3):
        value = [value] * 9
    return pickle.dumps(value)


def nested() -> bytes:
    value: list[Any] = []
    for _ in range(DEEPEST + 1):
        value = [value]
    return pickle.dumps(value)


def itself() -> bytes:
    value: list[Any] = []
    value.append(value)
    return pickle.dumps(value)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (laughs(), "values"),
        (nested(), "nested"),
        (itself(), "nested"),
        (pickle.dumps(content())[:-20], "cut|damaged"),
        (b"\x80\x02.", "damaged"),
        (b"\x80\x02]K\x01K\x02s.", "not a dict"),
        (b"\x80\x02}]h\x05.", "damaged"),
    ],
)
def test_a_damaged_or_endless_pickle_is_refused(data: bytes, why: str) -> None:
    with pytest.raises(Refused, match=why):
        unpickled(data)


@pytest.mark.parametrize(
    ("data", "file", "why"),
    [
        (json.dumps(content(version="9.1")).encode(), "fr_0", "version 9.1"),
        (pickle.dumps(content(version="1.0")), "fr_0", "version 1.0"),
        (json.dumps(content())[:-9].encode(), "fr_0", "cut or damaged"),
        (b"{" * 100_000, "fr_0", "cut or damaged"),
        (json.dumps(content()).encode(), "fr", "which rank"),
        (json.dumps(content(entries=[{"is_p2p": False}])).encode(), "fr_0", "sequence number"),
        (json.dumps(content(entries=5)).encode(), "fr_0", "not a dump"),
        (json.dumps([1]).encode(), "fr_0", "not a dump"),
    ],
)
def test_a_dump_that_is_not_read_gets_a_sentence(data: bytes, file: str, why: str) -> None:
    with pytest.raises(Refused, match=why):
        recorder.dumped(data, file)


SUMMARY = """NCCL version 2.26.2 compiled with CUDA 12.6

Job summary
===========

  Nodes  Processes         GPUs  Processes     GPUs
(total)   per node  per process    (total)  (total)
      2          4            1          8        8

Communicators... (0.00s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         2         4         8         8   RUNNING  MISMATCH

Errors
======

"""
SINGLE = """Warnings
========

#0-0 (78db921d1c117b4a) MISMATCH
  Communicator ranks have different AllReduce operation counts
  7 ranks have launched up to operation 64
  Rank 7 has launched up to operation 60 -- GPU 3 managed by process 1650386 on node node1
"""
AHEAD = """Warnings
========

#0-0 (78db921d1c117b4a) MISMATCH
  Communicator ranks have different AllGather operation counts
  6 ranks have launched up to operation 640
  2 ranks have launched up to operation 641
  Rank 4 -- GPU 0 managed by process 323032 on node 10.0.0.2
  Rank 5 -- GPU 1 managed by process 323033 on node 10.0.0.2
"""
DEAD = """DEAD
  1 job process is considered dead (unreachable via the RAS network)
  Process 3487984 on node 10.0.0.9 managing GPU 5

Warnings
========
"""


def test_what_ras_says() -> None:
    single = ras.answered((SUMMARY + SINGLE).encode(), "ras.txt")
    assert ras.is_ras((SUMMARY + SINGLE).encode())
    assert (single.hosts, single.ranks) == (2, 8)
    assert [(one.rank, one.host, one.count) for one in single.behind] == [(7, "node1", 60)]
    assert ras.answered((SUMMARY + AHEAD).encode(), "ras.txt").behind == []
    dead = ras.answered((SUMMARY + DEAD).encode(), "ras.txt")
    assert [(one.host, one.rank) for one in dead.gone] == [("10.0.0.9", None)]
    assert ras.answered(b"", "ras.txt").gone == []


def of_json(counts: list[int], missing: list[dict[str, bool]]) -> bytes:
    """Return what `ncclras -f json` prints, as jsonWriteHeader and its neighbours in client_support.cc write it."""
    place = {"host": "10.0.0.2", "pid": 41, "cuda_dev": 0, "nvml_dev": 0}
    status = {"init_state": 0, "async_error": 0, "finalize_called": False, "destroy_flag": False, "abort_flag": False}
    ranks = [
        {"rank": rank, **place, "status": status, "collective_counts": {"Broadcast": 1, "AllReduce": number}}
        for rank, number in enumerate(counts)
    ]
    gone = [
        {"rank": len(counts) + n, **place, "host": "10.0.0.9", "pid": 50 + n, "status": one}
        for n, one in enumerate(missing)
    ]
    size = len(counts) + len(missing)
    group = {"hash": "0x78db921d1c117b4a", "secondary_hash": "0x1:0x2", "size": size, "ranks_count": len(counts)}
    group |= {"missing_ranks_count": len(missing), "ranks": ranks, "missing_ranks": gone}
    head = {"nccl_version": "2.28.7", "cuda_runtime_version": 13000, "cuda_driver_version": 13000}
    head |= {"timestamp": "2026-11-25 09:00:00", "communicators_count": 1, "communicators": [group]}
    return json.dumps({**head, "ras": {"collection_time_sec": 0.001, "timeouts_count": 0}}, indent=2).encode()


def test_what_ras_says_as_json() -> None:
    dead, silent = {"unresponsive": True, "considered_dead": True}, {"unresponsive": True, "considered_dead": False}
    left = {"unresponsive": False, "considered_dead": False}
    assert ras.is_ras(of_json([64, 64], []))
    late = ras.answered(of_json([64, 64, 64, 60], []), "ras.json")
    assert (late.ranks, late.hosts, late.gone) == (4, 1, [])
    assert [(one.rank, one.host, one.count) for one in late.behind] == [(3, "10.0.0.2", 60)]
    gone = ras.answered(of_json([64, 64], [dead, silent, left]), "ras.json")
    assert [(one.rank, one.host, one.text.split(":")[0]) for one in gone.gone] == [
        (2, "10.0.0.9", "DEAD"), (3, "10.0.0.9", "INCOMPLETE"),
    ]  # fmt: skip
    assert (gone.hosts, gone.behind) == (2, [])


@pytest.mark.parametrize(
    ("change", "why"),
    [(lambda data: data[:-9], "cut or damaged"), (lambda data: data.replace(b'"size"', b'"wide"'), "form")],
)
def test_json_of_ras_that_is_not_read_gets_a_sentence(change: Callable[[bytes], bytes], why: str) -> None:
    with pytest.raises(Refused, match=why):
        ras.answered(change(of_json([1, 1], [])), "ras.json")
