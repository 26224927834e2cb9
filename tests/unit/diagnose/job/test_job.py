"""Test the diagnosis of a job: labels of launchers, who failed first, who followed, who is silent; bad input."""

import gzip
import json
import pickle
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner
from unit.diagnose.answers import diagnosed
from unit.diagnose.job_logs import CLOSED, RAISED, WAITED, answer, dump, labelled, of_files, of_rank, states, write

from trainwright.commands import register
from trainwright.commands.options import app
from trainwright.core.errors import ConfigError
from trainwright.diagnose.causes import load_causes
from trainwright.diagnose.job.ranks import Event, known, named
from trainwright.diagnose.job.said import Words, load_settings
from trainwright.diagnose.job.streams import Splitter, keyed, labels
from trainwright.diagnose.job.verdict import elsewhere
from trainwright.diagnose.reader import Reader
from trainwright.diagnose.reader import load_settings as reader_settings

register(["diagnose"])
ROOT = Path(__file__).parents[4]
EXIT = "srun: error: node-1: task 2: Killed"


def test_ranks_that_failed_alike_did_not_only_follow(tmp_path: Path) -> None:
    texts = [f"step 1\n{of_rank(rank, CLOSED)}" for rank in range(4)]
    texts[2] = texts[3] = f"step 1\n{RAISED}\n"
    row = of_files(tmp_path, texts)
    assert row["job"]["failed_first"] == [2]
    assert row["then"] == "rank 3 failed for the same reason\nranks 0, 1 only followed"
    texts[3] = texts[3].replace("ValueError", "KeyError")
    assert (
        of_files(tmp_path, texts)["then"]
        == "rank 3 failed, too, with another error of this kind\nranks 0, 1 only followed"
    )


def test_what_a_rank_said_shortly_before_it_crashed_is_its_reason(tmp_path: Path) -> None:
    texts = [f"step 1\n{of_rank(rank, CLOSED)}" for rank in range(3)]
    texts[2] = "step 1\n[n-1:7]  worker.c:14 UCX  ERROR no such desk\nCaught signal 11 (Segmentation fault)\n"
    row = of_files(tmp_path, texts)
    assert row["job"]["failed_first"] == [2]
    assert row["what"].startswith("rank 2 failed first: UCX said: [n-1:7]  worker.c:14 UCX  ERROR no such desk")


@pytest.mark.parametrize("name", ["job-{}.log", "rank{}.txt", "attempt_0/{}/stderr.log", "out.{}", "4711_rank_{}.out"])
def test_a_file_for_each_rank(tmp_path: Path, name: str) -> None:
    texts = [f"step 1\n{of_rank(rank, CLOSED)}" for rank in range(4)]
    texts[2] = f"step 1\n{RAISED}\n"
    row = of_files(tmp_path, texts, name)
    assert row["cause"] == "exception"
    assert row["job"]["failed_first"] == [2]
    assert row["what"].startswith("rank 2 failed first: the program raised ValueError: 3 channels expected")
    assert row["then"] == "ranks 0, 1, 3 only followed"
    assert "line" not in row["evidence"]
    assert f"{name.format(2)}:5: ValueError" in row["evidence"]


def test_the_order_of_labelled_lines_says_what_came_first(tmp_path: Path) -> None:
    first, second = labelled("3: ", RAISED), labelled("1: ", RAISED.replace("3 channels", "4 channels"))
    log = tmp_path / "slurm-7.out"
    for text, rank in ((first + second, 3), (second + first, 1)):
        log.write_text(labelled("0: ", "step 1") + text + labelled("2: ", of_rank(2, CLOSED)))
        assert answer(log)["job"]["failed_first"] == [rank]


def test_times_say_what_came_first_in_files_of_their_own(tmp_path: Path) -> None:
    def text(second: int) -> str:
        return f"2026-11-24 10:00:{second:02} INFO step 1\n2026-11-24 10:00:{second:02} INFO next\n{RAISED}\n"

    row = of_files(tmp_path, [text(30), text(20), text(10).replace("3 channels", "4 channels"), CLOSED])
    assert row["job"]["failed_first"] == [2]


