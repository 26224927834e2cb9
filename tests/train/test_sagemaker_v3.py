"""What version 3 of SageMaker's SDK starts in place of `train`, on one host: bash, with a script of the SDK's."""

from collections.abc import Callable
from typing import Any

import pytest

pytestmark = pytest.mark.component("sagemaker-training")
TRAIN = "/opt/ml/input/data/sm_drivers/sm_train.sh"
DRIVER = "/opt/ml/input/data/sm_drivers/distributed_drivers/basic_script_driver.py"
OUTPUT = {"/opt/ml/output/data/.keep": b""}
COMMAND = ["/bin/bash", "-c", f"chmod +x {TRAIN} && {TRAIN}"]


def test_a_stop_before_the_script_ends_the_job(run: Callable[..., Any]) -> None:
    """While pip installs what a job wants, for instance: who starts the launcher is stopped with all that it runs."""
    script = (
        "python3 -c 'import os, signal; os.kill(1, signal.SIGTERM)'\nsleep 600\n: /sm_drivers/distributed_drivers/\n"
    )
    outcome = run(COMMAND, {TRAIN: script.encode()})
    assert outcome.code == 143, outcome.logs


@pytest.mark.parametrize(("code", "says"), [(0, ""), (3, "exit code 3")])
def test_a_command_is_a_job_of_the_launcher(run: Callable[..., Any], code: int, says: str) -> None:
    """SourceCode(command=...): no driver of the SDK's is called."""
    outcome = run(COMMAND, {TRAIN: f"echo trained; python3 -c 'raise SystemExit({code})'".encode(), **OUTPUT})
    assert outcome.code == code, outcome.logs
    assert "trained" in outcome.logs
    assert "matches its declaration" in outcome.logs
    assert says in outcome.failure


def test_drivers_of_the_sdk_are_the_users_choice(run: Callable[..., Any]) -> None:
    files = {**OUTPUT, TRAIN: f"python3 {DRIVER}".encode(), DRIVER: b"print('not ours')"}
    outcome = run(COMMAND, files, environment={"TRAINWRIGHT_SDK_DRIVERS": "own"})
    assert outcome.code == 0, outcome.logs
    assert "not ours" in outcome.logs
    outcome = run(COMMAND, files)
    assert outcome.code != 0
    assert "not ours" not in outcome.logs
    assert "TRAINWRIGHT_SDK_DRIVERS=own" in outcome.failure  # nothing says here what to start
