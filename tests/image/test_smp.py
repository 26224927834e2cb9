"""SageMaker's model parallel library v2, in the containers of AWS that hold it. Never run where this was written."""

from typing import Any

import pytest

pytestmark = pytest.mark.component("smp")


def test_it_is_there_for_pytorch(host: Any) -> None:
    assert host.check_output('python3 -c "import torch.sagemaker as tsm; print(callable(tsm.init))"') == "True"
