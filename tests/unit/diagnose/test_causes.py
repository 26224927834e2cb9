"""Test the answer for each log: lines as others write them (lines/), texts of ours (logs/), a GPU's (h200/)."""

import json
import tomllib
from itertools import count
from pathlib import Path

import pytest
from typer.testing import CliRunner
from unit.diagnose.answers import CALM, OOM, RAISED, SECOND, diagnosed, lines, told

from trainwright.commands import register
from trainwright.commands.options import app
from trainwright.diagnose import causes
from trainwright.diagnose.causes import ANY, EARLIER, load_causes
from trainwright.diagnose.reader import load_settings

register(["diagnose"])
ROOT = Path(__file__).parents[3]
FOLDER = Path(__file__).parent / "logs"
LOGS = lines()
SHOWN = {"fix": "fix", "what": "what", "line": "evidence"}  # what a log's answer has, where the data says it


def test_a_public_log_names_its_cause_and_the_fix(tmp_path: Path) -> None:
    """All logs in one test, because each test of its own costs more than to read a log."""
    path, wrong = tmp_path / "log", []
    for log in LOGS:
        path.write_text(log["text"].strip() + "\n")
        (found,) = diagnosed(path)
        said = all(log.get(key, "") in found[shown] for key, shown in SHOWN.items())
        wrong += [] if found["cause"] == log["cause"] and said else [(log, found)]
    assert wrong == []


def test_a_run_that_passes_has_no_line_of_any_of_these() -> None:
    table, named = causes.load_causes(ROOT), {row["cause"] for row in LOGS}
    passed = sorted((ROOT / "tests/unit/nccl-tests").glob("*_ok_*.txt"))
    assert passed
    for path in passed:
        found = causes.Signatures(table)
        for number, line in enumerate(path.read_text().splitlines()):
            found.feed(line, number)
        assert not named & {cause.id for cause, _ in found.found}, path.name


FILES = tomllib.loads((FOLDER / "expected.toml").read_text())["logs"]
WELL = ("none", "unknown")


def test_a_log_of_the_folder_gets_its_answer() -> None:
    wrong = []
    for log in FILES:
        (found,) = diagnosed(FOLDER / log["file"])
        said = found["cause"] == log["cause"] and log.get("line", "") in found["evidence"]
        wrong += [] if said and bool(found["fix"]) == (log["cause"] != "none") else [(log, found)]
    assert wrong == []


PRINTED = tomllib.loads((FOLDER.parent / "h200/expected.toml").read_text())


@pytest.mark.parametrize("name", PRINTED)
def test_what_a_program_printed_on_a_gpu_gets_its_answer(name: str) -> None:
    (found,), said = diagnosed(FOLDER.parent / "h200" / f"{name}.log"), PRINTED[name]
    assert found["cause"] == said["cause"]
    assert said.get("line", "") in found["evidence"]
    assert said.get("fix", "") in found["fix"]


def test_every_log_of_the_gpu_has_an_answer() -> None:
    assert set(PRINTED) == {path.stem for path in (FOLDER.parent / "h200").glob("*.log")}


def test_every_cause_has_a_log_and_many_logs_have_none() -> None:
    assert {row["file"] for row in FILES} == {path.name for path in FOLDER.glob("*.log")}
    shown = {row["cause"] for row in [*FILES, *LOGS]}
    known = {row.id for row in load_causes(ROOT) if row.lines}
    assert known - shown == set()
    assert shown - known - {"exception", "stated"} == set(WELL)
    assert sum(row["cause"] == "none" for row in FILES) >= 25


def test_what_a_cause_follows_from_is_a_cause() -> None:
    rows = load_causes(ROOT)
    places = {place.id for place in load_settings(ROOT).places}
    for row in rows:
        assert set(row.follows) <= {one.id for one in rows} | {ANY, EARLIER}, row.id
        assert set(row.fixes) <= places, row.id


