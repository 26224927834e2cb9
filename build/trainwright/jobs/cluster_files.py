"""Write a training job in the format of each scheduler. Pure text: schedulers schedule, and nothing is submitted here.

Kubernetes: kubeflow/mpi-operator pkg/apis/kubeflow/v2beta1/types.go@caa3c47 (July 2026), kubeflow-training 1.9.4 for a
PyTorchJob. Slurm: sbatch(1) and srun(1) of 22.05 and later; pyxis. HyperPod: what clusters.toml names, and `srun
--auto-resume=1` of AWS's page sagemaker-hyperpod-resiliency-slurm-auto-resume (November 2026).
"""

import shlex
from typing import Any

from trainwright.core import yaml_text
from trainwright.jobs.spec import VARIABLE, Job, Mount
from trainwright.schedulers import kubernetes as objects
from trainwright.schedulers import slurm as slurm_files

MAKE = 'mkdir -p "$SM_MODEL_DIR" && exec "$@"'  # the image lacks this folder
SECRET = "secret"  # the key in the Secret, and the file's name
LOST = "{folder} (SM_MODEL_DIR) is lost with its container: --model SOURCE keeps what a script saves there"
RANDOM = "head -c 32 /dev/urandom | od -An -v -tx1 | tr -d ' \\n'"


def text(job: Job) -> str:
    """Return the text of the file for the job's scheduler."""
    if not job.kubernetes:
        return slurm(job)
    comments = "".join(f"# {line}".rstrip() + "\n" for line in [*_title(job), "", *commands(job, "THIS-FILE")])
    return comments + yaml_text.dump(*kubernetes(job))


def commands(job: Job, file: str) -> list[str]:
    """List the commands that submit and follow the job, in order."""
    if not job.kubernetes:
        return [f"job=$(sbatch --parsable {shlex.quote(file)})", f'tail -F "{job.name}-${{job%%;*}}.log"']
    kubectl = f"kubectl -n {job.namespace}" if job.namespace else "kubectl"
    log = f"job/{job.name}-launcher" if job.on == "mpijob" else f"pod/{job.name}-master-0"
    return [
        f"openssl rand -hex 32 | {kubectl} create secret generic {job.secret} --from-file={SECRET}=/dev/stdin",
        f"{kubectl} apply -f {file}",
        f"{kubectl} logs --follow {log}",
    ]


def _title(job: Job) -> list[str]:
    """Return the header comment, which explains the file to its readers."""
    ranks = f"{job.processes} {'process' if job.processes == 1 else 'processes'} each"
    lines = [f"{job.script.path} ({job.distribution}) on {_nodes(job)}, {ranks}; for {job.settings.operators[job.on]}"]
    if job.on == "mpijob" and job.nodes > 1:
        lines += [
            "The launcher is a host like the others (runLauncherAsWorker), the first one. The operator gives the list",
            "of hosts to the launcher alone; the workers mount it, too: it has the job's name, with -config. The",
            "operator's own ssh key is not used: each container makes its own.",
        ]
    return lines + _lost(job)


def _lost(job: Job) -> list[str]:
    return [] if job.keeps_model else [LOST.format(folder=job.settings.folders.model)]


def _nodes(job: Job) -> str:
    return f"{job.nodes} {job.instance or ('host' if job.nodes == 1 else 'hosts')}"


# --- Kubernetes ------------------------------------------------------------------------------------------------------


def kubernetes(job: Job) -> list[dict[str, Any]]:
    """Return the job's objects: a ConfigMap with the script, if the script is included, and the job."""
    one = _mpijob(job) if job.on == "mpijob" else _pytorchjob(job)
    if job.script.text is None:
        return [one]
    return [objects.config_map(_metadata(job, f"{job.name}-code"), {job.script.path: job.script.text}), one]


def _metadata(job: Job, name: str) -> dict[str, Any]:
    return {"name": name, **({"namespace": job.namespace} if job.namespace else {})}


def _policy(job: Job, retries: int) -> dict[str, Any]:
    deadline = {"activeDeadlineSeconds": job.hours * 3600} if job.hours else {}
    ttl = {"ttlSecondsAfterFinished": job.settings.kubernetes.ttl_seconds}
    return {"backoffLimit": retries, "cleanPodPolicy": "Running", **ttl, **deadline}


def _replica(job: Job, count: int, restart: str, name: str, worker: bool = False) -> dict[str, Any]:
    return objects.replica(count, restart, _pod(job, name, worker))


