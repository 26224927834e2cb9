"""NumPy: linear algebra that calls its own BLAS, and memory that the framework shares instead of copying."""

from typing import Any

import pytest

pytestmark = pytest.mark.component("numpy")


def test_solves_a_system(host: Any) -> None:
    code = (
        "import numpy; a = numpy.eye(500) * 2; print(abs(numpy.linalg.solve(a, numpy.ones(500)) - 0.5).max() < 1e-12)"
    )
    assert host.check_output(f"python -W error -c '{code}'") == "True"


@pytest.mark.component("torch")
def test_framework_shares_its_memory(host: Any) -> None:
    code = "import numpy, torch; a = numpy.zeros(3); torch.from_numpy(a)[1] = 7; print(a[1])"
    assert host.check_output(f"python -W error -c '{code}'") == "7.0"
