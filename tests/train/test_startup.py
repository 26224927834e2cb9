"""After a job's requirements.txt and before its script: is this still the image that was proved?"""

from collections.abc import Callable
from typing import Any

import pytest
from wheel import wheel

pytestmark = [pytest.mark.component("sagemaker-training"), pytest.mark.component("numpy")]
SHOWN = 1024  # what SageMaker makes FailureReason of
DIFFERENT = 5  # what trainwright-check ends with
SCRIPT = "print('trained')"
PAST_CONSTRAINTS = {"PIP_CONFIG_FILE": "/dev/null"}  # a job may set what it likes, and pip believes it


def code(*lines: str, **wheels: bytes) -> dict[str, str | bytes]:
    """A script, its requirements.txt, and wheels that lie beside it."""
    return {"train.py": SCRIPT, "requirements.txt": "\n".join(["--no-index", *lines, ""]), **wheels}


def with_wheel(name: str, version: str, content: str = "") -> dict[str, str | bytes]:
    file, packed = wheel(name, version, content=content)
    return code(f"./{file}", **{file: packed})


def test_a_harmless_requirement(job: Callable[..., Any]) -> None:
    outcome = job("train.py", with_wheel("harmless", "1.0"))
    assert outcome.code == 0, outcome.logs
    assert "added to the image: harmless 1.0" in outcome.logs
    assert "matches its declaration" in outcome.logs
    assert outcome.logs.index("matches its declaration") < outcome.logs.rindex("trained")


def test_a_wheel_by_its_path_is_held_by_the_constraints_too(job: Callable[..., Any]) -> None:
    outcome = job("train.py", with_wheel("numpy", "0.1"))
    assert outcome.code == 1
    assert "trained" not in outcome.logs
    assert "The user requested (constraint) numpy==" in outcome.failure[:SHOWN]


@pytest.fixture
def moved() -> dict[str, str | bytes]:
    return with_wheel("numpy", "0.1", content="__version__ = '0.1'\n")


def test_what_slips_past_the_constraints(job: Callable[..., Any], moved: dict[str, str | bytes]) -> None:
    outcome = job("train.py", moved, environment=PAST_CONSTRAINTS)
    assert outcome.code == DIFFERENT, outcome.logs
    assert "\ntrained" not in outcome.logs
    assert "Python package numpy: declared " in outcome.failure[:SHOWN]
    assert ", found 0.1 (/opt/venv/" in outcome.failure[:SHOWN]
    assert "Traceback" not in outcome.failure


def test_warned_of_what_slips_past(job: Callable[..., Any], moved: dict[str, str | bytes]) -> None:
    environment = {**PAST_CONSTRAINTS, "TRAINWRIGHT_STARTUP_CHECK": "warn"}
    outcome = job("train.py", moved, environment=environment)
    assert outcome.code == 0, outcome.logs
    assert "WARNING: this container differs from " in outcome.logs
    assert "Python package numpy: declared " in outcome.logs


def test_a_module_beside_the_script_that_hides_the_images_own(job: Callable[..., Any]) -> None:
    outcome = job("train.py", {"train.py": SCRIPT, "numpy.py": "__version__ = '0.1'"})
    assert outcome.code == DIFFERENT, outcome.logs
    assert "module numpy: declared " in outcome.failure[:SHOWN]
    assert "/opt/ml/code/numpy.py" in outcome.failure[:SHOWN]