def test_pods(tmp_path: Path) -> None:
    log = tmp_path / "pods.log"
    log.write_text(
        labelled("[pod/train-master-0/pytorch] ", f"step 1\n{of_rank(0, WAITED)}{of_rank(1, WAITED)}")
        + labelled("[pod/train-worker-0/pytorch] ", f"rank 2 of 4\nrank 3 of 4\nstep 1\n{of_rank(3, WAITED)}")
    )
    row = answer(log)
    assert (row["cause"], row["job"]["failed_first"]) == ("rank-silent", [2])
    assert row["what"].startswith("rank 2 on train-worker-0: ")
    assert states(row) == {0: "followed", 1: "followed", 2: "silent", 3: "followed"}


def test_a_connection_that_failed_proves_no_silence(tmp_path: Path) -> None:
    """A rank that did not come to its connection yet says as little as one that is gone."""
    said = "host:8:{} [0] NCCL WARN socketStartConnect: Connect to 10.0.3.77<41733> failed : No route to host"
    text = labelled("0: ", "loading the page") + "".join(labelled(f"{n}: ", said.format(n)) for n in (1, 2))
    (tmp_path / "a.log").write_text(text)
    assert answer(tmp_path / "a.log")["cause"] == "nccl-connect"


def test_of_two_ranks_the_one_whose_failure_the_other_follows_from_failed_first(tmp_path: Path) -> None:
    lost = "NET/IB : Got completion from peer 10.1.4.2<38112> with status=12 opcode=0"
    raised = RAISED.replace(
        "ValueError: 3 channels expected", "RuntimeError: CUDA error: uncorrectable ECC error encountered"
    )
    text = labelled("0: ", lost) + labelled("1: ", lost) + labelled("2: ", raised) + labelled("3: ", "page one")
    (tmp_path / "a.log").write_text(text)
    row = answer(tmp_path / "a.log")
    assert (row["cause"], row["job"]["failed_first"]) == ("ecc", [2])


def test_a_whole_host_that_is_silent(tmp_path: Path) -> None:
    pods = {host: "".join(f"rank {rank} of 6\n" for rank in (2 * host, 2 * host + 1)) for host in range(3)}
    pods = {
        host: text + (of_rank(2 * host, WAITED) + of_rank(2 * host + 1, WAITED)) * (host != 1)
        for host, text in pods.items()
    }
    row = answer(write(tmp_path, {f"node-{host}.log": text for host, text in pods.items()}))
    assert (row["cause"], row["job"]["failed_first"], row["job"]["host"]) == ("host-silent", [2, 3], "node-1")


def test_what_srun_says_of_a_rank(tmp_path: Path) -> None:
    log = tmp_path / "slurm-7.out"
    log.write_text(
        "".join(labelled(f"{rank}: ", f"step 1\n{of_rank(rank, CLOSED)}") for rank in (0, 1, 3))
        + EXIT
        + "\n2: step 1\n"
    )
    row = answer(log)
    assert (row["cause"], row["job"]["failed_first"], row["job"]["host"]) == ("killed", [2], "node-1")


def test_a_rank_whose_own_output_is_not_there(tmp_path: Path) -> None:
    log = tmp_path / "slurm-7.out"
    exits = "".join(f"srun: error: node-1: task {rank}: Exited with exit code 1\n" for rank in (2, 0, 1, 3))
    log.write_text("".join(labelled(f"{rank}: ", f"step 1\n{of_rank(rank, CLOSED)}") for rank in (0, 1, 3)) + exits)
    row = answer(log)
    assert (row["cause"], row["job"]["failed_first"]) == ("exit-code", [2])
    assert row["fix"] == "give the log of that rank, with standard error"


def test_tasks_that_are_launchers(tmp_path: Path) -> None:
    """srun starts torchrun on each host: its label is no rank then."""
    log = tmp_path / "slurm-7.out"
    log.write_text(
        "".join(
            labelled(f"{task}: ", of_rank(rank, RAISED if rank == 2 else CLOSED))
            for task in (0, 1)
            for rank in (2 * task, 2 * task + 1)
        )
    )
    row = answer(log)
    assert (row["job"]["failed_first"], row["job"]["world"]) == ([2], 4)


