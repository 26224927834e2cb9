"""torchrun, whose agent on the main host leaves last.

All agents meet once their ranks are done, in a store that lives in the agent of the main host. torchrun's own leaves as
soon as the last one has come, before that one has its answer; which then logs 45 lines of DistNetworkError and ends
with 0, so that a job that succeeded looks like one that failed.
"""

import runpy
import sys
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

SECONDS = 5  # for hosts that are gone already


def leaving(meet: Callable[[Any], None]) -> Callable[[Any], None]:
    """The agent's own meeting, and after it a word of each to the main host, which needs no answer."""

    def leave(agent: Any) -> None:
        meet(agent)
        group = agent._worker_group
        keys = [f"trainwright/left/{number}" for number in range(1, group.group_world_size)]
        with suppress(Exception):  # nothing but the order in which agents leave depends on it
            if group.group_rank:
                agent._store.set(keys[group.group_rank - 1], "")
            elif keys:
                agent._store.wait(keys, timedelta(seconds=SECONDS))

    return leave


if __name__ == "__main__":
    sys.path[0] = str(Path.cwd())  # as `python -m` has it: the modules beside this one are not the agent's
    with suppress(ImportError, AttributeError):  # a torchrun that is made in another way: it works as it does
        from torch.distributed.elastic.agent.server.api import SimpleElasticAgent  # type: ignore[import-not-found]

        SimpleElasticAgent._exit_barrier = leaving(SimpleElasticAgent._exit_barrier)
    runpy.run_module("torch.distributed.run", run_name="__main__", alter_sys=True)