@pytest.mark.parametrize(
    ("place", "line"), [("slurm", "srun: error: a1: task 0: Bus error"), ("sagemaker", "algo-1 starts")]
)
def test_the_fix_is_one_for_the_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, line: str) -> None:
    monkeypatch.chdir(ROOT)
    path = tmp_path / "log"
    path.write_text(f"{line}\n  exitcode  : -7 (pid: 90)\n")
    (found,) = json.loads(CliRunner().invoke(app, ["diagnose", str(path), "--json"]).stdout)
    (row,) = [row for row in load_causes(ROOT) if row.id == "shm" and "bus error" in row.what and "slurm" in row.fixes]
    assert (found["cause"], found["fix"]) == ("shm", row.fixes[place])


@pytest.mark.parametrize(
    ("line", "step"),
    [
        ("slurmstepd: error: task_p_pre_launch: failed", "scontrol show job JOB"),
        ("algo-1 | ERROR: it broke", "describe-training-job"),
        ("Warning  FailedScheduling of the pod: error", "kubectl describe pod"),
        ("docker: Error response from daemon: strange.", "journalctl -u docker"),
        ("ERROR: it broke", "look it up"),
    ],
)
def test_a_line_that_no_row_knows_comes_with_the_step_of_its_place(tmp_path: Path, line: str, step: str) -> None:
    found = told(tmp_path, f"step 1\n{line}\nstep 2\n")
    assert found["cause"] == "stated"  # one step after it is not enough to say that the job survived it
    assert "line 2: " in found["evidence"]
    assert step in found["fix"]


@pytest.mark.parametrize(("drawn", "cause"), [(3, "unknown"), (2, "stated")])
def test_a_bar_that_was_drawn_before_another_line_shows_that_an_error_was_survived(
    tmp_path: Path, drawn: int, cause: str
) -> None:
    bar = "".join(f"\r {n}/9 [00:0{n}, 1.00it/s]" for n in range(drawn))
    found = told(tmp_path, f"ERROR: the page is lost\nreading{bar}\r{HARMLESS}")
    assert (found["cause"], "page" in found["what"]) == (cause, cause == "stated")


@pytest.mark.parametrize(("lines", "cause"), [(125, "exception"), (135, "unknown")])
def test_an_exception_long_before_a_calm_end_was_caught(tmp_path: Path, lines: int, cause: str) -> None:
    assert told(tmp_path, "ValueError: 3 channels expected\n" + CALM * lines)["cause"] == cause


def test_what_followed_is_said(tmp_path: Path) -> None:
    (found,) = diagnosed(FOLDER / "exception.log")
    assert found["then"] == "rank 0 only followed\nranks 1, 2 said nothing of it"
    assert found["what"].startswith("rank 3")
    assert "ValueError: 3 channels expected, found 1, at /job/data.py:21 in __getitem__" in found["what"]


@pytest.mark.parametrize(
    ("after", "cause"),
    [
        ("", "exception"),
        ("step 1 loss 2.0\nstep 2 loss 1.9\nstep 3 loss 1.8\n", "unknown"),
        ("Training completed.\n", "none"),
    ],
)
def test_an_exception_without_a_traceback_counts_only_if_the_program_did_not_go_on(
    tmp_path: Path, after: str, cause: str
) -> None:
    found = told(tmp_path, "step 0 loss 2.1\n[rank1]: ValueError: 3 channels expected\n" + after)
    assert found["cause"] == cause
    assert ("ValueError: 3 channels expected, on rank 1" in found["what"]) == (cause == "exception")


@pytest.mark.parametrize(("after", "cause"), [(10, "stated"), (300, "unknown")])
def test_a_weak_error_line_long_before_the_end_is_no_reason(tmp_path: Path, after: int, cause: str) -> None:
    found = told(tmp_path, "Could not parse the page\n" + "page typeset\n" * after)
    assert found["cause"] == cause


@pytest.mark.parametrize(
    ("after", "cause"),
    [
        ("page typeset\n" * 8, "stated"),
        ("page typeset\n" * 9, "unknown"),
        ("page typeset\n" * 24 + "Segmentation fault\n", "crash"),
        ("page typeset\n" * 24 + "the job failed: Job 7 failed\n", "stated"),
        ("page typeset\n" * 25 + "the job failed: Job 7 failed\n", "unknown"),
    ],
)
def test_a_complaint_in_no_form_counts_only_at_the_end_or_shortly_before_the_failure(
    tmp_path: Path, after: str, cause: str
) -> None:
    found = told(tmp_path, "the fonts are not accessible here\n" + after)
    assert found["cause"] == cause


