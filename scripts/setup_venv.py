"""Make the virtual environment .venv from requirements.lock, with hashes, and with pip's configured indexes.

An interruption does no harm: the marker is written last, and without it the next run starts from an empty .venv.
"""

import fcntl
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from host import ENVIRONMENT, ROOT, die, is_root, output, runs, say

MARKER = Path(".venv/.complete")
VENV = "cannot make a virtual environment"


def complete() -> bool:
    """Return whether .venv is current, by make's rule: the marker exists, and none of its inputs is newer."""
    needed = ("requirements.lock", "pyproject.toml", "scripts/setup_venv.py")
    return MARKER.exists() and all(Path(name).stat().st_mtime <= MARKER.stat().st_mtime for name in needed)


def one_at_a_time() -> None:
    """Wait for another make, with a lock on a file of the checkout, so that no lock file remains."""
    held = os.open("requirements.lock", os.O_RDONLY)  # open until this process ends
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        say("another make sets up .venv; waiting for it")
        fcntl.flock(held, fcntl.LOCK_EX)
    except OSError:
        say("this file system has no locks: run one make at a time")


def can_make_one() -> bool:
    return runs(sys.executable, "-c", "import venv; from ensurepip import version")


def must_be_able() -> None:
    """Ensure that Python can make a virtual environment: Debian and Ubuntu have that in a separate package."""
    if find_spec("ensurepip") and can_make_one():
        return
    least = f"{sys.version_info.major}.{sys.version_info.minor}"
    if not output("apt-get", "--version") or sys.base_prefix != "/usr":
        fix = f"Install that, or use another Python:  make setup PYTHON=/path/to/python{least}"
        die(ENVIRONMENT, f"{sys.executable} {VENV}: its ensurepip is missing", fix)
    package = f"python{least}-venv"
    if not is_root():
        why = f"{sys.executable} {VENV}: {package} is not installed"
        die(ENVIRONMENT, why, f"sudo apt-get install {package}")
    say(f"{sys.executable} {VENV} yet; installing {package} with apt-get")
    os.environ["DEBIAN_FRONTEND"] = "noninteractive"
    apt = ["apt-get", "-qq", "-o", "DPkg::Lock::Timeout=300"]
    install = [*apt, "install", "-y", "--no-install-recommends", package]
    # Most hosts have lists that are fresh enough; a bare container has none.
    if not runs(*install):
        for command in ([*apt, "update"], install):
            subprocess.run(command, stdout=sys.stderr)
    if not can_make_one():
        fix = "The lines above are apt's. Is the mirror reachable, the disk full?  apt-get update; df -h /"
        die(ENVIRONMENT, f"apt-get could not install {package}", fix)


def pip_install(*words: str) -> bool:
    """Run pip install; print its messages, except those about indexes that lack a package."""
    command = [".venv/bin/python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as pip:
        for line in pip.stdout or ():
            if not line.startswith("WARNING: Location"):
                sys.stderr.write(line)
    return pip.returncode == 0


def main() -> None:
    os.chdir(ROOT)
    one_at_a_time()
    if complete():
        return
    must_be_able()
    say("setting up .venv from requirements.lock")
    fresh = [] if MARKER.exists() else ["--clear"]
    MARKER.unlink(missing_ok=True)
    if subprocess.run([sys.executable, "-m", "venv", *fresh, ".venv"], stdout=sys.stderr).returncode:
        die(
            ENVIRONMENT,
            f"{sys.executable} {VENV} in {ROOT}/.venv",
            "The lines above say why. Is the disk full, the folder somebody else's?  df -h .; ls -ld . .venv",
        )
    # The lock names everything: nothing is left to resolve. A module is compiled when it is imported first.
    if not pip_install("--no-deps", "--no-compile", "--require-hashes", "-r", "requirements.lock"):
        die(
            ENVIRONMENT,
            "pip could not install what requirements.lock names",
            "The lines above are pip's. No network, or an index that lacks a file:  "
            f"{sys.executable} -m pip config list; env | grep -i proxy",
            "A hash that does not match: that index, or pip's cache, has another file than was locked:",
            "  .venv/bin/python -m pip cache purge, then run this again; never change the hash unseen",
        )
    if not pip_install("--no-index", "--no-deps", "--no-build-isolation", "-e", "."):
        fix = "The lines above are pip's. A fresh start:  rm -rf .venv && make setup"
        die(ENVIRONMENT, "pip could not install trainwright itself into .venv", fix)
    MARKER.touch()


if __name__ == "__main__":
    main()