def _mpijob(job: Job) -> dict[str, Any]:
    """Return the MPIJob, whose launcher (a batch Job) is never retried.

    Because the workers end with the first launcher, a second one would find none running.
    """
    replicas = {"Launcher": _replica(job, 1, "Never", "mpi")}
    if job.nodes > 1:
        replicas["Worker"] = _replica(job, job.nodes - 1, "Never", "mpi", worker=True)
    return objects.mpijob(_metadata(job, job.name), job.processes, _policy(job, 0), replicas, launcher_works=True)


def _pytorchjob(job: Job) -> dict[str, Any]:
    metadata = _metadata(job, job.name)
    if job.hyperpod:
        own = job.settings.hyperpod
        metadata["annotations"] = {own.resume: "true", own.retries: str(job.settings.retries)}
    replicas = {"Master": _replica(job, 1, "OnFailure", "pytorch")}  # the operator looks for a container of this name
    if job.nodes > 1:
        replicas["Worker"] = _replica(job, job.nodes - 1, "OnFailure", "pytorch")
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": metadata,
        "spec": {
            "nprocPerNode": str(job.processes),
            "runPolicy": _policy(job, job.settings.retries),
            "pytorchReplicaSpecs": replicas,
        },
    }


def _pod(job: Job, name: str, worker: bool) -> dict[str, Any]:
    folders = job.settings.folders
    volumes: list[dict[str, Any]] = [{"name": "secret", "secret": {"secretName": job.secret, "defaultMode": 0o400}}]
    mounts = [{"name": "secret", "mountPath": folders.secret, "readOnly": True}]
    if job.script.text is not None:
        volumes.append({"name": "code", "configMap": {"name": f"{job.name}-code"}})
        mounts.append({"name": "code", "mountPath": folders.code, "readOnly": True})
    claims = dict.fromkeys(_claim(mount)[0] for mount in job.mounts)
    volumes += [{"name": _volume(claim), "persistentVolumeClaim": {"claimName": claim}} for claim in claims]
    mounts += [_mounted(mount) for mount in job.mounts]
    if not job.keeps_model:  # the image lacks this folder
        volumes.append({"name": "model", "emptyDir": {}})
        mounts.append({"name": "model", "mountPath": folders.model})
    volume, mount = objects.shared_memory(f"{job.settings.kubernetes.shm_gib * job.processes}Gi")
    volumes.append(volume)
    mounts.append(mount)
    if worker:
        items = [{"key": "hostfile", "path": "hostfile"}]
        volumes.append({"name": "hosts", "configMap": {"name": f"{job.name}-config", "items": items}})
        mounts.append({"name": "hosts", "mountPath": objects.MPI_HOSTS, "readOnly": True})
    variables = {"TRAINWRIGHT_JOB_SECRET_FILE": f"{folders.secret}/{SECRET}", **_variables(job)}
    container = {
        "name": name,
        "image": job.image,
        "command": [*job.launcher, *(["--worker"] if worker else [])],
        "args": [_plain(word) for word in (job.script.path, *job.words)],
        **({"workingDir": folders.code} if _has_code(job) else {}),
        "env": [{"name": key, "value": _plain(value)} for key, value in variables.items()],
        "resources": _resources(job),
        "securityContext": objects.IPC_LOCK,
        "volumeMounts": mounts,
    }
    named = {objects.INSTANCE_LABEL: job.sagemaker if job.hyperpod else job.instance} if job.instance else {}
    selector = {**named, **(job.settings.hyperpod.healthy if job.hyperpod else {})}
    return {
        "terminationGracePeriodSeconds": job.settings.stop_seconds,
        **({"nodeSelector": selector} if selector else {}),
        "tolerations": objects.tolerations(job.devices.tolerations if job.gpus else ()),
        "containers": [container],
        "volumes": volumes,
    }


def _resources(job: Job) -> dict[str, Any]:
    """Return the resources: devices and huge pages as limits, which count as requests, and memory as a request.

    Memory has no limit, because /dev/shm would count against it. No memory is requested for an instance type without a
    description, because it may have less.
    """
    limits = objects.devices(job.gpus, job.efa, job.devices.hugepages)
    memory = {"memory": job.devices.memory} if job.devices.memory else {}
    found = {"requests": {**limits, **memory}} if limits or memory else {}
    return {"limits": limits, **found} if limits else found


def _plain(word: str) -> str:
    """Escape $ as $$, because Kubernetes expands $(NAME) in words and variables, and turns $$ into $."""
    return word.replace("$", "$$")


def _claim(mount: Mount) -> tuple[str, str]:
    """Return the claim's name, and the folder in it."""
    claim, _, folder = mount.source.partition("/")
    return claim, folder


def _volume(claim: str) -> str:
    """Return a volume name of at most 63 characters, without dots, that differs from the other volumes here."""
    return f"claim-{claim.replace('.', '-')[:56].rstrip('-')}"


