"""Run torchrun with one change: the agent on the main host exits last.

At the end all agents wait for each other at a barrier in a store that the main host's agent serves. torchrun's own main
agent exits as soon as the last agent has arrived, before that one has its answer. The last agent then logs 45 lines of
DistNetworkError and exits with 0, so a job that succeeded looks like one that failed.
"""

import runpy
import sys
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

SECONDS = 5  # limit of the wait for agents that have already exited


def leaving(meet: Callable[[Any], None]) -> Callable[[Any], None]:
    """Extend the agent's exit barrier: the main agent also waits until all others have set a key as their last step."""

    def leave(agent: Any) -> None:
        meet(agent)
        group = agent._worker_group
        keys = [f"trainwright/left/{number}" for number in range(1, group.group_world_size)]
        with suppress(Exception):  # only the order in which agents exit depends on it
            if group.group_rank:
                agent._store.set(keys[group.group_rank - 1], "")
            elif keys:
                agent._store.wait(keys, timedelta(seconds=SECONDS))

    return leave


if __name__ == "__main__":
    sys.path[0] = str(Path.cwd())  # as under `python -m`; the launcher's modules must not be importable by the agent
    with suppress(ImportError, AttributeError):  # a later torchrun may be built differently: it then runs unchanged
        from torch.distributed.elastic.agent.server.api import SimpleElasticAgent  # type: ignore[import-not-found]

        SimpleElasticAgent._exit_barrier = leaving(SimpleElasticAgent._exit_barrier)
    runpy.run_module("torch.distributed.run", run_name="__main__", alter_sys=True)