def test_of_several_complaints_the_next_two_in_other_words_are_quoted_too(tmp_path: Path) -> None:
    words = ("page 1 is lost", "page 2 is lost", "no ink", "no paper", "no light")
    found = told(tmp_path, "".join(f"ERROR: {one}\n" for one in words))
    assert found["what"].endswith("said: ERROR: page 1 is lost; and then: ERROR: no ink; ERROR: no paper")
    assert found["evidence"] == "line 1: ERROR: page 1 is lost; line 3: ERROR: no ink; line 4: ERROR: no paper"


FAILED = "srun: error: a1: task 0: Exited with exit code 1\n"
HARMLESS = "UserWarning: cannot allocate a cache\n"
COMPLAINT = "ERROR: the page is lost\n"
NOTED = "the reader has an unexpected exception to report\n"


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (COMPLAINT + CALM * 35, "stated"),
        (COMPLAINT + CALM * 45, "unknown"),
        ("WORLD_SIZE=4\n" + COMPLAINT + CALM * 35, "stated"),
        ("WORLD_SIZE=4\n" + COMPLAINT + CALM * 45, "unknown"),
        ("[rank3]: " + COMPLAINT + CALM * 195, "stated"),
        ("[rank3]: " + COMPLAINT + CALM * 205, "unknown"),
        (COMPLAINT + CALM * 60 + NOTED, "stated"),
        (COMPLAINT + CALM * 60 + FAILED, "stated"),
        (COMPLAINT + CALM * 150 + NOTED + CALM * 700 + NOTED, "stated"),
        (COMPLAINT + CALM * 150 + NOTED + CALM * 900 + NOTED, "unknown"),
        (FAILED + CALM * 300 + COMPLAINT + CALM * 300, "unknown"),
        (COMPLAINT + CALM * 300 + "ERROR: the desk is lost\n", "stated"),
        (COMPLAINT + CALM * 1100 + FAILED, "stated"),
        ((COMPLAINT + CALM * 30) * 3, "stated"),
        ((COMPLAINT + CALM * 150) * 2 + COMPLAINT, "unknown"),
        ((COMPLAINT + CALM * 150) * 2 + COMPLAINT + FAILED, "stated"),
        ("".join(CALM * 150 + f"[{n}/9] [ERROR] {n}x-y_{n}Q - is private\n" for n in range(3)), "unknown"),
        ("".join(CALM * 150 + f"Failed to read: {word} of the desk\n" for word in ("page", "book", "pen")), "unknown"),
        ("".join(CALM * 150 + f"ERROR trainer: {word} is lost\n" for word in ("page", "book", "pen")), "stated"),
        ("".join(CALM * 150 + f"[ERROR] {word} is lost\n" for word in ("page", "book", "pen")), "stated"),
        (COMPLAINT * 3, "stated"),
    ],
    ids=count(),
)
def test_an_error_line_that_comes_again_or_long_before_the_end_is_no_reason_unless_the_log_says_that_it_failed(
    tmp_path: Path, text: str, cause: str
) -> None:
    found = told(tmp_path, "the book begins\n" + text)
    assert found["cause"] == cause


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (OOM + CALM * 125, "out-of-memory"),
        (OOM + CALM * 135, "unknown"),
        ("WORLD_SIZE=4\n" + OOM + CALM * 150, "out-of-memory"),
        ("WORLD_SIZE=4\n" + OOM + CALM * 300, "unknown"),
        (OOM + CALM * 150 + NOTED + CALM * 900, "unknown"),
        (OOM + CALM * 1100 + NOTED, "out-of-memory"),
        (OOM + CALM * 60 + "ERROR: no desk here, skipping\n" + CALM * 200, "unknown"),
        (OOM + CALM * 1100 + COMPLAINT, "out-of-memory"),
        (OOM + HARMLESS * 30 + CALM * 1100 + COMPLAINT + HARMLESS * 30, "out-of-memory"),
        (OOM + CALM * 300 + "2026-01-02 03:04:05,678 - root - INFO - failed to find a cache\n", "unknown"),
        (OOM + CALM * 2100 + COMPLAINT, "unknown"),
        (OOM + CALM * 2100 + COMPLAINT + FAILED, "stated"),
        (OOM + CALM * 2100 + FAILED, "out-of-memory"),
        ("WORLD_SIZE=4\n" + OOM + CALM * 2100 + COMPLAINT + FAILED, "out-of-memory"),
        (CALM * 2100 + OOM + COMPLAINT, "out-of-memory"),
    ],
    ids=count(),
)
def test_a_cause_far_from_an_end_that_complains_of_nothing_stopped_nothing(
    tmp_path: Path, text: str, cause: str
) -> None:
    found = told(tmp_path, text)
    assert (found["cause"] == "out-of-memory") == (cause == "out-of-memory")


