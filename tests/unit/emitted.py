"""Provide what tests of `trainwright emit` share: an image, schedulers, and readers of the emitted files."""

from collections.abc import Callable
from typing import Any

import yaml

from trainwright.jobs import schedulers

DIGEST = "sha256:" + "5" * 64
IMAGE = f"123456789012.dkr.ecr.us-east-1.amazonaws.com/trainwright/pytorch@{DIGEST}"
KUBERNETES = tuple(name for name in schedulers.NAMES if schedulers.named(name).KUBERNETES)
SLURM = ("slurm", "hyperpod-slurm")
Emit = Callable[..., Any]
Json = dict[str, Any]
TWO = ("--nodes", "2", "--instance", "p5.48xlarge")


def documents(ended: Any) -> list[Json]:
    assert ended.code == 0, ended.err
    return list(yaml.safe_load_all(ended.out))


def pods(job: Json) -> list[Json]:
    replicas = next(value for key, value in job["spec"].items() if key.endswith("ReplicaSpecs"))
    return [replica["template"]["spec"] for replica in replicas.values()]
