"""The ended Training Compiler: a job asks for it by hyperparameters, and the log says whether it got it.

Never run where this was written: its containers could not be had.
"""

import json
from typing import Any

import pytest

pytestmark = pytest.mark.component("training-compiler")


def test_a_job_that_asks_for_it_gets_it(host: Any, expected: dict[str, Any]) -> None:
    """One of the two lines alone means that it was asked for and is not at work."""
    said = expected["training-compiler"]
    config = "/opt/ml/input/config"
    for name, value in {
        "hyperparameters": said["hyperparameters"],
        "inputdataconfig": {},
        "resourceconfig": {"current_host": "algo-1", "hosts": ["algo-1"]},
    }.items():
        host.check_output(f"mkdir -p {config} && printf %s '{json.dumps(value)}' > {config}/{name}.json")
    host.check_output("mkdir -p /opt/ml/code && echo 'print(1)' > /opt/ml/code/train.py")
    log = host.run("SAGEMAKER_PROGRAM=train.py train")
    for line in said["log"]:
        assert line in log.stdout + log.stderr
