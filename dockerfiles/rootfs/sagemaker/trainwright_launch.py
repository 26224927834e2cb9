"""Fetch a SageMaker job's code with the toolkit, then start it with the launcher instead of the toolkit.

sagemaker-training calls main() as its framework module. Its own start would run `torch_distributed` jobs as one plain
process, leave the failure text empty, and always end with 1.
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
# Hyperparameters that the SDK sends for each distribution; the first one that is set counts.
ASKED = {
    params.MPI_ENABLED: "mpi",
    "sagemaker_torch_distributed_enabled": "torchrun",
    "sagemaker_multi_worker_mirrored_strategy_enabled": "tensorflow",
}

# pip's messages for an index that did not answer: connection, certificate, credentials or proxy.
UNREACHED = re.compile(r"after connection broken by|^(WARNING: )?Could not fetch URL|^(WARNING|ERROR): 40[137] ")


def distribution(asked: Mapping[str, Any], applies: bool) -> str:
    """Return the launcher's distribution. `applies`: whether the SDK's choice is for this host's instance group."""
    return next((name for key, name in ASKED.items() if applies and asked.get(key)), "plain")


def mpi_options(asked: Mapping[str, Any]) -> tuple[str, str]:
    """Return mpirun's options, and the value of NCCL_DEBUG, which the SDK passes among them as --NCCL_DEBUG."""
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
    """Run pip again, without installing, to learn why it failed: the toolkit does not keep pip's output."""
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
    """Extract the reason from pip's output. If no index answered, its last error only says "no matching version"."""
    at = said.find("ERROR: ")
    errors = said[at:] if at >= 0 else problem
    if unreached := [line for line in said.splitlines() if UNREACHED.search(line)]:
        text = "requirements.txt cannot be installed: a package index does not answer, or its certificate is untrusted."
        fix = "fix: set PIP_INDEX_URL, and PIP_CERT for the CA of that index, in the job's environment"
        return f"{text}\n{unreached[-1]}\n{fix}\n{errors}"
    held = " (constraint: the versions that the image was tested with)" if "(constraint)" in errors else ""
    return f"requirements.txt cannot be installed in this image{held}.\n{errors}"


def bring(env: environment.Environment) -> list[str]:
    """Fetch the job's code and install its requirements. Returns the script's command; raises ClientError."""
    files.download_and_extract(uri=env.module_dir, path=environment.code_dir)
    try:
        entry_point.install(name=env.user_entry_point, path=environment.code_dir, capture_error=True)
    except errors.InstallRequirementsError as problem:
        raise errors.ClientError(why_not(problem)) from None
    kind = _entry_point_type.get(environment.code_dir, env.user_entry_point)
    if kind is _entry_point_type.PYTHON_PACKAGE:
        return ["-m", env.user_entry_point.removesuffix(".py")]
    if not Path(environment.code_dir, env.user_entry_point).is_file():
        raise errors.ClientError(f"{environment.code_dir} has no {env.user_entry_point}. It contains: {listed()}")
    return [env.user_entry_point if "." in env.user_entry_point else f"./{env.user_entry_point}"]


def listed() -> str:
    return ", ".join(sorted(path.name for path in Path(environment.code_dir).iterdir())[:20]) or "no files"


def main() -> None:
    env = environment.Environment()
    # SageMaker creates these folders; without them, in a manual run, the toolkit would report nothing and exit with 0.
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
    # Block SIGTERM until the launcher has a handler, because the kernel drops signals that PID 1 does not handle.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    os.execv(LAUNCHER[0], [*LAUNCHER, *words, *script, *env.to_cmd_args()])
