"""What each platform gives a host: command, environment and files, as that platform sets them. Data only.

Facts: SageMaker as in trainwright.jobs; Slurm, "srun", OUTPUT ENVIRONMENT VARIABLES; Kubeflow's training-operator,
pkg/controller.v1/pytorch/envvar.go and master.go; Kubeflow's mpi-operator, pkg/controller/mpi_job_controller.go.
"""

import json
from collections.abc import Mapping, Sequence

from trainwright.jobs import contract
from trainwright.jobs.containers import FAILURE, Host

PLATFORMS = ("sagemaker", "sagemaker-v3", "slurm", "pytorchjob", "mpijob", "flags")
CODE = "/job"  # where a script lies outside SageMaker
JOB, PORT = "job", "23456"  # of a PyTorchJob, unless its pods say otherwise
KUBERNETES = "job.default.svc"


# Where version 3 of SageMaker's SDK has its channels, and what it starts in place of `train`.
CHANNEL, DRIVERS = "/opt/ml/input/data/code", "/opt/ml/input/data/sm_drivers"
TRAIN = f"""
set -e
python=$(command -v python3)
cd {CHANNEL}
"$python" {DRIVERS}/distributed_drivers/DRIVER.py
"""


def code(platform: str) -> str:
    return {"sagemaker": contract.CODE, "sagemaker-v3": CHANNEL}.get(platform, CODE)


def names(platform: str, count: int) -> list[str]:
    """As the platform calls its hosts; the first one is the main one."""
    return {
        "sagemaker": contract.hosts(count),
        "sagemaker-v3": contract.hosts(count),
        "slurm": [f"node-{number}" for number in range(1, count + 1)],
        "pytorchjob": [f"{JOB}-master-0", *(f"{JOB}-worker-{number}" for number in range(count - 1))],
        "mpijob": [f"{JOB}-launcher", *(f"{JOB}-worker-{number}" for number in range(count))],
        "flags": [f"host-{number}" for number in range(1, count + 1)],
    }[platform]


def hosts(
    platform: str,
    count: int,
    script: str,
    distribution: str,
    processes: int,
    arguments: Mapping[str, object],
    environment: Mapping[str, str],
    secret: str | None,
) -> list[Host]:
    """A container for each host. Without a secret the job gets none, as on a platform that gives no such channel."""
    found = names(platform, count)
    given = {**({contract.SECRET_FILE: contract.SECRET} if secret else {}), **environment}
    private = {contract.SECRET: secret.encode()} if secret else {}
    if platform.startswith("sagemaker"):
        made = [_sagemaker(found, name, script, distribution, processes, arguments, given, private) for name in found]
        return (
            [_version_3(one, script, distribution, processes, arguments) for one in made] if "v3" in platform else made
        )
    given = {"TRAINWRIGHT_FAILURE_FILE": FAILURE, **given}
    words = ["trainwright-launch", "--distribution", distribution, "--processes", str(processes)]
    job = [f"{CODE}/{script}", *(word for name, value in arguments.items() for word in (f"--{name}", str(value)))]
    made = list[Host]()
    for index, name in enumerate(found):
        command, further, files = _kind(platform, found, index, words, job)
        domain = KUBERNETES if platform == "mpijob" else ""
        made.append(
            Host(
                name=name,
                command=command,
                domain=domain,
                aliases=[f"{name}.{domain}"] if domain else [],
                environment={**further, **given},
                files=files,
                private=private,
            )
        )
    return made


def _sagemaker(
    found: Sequence[str],
    name: str,
    script: str,
    distribution: str,
    processes: int,
    arguments: Mapping[str, object],
    environment: Mapping[str, str],
    private: Mapping[str, bytes],
) -> Host:
    kind = "none" if distribution == "plain" else distribution
    settings = {
        "sagemaker_program": script,
        "sagemaker_submit_directory": contract.CODE,
        **contract.DISTRIBUTIONS[kind],
        **({contract.PROCESSES: processes} if kind != "none" else {}),
        **arguments,
    }
    files = contract.config(found, name, settings, [], "ml.c5.xlarge")
    given = {"TRAINING_JOB_NAME": JOB, **environment}
    return Host(name=name, command=["train"], environment=given, files=files, private=dict(private))