def test_a_host_is_guessed_only_between_two_of_its_ranks(tmp_path: Path) -> None:
    log = tmp_path / "slurm-7.out"
    text = "".join(labelled(f"{rank}: ", f"rank {rank} of 6\n{CLOSED}") for rank in range(6) if rank != 1)
    log.write_text(text + "".join(f"srun: error: node-{rank // 3}: task {rank}: Terminated\n" for rank in (0, 2, 4)))
    hosts = {rank["rank"]: rank["host"] for rank in answer(log)["job"]["ranks"]}
    assert hosts == {0: "node-0", 1: "node-0", 2: "node-0", 3: "", 4: "node-1", 5: ""}


def test_a_rank_that_never_arrived(tmp_path: Path) -> None:
    text = "torch.distributed.DistStoreError: Timed out after 7 seconds waiting for clients. 3/4 clients joined."
    waits = "torch.distributed.DistStoreError: wait timeout after 6000ms, keys: /default_pg/0//cpu//0/0"
    row = of_files(tmp_path, [text, waits, waits])
    assert (row["cause"], row["job"]["failed_first"], states(row)[3]) == ("rank-missing", [3], "never arrived")


def test_a_rank_that_waits_for_one_that_does_not_exist_was_told_another_number_of_ranks(tmp_path: Path) -> None:
    """The others wait within a group, for a rank that is there."""
    waits = "torch.distributed.DistStoreError: wait timeout after 6000ms, keys: /default_pg/0//{}cpu//0/{}"
    texts = ["step 1", waits.format("8//", 0), waits.format("8//", 0), waits.format("", 4)]
    row = of_files(tmp_path, texts)
    assert (row["cause"], row["job"]["failed_first"]) == ("world-size", [3])


USED = "RuntimeError: The server socket has failed to listen on any local network address. port: 29500, EADDRINUSE"


@pytest.mark.parametrize("label", ["0: ", "[pod/train-master-0/pytorch] "])
def test_one_log_with_the_label_of_one_rank_is_of_a_job_whose_others_said_nothing(tmp_path: Path, label: str) -> None:
    raised = RAISED.replace("ValueError: 3 channels expected", USED)
    row = answer(write(tmp_path, {"slurm-4711.out": labelled(label, raised)}))
    assert (row["cause"], row["job"]["failed_first"]) == ("port-in-use", [0])


def test_an_empty_log_beside_one_of_a_rank_is_a_rank_that_said_nothing(tmp_path: Path) -> None:
    row = of_files(tmp_path, [RAISED.replace("ValueError: 3 channels expected", USED), "", ""])
    assert (row["cause"], row["job"]["failed_first"], row["job"]["world"]) == ("port-in-use", [0], 3)


@pytest.mark.parametrize(
    "names", [("job-4711.out", "job-4712.out"), ("log-2026", "log-2027"), ("app.log.1", "app.log.2")]
)
def test_an_empty_log_with_a_number_of_its_own_is_no_rank(tmp_path: Path, names: tuple[str, str]) -> None:
    row = answer(write(tmp_path, {names[0]: RAISED, names[1]: ""}))
    assert "job" not in row or row["job"]["failed_first"] == []


def test_an_empty_log_of_another_name_hides_no_rank_that_said_nothing(tmp_path: Path) -> None:
    failed = RAISED.replace("ValueError: 3 channels expected", USED)
    row = answer(
        write(tmp_path, {"job-0.log": failed, "job-1.log": "", "job-2.log": "", "stderr.log": "", "other-3.log": ""})
    )
    assert (row["job"]["failed_first"], row["job"]["world"]) == ([0], 3)


def test_ras_beside_the_logs(tmp_path: Path) -> None:
    ras = "Job summary\n===========\n\n  Nodes  Processes         GPUs  Processes     GPUs\n"
    ras += "(total)   per node  per process    (total)  (total)\n      2          2            1          4        4\n"
    ras += "\nErrors\n======\n\nDEAD\n  1 job process is considered dead\n  Process 99 on node node-1 managing GPU 1\n"
    watchdog = "[rank0]:[E ProcessGroupNCCL.cpp:616] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL()"
    row = answer(write(tmp_path, {"ras.txt": ras, "node-0.log": f"{watchdog}\n{watchdog.replace('0]', '1]')}\n"}))
    assert row["cause"] == "rank-silent"
    assert row["job"]["host"] == "node-1"


