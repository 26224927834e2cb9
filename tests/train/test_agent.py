"""torchrun's agents on real torch: the one that comes last to their meeting finds the store there until it has left."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
AGENT = "/opt/trainwright/launcher/agent.py"
# Between an agent's last word and its waiting for the answer, as on a host that is busy.
LATE = """
import time
import torch.distributed.elastic.utils.store as store
real = store._barrier_nonblocking
def late(store, world_size, key_prefix):
    key = real(store, world_size, key_prefix)
    time.sleep(3)
    return key
store._barrier_nonblocking = late
"""
BOTH = """
agent() {
  /opt/venv/bin/python -B AGENT --nnodes=2 --nproc-per-node=1 --node-rank=$1 --master-addr=127.0.0.1 \
    --master-port=7777 --no-python sleep $2
}
agent 0 0 &
PYTHONPATH=/late agent 1 2 || exit 1
wait $!
"""


@pytest.mark.component("torch")
def test_a_job_that_succeeds_ends_without_an_error(run: Callable[..., Any]) -> None:
    files = {AGENT: (ROOT / f"dockerfiles/rootfs/common{AGENT}").read_bytes(), "/late/sitecustomize.py": LATE.encode()}
    outcome = run(["/bin/bash", "-c", BOTH.replace("AGENT", AGENT)], files, ())
    assert outcome.code == 0, outcome.logs
    assert "DistNetworkError" not in outcome.logs
    assert "Error waiting on exit barrier" not in outcome.logs
