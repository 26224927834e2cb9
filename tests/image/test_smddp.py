"""SageMaker's data parallel library, in the containers of AWS that hold it. Never run where this was written."""

from typing import Any

import pytest

pytestmark = pytest.mark.component("smddp")


def test_pytorch_knows_its_backend(host: Any) -> None:
    """Importing it registers `smddp` with torch.distributed; a job asks for it by that name."""
    code = "import smdistributed.dataparallel.torch.torch_smddp, torch.distributed as d; print(d.Backend.backend_list)"
    assert "smddp" in host.check_output(f'python3 -c "{code}"')
