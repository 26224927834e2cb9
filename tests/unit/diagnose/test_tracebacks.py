"""Test what an exception's traceback tells: which line is shown, where it was raised, whether it ended the program."""

from pathlib import Path

import pytest
from unit.diagnose.answers import CALM, OOM, RAISED, SECOND, diagnosed, told

BEGIN, DURING = (
    "Traceback (most recent call last):",
    "\nDuring handling of the above exception, another exception occurred:\n\n",
)
ENDED = "Training completed.\n"
HANDLER = (
    "--- Logging error ---\n"
    + RAISED.format("OSError: no paper")
    + 'Call stack:\n  File "/job/train.py", line 9, in <module>\n'
)


def test_where_the_script_ran_out_of_memory_is_said(tmp_path: Path) -> None:
    raised = [
        "Traceback (most recent call last):",
        '  File "/job/train.py", line 42, in main',
        "    loss = model(x)",
        '  File "/usr/lib/python3.11/site-packages/torch/nn/modules/module.py", line 1511, in _call_impl',
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
    ]
    found = told(tmp_path, "".join(f"[rank3]: {line}\n" for line in raised))
    assert found["cause"] == "out-of-memory"
    assert found["what"].endswith("; raised at /job/train.py:42 in main, on rank 3")
    assert ";" not in told(tmp_path, f"{raised[-1]}\n")["what"]


@pytest.mark.parametrize(
    ("above", "frame", "cause"),
    [
        ("WARNING mlflow: Could not log metrics", "site-packages/mlflow/rest.py", "unknown"),
        ("ERROR mlflow: Could not log metrics", "site-packages/mlflow/rest.py", "exception"),
        ("WARNING mlflow: Could not log metrics", "threading.py", "exception"),
    ],
)
def test_a_traceback_below_a_warning_that_begins_in_a_function_was_caught(
    tmp_path: Path, above: str, frame: str, cause: str
) -> None:
    text = f'{above}\nTraceback (most recent call last):\n  File "/usr/lib/python3/{frame}", line 55, in http\n'
    text += "    raise E\nmlflow.RestError: request failed\nINFO test accuracy 0.91\nINFO model exported to a.onnx\n"
    assert told(tmp_path, text)["cause"] == cause


def test_the_frames_of_a_crash_are_no_traceback(tmp_path: Path) -> None:
    """Of faulthandler the first frame is the place, so the last one would mislead."""
    threads = [
        "Windows fatal exception: access violation",
        "",
        "Current thread 0x00000730 (most recent call first):",
        '  File "/job/tree.py", line 475 in _fit',
        '  File "/job/__main__.py", line 6 in <module>',
        "run.sh: line 38:   833 Segmentation fault      python -m job",
        "Error: the wheel's tests failed: 139",
    ]
    found = told(tmp_path, "".join(f"{line}\n" for line in threads))
    assert found["cause"] == "crash"
    assert "raised at" not in found["what"]


@pytest.mark.parametrize(
    ("between", "prefix", "said"),
    [(10, "", "IOException: the disk"), (70, "", "IllegalStateException"), (10, "[rank1]: ", "IllegalStateException")],
)
def test_what_caused_an_exception_of_java_stands_below_it(tmp_path: Path, between: int, prefix: str, said: str) -> None:
    text = "java.lang.IllegalStateException: page\n" + "\tat a.B.c(B.java:9)\n" * between
    assert said in told(tmp_path, f"{text}{prefix}Caused by: java.io.IOException: the disk\n")["what"]


@pytest.mark.parametrize(("after", "cause"), [("", "exception"), ("bye\n" * 19, "exception"), ("bye\n" * 20, "none")])
def test_a_log_that_ends_with_an_exception_is_no_success_whatever_it_said_before(
    tmp_path: Path, after: str, cause: str
) -> None:
    found = told(tmp_path, "Training completed.\n" + SECOND + after)
    assert found["cause"] == cause


@pytest.mark.parametrize(
    "text",
    [
        SECOND + ENDED,
        ENDED + RAISED.format("BrokenPipeError: gone"),
        ENDED + RAISED.format("OSError: handle is closed"),
        ENDED + HANDLER + "UserWarning: dear\n",
    ],
)
def test_a_traceback_that_ended_nothing_leaves_a_success_alone(tmp_path: Path, text: str) -> None:
    found = told(tmp_path, text)
    assert found["cause"] == "none"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (RAISED.format("Iteration: 120, loss: 2.31\nValueError: b"), "line 5: ValueError"),
        (HANDLER + CALM + SECOND, "line 12: ValueError"),
        (
            OOM + CALM * 250 + OOM + '     12 raise Failed("torch.OutOfMemoryError: CUDA out of memory")\n',
            "line 252: torch.OutOfMemoryError",
        ),
    ],
)
def test_the_line_that_is_shown_is_that_of_the_exception(tmp_path: Path, text: str, line: str) -> None:
    found = told(tmp_path, text)
    assert line in found["evidence"]


