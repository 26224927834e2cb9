"""Support SageMaker's Training Compiler, which AWS discontinued: what enables it, and whether a log shows it enabled.

Facts: sagemaker-python-sdk src/sagemaker/training_compiler/config.py@280f6252 and
pytorch/training_compiler/config.py@c4971a35; awsdocs/amazon-sagemaker-developer-guide
doc_source/training-compiler-enable-*.md and -faq.md.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from trainwright.core.errors import ConfigError
from trainwright.matrix.model import Variant

COMPONENT = "training-compiler"  # in the pins of an image that extends one of its containers
ENABLED, DEBUG = "sagemaker_training_compiler_enabled", "sagemaker_training_compiler_debug_mode"
XLA = "sagemaker_pytorch_xla_multi_worker_enabled"  # the one distribution of its containers with PyTorch 1.12 and 1.13
FOUND = "Found configuration for Training Compiler"

State = Literal["on", "off", "unknown"]


def state(lines: Iterable[str], ended: bool = False) -> State:
    """Return the state from a job's log.

    A missing line means "off" only in a whole log, because its time is undocumented.
    """
    if any(FOUND in line for line in lines):
        return "on"
    return "off" if ended else "unknown"


def asked(hyperparameters: Mapping[str, str]) -> bool:
    """Return whether a job requested the compiler, by DescribeTrainingJob's hyperparameters."""
    return hyperparameters.get(ENABLED, "").strip('"').lower() == "true"


def hyperparameters(
    identity: str, variant: Variant | None, instance: str, families: Sequence[str], hosts: int, debug: bool
) -> dict[str, Any]:
    """Return the hyperparameters that enable it.

    `instance` is SageMaker's name, `families` those that the compiler knows.

    Raises ConfigError if the image does not extend the compiler's containers, because other images ignore these
    hyperparameters silently and would train without the compiler; and if the compiler does not know the instance type.
    """
    if variant is None or COMPONENT not in variant.pins:
        raise ConfigError(
            f"{identity} does not extend a container of the Training Compiler",
            where="--training-compiler",
            why="AWS discontinued it, and only containers from before then contain it; other images ignore "
            "its hyperparameters silently",
            fix="trainwright list '*-training-compiler', or launch without --training-compiler",
        )
    family = instance.removeprefix("ml.").partition(".")[0]
    if not any(family.startswith(one) for one in families):
        raise ConfigError(
            f"the Training Compiler does not support {instance}",
            where="--instance",
            why=f"it supports {', '.join(families)}",
            fix=f"use one of {', '.join(variant.instances)}",
        )
    found = {ENABLED: True, DEBUG: debug}
    return found | {XLA: True} if variant.framework == "pytorch" and hosts > 1 else found
