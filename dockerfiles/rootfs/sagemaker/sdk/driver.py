"""In the place of a container driver of SageMaker's SDK v3 (sagemaker.train.container_drivers): our launcher, same job.

What the SDK's scripts/environment.py has put into the environment by then: SM_ENTRY_SCRIPT, relative to the folder we
are in; SM_HPS, an object of the hyperparameters; SM_DISTRIBUTED_CONFIG, one of the arguments of Torchrun() or MPI().
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
    """A hyperparameter as the SDK's drivers hand it over: JSON, but for text, which may hold JSON of its own."""
    if isinstance(value, str):
        with contextlib.suppress(ValueError):
            value = json.loads(value)
    return value if isinstance(value, str) else json.dumps(value)


def command(driver: str, environ: Mapping[str, str]) -> list[str]:
    """What to start instead of a driver, by its file name. Raises KeyError and ValueError for an SDK we do not know."""
    said = json.loads(environ.get("SM_DISTRIBUTED_CONFIG", "{}"))
    words = [LAUNCHER, "--distribution", DISTRIBUTIONS[driver]]
    if said.get("process_count_per_node") and driver != "basic_script_driver":  # `plain` is one process
        words += ["--processes", str(int(said["process_count_per_node"]))]
    if said.get("mpi_additional_options"):
        words += ["--mpi-options", shlex.join(said["mpi_additional_options"])]
    hyperparameters = json.loads(environ.get("SM_HPS", "{}"))
    pairs = [(f"--{name}", argument(value)) for name, value in hyperparameters.items()]
    return [*words, environ["SM_ENTRY_SCRIPT"], *(word for pair in pairs for word in pair)]


def without(path: str, folder: str) -> str:
    """PATH without a folder: what the job starts is to find the image's own programs."""
    return os.pathsep.join(part for part in path.split(os.pathsep) if part != folder)


def main(driver: Path) -> None:
    os.environ["PATH"] = without(os.environ["PATH"], str(Path(__file__).parent))
    os.environ.pop("TRAINWRIGHT_LAUNCHER_PID", None)
    try:
        words = command(driver.stem, os.environ)
    except (KeyError, ValueError, TypeError, AttributeError) as problem:
        said = (
            f"what SageMaker's SDK wants started is not understood: {type(problem).__name__} {problem}\n"
            "  why:   a version of the SDK that this image does not know\n"
            "  fix:   TRAINWRIGHT_SDK_DRIVERS=own in the job's environment: the SDK's own drivers start it"
        )
        with contextlib.suppress(OSError):
            FAILURE.write_text(said)
        sys.exit(said)
    os.execv(words[0], words)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
