"""Write Kubernetes objects: MPIJobs of kubeflow's mpi-operator, and the settings of pods with GPUs and EFA.

Facts: kubeflow/mpi-operator pkg/apis/kubeflow/v2beta1/types.go@caa3c47 (July 2026).
"""

from collections.abc import Iterable, Sequence
from typing import Any

from trainwright.core.toml import Model
from trainwright.matrix.instances import Instance
from trainwright.schedulers.clusters import Cluster, Kinds

INSTANCE_LABEL = "node.kubernetes.io/instance-type"
ARCHITECTURE_LABEL = "kubernetes.io/arch"
MPI_HOSTS = "/etc/mpi"  # where mpi-operator mounts its list of hosts, into the launcher's pod alone
IPC_LOCK = {"capabilities": {"add": ["IPC_LOCK"]}}  # EFA registers memory

ONCE = "These names are of one submission. For another run, also while this one is running: emit the file again."

Object = dict[str, Any]


class System(Model):
    """What a node keeps for kubelet, daemonsets and huge pages: shares, and constants beside them."""

    cpu_share: float
    cpus: float
    memory_share: float
    memory_gib: float
    hugepages_gib: float


def kubectl(namespace: str) -> str:
    return f"kubectl -n {namespace}" if namespace else "kubectl"


def metadata(name: str, namespace: str, labels: dict[str, str] | None = None) -> Object:
    return {
        "name": name,
        **({"namespace": namespace} if namespace else {}),
        **({"labels": labels} if labels else {}),
    }


def submission(file: str, one: Object, owned: Sequence[Object]) -> list[str]:
    """List the commands that create a file's objects and make the job `one` the owner of the others.

    Kubernetes removes them with it. Because its uid is known only after its creation, the file cannot say so. `create`
    refuses a file that was submitted before; `apply` would leave the finished job as it is, and its old log.
    """
    program, name = kubectl(one["metadata"].get("namespace", "")), one["metadata"]["name"]
    owner = f"{{apiVersion: {one['apiVersion']}, kind: {one['kind']}, name: {name}, uid: $uid}}"
    patch = f'{program} patch "$one" --type=merge --patch "metadata: {{ownerReferences: [{owner}]}}"'
    names = " ".join(f"{other['kind'].lower()}/{other['metadata']['name']}" for other in owned)
    return [
        f"{program} create -f {file}",
        f"uid=$({program} get {one['kind'].lower()} {name} -o 'jsonpath={{.metadata.uid}}')",
        f"for one in {names}; do {patch}; done",
    ]


def lifetime(ttl_seconds: int, deadline: int | None, queued: bool) -> Object:
    """Return when a job is ended and removed. A queue admits it first: Kueue ends its suspension."""
    return {
        "ttlSecondsAfterFinished": ttl_seconds,
        **({"activeDeadlineSeconds": deadline} if deadline else {}),
        **({"suspend": True} if queued else {}),
    }


def config_map(metadata: Object, data: dict[str, str]) -> Object:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def template(pod: Object, annotations: dict[str, str]) -> Object:
    return {**({"metadata": {"annotations": annotations}} if annotations else {}), "spec": pod}


def replica(count: int, restart: str, pod: Object, annotations: dict[str, str] | None = None) -> Object:
    """Return a group of equal pods of a job of kubeflow."""
    return {"replicas": count, "restartPolicy": restart, "template": template(pod, annotations or {})}


def mpijob(metadata: Object, slots: int, policy: Object, replicas: Object, launcher_works: bool = False) -> Object:
    """Return an MPIJob of `replicas` (Launcher, Worker); `slots` are the ranks of each host."""
    works = {"runLauncherAsWorker": True} if launcher_works else {}
    spec = {"slotsPerWorker": slots, **works, "runPolicy": policy, "mpiReplicaSpecs": replicas}
    return {"apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob", "metadata": metadata, "spec": spec}


def devices(cluster: Cluster, gpus: int, efa: int, hugepages: str) -> dict[str, str]:
    """Return the devices that a pod takes, as limits: GPUs, EFA interfaces, and the huge pages that libfabric uses.

    Interfaces that are claimed (DRA) are not in it.
    """
    return {
        **({"nvidia.com/gpu": str(gpus)} if gpus else {}),
        **({"vpc.amazonaws.com/efa": str(efa)} if efa and not cluster.dra else {}),
        **({"hugepages-2Mi": hugepages} if efa and cluster.huge_pages else {}),
    }


def environment(kinds: Kinds, cluster: Cluster, efa: int) -> dict[str, str]:
    """Return the variables that pods with so many interfaces need on this cluster."""
    return kinds.kubernetes.without_huge_pages if efa and not cluster.huge_pages else {}


def requests(row: Instance, system: System, gpus: int = 0) -> dict[str, str]:
    """Return the CPUs and the memory that a pod requests of a node of this type; {} if no source states their number.

    `gpus`: those of the pod, if it leaves others of the node to other pods. Limits would be wrong: a pod may take more
    CPUs while other pods leave them idle, and /dev/shm would count against a limit of the memory.
    """
    if not row.vcpus:
        return {}
    share = gpus / row.count if gpus and row.count else 1
    kept = system.memory_gib + (system.hugepages_gib if row.efa else 0)
    cpus = share * (row.vcpus * (1 - system.cpu_share) - system.cpus)
    memory = share * (row.ram_gib * (1 - system.memory_share) - kept)
    return {"cpu": str(max(1, int(cpus))), "memory": f"{max(1, int(memory))}Gi"}


def shared_memory(size: str) -> tuple[Object, Object]:
    """Return the volume and the mount of /dev/shm: NCCL's and data loaders' shared memory needs more than 64 MB."""
    volume = {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": size}}
    return volume, {"name": "shm", "mountPath": "/dev/shm"}


def tolerations(keys: Iterable[str]) -> list[Object]:
    """Return tolerations of the taints that nodes with such devices have."""
    return [{"key": key, "operator": "Exists", "effect": "NoSchedule"} for key in keys]