@pytest.mark.parametrize(("after", "cause"), [("", "unknown"), (FAILED, "out-of-memory")])
def test_a_line_that_only_informs_is_a_reason_only_of_a_job_that_failed(tmp_path: Path, after: str, cause: str) -> None:
    found = told(tmp_path, "I1126 10:00:00.000000 81 pool.cc:90] CUDA_ERROR_OUT_OF_MEMORY\n" + after)
    assert found["cause"] == cause


HEAD = "loading the tokens of the run\nmaking a model of twelve layers\n"


@pytest.mark.parametrize(
    ("text", "cause", "line"),
    [
        (HEAD + RAISED.format("KeyError: 'a'") + HEAD + CALM * 30, "unknown", ""),
        (HEAD + RAISED.format("KeyError: 'a'") + HEAD + CALM * 5, "exception", "line 6: KeyError"),
        (HEAD + RAISED.format("KeyError: 'a'") + HEAD + CALM * 30 + RAISED.format("ValueError: b"), "exception", "Val"),
        (HEAD + OOM + HEAD + CALM * 30 + OOM, "out-of-memory", "line 36: "),
        (HEAD + OOM + HEAD + CALM * 30, "unknown", ""),
        (HEAD + OOM + FAILED + HEAD + CALM * 30, "unknown", ""),
        (HEAD + COMPLAINT + HEAD + CALM * 30, "unknown", ""),
        ((HEAD + CALM * 150 + COMPLAINT) * 4, "stated", "line 612: ERROR"),
        (HEAD + FAILED + HEAD + CALM * 30 + "Training completed.\n", "none", ""),
        (HEAD + "Training completed.\n" + HEAD + CALM * 30, "unknown", ""),
        (HEAD + OOM + HEAD + CALM * 30 + FAILED, "unknown", ""),
    ],
    ids=count(),
)
def test_of_several_runs_in_one_log_the_last_one_counts_unless_it_only_began(
    tmp_path: Path, text: str, cause: str, line: str
) -> None:
    found = told(tmp_path, text)
    assert found["cause"] == cause
    assert line in found["evidence"]


CAUGHT = "Traceback (most recent call last):\n  File \"/job/train.py\", line 5, in step\nKeyError: 'a'\n"
NO_MODULE = RAISED.format("ModuleNotFoundError: No module named '{}'")
PREEMPTED = "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-11-02T02:54:57 DUE TO PREEMPTION ***\n"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (RAISED.format("KeyError: 'a'") + CALM * 60 + SECOND, "line 68: ValueError"),
        (CAUGHT + CALM * 10 + CAUGHT.replace("KeyError: 'a'", "ValueError: b"), "line 3: KeyError"),  # of one failure
        (RAISED.format("KeyError: 'a'") + CALM * 2 + SECOND, "line 4: KeyError"),
        (RAISED.format("KeyError: 'a'") + CALM * 10 + SECOND, "line 18: ValueError"),  # each ended the program
        (
            NO_MODULE.format("a") + CALM * 10 + NO_MODULE.format("b"),
            "line 18: ModuleNotFoundError: No module named 'b'",
        ),
        ("torchrun train.py\n" + RAISED.format("KeyError: 'a'") + CALM * 10 + SECOND, "line 5: KeyError"),
        (PREEMPTED + CALM * 300 + PREEMPTED, "line 302: slurmstepd"),
        ("torchrun train.py\n" + PREEMPTED + CALM * 300 + PREEMPTED, "line 2: slurmstepd"),
        (RAISED.format("KeyError: 'a'") + CALM * 60 + RAISED.format("KeyError: 'a'"), "line 4: KeyError"),
        (RAISED.format("KeyError: 'a'") + CALM * 60 + RAISED.format("BrokenPipeError: b"), "line 4: KeyError"),
        ("torchrun train.py\n" + RAISED.format("KeyError: 'a'") + CALM * 60 + SECOND, "line 5: KeyError"),
        (RAISED.format("ImportError: DLL load failed") + CALM * 60 + SECOND, "line 68: ValueError"),
        ("ERROR: the desk is lost\n" + CALM * 300 + COMPLAINT, "line 302: ERROR: the page"),
        ("MASTER: WORLD_SIZE=4\nERROR: the desk is lost\n" + CALM * 300 + COMPLAINT, "line 2: ERROR: the desk"),
    ],
    ids=count(),
)
def test_of_one_process_the_last_failure_counts_and_of_several_the_first(tmp_path: Path, text: str, line: str) -> None:
    found = told(tmp_path, text)
    assert line in found["evidence"]