def _mounted(mount: Mount) -> dict[str, Any]:
    claim, folder = _claim(mount)
    part = {"subPath": folder} if folder else {}
    read_only = {"readOnly": True} if mount.read_only else {}
    return {"name": _volume(claim), "mountPath": mount.target, **part, **read_only}


def _has_code(job: Job) -> bool:
    return bool(job.script.code) or job.script.text is not None


def _variables(job: Job) -> dict[str, str]:
    """Return the job's variables, with SM_MODEL_DIR and the SM_CHANNEL_* that SageMaker's toolkit sets for a script."""
    prefix = f"{job.settings.folders.channel}/"
    channels = [mount.target for mount in job.mounts if mount.target.startswith(prefix)]
    named = {f"SM_CHANNEL_{target.removeprefix(prefix).upper()}": target for target in channels}
    return {"SM_MODEL_DIR": job.settings.folders.model, **named, **job.environment}


# --- Slurm -----------------------------------------------------------------------------------------------------------


def slurm(job: Job) -> str:
    """Return a file for sbatch: one task on each node, in containers of pyxis and enroot.

    Slurm sends SIGTERM stop_seconds before the time limit, and requeues a job that was preempted or whose node failed.
    """
    hours = job.hours or job.settings.slurm.hours
    options = [
        f"--job-name={job.name}",
        f"--nodes={job.nodes}",
        "--ntasks-per-node=1",
        *([f"--gpus-per-node={job.gpus}"] if job.gpus else []),
        "--exclusive",
        f"--time={hours}:00:00",
        f"--signal=TERM@{job.settings.stop_seconds}",
        "--requeue",
        f"--output={job.name}-%j.log",
        "--open-mode=append",
    ]
    image = slurm_files.enroot(job.image)
    mounts = ",".join(f"{_folder(one)}:{one.target}{':ro' if one.read_only else ''}" for one in job.mounts)
    words = [
        "--kill-on-bad-exit=1",
        *(["--auto-resume=1"] if job.hyperpod else []),
        f"--container-image={image}",
    ]
    srun = [f"srun {shlex.join(words)}"]
    srun += [f'--container-mounts="{mounts}"'] if mounts else []
    srun += [f"--container-workdir={job.settings.folders.code}"] if _has_code(job) else []
    srun += [] if job.keeps_model else [shlex.join(["sh", "-c", MAKE, "sh"])]
    named = _variables(job)
    odd = [f"{name}={value}" for name, value in named.items() if not VARIABLE.fullmatch(name)]
    # SageMaker's spelling SM_CHANNEL_MY-DATA needs env, because no shell exports such a name and dash drops it.
    srun += [shlex.join([*(["env", *odd] if odd else []), *job.launcher, job.script.path, *job.words])]
    where = "Slurm of HyperPod, which replaces a broken node and starts the step again" if job.hyperpod else "Slurm"
    title = f"{job.script.path} ({job.distribution}) on {_nodes(job)}, in containers of pyxis and enroot; "
    needs_password = image != job.image and slurm_files.ECR.search(job.image)
    lines = [
        *slurm_files.head(options, [f"{title}for {where}:  sbatch THIS-FILE", *_lost(job)]),
        *(slurm_files.pull(job.image.partition("/")[0]) if needs_password else []),
        "set -euo pipefail",
        "",
        "# The job's secret is made here, on the first node, and travels in the environment of this one step: it is in",
        "# no file, in no command line, and `scontrol show job` does not have it. Slurm hands it on like any variable.",
        f'TRAINWRIGHT_JOB_SECRET="$({RANDOM})"',
        "export TRAINWRIGHT_JOB_SECRET",
        *(f"export {name}={shlex.quote(value)}" for name, value in named.items() if VARIABLE.fullmatch(name)),
        "",
        *(
            f'mkdir -p "{_folder(one)}" # on a file system that all nodes share'
            for one in job.mounts
            if _made(job, one)
        ),
        *([] if job.keeps_model else ["# shellcheck disable=SC2016 # the container's own shell reads that"]),
        "exec " + " \\\n  ".join(srun),
    ]
    return "\n".join(lines) + "\n"


def _folder(mount: Mount) -> str:
    """Return the folder for double quotes: relative to where sbatch was called, unless it is absolute."""
    if mount.source.startswith("/"):
        return mount.source
    return "$PWD" if mount.source in ("", ".") else f"$PWD/{mount.source}"


def _made(job: Job, mount: Mount) -> bool:
    return mount.target in (job.settings.folders.checkpoints, job.settings.folders.model)
