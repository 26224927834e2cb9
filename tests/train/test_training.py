"""The image trains: a real model learns real data, honours what the job says, and its model can be used again."""

import io
import json
from collections.abc import Callable
from typing import Any

import pytest

pytestmark = pytest.mark.component("sagemaker-training")
ACCURACY = 0.95  # of the held-back digits; seeds 0 to 9 reach 0.96 to 0.98, guessing 0.10
HYPERPARAMETERS = {"epochs": 25, "hidden-size": 48, "learning-rate": 0.003}


@pytest.fixture(scope="module")
def trained(job: Callable[..., Any], digits_script: Any, digits: Any) -> Any:
    return job("digits.py", digits_script, HYPERPARAMETERS, digits)


@pytest.fixture(scope="module")
def metrics(trained: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(trained.files["/opt/ml/output/data/metrics.json"])
    return found


def test_job_succeeds(trained: Any) -> None:
    assert trained.code == 0, trained.logs
    assert "/opt/ml/output/success" in trained.files
    assert "/opt/ml/output/failure" not in trained.files


def test_model_learns(metrics: dict[str, Any]) -> None:
    assert metrics["accuracy"] >= ACCURACY


def test_hyperparameters_reach_the_script(trained: Any, metrics: dict[str, Any]) -> None:
    assert metrics["epochs"] == HYPERPARAMETERS["epochs"]
    assert f"epoch {HYPERPARAMETERS['epochs'] - 1}:" in trained.logs


def test_channels_reach_the_script(metrics: dict[str, Any], digits: Any) -> None:
    import numpy

    with numpy.load(io.BytesIO(digits["training"]["digits-train.npz"])) as data:
        assert metrics["images"] == len(data["labels"])


def test_model_can_be_used_again(
    trained: Any, metrics: dict[str, Any], run: Callable[..., Any], digits_script: Any, digits: Any
) -> None:
    """In a container of its own, and it is the network that was asked for."""
    model = {path: content for path, content in trained.files.items() if path.startswith("/opt/ml/model/")}
    assert model
    files = model | {
        "/tmp/job/test.npz": digits["test"]["digits-test.npz"],
        "/tmp/job/digits.py": digits_script["digits.py"].encode(),
    }
    code = """
import pathlib, sys
sys.path.insert(0, "/tmp/job")
import digits
print(*digits.saved(pathlib.Path("/opt/ml/model"), pathlib.Path("/tmp/job/test.npz")))
"""
    again = run(["python", "-c", code], files, keep=())
    assert again.code == 0, again.logs
    size, accuracy = again.logs.splitlines()[-1].split()
    assert int(size) == HYPERPARAMETERS["hidden-size"]
    assert float(accuracy) == pytest.approx(metrics["accuracy"], abs=1e-6)


def test_it_would_not_learn_from_nothing(job: Callable[..., Any], digits_script: Any, digits: Any) -> None:
    """The accuracy above is learnt: no epoch, no accuracy."""
    outcome = job("digits.py", digits_script, {"epochs": 0}, digits)
    assert outcome.code == 0, outcome.logs
    assert json.loads(outcome.files["/opt/ml/output/data/metrics.json"])["accuracy"] < 0.5
