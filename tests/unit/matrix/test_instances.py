"""Test that instances of accelerators without our software are refused by every command that takes an instance type."""

import re
from pathlib import Path
from typing import Any

import pytest
from hosts import LOGS, ROOT

LOG = str(LOGS / "07_ok_p4d_2node_efa_old_error_column_interleaved_log.txt")
PLACE = ["--role", "arn:aws:iam::123456789012:role/train", "--output", "s3://example-bucket/jobs"]
IMAGE, SCRIPT = "registry.example.com/x:1", "docs/examples/checkpoint.py"
COMMANDS = {
    "emit": ["emit", IMAGE, SCRIPT, "--on", "slurm"],
    "gate": ["gate", IMAGE, "--on", "kubernetes", "--nodes", "2", "--dry-run"],
    "launch": ["launch", IMAGE, SCRIPT, *PLACE, "--dry-run"],
    "estimate": ["estimate", "--parameters", "7B"],
    "judge": ["judge", LOG, "--nodes", "2"],
    "list": ["list"],
    "uri": ["uri", "pytorch-2.13-cpu-py311-sagemaker"],
}


@pytest.mark.parametrize("name", ["trn1.32xlarge", "ml.trn2.48xlarge", "inf2.48xlarge", "trn1.2xlarge"])
@pytest.mark.parametrize("command", COMMANDS)
def test_neuron_instances_are_refused(cli: Any, command: str, name: str) -> None:
    """Also one without a row in the table (inf2), and one that SageMaker trains on (ml.trn2)."""
    ended = cli(ROOT, *COMMANDS[command], "--instance", name)
    said = re.sub(r"\s+", " ", ended.err)
    assert (ended.code, ended.out) == (2, "")
    assert f"{name.removeprefix('ml.')} has AWS Neuron devices, which no image of this project can use" in said
    assert "these images hold no Neuron stack" in said
    assert "https://github.com/aws-neuron/deep-learning-containers" in said


def test_no_row_of_the_matrix_is_for_them(cli: Any, few: Path, edit: Any) -> None:
    """The table describes trn1, so that only what is known of its family refuses it."""
    edit(few / "dockerfiles/matrix.toml", r'^instances = \["', 'instances = ["trn1.32xlarge", "')
    ended = cli(few, "list")
    assert (ended.code, ended.out) == (2, "")
    assert "trn1.32xlarge has AWS Neuron devices, which no image of this project can use" in re.sub(
        r"\s+", " ", ended.err
    )
    assert re.search(r"dockerfiles/matrix\.toml:\d+", ended.err)
