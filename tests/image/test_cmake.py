"""cmake configures a CUDA project."""

from typing import Any

import pytest

pytestmark = pytest.mark.component("cmake")

PROJECT = """
cmake_minimum_required(VERSION 3.20)
project(example CUDA)
"""


def test_configures_a_cuda_project(host: Any) -> None:
    said = host.run(
        "d=$(mktemp -d) && cat > $d/CMakeLists.txt <<'END'\n%s\nEND\ncmake -S $d -B $d/b -G Ninja; r=$?; rm -r $d; exit $r"
        % PROJECT
    )
    assert said.rc == 0, said.stdout + said.stderr
    assert "Check for working CUDA compiler" in said.stdout
