"""Start the launcher in place of a container driver of SageMaker's SDK v3 (sagemaker.train.container_drivers).

The SDK's scripts/environment.py has set these variables: SM_ENTRY_SCRIPT, relative to the current folder; SM_HPS, the
hyperparameters as a JSON object; SM_DISTRIBUTED_CONFIG, the arguments of Torchrun() or MPI() as a JSON object.
"""

import contextlib
import json
import os
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path

LAUNCHER = "/usr/local/bin/trainwright-launch"
FAILURE = Path("/opt/ml/output/failure")
DISTRIBUTIONS = {"basic_script_driver": "plain", "torchrun_driver": "torchrun", "mpi_driver": "mpi"}


def argument(value: object) -> str:
    """Format a hyperparameter as the SDK's drivers do: text stays text, everything else becomes JSON."""
    if isinstance(value, str):
        with contextlib.suppress(ValueError):
            value = json.loads(value)
    return value if isinstance(value, str) else json.dumps(value)


def command(driver: str, environ: Mapping[str, str]) -> list[str]:
    """Return the launcher's command for a driver, which is named like its file without .py.

    Raises KeyError or ValueError if the SDK is of an unknown version.
    """
    said = json.loads(environ.get("SM_DISTRIBUTED_CONFIG", "{}"))
    words = [LAUNCHER, "--distribution", DISTRIBUTIONS[driver]]
    if said.get("process_count_per_node") and driver != "basic_script_driver":  # plain takes no --processes
        words += ["--processes", str(int(said["process_count_per_node"]))]
    if said.get("mpi_additional_options"):
        words += ["--mpi-options", shlex.join(said["mpi_additional_options"])]
    hyperparameters = json.loads(environ.get("SM_HPS", "{}"))
    pairs = [(f"--{name}", argument(value)) for name, value in hyperparameters.items()]
    return [*words, environ["SM_ENTRY_SCRIPT"], *(word for pair in pairs for word in pair)]


def without(path: str, folder: str) -> str:
    """Remove a folder from PATH, so that the job finds the image's own python3."""
    return os.pathsep.join(part for part in path.split(os.pathsep) if part != folder)


def main(driver: Path) -> None:
    os.environ["PATH"] = without(os.environ["PATH"], str(Path(__file__).parent))
    os.environ.pop("TRAINWRIGHT_LAUNCHER_PID", None)
    try:
        words = command(driver.stem, os.environ)
    except (KeyError, ValueError, TypeError, AttributeError) as problem:
        said = (
            f"the job of SageMaker's SDK cannot be started: {type(problem).__name__} {problem}\n"
            "  why:   this image does not know this version of the SDK\n"
            "  fix:   set TRAINWRIGHT_SDK_DRIVERS=own in the job's environment, which uses the SDK's own drivers"
        )
        with contextlib.suppress(OSError):
            FAILURE.write_text(said)
        sys.exit(said)
    os.execv(words[0], words)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
