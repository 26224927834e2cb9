"""JAX does what people take it for: it imports quietly, compiles a step that learns, and reduces over processes."""

import json
from typing import Any

import pytest

pytestmark = pytest.mark.component("jax")


def test_import_without_a_warning(host: Any) -> None:
    result = host.run("python -W error -c 'import jax, jax.numpy; jax.numpy.ones(2).sum().block_until_ready()'")
    assert (result.rc, result.stdout, result.stderr) == (0, "", "")


def test_compiled_step_learns(host: Any, programs: str) -> None:
    result = json.loads(host.check_output(f"python {programs}/jax_step.py"))
    assert result["platform"] == "cpu", "there is no GPU here"
    assert result["last"] < 1e-6 < result["first"]
    assert result["weights"] == pytest.approx([1.0, -2.0, 0.5], abs=1e-3)
    assert result["gradient_error"] < 1e-4


def test_two_processes_all_reduce(host: Any, programs: str) -> None:
    """As on two hosts: a coordinator, and gloo, as there is no GPU. Gloo writes its own lines to stdout in parts."""
    program = f"timeout 100 python {programs}/jax_all_reduce.py"
    started = " & ".join(f'printf "%s\\n" "$({program} {rank} 2 127.0.0.1:8476)"' for rank in (0, 1))
    printed = host.check_output(f"{started} & wait").splitlines()
    assert sorted(line for line in printed if not line.startswith("[Gloo]")) == [
        f"rank {rank} of 2, 2 devices: 3.0 3.0 3.0" for rank in (0, 1)
    ]
