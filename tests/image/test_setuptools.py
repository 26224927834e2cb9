"""setuptools: what torch.compile and people's own extensions import from it."""

from typing import Any

import pytest

pytestmark = pytest.mark.component("setuptools")


@pytest.mark.component("torch")
def test_torch_finds_what_builds_extensions(host: Any) -> None:
    said = host.check_output("python -c 'from torch.utils import cpp_extension; print(cpp_extension.BuildExtension)'")
    assert said == "<class 'torch.utils.cpp_extension.BuildExtension'>"