def test_files_of_hosts_are_not_numbered_as_ranks(tmp_path: Path) -> None:
    files = {"algo-1.log": f"step 1\n{of_rank(0, CLOSED)}", "algo-2.log": f"step 1\n{of_rank(1, RAISED)}"}
    row = answer(write(tmp_path, files))
    assert (row["job"]["world"], row["job"]["failed_first"], row["job"]["host"]) == (2, [1], "algo-2")


def test_a_label_in_a_hosts_file_names_no_rank_of_its_other_lines(tmp_path: Path) -> None:
    failed = "ERROR:torch.distributed.elastic.multiprocessing.api:failed (exitcode: -9) local_rank: 4 (pid: 9)"
    files = {"host-a.log": of_rank(1, CLOSED), "host-b.log": of_rank(9, CLOSED) + f"{failed}\n"}
    row = answer(write(tmp_path, files))
    assert (row["cause"], row["job"]["failed_first"]) == ("killed", [])
    assert row["what"].startswith("host-b failed first: ")


def test_torchruns_report_names_the_rank_that_no_label_names(tmp_path: Path) -> None:
    """Seen on an H200: rank 1 was killed, and all that the log of torchrun has beside that is of rank 0."""
    log = tmp_path / "train.log"
    table = "Failures:\n[1]:\n  host      : gpu-1\n  rank      : 0 (local_rank: 0)\n  exitcode  : -15 (pid: 8)\n"
    root = "Root Cause (first observed failure):\n[0]:\n  host      : gpu-1\n  rank      : 1 (local_rank: 1)\n"
    failed = "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n"
    log.write_text(f"epoch 1\n{CLOSED}\n{failed}{table}{root}  exitcode  : -9 (pid: 9)\n")
    row = answer(log)
    assert (row["cause"], row["job"]["failed_first"], row["job"]["host"]) == ("killed", [1], "gpu-1")
    log.write_text(f"epoch 1\n{CLOSED}\n")
    assert answer(log)["cause"] == "peer-lost"


def test_a_rank_that_its_watchdog_aborted_did_not_fail_first(tmp_path: Path) -> None:
    """srun names both exit codes; the log of one rank alone is there, and it noticed the other one."""
    log = tmp_path / "job.log"
    log.write_text(
        "gpu-2:9:9 [0] misc/socket.cc:50 NCCL WARN socketProgress: Connection closed by remote peer gpu-1<45074>\n"
        "[rank1]:[E ProcessGroupNCCL.cpp:577] [Rank 1] Some NCCL operations have failed or timed out.\n"
        "[rank1]:[E ProcessGroupNCCL.cpp:583] [Rank 1] To avoid it, we are taking the entire process down.\n"
        "srun: error: gpu-1: task 0: Exited with exit code 1\nsrun: error: gpu-2: task 1: Exited with exit code 134\n"
    )
    row = answer(log)
    assert (row["cause"], row["job"]["failed_first"], row["job"]["host"]) == ("exit-code", [0], "gpu-1")


def test_what_a_rank_handled_is_no_failure(tmp_path: Path) -> None:
    """A logger wrote the exception, with what is done instead, behind srun's label; other ranks write in between."""
    lines = [
        "2: ERROR could not decode sample, skipping it",
        "0: step 9 loss 0.5",
        "2: Traceback (most recent call last):",
    ]
    lines += [
        '2:   File "/job/data.py", line 7, in load',
        "2:     x()",
        "2: ValueError: 3 channels",
        "2: step 9 loss 0.5",
    ]
    log = tmp_path / "srun.log"
    log.write_text("".join(f"{line}\n" for line in ["0: step 8 loss 0.5", "2: step 8 loss 0.5", *lines]))
    assert answer(log)["cause"] == "unknown"
    log.write_text(log.read_text().replace(", skipping it", ""))
    row = answer(log)
    assert (row["cause"], row["job"]["failed_first"]) == ("exception", [2])


