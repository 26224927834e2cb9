"""TensorFlow does what people take it for: it imports quietly, learns with and without XLA, and over processes."""

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from trainwright.image.inputs import Inputs

pytestmark = pytest.mark.component("tensorflow")

# What the library logs at each start, whatever the image holds: expression = why it is no warning.
KNOWN = {
    r"^WARNING: All log messages before absl::InitializeLog\(\) is called are written to STDERR$": "its log's own",
    r"^I0000 .* oneDNN custom operations are on\.": "information: how numbers are rounded",
    r"^I0000 .* optimized to use available CPU instructions": "information: of the machine, not of the image",
    r"^E0000 .* failed call to cuInit: ": "there is no driver where an image is proved",
    r"^To enable the following instructions: [A-Z0-9_ ]+,": "its second line",
}


def unexpected(stderr: str) -> list[str]:
    return [line for line in stderr.splitlines() if not any(re.search(known, line) for known in KNOWN)]


def test_import_without_a_warning(host: Any) -> None:
    result = host.run("python -W error -c 'import tensorflow, keras; tensorflow.ones(2).numpy()'")
    assert (result.rc, result.stdout, unexpected(result.stderr)) == (0, "", [])


@pytest.mark.long(seconds=5)
def test_step_learns_and_xla_agrees(host: Any, programs: str) -> None:
    result = json.loads(host.check_output(f"python {programs}/tensorflow_step.py"))
    assert result["gpus"] == 0, "there is no GPU here"
    assert result["weights"] == pytest.approx([1.0, -2.0, 0.5], abs=1e-3)
    assert result["xla_error"] < 1e-5
    assert result["gradient_error"] < 1e-4


@pytest.mark.long(seconds=5)
def test_two_workers_all_reduce(host: Any, programs: str) -> None:
    """As on two hosts: TF_CONFIG, and sums that both workers see."""
    workers = "127.0.0.1:12345 127.0.0.1:12346"
    started = " & ".join(f"timeout 150 python {programs}/tensorflow_workers.py {rank} {workers}" for rank in (0, 1))
    printed = host.check_output(f"{started} & wait")
    assert sorted(printed.splitlines()) == [f"rank {rank} of 2: 3.0 3.0 1.5000" for rank in (0, 1)]


@pytest.mark.parametrize("asked", ["tensorflow", "tensorflow-cpu"])
def test_neither_name_lets_another_one_in(host: Any, declared: Inputs, asked: str) -> None:
    """The package for CPUs and the one for GPUs lay the same files: a job that names either keeps what was proved."""
    own = "tensorflow-cpu" if declared.variant.accelerator == "cpu" else "tensorflow"
    result = host.run(f"pip install --no-index --dry-run {asked}==2.20.0")
    assert result.rc != 0
    refusal = f"{asked}=={declared.pins['tensorflow']}" if asked == own else f"{asked}<0"
    assert f"The user requested (constraint) {refusal}" in result.stdout + result.stderr


def test_keras_is_that_of_the_lock(host: Any, declared: Inputs) -> None:
    """TensorFlow takes any Keras from 3.12 on: which one is in the lock, not in the hands of a job."""
    locked = {entry.name: entry.version for entry in declared.lock.python}
    code = "import keras, tensorflow; print(keras.__version__, tensorflow.keras.__version__)"
    assert host.check_output(f"python -c '{code}'").split() == [locked["keras"]] * 2


@pytest.mark.component("cuda")
def test_code_for_the_fleet(
    host: Any, programs: str, declared: Inputs, lacking: Callable[[list[str]], list[str]]
) -> None:
    library = f"/opt/venv/lib/python{declared.variant.python}/site-packages/tensorflow/libtensorflow_cc.so.2"
    built = json.loads(host.check_output(f"python {programs}/architectures.py {library}"))[library]["sass"]
    assert lacking(built) == [], built
