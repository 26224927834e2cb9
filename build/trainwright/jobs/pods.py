"""Write a training job's pods for kubeflow's operators, and the file that contains them. Pure: it submits nothing.

Facts: kubeflow-training 1.9.4 for a PyTorchJob; for an MPIJob see schedulers/kubernetes.py.
"""

from collections.abc import Sequence
from typing import Any

from trainwright.core import yaml_text
from trainwright.jobs.spec import Job, Mount
from trainwright.schedulers import kubernetes as objects

SECRET = "secret"  # the key in the Secret, and the file's name


def text(job: Job, one: dict[str, Any], log: str, remarks: Sequence[str] = ()) -> str:
    """Return the file: a comment for its readers, a ConfigMap with the script, if it is included, and the job."""
    lines = [f"{job.title}; for {job.settings.operators[job.on]}", *remarks, *job.lost]
    comments = "".join(f"# {line}".rstrip() + "\n" for line in [*lines, "", *commands(job, "THIS-FILE", log)])
    code = job.script.text
    config = [] if code is None else [objects.config_map(metadata(job, f"{job.name}-code"), {job.script.path: code})]
    return comments + yaml_text.dump(*config, one)


def commands(job: Job, file: str, log: str) -> list[str]:
    """List the commands that submit and follow the job, in order; `log` is what kubectl reads, such as job/NAME."""
    kubectl = f"kubectl -n {job.namespace}" if job.namespace else "kubectl"
    return [
        f"openssl rand -hex 32 | {kubectl} create secret generic {job.secret} --from-file={SECRET}=/dev/stdin",
        f"{kubectl} apply -f {file}",
        f"{kubectl} logs --follow {log}",
    ]


def metadata(job: Job, name: str) -> dict[str, Any]:
    return {"name": name, **({"namespace": job.namespace} if job.namespace else {})}


def policy(job: Job, retries: int) -> dict[str, Any]:
    deadline = {"activeDeadlineSeconds": job.hours * 3600} if job.hours else {}
    ttl = {"ttlSecondsAfterFinished": job.settings.kubernetes.ttl_seconds}
    return {"backoffLimit": retries, "cleanPodPolicy": "Running", **ttl, **deadline}


def replica(job: Job, count: int, restart: str, name: str, worker: bool = False) -> dict[str, Any]:
    return objects.replica(count, restart, _pod(job, name, worker))


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
    variables = {"TRAINWRIGHT_JOB_SECRET_FILE": f"{folders.secret}/{SECRET}", **job.variables}
    container = {
        "name": name,
        "image": job.image,
        "command": [*job.launcher, *(["--worker"] if worker else [])],
        "args": [_plain(word) for word in (job.script.path, *job.words)],
        **({"workingDir": folders.code} if job.has_code else {}),
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
