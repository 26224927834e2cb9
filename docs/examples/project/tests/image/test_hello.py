"""hello greets. `push` runs this on each image that pins the component, beside the tests that trainwright brings."""

from typing import Any

import pytest

pytestmark = pytest.mark.component("hello")


def test_greets(host: Any) -> None:
    assert host.check_output("/opt/team/bin/hello") == "hello 1.0"