def test_a_restart_that_succeeded_is_no_failure(tmp_path: Path) -> None:
    """Two hosts in one log: a rank noticed the other one's end, and after the restart all went well."""
    api = "I1111 02:02:41.000000 7 torch/distributed/elastic/agent/server/api.py:906] [default]"
    said = {
        1: [
            "[rank1]: epoch 3 top1 61.2",
            "W1111 02:02:02.000000 7 api.py:718] Received 15 death signal, shutting down workers",
        ],
        0: [
            "[rank0]: torch.distributed.DistBackendError: NCCL error in: a.cpp:2090, remote process exited",
            f"{api} Worker group FAILED. 10/10 attempts left; will restart worker group",
            *(f"[rank0]: epoch {number} top1 63.0" for number in range(4, 8)),
            "[rank0]: Training finished, 5 epochs",
            f"{api} worker group successfully finished. Waiting 300 seconds for other agents",
        ],
    }
    log = tmp_path / "pods.log"
    log.write_text("".join(f"[pod/worker-{host}/pytorch] {line}\n" for host in (1, 0) for line in said[host]))
    assert answer(log)["cause"] == "none"
    log.write_text(log.read_text().partition(" Worker group FAILED")[0] + "\n")
    assert answer(log)["cause"] != "none"


def test_of_one_rank_no_number_is_told(tmp_path: Path) -> None:
    log = tmp_path / "slurm-9.out"
    log.write_text(f"step 1\n{RAISED}\nsrun: error: gpu-1: task 0: Exited with exit code 1\n")
    assert answer(log)["what"].startswith("the program raised ValueError")


def test_a_rank_that_raised_is_not_silent(tmp_path: Path) -> None:
    """Seen on an H200 with too many jobs at once: rank 0 gave up before rank 1 came, and rank 2 lost its store."""
    frames = "".join(
        f"[rank2]: frame #{number}: c10d::TCPStore::doWait() + 0x9d (0x7f in libtorch_cpu.so)\n" for number in range(30)
    )
    lost = "[rank2]:[W1127 TCPStore.cpp:138] [c10d] Failed to recv, got 0 bytes. Connection was likely closed.\n"
    raised = 'Traceback (most recent call last):\n  File "/job/a.py", line 58, in train\n    gather()\n'
    raised += "torch.distributed.DistBackendError: [2] is setting up NCCL communicator, but got error: Failed\n"
    traced = "".join(f"[rank2]: {line}\n" for line in raised.splitlines())
    texts = ["DistStoreError: Timed out after 15 seconds waiting for clients. 2/3 clients joined.\n"]
    texts += ["DistNetworkError: The client socket has timed out after 14000ms while trying to connect to (a, 2).\n"]
    row = of_files(
        tmp_path, [f"rank {rank} of 3\n{text}" for rank, text in enumerate([*texts, lost + traced + frames])]
    )
    assert (row["cause"], row["job"]["failed_first"]) == ("rank-missing", [])
    assert "nothing shows which rank" in row["what"]


def test_of_what_ranks_noticed_the_first_counts(tmp_path: Path) -> None:
    late = "2026-11-27T03:22:19 rank 0 of 2\n2026-11-27T03:22:20 Watchdog caught collective operation timeout: Work()\n"
    soon = (
        "2026-11-27T03:12:19 rank 1 of 2\n2026-11-27T03:12:31 RuntimeError: Connection closed by peer [10.0.0.1]:99\n"
    )
    row = answer(write(tmp_path, {"node1.log": late, "node2.log": soon}))
    assert row["cause"] == "peer-lost"
    assert row["what"].endswith("(node2 wrote of it first)")


def test_hosts_that_count_from_one_are_named_without_ranks(tmp_path: Path) -> None:
    files = {f"worker-{number}.log": f"step 1\n{RAISED if number == 2 else CLOSED}\n" for number in (1, 2, 3)}
    row = answer(write(tmp_path, files))
    assert (row["cause"], row["job"]["failed_first"], row["job"]["host"]) == ("exception", [], "worker-2")


# --- bad input -------------------------------------------------------------------------------------------------------


