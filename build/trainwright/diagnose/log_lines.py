"""Read the lines of logs of any size, also with gzip and from standard input, and remove the prefixes of launchers."""

import gzip
import re
import shlex
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import BinaryIO, cast

from trainwright.core.errors import ConfigError, printable

# Prefixes that launchers add to a line: mpirun --tag-output (Open MPI 4, 5 and SageMaker's), srun --label,
# kubectl logs --prefix, docker compose, CloudWatch and other time stamps. Some name a rank.
PREFIXES = tuple(
    re.compile(pattern)
    for pattern in (
        r"\s*\[(?:[\w.-]+@)?\d+,(?:mpirank:)?(?P<rank>\d+)(?:,[^\]]*)?\]\s?<std\w+>:\s?",
        r"\s*(?P<rank>\d+): (?=.)",
        r"\s*\[pod/[^\]]+\] ",
        r"\s*[\w.-]+ +\| ",
        r"\s*\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?\]? ",
    )
)
LOOKED_AT = 4096  # characters of a line: all patterns match within these, and more would cost time
ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
LONGEST = 1 << 16  # characters of a line that are read
NUMBER = re.compile(r"\d{100,}")  # longer than any printed number: int() and float() reject it, or return infinity
STANDARD_INPUT = "-"


@contextmanager
def opened(file: str) -> Iterator[BinaryIO]:
    """Open a log as a byte stream. Raises ConfigError if it cannot be read."""
    if file == STANDARD_INPUT:
        yield sys.stdin.buffer
        return
    if Path(file).is_dir():
        raise ConfigError("expected a log file, found a folder", where=file, fix=f"name its files: {file}/*")
    try:
        with Path(file).open("rb") as raw:
            packed = raw.peek(2)[:2] == b"\x1f\x8b"
            with gzip.open(raw) if packed else raw as stream:
                yield cast(BinaryIO, stream)
    except (OSError, EOFError, zlib.error) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise ConfigError("the log cannot be read", where=file, why=why, fix=f"ls -l {shlex.quote(file)}") from None


def digest(file: str) -> str:
    """Return the sha256 of the unpacked content; "-" for standard input. Raises ConfigError."""
    if file == STANDARD_INPUT:
        return file
    with opened(file) as stream:
        found = sha256()
        while piece := stream.read(LONGEST):
            found.update(piece)
        return found.hexdigest()


def cut(stream: BinaryIO) -> Iterator[str]:
    """Yield each line, cut at LONGEST."""
    while piece := stream.readline(LONGEST):
        rest = piece
        while len(rest) == LONGEST and not rest.endswith(b"\n"):
            rest = stream.readline(LONGEST)
        if not piece.endswith(b"\n") and rest.endswith(b"\n"):
            piece += b"\n"
        yield NUMBER.sub("?", piece.decode(errors="replace"))


def lines(file: str) -> Iterator[str]:
    """Yield each line of a log in its present state, without its end. Raises ConfigError."""
    with opened(file) as stream:
        for line in cut(stream):
            yield line.rstrip("\n")


def unprefixed(line: str) -> tuple[str, str]:
    """Return a line without the prefixes of launchers, and the rank that they name ("" for none)."""
    line, rank = line[:LOOKED_AT], ""
    text = printable((ANSI.sub("", line) if "\x1b" in line else line).rstrip())
    while match := next((found for prefix in PREFIXES if (found := prefix.match(text))), None):
        text, rank = text[match.end() :], match.groupdict().get("rank") or rank
    return text, rank
