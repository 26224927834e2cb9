"""JAX's plugin for GPUs, without one: JAX takes it, and what XLA calls is of the CUDA that is declared."""

from typing import Any

import pytest

from trainwright.image.inputs import Inputs

pytestmark = pytest.mark.component("jax-cuda")
ACCEPTED = """
import jaxlib
from jax_cuda13_plugin import version
from jaxlib.plugin_support import check_plugin_version

print(check_plugin_version("jax_cuda13_plugin", jaxlib.__version__, version.__version__))
"""


def test_jax_takes_the_plugin(host: Any) -> None:
    """One of another release than jaxlib's would be left out with a warning: the job would compute on the CPU."""
    assert host.check_output("python -W error -c %s", ACCEPTED) == "True"


def test_assembler_is_of_this_cuda(host: Any, declared: Inputs) -> None:
    """The plugin's own requirement is a floor: a newer ptxas would make code for drivers that nobody declared."""
    major, minor = declared.pins["cuda"].split(".")[:2]
    tree = f"/opt/venv/lib/python{declared.variant.python}/site-packages/nvidia/cu{major}"
    assert f"release {major}.{minor}," in host.check_output(f"{tree}/bin/ptxas --version")


def test_a_job_that_asks_for_gpus_does_not_compute_on_the_cpu(host: Any) -> None:
    asks = "python -c 'import jax; print(jax.devices()[0].platform)'"
    assert host.check_output(f"JAX_PLATFORMS=cpu {asks}") == "cpu"
    assert host.run(f"JAX_PLATFORMS=cuda {asks}").rc != 0