def test_logs_of_two_jobs(tmp_path: Path) -> None:
    files = {
        f"{job}/job-{rank}.log": f"rank {rank} of {ranks}\n{CLOSED}\n"
        for job, ranks in (("a", 2), ("b", 4))
        for rank in range(ranks)
    }
    folder = write(tmp_path, {name.replace("job-", "rank-"): text for name, text in files.items()})
    row = answer(folder)
    assert row["cause"] == "unknown"
    assert "these are logs of different jobs: rank 0 is one of 2 in " in row["what"]
    assert row["fix"] == "give the logs of one job at a time"


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("SLURM_JOB_ID={}", "Slurm names it 7{} in "),
        ("slurmstepd: error: *** STEP {}.0 ON node-1 CANCELLED", "Slurm names it 7{} in "),
        ('    "job_name": "{}",', "SageMaker names it 7{} in "),
    ],
)
def test_logs_that_name_two_jobs(tmp_path: Path, line: str, told: str) -> None:
    def rows(*jobs: str) -> dict[str, Any]:
        texts = [f"{line.format(job)}\nrank {rank} of 2\n{CLOSED}\n" for rank, job in enumerate(jobs)]
        return answer(write(tmp_path, {f"rank-{rank}.log": text for rank, text in enumerate(texts)}))

    row = rows("71", "72")
    assert row["cause"] == "unknown"
    assert told.format("1") in row["what"]
    assert rows("71", "71")["cause"] != "unknown"


def test_files_that_are_not_read_get_a_sentence(tmp_path: Path) -> None:
    write(tmp_path, {f"job-{rank}.log": f"step 1\n{RAISED if rank == 1 else CLOSED}\n" for rank in range(3)})
    (tmp_path / "core").write_bytes(b"\x7fELF\0\0\0")
    (tmp_path / "empty.log").write_bytes(b"")
    (tmp_path / "fr_trace_0").write_bytes(pickle.dumps({"version": "2.10", "entries": ROOT}))
    (tmp_path / "fr_trace_1").write_bytes(json.dumps({**dump(1), "version": "7.0"}).encode())
    (tmp_path / "cut.log.gz").write_bytes(gzip.compress(b"step 1\n" * 99)[:-9])
    (tmp_path / "job-2.log").write_bytes(f"step 1\n{CLOSED}\n\N{BEACH WITH UMBRELLA}".encode()[:-2])
    (tmp_path / "gone.log").symlink_to("nowhere")
    row = answer(tmp_path)
    assert (row["cause"], row["job"]["failed_first"]) == ("exception", [1])
    notes = {Path(note.partition(": ")[0]).name: note.partition(": ")[2] for note in row["job"]["notes"]}
    assert set(notes) == {"core", "empty.log", "fr_trace_0", "fr_trace_1", "cut.log.gz"}
    assert notes["core"] == "not read: it is not text"
    assert notes["fr_trace_0"].startswith("not read: it has the opcode ")
    assert "version 7.0" in notes["fr_trace_1"]


def test_lines_of_json_with_the_keys_of_a_dump_are_a_log(tmp_path: Path) -> None:
    line = json.dumps({"level": "info", "version": "1.2", "cache": {"entries": 3}})
    (tmp_path / "a.log").write_text(f"{line}\n" * 9 + "Training completed\n")
    assert answer(tmp_path / "a.log")["cause"] == "none"


@pytest.mark.parametrize("files", [{}, {"core": b"\0\1\2"}, {"README.md": b"error: no", "job.sh": b"exit 1"}])
def test_a_folder_without_logs(tmp_path: Path, files: dict[str, bytes]) -> None:
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    with pytest.raises(ConfigError, match="no log in this folder"):
        diagnosed(tmp_path)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (pickle.dumps({"version": "2.10", "entries": ROOT}), "it has the opcode"),
        (json.dumps({**dump(0), "version": "3.1"}).encode(), "version 3.1"),
        (b'{"version": "9.1", "entries": []}', "version 9.1"),
        (pickle.dumps(dump(0))[:40], "it is cut or damaged"),
    ],
)
def test_a_dump_that_is_not_read_is_an_error_if_it_is_all(tmp_path: Path, content: bytes, why: str) -> None:
    (tmp_path / "fr_trace_0").write_bytes(content)
    with pytest.raises(ConfigError) as error:
        diagnosed(tmp_path / "fr_trace_0")
    assert why in error.value.why


