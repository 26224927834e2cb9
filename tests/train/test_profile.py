"""docs/examples/step_profile.py as a job: the trace of each rank comes back, and a table is said."""

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.component("sagemaker-training"), pytest.mark.component("torch")]
SCRIPT = Path(__file__).parents[2] / "docs/examples/step_profile.py"
STEPS = 3
LIMIT_SECONDS = 180


@pytest.mark.parametrize("hosts", [1, 2])
def test_every_rank_leaves_a_trace(image: str, tmp_path: Path, hosts: int) -> None:
    words = ["run", image, str(SCRIPT), "--output", str(tmp_path / "kept"), "--nodes", str(hosts)]
    words += ["--distribution", "torchrun"] if hosts > 1 else []
    command = [sys.executable, "-m", "trainwright.cli", *words]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_SECONDS, env=os.environ)
    said = ended.stdout + ended.stderr
    assert ended.returncode == 0, said
    assert "Self CPU %" in said
    for rank in range(hosts):
        file = tmp_path / f"kept/algo-{rank + 1}/output/data/trace-{rank}.json.gz"
        events = [event.get("name") for event in json.loads(gzip.decompress(file.read_bytes()))["traceEvents"]]
        assert events.count("forward") == STEPS
        assert ("gloo:all_reduce" in events) == (hosts > 1)
