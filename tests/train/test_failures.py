"""A job that fails says so, and why: the script's own exit code, and the reason where the platform looks for it."""

from collections.abc import Callable
from typing import Any

import pytest

pytestmark = pytest.mark.component("sagemaker-training")
SHOWN = 1024  # what SageMaker makes FailureReason of
RAISES = "raise ValueError('the data is upside down')"
KILLS = "import os; os.kill(os.getpid(), 9)"


@pytest.mark.parametrize(
    ("script", "text", "code", "says"),
    [
        pytest.param("train.py", RAISES, 1, "\nValueError: the data is upside down\n", id="raises"),
        pytest.param("train.py", "import sys; sys.exit(3)", 3, "algo-1: exit code 3\n", id="exit-3"),
        pytest.param("train.py", KILLS, 137, "algo-1: exit code 137 (SIGKILL)\n", id="killed"),
        pytest.param("train.sh", "exit 7", 7, "algo-1: exit code 7\n", id="shell-exit-7"),
        pytest.param("absent.py", "", 1, "absent.py", id="missing-script"),
        pytest.param("../train.py", "", 1, "train.py", id="outside-the-folder"),
    ],
)
def test_failure_is_readable(job: Callable[..., Any], script: str, text: str, code: int, says: str) -> None:
    outcome = job(script, {script: text} if text else {"other.py": "print()"})
    assert outcome.code == code, outcome.logs
    assert says in outcome.failure[:SHOWN]
    if text:
        assert outcome.failure.startswith(f"algo-1: exit code {code}")
    assert "/opt/ml/output/success" not in outcome.files


def test_requirements_cannot_move_what_was_proved(job: Callable[..., Any], held: list[str]) -> None:
    """A job that asks for another version of the framework ends before it trains."""
    for package in held:
        outcome = job(
            "train.py", {"train.py": "print('trained')", "requirements.txt": f"--no-index\n{package}==0.0.1\n"}
        )
        assert outcome.code == 1
        assert "trained" not in outcome.logs
        assert f"The user requested (constraint) {package}" in outcome.logs
        assert "requirements.txt cannot be installed" in outcome.failure[:SHOWN]
        assert f"The user requested (constraint) {package}" in outcome.failure[:SHOWN]


def test_an_index_that_does_not_answer_is_no_conflict(job: Callable[..., Any]) -> None:
    """To pip such an index has no version of anything: the reason is the connection."""
    wanted = "--index-url https://127.0.0.1:1/simple\ntrainwright-nosuch==1\n"
    outcome = job("train.py", {"train.py": "print('trained')", "requirements.txt": wanted})
    assert outcome.code == 1
    assert "constraint" not in outcome.failure
    assert "connection broken" in outcome.failure[:SHOWN]


def test_folder_that_lacks_everything(run: Callable[..., Any]) -> None:
    """A mount by hand: the toolkit alone could not write why, and would exit with 0."""
    outcome = run(["train"], {"/opt/ml/code/train.py": b"print()"})
    assert outcome.code != 0
    assert "resourceconfig.json" in outcome.failure
