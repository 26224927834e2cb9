"""PyTorch does what people take it for: it imports quietly, compiles, and reduces over ranks."""

import json
import re
from typing import Any

import pytest

pytestmark = pytest.mark.component("torch")


def test_import_without_a_warning(host: Any) -> None:
    """And NumPy, whose memory it shares instead of copying it."""
    code = "import numpy, torch; a = numpy.zeros(3); torch.from_numpy(a)[1] = 7; print(a[1])"
    result = host.run(f"python -W error -c '{code}'")
    assert (result.rc, result.stdout.strip(), result.stderr) == (0, "7.0", "")


@pytest.mark.long(seconds=11)
def test_compiled_step_equals_eager(host: Any, programs: str) -> None:
    result = json.loads(host.check_output(f"python {programs}/compiled_step.py"))
    if result["instructions"] != "DEFAULT":  # the processor has a set that PyTorch uses
        assert result["vectorized"], f"inductor did not use {result['instructions']}"
    assert result["error"] < 1e-5


@pytest.mark.long(seconds=3)
def test_two_ranks_all_reduce(host: Any, programs: str) -> None:
    printed = host.check_output(f"torchrun --standalone --nproc-per-node 2 {programs}/all_reduce.py")
    said = re.findall("rank . of .*", printed)  # PyTorch 2.10's Gloo prints its connections, too
    assert sorted(said) == ["rank 0 of 2: 3.0 3.0", "rank 1 of 2: 3.0 3.0"]
