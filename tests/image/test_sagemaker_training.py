"""The SageMaker toolkit and our launch module, before any job runs; tests/train runs them."""

from typing import Any

import pytest

pytestmark = pytest.mark.component("sagemaker-training")


def test_train_is_ours_and_calls_the_toolkits(host: Any) -> None:
    assert host.check_output("command -v train") == "/opt/trainwright/bin/train"
    assert "sagemaker_training.cli.train" in host.file("/opt/trainwright/bin/train").content_string
    assert "sagemaker_training" in host.file("/opt/venv/bin/train").content_string


def test_launch_module_is_called(host: Any) -> None:
    """`module:function`, as the toolkit looks it up."""
    module, function = host.check_output("printenv SAGEMAKER_TRAINING_MODULE").split(":")
    assert host.run(f"python -c 'from {module} import {function}'").rc == 0


def test_hostname_shim_is_there(host: Any) -> None:
    """The toolkit preloads it into MPI ranks; it is the one compiled part of it."""
    assert host.check_output("python -c 'import gethostname; print(gethostname.__file__)'").endswith(".so")


def test_bash_reads_what_the_sdk_needs_and_says_nothing(host: Any) -> None:
    """Version 3 of the SDK starts bash in place of `train`; every other bash is to be as it was."""
    assert host.check_output("printenv BASH_ENV") == "/opt/trainwright/sdk/start.sh"
    found = host.run("bash -c 'set -u; trap; command -v python3; echo ${script-none}'")
    assert (found.stdout.split(), found.stderr) == (["/opt/venv/bin/python3", "none"], "")