WATCHDOG = (
    "[rank{}]:[E118 16:05:23.7 ProcessGroupNCCL.cpp:616] [Rank {}] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=14, OpType=ALLREDUCE) ran for 600020 milliseconds before timing out.\n"
)
TORCHRUN = """E0118 16:05:34.2 641 torch/distributed/elastic/api.py:869] failed (exitcode: {0}) local_rank: 0 (pid: 9)
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
Failures:
  <NO_OTHER_FAILURES>
Root Cause (first observed failure):
[0]:
  time      : 2026-01-18_16:05:34
  host      : a1
  rank      : 0 (local_rank: 0)
  exitcode  : {0} (pid: 9)
"""


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (WATCHDOG.format(0, 0) + WATCHDOG.format(1, 1) + TORCHRUN.format(-6), "timeout"),
        (WATCHDOG.format(0, 0) + TORCHRUN.format(-6), "timeout"),
        (TORCHRUN.format(-6), "crash"),
    ],
)
def test_the_watchdog_aborts_its_own_rank(tmp_path: Path, text: str, cause: str) -> None:
    found = told(tmp_path, text)
    assert found["cause"] == cause


DOWNLOAD = "curl: (28) Operation timed out\n"


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (DOWNLOAD + CALM * 15, "server-unreachable"),
        (DOWNLOAD + CALM * 25, "unknown"),  # tried again, with success
        (DOWNLOAD + CALM * 60 + DOWNLOAD, "server-unreachable"),
        (DOWNLOAD + CALM * 60 + FAILED, "server-unreachable"),
        ("WORLD_SIZE=4\n" + DOWNLOAD + CALM * 60, "server-unreachable"),
        (OOM + CALM * 60, "out-of-memory"),
        (DOWNLOAD + CALM * 2100 + COMPLAINT + FAILED, "stated"),
    ],
    ids=count(),
)
def test_what_need_not_end_a_script_counts_only_near_its_end(tmp_path: Path, text: str, cause: str) -> None:
    found = told(tmp_path, "the book begins\n" + text)
    assert found["cause"] == cause


LIMIT = "slurmstepd: error: *** JOB 7 ON a1 CANCELLED AT 2026-01-02T03:04:05 DUE TO TIME LIMIT ***\n"


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (OOM + CALM * 300 + LIMIT, "timeout"),
        (OOM + CALM * 100 + LIMIT, "out-of-memory"),
        ("WORLD_SIZE=4\n" + OOM + CALM * 300 + LIMIT, "out-of-memory"),  # the other ranks waited for it
    ],
    ids=count(),
)
def test_a_program_that_was_ended_from_outside_had_survived_what_it_printed_long_before(
    tmp_path: Path, text: str, cause: str
) -> None:
    found = told(tmp_path, text)
    assert found["cause"] == cause


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("LocalEntryNotFoundError: not there\n", "hub-unreachable"),
        ("LocalEntryNotFoundError: not there, using the latest cached version\n", "unknown"),
        ("ERROR: no desk here, skipping\n", "unknown"),
        ("ERROR: no desk here\n", "stated"),
    ],
)
def test_what_a_program_says_that_it_does_instead_ended_nothing(tmp_path: Path, text: str, cause: str) -> None:
    found = told(tmp_path, "the book begins\n" + text)
    assert found["cause"] == cause


