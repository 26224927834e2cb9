"""Read a log on this machine while it is being written: a growing file, or a pipe."""

import os
import select
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from trainwright.core.errors import ConfigError
from trainwright.diagnose import exports, log_lines


def lines(
    file: str, follow: bool, tick: float, passed: Callable[[bytes], object] | None = None
) -> Iterator[str | None]:
    """Yield each line, cut at the judge's limit; None if no line came for `tick` seconds.

    Reading stops at the file's present end, unless the file is followed: then it may also be truncated or replaced.
    Bytes of a pipe are also passed to `passed`, unchanged and complete. Raises ConfigError.
    """
    if file == log_lines.STANDARD_INPUT:
        yield from _whole(_piped(sys.stdin.fileno(), tick, passed))
    elif follow:
        yield from _whole(_growing(Path(file), tick))
    else:
        yield from log_lines.lines(file)


def _whole(pieces: Iterator[bytes]) -> Iterator[str | None]:
    """Join pieces of any size into lines, cut at the judge's limit; a piece of b"" yields None."""
    rest = b""
    for piece in pieces:
        if not piece:
            yield None
            continue
        *whole, rest = (rest + piece).split(b"\n")
        for line in whole:
            yield from exports.of_line(line[: log_lines.LONGEST].decode(errors="replace"))
        rest = rest[: log_lines.LONGEST]
    if rest:
        yield from exports.of_line(rest.decode(errors="replace"))


def _piped(descriptor: int, tick: float, passed: Callable[[bytes], object] | None) -> Iterator[bytes]:
    while True:
        ready, _, _ = select.select([descriptor], [], [], tick)
        if not ready:
            yield b""
        elif piece := os.read(descriptor, log_lines.LONGEST):
            if passed:
                passed(piece)
            yield piece
        else:
            return


def _growing(path: Path, tick: float) -> Iterator[bytes]:
    stream = _opened(path)
    try:
        while True:
            if piece := stream.read(log_lines.LONGEST):
                yield piece
                continue
            time.sleep(tick)
            yield b""
            held, now = os.fstat(stream.fileno()), path.stat() if path.exists() else None
            if now and (now.st_ino, now.st_dev) != (held.st_ino, held.st_dev):
                yield stream.read()  # written before it was replaced
                stream.close()
                stream = _opened(path)
            elif held.st_size < stream.tell():
                stream.seek(0)
    finally:
        stream.close()


def _opened(path: Path) -> BinaryIO:
    try:
        return path.open("rb")
    except OSError as error:
        fix = f"wait until the job writes it, or ls -l {path.parent}"
        raise ConfigError("the log cannot be read", where=str(path), why=str(error.strerror), fix=fix) from None
