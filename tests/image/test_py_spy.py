"""py-spy reads the stack of a Python process from outside."""

from typing import Any

import pytest

pytestmark = pytest.mark.component("py-spy")


def test_names_the_function_that_a_process_is_in(host: Any) -> None:
    """As its child, because a host may forbid to look at other processes (kernel.yama.ptrace_scope)."""
    code = "import time\\ndef waits():\\n    time.sleep(60)\\nwaits()\\n"
    watch = "py-spy record --duration 1 --idle --format raw --output /tmp/stacks -- python /tmp/waits.py"
    said = host.run(f"printf '{code}' > /tmp/waits.py && {watch}; cat /tmp/stacks; rm -f /tmp/waits.py /tmp/stacks")
    assert "waits (waits.py:3)" in said.stdout, said.stdout + said.stderr