BAR = "".join(f"{n}%| {n}/9 [00:0{n}<00:09, 1.{n}it/s]\r" for n in range(5))


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (COMPLAINT + BAR + "\n", "unknown"),
        (COMPLAINT + "0%| 0/9 [00:00<?, ?it/s]\n", "stated"),
        (BAR + LIMIT, "timeout"),
        (BAR + COMPLAINT, "stated"),
        (COMPLAINT + "step 1 loss 2.0\r\n" * 2, "stated"),  # Windows line ends
    ],
)
def test_a_progress_bar_after_an_error_shows_that_the_program_went_on(tmp_path: Path, text: str, cause: str) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"the book begins\n" + text.encode())
    (found,) = diagnosed(path)
    assert found["cause"] == cause


@pytest.mark.parametrize(("line", "cause"), [("wandb: train/loss 0.{}", "exception"), ("epoch_loss: 0.{}", "unknown")])
def test_a_summary_of_a_tracker_is_no_progress_and_a_loss_of_any_name_is(tmp_path: Path, line: str, cause: str) -> None:
    raised = RAISED.format("KeyError: 'a'").replace("<module>", "step")
    found = told(tmp_path, raised + "".join(f"{line.format(n)}\n" for n in range(1, 6)))
    assert found["cause"] == cause


@pytest.mark.parametrize(("provider", "cause"), [("tcp", "tcp-provider"), ("cxi", "unknown"), ("verbs", "unknown")])
def test_a_provider_of_another_fast_network_is_no_fault(tmp_path: Path, provider: str, cause: str) -> None:
    found = told(tmp_path, (FOLDER / "tcp-provider.log").read_text().replace("is tcp", f"is {provider}"))
    assert found["cause"] == cause


def test_a_job_that_goes_on_after_its_training_and_is_cancelled_then_did_not_end_well(tmp_path: Path) -> None:
    cancelled = "slurmstepd: error: *** JOB 7 ON n-1 CANCELLED AT 2026-01-02T03:04:05 ***\n"
    assert told(tmp_path, "Training completed.\n" + CALM * 19 + cancelled)["cause"] == "none"
    assert told(tmp_path, "Training completed.\n" + CALM * 20 + cancelled)["cause"] == "cancelled"


def test_a_complaint_beside_a_table_that_passes_was_survived(tmp_path: Path) -> None:
    table = (ROOT / "tests/unit/nccl-tests/05_ok_p5_1node_8gpu_nvlink.txt").read_text()
    assert told(tmp_path, "n-1:7:7 [0] NCCL WARN the desk is lost\n" + table)["cause"] == "none"
    assert told(tmp_path, "n-1:7:7 [0] NCCL WARN the desk is lost\n")["cause"] == "stated"


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (CALM + "+ exit 0\n" + CALM * 4, "none"),
        (CALM + "+ exit 0\n" + CALM * 5, "unknown"),
        ("srun: error: n-1: task 0: Exited with exit code 1\n" + CALM + "+ exit 0\n", "unknown"),
    ],
    ids=["among the last lines", "further above", "after a line which says that the job failed"],
)
def test_the_word_of_what_ran_the_program_counts_at_the_end_alone(tmp_path: Path, text: str, cause: str) -> None:
    assert told(tmp_path, text)["cause"] == cause


@pytest.mark.parametrize(("lines", "cause"), [(4, "stated"), (5, "crash")])
def test_an_error_explains_a_crash_close_behind_it(tmp_path: Path, lines: int, cause: str) -> None:
    assert told(tmp_path, "ERROR: the desk is lost\n" + CALM * lines + "Segmentation fault\n")["cause"] == cause


def test_a_secret_at_the_edge_of_what_is_quoted_is_masked_whole(tmp_path: Path) -> None:
    for length in range(440, 500):
        for begin, end in (("ERROR: cannot open ", ""), ("", " exits with return code = -11")):
            found = told(tmp_path, f"{begin}{'x' * length} https://user:Sup3rSecretPass@host/p{end}\n")
            assert "Sup3r" not in str(found)
            assert end in found["evidence"]
