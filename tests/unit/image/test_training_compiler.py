"""Test the discontinued Training Compiler: only its own containers accept it, and a log shows whether it was on."""

import pytest

from trainwright.core.errors import ConfigError
from trainwright.image import training_compiler
from trainwright.matrix.matrix import Intent
from trainwright.matrix.model import Variant

FAMILIES = ["p3", "g4dn", "p4d", "g5"]
ID = "pytorch-1.13-cu117-py39-sagemaker-training-compiler"
LOG = ["bash: no job control in this shell", f"2026-11-22 INFO  {training_compiler.FOUND}", "epoch 1"]


def variant(intent: Intent, identity: str = ID) -> Variant:
    return next(one for one in intent.variants if one.id == identity)


@pytest.mark.parametrize(
    ("lines", "ended", "said"),
    [
        (LOG, False, "on"),
        (LOG, True, "on"),
        (LOG[:1], False, "unknown"),
        (LOG[:1] + LOG[2:], True, "off"),
        ([], True, "off"),
    ],
)
def test_only_a_whole_log_says_that_it_is_off(lines: list[str], ended: bool, said: str) -> None:
    assert training_compiler.state(lines, ended) == said


def test_what_switches_it_on(intent: Intent) -> None:
    one = training_compiler.hyperparameters(ID, variant(intent), "ml.p4d.24xlarge", FAMILIES, 1, False)
    assert one == {
        "sagemaker_training_compiler_enabled": True,
        "sagemaker_training_compiler_debug_mode": False,
    }
    two = training_compiler.hyperparameters(ID, variant(intent), "ml.p3dn.24xlarge", FAMILIES, 2, True)
    assert two == {
        "sagemaker_training_compiler_enabled": True,
        "sagemaker_training_compiler_debug_mode": True,
        "sagemaker_pytorch_xla_multi_worker_enabled": True,
    }


@pytest.mark.parametrize(
    ("said", "on"),
    [({}, False), ({training_compiler.ENABLED: "true"}, True), ({training_compiler.ENABLED: "false"}, False)],
)
def test_whether_a_job_was_started_with_it(said: dict[str, str], on: bool) -> None:
    assert training_compiler.asked(said) is on


def test_no_other_image_is_asked(intent: Intent) -> None:
    other = variant(intent, "pytorch-2.13-cpu-py311-sagemaker")
    for one in (other, None):
        with pytest.raises(ConfigError, match="does not extend a container") as raised:
            training_compiler.hyperparameters("it", one, "ml.p4d.24xlarge", FAMILIES, 1, False)
        assert "silently" in raised.value.why


def test_nor_an_instance_that_it_never_knew(intent: Intent) -> None:
    with pytest.raises(ConfigError, match=r"does not support ml\.p5"):
        training_compiler.hyperparameters(ID, variant(intent), "ml.p5.48xlarge", FAMILIES, 1, False)
