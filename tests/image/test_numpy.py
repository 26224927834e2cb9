"""NumPy: linear algebra that calls its own BLAS."""

from typing import Any

import pytest

pytestmark = pytest.mark.component("numpy")


def test_solves_a_system(host: Any) -> None:
    code = (
        "import numpy; a = numpy.eye(500) * 2; print(abs(numpy.linalg.solve(a, numpy.ones(500)) - 0.5).max() < 1e-12)"
    )
    assert host.check_output(f"python -W error -c '{code}'") == "True"
