"""cmake configures a CUDA project."""

from typing import Any

import pytest

pytestmark = pytest.mark.component("cmake")


def test_configures_a_cuda_project(host: Any) -> None:
    lists = "cmake_minimum_required(VERSION 3.20)\\nproject(example CUDA)\\n"
    folder = "/tmp/test-cmake"
    said = host.run(
        f"mkdir {folder} && printf '{lists}' > {folder}/CMakeLists.txt && cmake -G Ninja -S {folder} -B {folder}/build"
    )
    assert said.rc == 0, said.stdout + said.stderr
    assert "Check for working CUDA compiler" in said.stdout
