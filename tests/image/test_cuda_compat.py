"""A libcuda for hosts whose driver is below CUDA's floor: it is there, and the loader does not find it by itself."""

from typing import Any

import pytest

pytestmark = pytest.mark.component("cuda-compat")
FOLDER = "/usr/local/cuda/compat"


def test_library_lies_where_the_entrypoint_looks(host: Any) -> None:
    assert host.file(f"{FOLDER}/libcuda.so.1").exists


def test_no_newer_driver_is_shadowed(host: Any) -> None:
    assert "libcuda.so" not in host.check_output("ldconfig -p")
    assert host.check_output("printenv LD_LIBRARY_PATH || true") == ""


def test_a_shell_of_sshd_sets_the_path_as_the_entrypoint_does(host: Any) -> None:
    assert host.check_output("head -n 1 /etc/bash.bashrc") == ". /etc/profile.d/cuda-compat.sh"
