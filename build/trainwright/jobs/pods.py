"""Write a training job's pods for kubeflow's operators, and the file that contains them. Pure: it submits nothing.

Facts: kubeflow-training 1.9.4 for a PyTorchJob; for an MPIJob see schedulers/kubernetes.py.
"""

from collections.abc import Sequence
from hashlib import sha256
from typing import Any

from trainwright.core import yaml_text
from trainwright.jobs import prepare
from trainwright.jobs.spec import Job, Mount
from trainwright.schedulers import dra, placement
from trainwright.schedulers import kubernetes as objects

SECRET = "secret"  # the key in the Secret, and the file's name
Object = objects.Object


def text(job: Job, one: Object, log: str, remarks: Sequence[str] = ()) -> str:
    """Return the file: a comment for its readers, a ConfigMap with the script, if it is included, and the job."""
    needs = dra.remarks(job.settings.claims, job.claims, job.on)
    lines = [f"{job.title}; for {job.settings.operators[job.on]}", *needs, *remarks, *job.notes, "", objects.ONCE]
    comments = "".join(f"# {line}".rstrip() + "\n" for line in [*lines, *commands(job, "THIS-FILE", one, log)])
    return comments + yaml_text.dump(*_beside(job), one)


def commands(job: Job, file: str, one: Object, log: str) -> list[str]:
    """List the commands that submit and follow the job, in order; `log` is what kubectl reads, such as job/NAME."""
    kubectl = objects.kubectl(job.namespace)
    secret = {"kind": "Secret", "metadata": {"name": job.secret}}
    there = f"{kubectl} get {one['kind'].lower()} {job.name} >/dev/null"
    return [
        f"openssl rand -hex 32 | {kubectl} create secret generic {job.secret} --from-file={SECRET}=/dev/stdin",
        *objects.submission(file, one, [secret, *_beside(job)]),
        # The log fails while the pod waits for its node, and for ever once the job is gone.
        f"while {there} && ! {kubectl} logs --follow {log}; do sleep 10; done",
    ]


def metadata(job: Job) -> Object:
    """Return the metadata of the job's own object."""
    labels = placement.labels(job.placement, job.cluster, job.settings.kueue)
    return objects.metadata(job.name, job.namespace, labels)


def _beside(job: Job) -> list[Object]:
    """Return the objects that the file contains before the job: its script, if it is sent, and what pods claim."""
    code = objects.config_map(objects.metadata(_code(job), job.namespace), _sent(job))
    claimed = dra.documents(job.claims, objects.metadata(job.name, job.namespace))
    return [*([code] if _sent(job) else []), *claimed]


def _code(job: Job) -> str:
    return f"{job.name}-code"


def _sent(job: Job) -> dict[str, str]:
    """Return the files that travel with the job."""
    return {} if job.script.text is None else {job.script.path: job.script.text, **job.script.beside}


def policy(job: Job, retries: int) -> Object:
    """Return when the job is retried, ended and removed."""
    deadline = job.hours * 3600 if job.hours else None
    ended = objects.lifetime(job.settings.kubernetes.ttl_seconds, deadline, bool(job.placement.queue))
    return {"backoffLimit": retries, "cleanPodPolicy": "Running", **ended}


def replica(job: Job, count: int, restart: str, name: str, worker: bool = False) -> Object:
    notes = placement.annotations(job.placement, job.cluster, job.settings.kueue, job.name, min(job.nodes, 2))
    return objects.replica(count, restart, _pod(job, name, worker), notes)


def _pod(job: Job, name: str, worker: bool) -> Object:
    folders = job.settings.folders
    volumes: list[dict[str, Any]] = [{"name": "secret", "secret": {"secretName": job.secret, "defaultMode": 0o400}}]
    mounts = [{"name": "secret", "mountPath": folders.secret, "readOnly": True}]
    if job.script.text is not None:
        volumes.append({"name": "code", "configMap": {"name": _code(job)}})
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
    prepared = prepare.command(job.script.requirements, model=False)
    variables = {
        "TRAINWRIGHT_JOB_SECRET_FILE": f"{folders.secret}/{SECRET}",
        **objects.environment(job.settings, job.cluster, job.efa),
        **job.variables,
    }
    container = {
        "name": name,
        "image": job.image,
        "command": [*prepared, *job.launcher, *(["--worker"] if worker else [])],
        "args": [_plain(word) for word in (job.script.path, *job.words)],
        **({"workingDir": folders.code} if job.has_code else {}),
        "env": [{"name": key, "value": _plain(value)} for key, value in variables.items()],
        "resources": _resources(job),
        "securityContext": objects.IPC_LOCK,
        "volumeMounts": mounts,
    }
    named = {objects.INSTANCE_LABEL: job.node_type} if job.instance else {}
    selector = {**named, **job.cluster.node_labels, **job.placement.node_selector}
    pod = {
        "terminationGracePeriodSeconds": job.settings.stop_seconds,
        **placement.pod(job.placement, job.cluster),
        **({"nodeSelector": selector} if selector else {}),
        "tolerations": objects.tolerations(job.devices.tolerations if job.gpus else ()),
        "containers": [container],
        "volumes": volumes,
    }
    dra.attach(job.claims, pod)
    return pod


def _resources(job: Job) -> Object:
    """Return the resources: devices and huge pages as limits and requests, CPUs and memory as requests."""
    limits = objects.devices(job.cluster, job.gpus, job.efa, job.devices.hugepages)
    found = {"requests": {**limits, **job.requests}} if limits or job.requests else {}
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
    plain = claim.replace(".", "-")[:56].rstrip("-")
    return f"claim-{plain}" if plain == claim else f"claim-{plain[:47]}-{sha256(claim.encode()).hexdigest()[:8]}"


def _mounted(mount: Mount) -> dict[str, Any]:
    claim, folder = _claim(mount)
    part = {"subPath": folder} if folder else {}
    read_only = {"readOnly": True} if mount.read_only else {}
    return {"name": _volume(claim), "mountPath": mount.target, **part, **read_only}