@pytest.mark.parametrize(
    ("code", "cause"),
    [
        ('   6807 if "CapacityError" in str(reason):', "unknown"),
        ("-> 6808     raise exceptions.CapacityError(", "unknown"),
        ('    elif "CapacityError" in str(reason):', "unknown"),
        ("    raise CapacityError(reason)", "capacity"),
        ("if nothing helps: CapacityError", "capacity"),
    ],
)
def test_code_that_a_traceback_shows_is_no_evidence_but_for_what_it_raises(
    tmp_path: Path, code: str, cause: str
) -> None:
    found = told(tmp_path, f"File ~/session.py:6813, in check(job)\n{code}\n")
    assert found["cause"] == cause


def test_the_exception_is_shown_and_not_the_code_that_raised_it(tmp_path: Path) -> None:
    path = tmp_path / "log"
    said = (
        'Traceback (most recent call last):\n  File "/job/a.py", line 5, in meet\n    raise RendezvousTimeoutError()\n'
    )
    path.write_text(said + "torch.distributed.elastic.rendezvous.api.RendezvousTimeoutError\n")
    (found,) = diagnosed(path)
    assert found["evidence"].startswith("line 4: torch.distributed")


def test_an_assertion_without_words_shows_what_it_asserts(tmp_path: Path) -> None:
    path = tmp_path / "log"
    said = 'Traceback (most recent call last):\n  File "/job/a.py", line 5, in check\n    assert params.blank == 0\n'
    path.write_text(said + "AssertionError\n")
    (found,) = diagnosed(path)
    assert "AssertionError: assert params.blank == 0, at /job/a.py:5" in found["what"]


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (
            RAISED.format("ModuleNotFoundError: ModuleNotFoundErrorNo module named 'a'")
            + "ModuleNotFoundError: No module named 'a'\n",
            "module-missing",
        ),
        (RAISED.format("KeyError: 'b'") + "ModuleNotFoundError: No module named 'a'\n", "exception"),
    ],
)
def test_exceptions_of_ranks_that_write_into_each_other_are_one(tmp_path: Path, text: str, cause: str) -> None:
    found = told(tmp_path, text)
    assert found["cause"] == cause


@pytest.mark.parametrize(
    ("before", "cause"), [("", "exception"), ('  File "/job/runpytorch/tools.py", line 3, in work\n', "none")]
)
def test_what_python_m_starts_has_its_top_level_below_runpy(tmp_path: Path, before: str, cause: str) -> None:
    """More may stand behind an exception at the top level of a program than behind one of a thread."""
    runpy = '  File "/usr/lib/python3.10/runpy.py", line 196, in _run_module_as_main\n    return _run_code(\n'
    raised = f"Traceback (most recent call last):\n{before or runpy}"
    raised += '  File "/job/train.py", line 9, in <module>\n    main()\nValueError: no desk\n'
    assert told(tmp_path, "Training completed\n" + raised + CALM * 15)["cause"] == cause


def test_a_place_is_that_of_the_exception_and_not_of_who_passed_it_on(tmp_path: Path) -> None:
    """torch.multiprocessing.spawn shows what a process raised in the message of the exception of its parent."""
    parent = 'Traceback (most recent call last):\n  File "/job/train.py", line 494, in <module>\n    mp.spawn(\n'
    text = f"{parent}torch.multiprocessing.spawn.ProcessRaisedException: \n\n-- Process 0 terminated with the "
    found = told(tmp_path, f"{text}following error:\nOSError: [Errno 5] Input/output error\n")
    assert (found["cause"], "raised at" in found["what"]) == ("io-error", False)


def of_rank(rank: int, text: str) -> str:
    return "".join(f"[rank{rank}]: {line}\n" for line in text.splitlines())


def test_a_chain_further_below_is_another_one(tmp_path: Path) -> None:
    frame = '  File "/job/a.py", line 1, in main\n    a()'
    chain = f"{BEGIN}\n{frame}\nKeyError: 'second'\n{DURING}{BEGIN}\n{frame}\nOSError: third"
    notes = "".join(f"[rank1]: note {word}\n" for word in ("one", "two", "three", "four"))
    found = told(tmp_path, of_rank(0, f"{BEGIN}\n{frame}\nValueError: first") + notes + of_rank(0, chain))
    assert found["what"] == "the program raised ValueError: first, at /job/a.py:1 in main, on rank 0"


def test_a_chain_that_a_rank_handled_goes_on_behind_another_rank(tmp_path: Path) -> None:
    frame = '  File "/job/a.py", line 1, in main\n    a()'
    handled = f"WARNING tracker failed, falling back to files\n{BEGIN}\n{frame}\nKeyError: 'host'"
    also = of_rank(1, handled)
    text = of_rank(0, handled) + also + of_rank(0, f"{DURING}{BEGIN}\n{frame}\nOSError: refused")
    assert told(tmp_path, f"{text}a note\nanother note\n")["cause"] == "unknown"


def test_a_line_below_is_not_the_one_above(tmp_path: Path) -> None:
    frame = '  File "/job/a.py", line 1, in <module>\n    a()'
    raised = of_rank(1, f"{BEGIN}\n{frame}\nValueError: bad batch")
    text = f"launching 2 ranks\n{raised}" + of_rank(
        0, "step 1\nWARNING could not push metrics, falling back to local files"
    )
    assert told(tmp_path, text)["cause"] == "exception"
