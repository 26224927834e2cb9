"""Write the failure file that a platform reads: host, exit code, and the end of the script's stderr.

If the file cannot be written, that is noted on stderr and the exit code stays: a full disk must not look like success.
"""

import contextlib
import re
import signal
from collections.abc import Mapping
from pathlib import Path

from errors import note

OUTPUT = Path("/opt/ml/output")  # SageMaker shows the first 1,024 characters of `failure` as FailureReason
VARIABLE = "TRAINWRIGHT_FAILURE_FILE"
TRACEBACK = "Traceback (most recent call last):"
TAG = re.compile(r"^(?:\[\d+,\d+\]<std(?:err|out)>:)?(?:\[rank\d+\]: )?")  # prefixes of mpirun and of torch


def exit_code(returncode: int) -> int:
    """Convert Popen's return code to a shell's exit code: -9 (SIGKILL) becomes 137."""
    return 128 - returncode if returncode < 0 else returncode


def ended(host: str, code: int) -> str:
    """Return a line like `algo-2: exit code 137 (SIGKILL)`."""
    name = ""
    if code > 128:
        with contextlib.suppress(ValueError):
            name = f" ({signal.Signals(code - 128).name})"
    return f"{host}: exit code {code}{name}"


def last_words(text: str, characters: int) -> str:
    """Return the last traceback on a script's stderr, else its last lines, in at most `characters`.

    The line with the exception is kept longest: frames above it and lines after it are cut first.
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
    """Return the content of the failure file; host and exit code come first, so that they are never cut off."""
    first = ended(host, code)
    return f"{first}\n{last_words(words, characters - len(first) - 1)}".rstrip("\n")


def place(environ: Mapping[str, str]) -> Path | None:
    """Return the path of the failure file, or None if no platform reads one."""
    if said := environ.get(VARIABLE):
        return Path(said)
    return OUTPUT / "failure" if OUTPUT.is_dir() else None


def begin(path: Path | None) -> None:
    """Remove the result files of an earlier start of this container."""
    for old in (path, OUTPUT / "success" if path == OUTPUT / "failure" else None):
        with contextlib.suppress(OSError):
            if old:
                old.unlink(missing_ok=True)


def write(path: Path | None, said: str) -> None:
    """Write the failure file, unless the script has already written its own reason."""
    if path is None:
        return
    try:
        if not path.exists() or not path.stat().st_size:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(said + "\n")
    except OSError as problem:
        note(f"{path} cannot be written: {problem.strerror}")


def succeed(path: Path | None) -> None:
    """Create an empty `success` on SageMaker, as its toolkit does."""
    if path == OUTPUT / "failure":
        try:
            (OUTPUT / "success").touch()
        except OSError as problem:
            note(f"{OUTPUT / 'success'} cannot be written: {problem.strerror}")
