"""Provide functions for the first command's scripts, which run before .venv exists: standard library only."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any, NoReturn

ROOT = Path(__file__).resolve().parents[1]
USAGE, ENVIRONMENT = 2, 10  # exit codes, as build/trainwright/core/errors.py has them

# A minimal login shell lacks the folders where iptables and dockerd live.
os.environ["PATH"] += ":/usr/local/sbin:/usr/sbin:/sbin"


def settings() -> dict[str, Any]:
    file = ROOT / "dockerfiles/host.toml"
    try:
        return tomllib.loads(file.read_text())
    except (OSError, ValueError) as error:
        die(ENVIRONMENT, f"cannot read {file}", str(error), "git checkout -- dockerfiles/host.toml")


def say(text: str) -> None:
    """Print a message to standard error; standard output is for data."""
    print(text, file=sys.stderr, flush=True)


def die(code: int, what: str, *lines: str) -> NoReturn:
    """Print an error and exit; the further lines give its reason and the command that fixes it."""
    coloured = sys.stderr.isatty() and not os.environ.get("NO_COLOR")
    error, what = ("\033[31merror:\033[0m", f"\033[1m{what}\033[0m") if coloured else ("error:", what)
    say("\n".join([f"{error} {what}", *(f"  {line}" for line in lines if line)]))
    sys.exit(code)


def output(*command: str | Path) -> str:
    """Return the standard output of a program; "" if it fails or does not exist."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace")
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def runs(*command: str | Path, log: Path | None = None, **options: Any) -> bool:
    """Run a program and return whether it succeeds; write its output to a file, or discard it."""
    try:
        with Path(log or os.devnull).open("w") as said:
            return subprocess.run(command, stdout=said, stderr=said, **options).returncode == 0
    except OSError as error:
        if log:
            log.write_text(f"{error}\n")
        return False


def is_root() -> bool:
    return output("id", "-u") == "0"


def tail(file: Path, count: int) -> str:
    return "\n".join(file.read_text(errors="replace").splitlines()[-count:]) if file.exists() else ""
