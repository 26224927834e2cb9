"""A container as testinfra sees it, asked by one process in it: a `docker exec` for each command costs more than most
of them do.
"""

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import testinfra
from testinfra.backend import base

# In the container: a command for each line, and its answer. Each gets what `docker exec` would give it: the environment
# as it was before Python came, no input, and a session of its own.
PROGRAM = """
import json, subprocess, sys
with open("/proc/self/environ", "rb") as file:
    environment = dict(pair.split(b"=", 1) for pair in file.read().split(b"\\0") if pair)
for line in sys.stdin:
    done = subprocess.run(
        ["/bin/sh", "-c", json.loads(line)],
        stdin=subprocess.DEVNULL, capture_output=True, env=environment, start_new_session=True,
    )
    said = [done.stdout.decode("latin-1"), done.stderr.decode("latin-1")]
    print(json.dumps([done.returncode if done.returncode >= 0 else 128 - done.returncode, *said]), flush=True)
"""


class Inside(base.BaseBackend):  # type: ignore[misc] # it has no types
    """Runs commands where `process` runs PROGRAM."""

    NAME = "inside"

    def __init__(self, name: str, process: "subprocess.Popen[str]") -> None:
        super().__init__(name)
        self.process = process

    def run(self, command: str, *args: str, **_: Any) -> base.CommandResult:
        told = self.get_command(command, *args)
        asked, answers = self.process.stdin, self.process.stdout
        assert asked
        assert answers
        print(json.dumps(told), file=asked, flush=True)
        if not (answer := answers.readline()):
            raise RuntimeError(f"the container ended while it ran {told}")
        status, *said = json.loads(answer)
        return self.result(status, self.encode(told), *(text.encode("latin-1") for text in said))


@contextmanager
def host(container: str) -> Iterator[Any]:
    """A running container, by its id."""
    command = ["docker", "exec", "--interactive", container, "python", "-c", PROGRAM]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield testinfra.host.Host(cast(Any, Inside(container, process)))
        finally:
            process.kill()
