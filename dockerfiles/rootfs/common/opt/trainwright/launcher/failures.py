"""Why a job failed, where a platform looks for it: who, the exit code, and the script's own last words.

A file that cannot be written is said on stderr and changes nothing else: a full disk is no success.
"""

import contextlib
import re
import signal
from collections.abc import Mapping
from pathlib import Path

from errors import note

OUTPUT = Path("/opt/ml/output")  # SageMaker's: the first characters of `failure` become FailureReason
VARIABLE = "TRAINWRIGHT_FAILURE_FILE"
TRACEBACK = "Traceback (most recent call last):"
TAG = re.compile(r"^(?:\[\d+,\d+\]<std(?:err|out)>:)?(?:\[rank\d+\]: )?")  # of mpirun, of torch


def exit_code(returncode: int) -> int:
    """Popen's to a shell's: 137 for SIGKILL."""
    return 128 - returncode if returncode < 0 else returncode


def ended(host: str, code: int) -> str:
    """`algo-2: exit code 137 (SIGKILL)`"""
    name = ""
    if code > 128:
        with contextlib.suppress(ValueError):
            name = f" ({signal.Signals(code - 128).name})"
    return f"{host}: exit code {code}{name}"


def last_words(text: str, characters: int) -> str:
    """The end of what a script wrote to stderr: its last traceback, else its last lines, in at most so many characters.

    The line with the exception outlives the frames above it and what was said after it.
    """
    lines = [TAG.sub("", line).rstrip() for line in text.replace("\r", "\n").splitlines()]
    lines = [line for line in lines if line]
    starts = [number for number, line in enumerate(lines) if line.endswith(TRACEBACK)]
    if not starts:
        return _end(lines, characters)
    lines = lines[starts[-1] :]
    at = next((n for n, line in enumerate(lines) if n and not line.startswith(" ")), len(lines) - 1)
    said = "\n".join(lines[at:])[:characters]
    return "\n".join(filter(None, [_end(lines[:at], characters - len(said) - 1), said]))


def _end(lines: list[str], characters: int) -> str:
    kept = list[str]()
    for line in reversed(lines):
        if sum(map(len, kept)) + len(kept) + len(line) > characters:
            break
        kept.insert(0, line)
    return "\n".join(kept) or ("\n".join(lines)[-characters:] if characters > 0 and lines and not kept else "")


def text(host: str, code: int, words: str, characters: int) -> str:
    """The whole file: who and what first, so that it is never cut off."""
    first = ended(host, code)
    return f"{first}\n{last_words(words, characters - len(first) - 1)}".rstrip("\n")


def place(environ: Mapping[str, str]) -> Path | None:
    """Where a failure is written; None where no platform looks for it."""
    if said := environ.get(VARIABLE):
        return Path(said)
    return OUTPUT / "failure" if OUTPUT.is_dir() else None


def begin(path: Path | None) -> None:
    """What an earlier start of this container left is not this one's."""
    for old in (path, OUTPUT / "success" if path == OUTPUT / "failure" else None):
        with contextlib.suppress(OSError):
            if old:
                old.unlink(missing_ok=True)


def write(path: Path | None, said: str) -> None:
    """A script may have written its own reason: that one stays."""
    if path is None:
        return
    try:
        if not path.exists() or not path.stat().st_size:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(said + "\n")
    except OSError as problem:
        note(f"{path} cannot be written: {problem.strerror}")


def succeed(path: Path | None) -> None:
    """Beside its failure file SageMaker's toolkit leaves an empty `success`, as it has always done."""
    if path == OUTPUT / "failure":
        try:
            (OUTPUT / "success").touch()
        except OSError as problem:
            note(f"{OUTPUT / 'success'} cannot be written: {problem.strerror}")
