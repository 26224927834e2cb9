"""What of JAX is compiled: the devices it finds or is told to have, and its numbers."""

from typing import Any

import pytest

pytestmark = pytest.mark.component("jaxlib")


def test_a_process_finds_the_cpu(host: Any) -> None:
    code = "import jax; print(*[device.platform for device in jax.devices()])"
    assert host.check_output(f"python -c '{code}'") == "cpu"


def test_as_many_devices_as_asked_for(host: Any) -> None:
    """The way to try on one host what is meant for several GPUs."""
    code = "import jax; print(jax.device_count())"
    assert host.check_output(f"XLA_FLAGS=--xla_force_host_platform_device_count=4 python -c '{code}'") == "4"


def test_64_bit_numbers(host: Any) -> None:
    code = "import jax.numpy as jnp; print(jnp.float64(1) + 2.0**-40 > 1)"
    assert host.check_output(f"JAX_ENABLE_X64=1 python -c '{code}'") == "True"
