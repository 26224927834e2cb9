"""Files written whole or not at all, and one writer at a time."""

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from trainwright.errors import EnvironmentProblem


def write(path: Path, content: str | bytes) -> None:
    """Replace a file by its new content in one step."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
        Path(name).chmod(0o644)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def write_named(path: Path, content: str | bytes) -> None:
    """As write(), of a file that a person named on the command line. Raises EnvironmentProblem."""
    try:
        write(path, content)
    except OSError as error:
        why = str(error.strerror or error)
        raise EnvironmentProblem(
            f"{path} cannot be written", where=str(path), why=why, fix="name another file"
        ) from None


@contextmanager
def only_one(folder: Path, say: Callable[[str], None]) -> Iterator[None]:
    """Wait for whoever else works in `folder`, saying so, and keep others out meanwhile."""
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / ".lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        say(f"another trainwright works in {folder}; waiting for it")
        lock.acquire()
    try:
        yield
    finally:
        lock.release()
