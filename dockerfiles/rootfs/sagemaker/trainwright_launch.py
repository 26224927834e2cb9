"""What sagemaker-training hands over to: it fetched nothing yet, and ends where our launcher begins.

The toolkit brings the code and installs its requirements. Starting it is the launcher's: the toolkit would start
`torch_distributed` jobs as one plain process, leave the failure text empty, and always end with 1.
"""

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sagemaker_training import _entry_point_type, entry_point, environment, errors, files, params

LAUNCHER = ("/opt/venv/bin/python", "-IB", "/opt/trainwright/launcher")
# What an SDK sends for each distribution; the first that is set counts.
ASKED = {
    params.MPI_ENABLED: "mpi",
    "sagemaker_torch_distributed_enabled": "torchrun",
    "sagemaker_multi_worker_mirrored_strategy_enabled": "tensorflow",
}

# What pip says of an index that it could not ask: no connection, a certificate, a user, a proxy.
UNREACHED = re.compile(r"after connection broken by|^(WARNING: )?Could not fetch URL|^(WARNING|ERROR): 40[137] ")


def distribution(asked: Mapping[str, Any], applies: bool) -> str:
    """`applies`: whether it is meant for this host's group."""
    return next((name for key, name in ASKED.items() if applies and asked.get(key)), "plain")


def mpi_options(asked: Mapping[str, Any]) -> tuple[str, str]:
    """mpirun's own options; and the value of NCCL_DEBUG, which the SDK hides among them as --NCCL_DEBUG."""
    words, kept, debug = shlex.split(str(asked.get(params.MPI_CUSTOM_OPTIONS) or "")), list[str](), ""
    while words:
        word = words.pop(0)
        if word.startswith("--NCCL_DEBUG"):
            debug = word.partition("=")[2] or (words.pop(0) if words else "")
        else:
            kept.append(word)
    if ranks := asked.get(params.MPI_NUM_PROCESSES):
        kept += ["-np", str(ranks)]
    return shlex.join(kept), debug


def why_not(problem: errors.InstallRequirementsError) -> str:
    """What pip has against the job's requirements: the toolkit keeps only that there was something."""
    again = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--dry-run",
        "--disable-pip-version-check",
        "--retries=1",
        "-r",
        "requirements.txt",
    ]
    done = subprocess.run(again, cwd=environment.code_dir, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return reason(done.stdout.decode(errors="replace"), str(problem))


def reason(said: str, problem: str) -> str:
    """Of what pip said. Behind an index that did not answer it has "no version" of everything, and no word of why."""
    at = said.find("ERROR: ")
    errors = said[at:] if at >= 0 else problem
    if unreached := [line for line in said.splitlines() if UNREACHED.search(line)]:
        text = "requirements.txt cannot be installed: pip got no answer from an index, or one that it does not trust."
        fix = "fix: PIP_INDEX_URL, and PIP_CERT for the CA of that index, in the job's environment"
        return f"{text}\n{unreached[-1]}\n{fix}\n{errors}"
    held = " (constraint: what it was proved with)" if "(constraint)" in errors else ""
    return f"requirements.txt cannot be installed in this image{held}.\n{errors}"


def bring(env: environment.Environment) -> list[str]:
    """The job's code and requirements; returns how its script is started. Raises ClientError, the reason."""
    files.download_and_extract(uri=env.module_dir, path=environment.code_dir)
    try:
        entry_point.install(name=env.user_entry_point, path=environment.code_dir, capture_error=True)
    except errors.InstallRequirementsError as problem:
        raise errors.ClientError(why_not(problem)) from None
    kind = _entry_point_type.get(environment.code_dir, env.user_entry_point)
    if kind is _entry_point_type.PYTHON_PACKAGE:
        return ["-m", env.user_entry_point.removesuffix(".py")]
    if not Path(environment.code_dir, env.user_entry_point).is_file():
        raise errors.ClientError(f"there is no {env.user_entry_point} in {environment.code_dir}: {listed()}")
    return [env.user_entry_point if "." in env.user_entry_point else f"./{env.user_entry_point}"]


def listed() -> str:
    return ", ".join(sorted(path.name for path in Path(environment.code_dir).iterdir())[:20]) or "it is empty"


def main() -> None:
    env = environment.Environment()
    # The platform brings these; under a mount by hand the toolkit would fail to report anything, and exit with 0.
    for folder in (env.model_dir, env.output_data_dir):
        Path(folder).mkdir(parents=True, exist_ok=True)
    script = bring(env)
    asked = env.additional_framework_parameters
    kind = distribution(asked, env.current_instance_group in env.distribution_instance_groups)
    options, debug = mpi_options(asked)
    words = ["--distribution", kind]
    if (processes := asked.get(params.MPI_PROCESSES_PER_HOST)) and kind != "plain":
        words += ["--processes", str(processes)]
    if kind == "mpi" and options:
        words += ["--mpi-options", options]
    environment.write_env_vars(env.to_env_vars())
    if debug:
        os.environ.setdefault("NCCL_DEBUG", debug)
    os.chdir(environment.code_dir)
    sys.stdout.flush()
    # Held back until the launcher has a handler: this is PID 1, and would not see it otherwise.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    os.execv(LAUNCHER[0], [*LAUNCHER, *words, *script, *env.to_cmd_args()])
