"""Read what several programs print that run at once."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from subprocess import Popen


def outputs(children: Sequence["Popen[str]"], seconds: float) -> list[tuple[str, str]]:
    """Return output and errors of each child; raise TimeoutExpired if one does not end.

    All pipes are read side by side: a child whose pipe is full waits, and another one may wait for that child.
    """
    with ThreadPoolExecutor(len(children)) as pool:
        return list(pool.map(lambda child: child.communicate(timeout=seconds), children))
