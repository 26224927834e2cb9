"""What sagemaker-training hands over to: the user's script, as a process, under mpirun or under torchrun.

The toolkit alone would start `torch_distributed` jobs as one plain process and leave the failure text empty.
"""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from sagemaker_training import entry_point, environment, errors, params, runner

KEY = Path("/root/.ssh/id_ed25519")


def choose(env: environment.Environment) -> runner.RunnerType:
    """The runner that the job's hyperparameters ask for."""
    asked = env.additional_framework_parameters
    if env.current_instance_group in env.distribution_instance_groups:
        if asked.get(params.MPI_ENABLED):
            return runner.RunnerType.MPI
        if asked.get("sagemaker_torch_distributed_enabled"):
            return runner.RunnerType.TorchDistributed
    return runner.RunnerType.Process


def make_keys() -> None:
    """Host and client keys of this container alone: an image must not carry any."""
    Path("/run/sshd").mkdir(exist_ok=True)
    subprocess.run(["ssh-keygen", "-A"], check=True, stdout=subprocess.DEVNULL)
    if not KEY.exists():
        KEY.parent.mkdir(mode=0o700, exist_ok=True)
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(KEY)], check=True)
        KEY.with_name("authorized_keys").write_bytes(KEY.with_suffix(".pub").read_bytes())


def check(env: environment.Environment) -> None:
    """Raises ClientError, whose text alone becomes the failure reason, where this is no longer what was declared."""
    path = [environment.code_dir, *sys.path]  # where the user's script will look
    done = subprocess.run(
        ["trainwright-check"],
        cwd=environment.code_dir,
        env={**os.environ, **env.to_env_vars(), "PYTHONPATH": os.pathsep.join(filter(None, path))},
        stderr=subprocess.PIPE,
    )
    said = done.stderr.decode(errors="replace").strip()
    if done.returncode:
        raise errors.ClientError(said or f"trainwright-check ended with {done.returncode}")
    print(said, file=sys.stderr, flush=True)


def why_not(problem: errors.InstallRequirementsError) -> str:
    """What pip has against the job's requirements: the toolkit keeps only that there was something."""
    again = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--dry-run",
        "--disable-pip-version-check",
        "-r",
        "requirements.txt",
    ]
    done = subprocess.run(again, cwd=environment.code_dir, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    said = done.stdout.decode(errors="replace")
    at = said.find("ERROR: ")
    reason = said[at:] if at >= 0 else str(problem)
    return f"requirements.txt cannot be installed in this image (constraint: what it was proved with).\n{reason}"


def check_what_is_installed(env: environment.Environment) -> None:
    """Between the job's requirements.txt and the job: the toolkit has one function for both."""
    install = entry_point.install

    def install_and_check(*words: Any, **named: Any) -> None:
        try:
            install(*words, **named)
        except errors.InstallRequirementsError as problem:
            raise errors.ClientError(why_not(problem)) from None
        check(env)

    entry_point.install = install_and_check


def main() -> None:
    env = environment.Environment()
    # The platform brings these; under a mount by hand the toolkit would fail to report anything, and exit with 0.
    for folder in (env.model_dir, env.output_data_dir):
        Path(folder).mkdir(parents=True, exist_ok=True)
    check_what_is_installed(env)
    chosen = choose(env)
    if chosen is runner.RunnerType.MPI:
        make_keys()
    entry_point.run(
        uri=env.module_dir,
        user_entry_point=env.user_entry_point,
        args=env.to_cmd_args(),
        env_vars=env.to_env_vars(),
        capture_error=True,  # the script's own last words go into /opt/ml/output/failure
        runner_type=chosen,
    )