def test_the_failure_file_of_each_host_names_the_host_that_failed(tmp_path: Path) -> None:
    """`trainwright run --output` keeps one for each host, and all of them tell of the first failure."""
    text = (
        'algo-2: exit code 1\nTraceback (most recent call last):\n  File "/job/a.py", line 7, in <module>\n    go()\n'
    )
    for host in ("algo-1", "algo-2"):
        (tmp_path / host / "output").mkdir(parents=True)
        (tmp_path / host / "output/failure").write_text(f"{text}ValueError: no shape\n")
    (row,) = diagnosed(tmp_path)
    assert row["what"] == "the program raised ValueError: no shape, at /job/a.py:7 in <module>"
    assert row["log"] == str(tmp_path / "algo-2/output/failure")
    (tmp_path / "algo-2/output/failure").write_text(f"{text}ValueError: no shape of 3\n")
    assert "algo-1 failed" not in str([one["what"] for one in diagnosed(tmp_path)])


def test_dumps_without_any_log(tmp_path: Path) -> None:
    for rank in range(4):
        (tmp_path / f"fr_trace_{rank}").write_text(json.dumps(dump(rank, *["all_reduce"] * (1 if rank == 2 else 2))))
    row = answer(*sorted(tmp_path.iterdir()))
    assert (row["cause"], row["job"]["failed_first"], row["log"]) == ("rank-late", [2], "4 ranks: 4 recorder dumps")


def test_logs_without_labels_are_read_one_by_one(tmp_path: Path) -> None:
    write(tmp_path, {"a.log": f"{RAISED}\n", "b.txt": "step 1\nTraining completed\n"})
    rows = diagnosed(tmp_path / "a.log", tmp_path / "b.txt")
    assert [row["cause"] for row in rows] == ["exception", "none"]


def test_secrets_are_masked(tmp_path: Path) -> None:
    row = of_files(tmp_path, [RAISED.replace("3 channels", "token=hf_abcdefghijklmnopqrstuvw 3"), CLOSED])
    assert "hf_abc" not in json.dumps(row)


# --- labels ----------------------------------------------------------------------------------------------------------


def test_text_that_looks_like_a_label_now_and_then_is_text() -> None:
    assert labels([b"12: a", b"see", b"this", b"text"]) == set()
    assert keyed(b"12: a", frozenset())[1] == b"12: a"
    key, rest = keyed(b"[1,mpirank:3,algo-2]<stderr>:[rank3]: x", frozenset())
    assert (key.host, key.rank, rest) == ("algo-2", 3, b"x")


@pytest.mark.parametrize(
    ("label", "writers"), [("{}: ", 7), ("[pod/train-{}/pytorch] ", 7), ("algo-{} | ", 7), ("[1,{}]<stdout>:", 5)]
)
def test_lines_keep_their_numbers_and_writers(label: str, writers: int) -> None:
    """Also across blocks, with further labels, and with lines that have none."""
    lines = [f"{label.format(n % 3)}{'[rank7]: ' * (n % 5 == 0)}line {n}" for n in range(9000)]
    lines[50] = "srun: error: without a label"
    whole = ("\n".join(lines) + "\n").encode()
    words = Words(load_settings(ROOT))
    at = whole.index(b"\n", 14_000) + 1
    found = Splitter("log", Reader(load_causes(ROOT), reader_settings(ROOT)), words).read([whole[:at], whole[at:]])
    assert len(found) == writers
    for stream in found:
        assert stream.last in lines[stream.reader.lines - 1]


def test_numbers_in_sentences() -> None:
    assert named([3]) == "rank 3"
    assert named([0, 1, 2, 5, 7, 8]) == "ranks 0-2, 5, 7, 8"


def test_the_command(tmp_path: Path) -> None:
    write(tmp_path, {f"job-{rank}.log": f"step 1\n{RAISED if rank == 1 else CLOSED}\n" for rank in range(3)})
    done = CliRunner().invoke(app, ["diagnose", str(tmp_path)])
    assert done.exit_code == 0
    assert done.stdout.startswith("3 ranks: 3 logs: exception\n  what:     rank 1 failed first: ")


