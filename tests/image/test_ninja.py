"""ninja builds what it is told."""

from typing import Any

import pytest

pytestmark = pytest.mark.component("ninja")


def test_builds(host: Any) -> None:
    rule = "rule made\\n  command = echo made > $out\\nbuild out: made\\n"
    said = host.run(
        f"d=$(mktemp -d) && cd $d && printf '{rule}' > build.ninja && ninja && cat out; r=$?; rm -r $d; exit $r"
    )
    assert said.rc == 0, said.stdout + said.stderr
    assert said.stdout.endswith("made\n")
