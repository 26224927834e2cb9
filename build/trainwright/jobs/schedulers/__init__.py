"""One file for each scheduler of `emit`: mpijob.py is --on mpijob. A new scheduler is a new file here.

Each has STARTS (the distributions that it can start, its default first), KUBERNETES, HYPERPOD, `text(job)` for the file
and `commands(job, file)` for the commands that submit and follow it.
"""

from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

if TYPE_CHECKING:
    from trainwright.jobs.spec import Job

NAMES = sorted((path.stem.replace("_", "-") for path in Path(__file__).parent.glob("[a-z]*.py")), reverse=True)


class Scheduler(Protocol):
    STARTS: tuple[str, ...]
    KUBERNETES: bool
    HYPERPOD: bool

    def text(self, job: "Job") -> str: ...

    def commands(self, job: "Job", file: str) -> list[str]: ...


@cache
def named(on: str) -> Scheduler:
    """Return the scheduler of a valid name."""
    return cast(Scheduler, import_module(f"trainwright.jobs.schedulers.{on.replace('-', '_')}"))