def test_a_log_of_unknown_origin_is_named_where_nothing_else_shows_the_guilty_one(tmp_path: Path) -> None:
    heads = [f"rank {rank} of 4\n" for rank in range(2)]
    alive = "step 1 loss 0.1\nstep 2 loss 0.2\n"
    logs = {f"host{n}.out": text for n, text in enumerate([*(head + CLOSED for head in heads), "", alive])}
    then = answer(write(tmp_path, logs))["then"]
    assert f"{tmp_path}/host2.out: not read: it is empty" in then
    assert f"{tmp_path}/host3.out: no line says which rank wrote it" in then
    assert "its last line: step 2 loss 0.2" in then
    assert "host0.out" not in then
    more = answer(write(tmp_path, {f"host{n}.out": alive for n in range(3, 9)}))["then"]
    assert more.count("no line says") == 4
    assert "and 2 more such logs" in more


@pytest.mark.parametrize("cause", ["exit-code", "host-lost"])
def test_a_line_of_a_launcher_that_only_passes_a_failure_on_is_not_the_first_failure(cause: str) -> None:
    job = known([], [], [], [row for row in load_causes(ROOT) if row.id == cause], {cause})
    job.rest = [Event(cause, "", "", "", "launcher.log", 1)]
    assert elsewhere(job) is None


HOROVOD = (
    "[2020-07-15 08:18:52.425933: W horovod/common/stall_inspector.cc:105] One or more tensors were submitted to be "
    "reduced, gathered or broadcasted by subset of ranks and are waiting for remainder of ranks for more than 60 s"
)


@pytest.mark.parametrize(
    ("lists", "cause", "ranks"),
    [
        (["0: [allreduce.a]", "1: [allreduce.a]", "2: [allgather.b]", "3: [allreduce.a]"], "collective-mismatch", [2]),
        (["0: [allreduce.a]", "1: [allreduce.a]", "3: [allreduce.a, broadcast.c ...]"], "horovod-missing", []),
        (["0: [allreduce.a]", "1: [allreduce.a]", "3!: [allreduce.a]"], "collective-mismatch", [2]),
        (["2: [DistributedAdam_Allreduce/HorovodAllreduce_x_0]"], "horovod-missing", [2]),
        (["2: [allreduce.a]", "3: [allreduce.a]"], "horovod-missing", []),
        ([f"{rank}: [allreduce.a]" for rank in range(4)], "horovod-missing", []),
        ([], "horovod-missing", []),
    ],
    ids=["another call", "two that differ", "ahead", "one is away", "half", "all that are known", "cut off"],
)
def test_horovod_says_who_lacks_what(lists: list[str], cause: str, ranks: list[int], tmp_path: Path) -> None:
    """horovod/common/stall_inspector.cc: it names for each rank what others handed over and that one did not."""
    text = labelled("[1,0]<stderr>:", "\n".join([HOROVOD, "Missing ranks:", *lists]))
    others = "".join(f"[1,{rank}]<stdout>:step 7\n" for rank in range(4))
    row = answer(write(tmp_path, {"job.log": others + text}) / "job.log")
    assert (row["cause"], row.get("job", {}).get("failed_first", [])) == (cause, ranks)


def test_the_last_report_of_horovod_counts(tmp_path: Path) -> None:
    """Ranks 1 and 2 went on after the first one; of the last one most wait for three that are behind."""
    said = [HOROVOD, "Missing ranks:", "1: [allreduce.a]", "2: [allreduce.a]", "step 8", HOROVOD, "Missing ranks:"]
    said += ["0: [allreduce.b]", "3: [allreduce.b, allreduce.c]", "5: [allreduce.b, allreduce.c]"]
    others = "".join(f"[1,{rank}]<stdout>:step 7\n" for rank in range(8))
    row = answer(write(tmp_path, {"job.log": others + labelled("[1,0]<stderr>:", "\n".join(said))}) / "job.log")
    assert (row["cause"], row["job"]["failed_first"]) == ("horovod-missing", [0, 3, 5])


def test_ranks_that_are_not_in_the_log_are_no_minority(tmp_path: Path) -> None:
    said = [HOROVOD, "Missing ranks:", *(f"{rank}: [allreduce.a]" for rank in (2, 3, 4))]
    others = "".join(f"[1,{rank}]<stdout>:step 7\n" for rank in (0, 1))
    row = answer(write(tmp_path, {"job.log": others + labelled("[1,0]<stderr>:", "\n".join(said))}) / "job.log")
    assert (row["cause"], row["job"]["failed_first"]) == ("horovod-missing", [2, 3, 4])
