"""What sagemaker-training hands over to: the user's script, as a process, under mpirun or under torchrun.

The toolkit alone would start `torch_distributed` jobs as one plain process and leave the failure text empty.
"""

import subprocess
from pathlib import Path

from sagemaker_training import entry_point, environment, params, runner

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


def main() -> None:
    env = environment.Environment()
    # The platform brings these; under a mount by hand the toolkit would fail to report anything, and exit with 0.
    for folder in (env.model_dir, env.output_data_dir):
        Path(folder).mkdir(parents=True, exist_ok=True)
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