def _version_3(host: Host, script: str, distribution: str, processes: int, arguments: Mapping[str, object]) -> Host:
    """The same by ModelTrainer: a script of the SDK's for bash, and in the environment what its scripts put there.

    No driver is there: whoever does not take its place finds nothing to run.
    """
    driver = {"plain": "basic_script", "torchrun": "torchrun", "mpi": "mpi"}[distribution]
    resources = "/opt/ml/input/config/resourceconfig.json"
    said = json.loads(host.files[resources]) | {"network_interface_name": "ethwe"}  # as its local mode has it
    options = {} if distribution == "plain" else {"process_count_per_node": processes}
    files = {
        resources: json.dumps(said).encode(),
        f"{DRIVERS}/sm_train.sh": TRAIN.replace("DRIVER", f"{driver}_driver").encode(),
    }
    environment = {
        "SM_ENTRY_SCRIPT": script,
        "SM_HPS": json.dumps(dict(arguments)),
        "SM_DISTRIBUTED_CONFIG": json.dumps(options),
        "SM_CURRENT_HOST": host.name,
        "SM_MODEL_DIR": "/opt/ml/model",
    }
    command = ["/bin/bash", "-c", f"chmod +x {DRIVERS}/sm_train.sh && {DRIVERS}/sm_train.sh"]
    return Host(
        name=host.name,
        command=command,
        environment={**host.environment, **environment},
        files={**host.files, **files},
        private=host.private,
    )


def _kind(
    platform: str, found: Sequence[str], index: int, words: Sequence[str], job: Sequence[str]
) -> tuple[list[str], dict[str, str], dict[str, bytes]]:
    if platform == "flags":
        return [*words, "--hosts", ",".join(found), "--host", found[index], *job], {}, {}
    if platform == "slurm":
        return [*words, *job], _slurm(found, index), {}
    if platform == "pytorchjob":
        return [*words, *job], _pytorchjob(found, index), {}
    if index:
        return ["trainwright-launch", "--worker"], {"K_MPI_JOB_ROLE": "worker"}, {}
    hostfile = "".join(f"{name}.{KUBERNETES} slots=1\n" for name in found[1:]).encode()
    given = {
        "K_MPI_JOB_ROLE": "launcher",
        "OMPI_MCA_orte_keep_fqdn_hostnames": "true",
        "OMPI_MCA_orte_default_hostfile": "/etc/mpi/hostfile",
        "OMPI_MCA_plm_rsh_args": "-o ConnectionAttempts=10",
    }
    return [*words, *job], given, {"/etc/mpi/hostfile": hostfile}


def _slurm(found: Sequence[str], index: int) -> dict[str, str]:
    """Of `srun --ntasks-per-node=1 trainwright-launch ...`: a task for each node."""
    count, listed = str(len(found)), f"node-[1-{len(found)}]" if len(found) > 1 else found[0]
    return {
        "SLURM_JOB_ID": "4711",
        "SLURM_JOBID": "4711",
        "SLURM_STEP_ID": "0",
        "SLURM_NNODES": count,
        "SLURM_JOB_NUM_NODES": count,
        "SLURM_STEP_NUM_NODES": count,
        "SLURM_JOB_NODELIST": listed,
        "SLURM_NODELIST": listed,
        "SLURM_STEP_NODELIST": listed,
        "SLURM_NTASKS": count,
        "SLURM_STEP_NUM_TASKS": count,
        "SLURM_NTASKS_PER_NODE": "1",
        "SLURM_TASKS_PER_NODE": f"1(x{count})",
        "SLURM_STEP_TASKS_PER_NODE": f"1(x{count})",
        "SLURM_NODEID": str(index),
        "SLURM_PROCID": str(index),
        "SLURM_LOCALID": "0",
        "SLURMD_NODENAME": found[index],
        "SLURM_CPUS_ON_NODE": "2",
    }


def _pytorchjob(found: Sequence[str], index: int) -> dict[str, str]:
    return {
        "PYTHONUNBUFFERED": "1",
        "MASTER_ADDR": found[0],
        "MASTER_PORT": PORT,
        "WORLD_SIZE": str(len(found)),
        "RANK": str(index),
        "PET_MASTER_ADDR": found[0],
        "PET_MASTER_PORT": PORT,
        "PET_NNODES": str(len(found)),
        "PET_NODE_RANK": str(index),
    }
