"""Write Kubernetes objects: MPIJobs of kubeflow's mpi-operator, and the settings of pods with GPUs and EFA.

Facts: kubeflow/mpi-operator pkg/apis/kubeflow/v2beta1/types.go@caa3c47 (July 2026).
"""

from collections.abc import Iterable
from typing import Any

INSTANCE_LABEL = "node.kubernetes.io/instance-type"
ARCHITECTURE_LABEL = "kubernetes.io/arch"
MPI_HOSTS = "/etc/mpi"  # where mpi-operator mounts its list of hosts, into the launcher's pod alone
IPC_LOCK = {"capabilities": {"add": ["IPC_LOCK"]}}  # EFA registers memory

Object = dict[str, Any]


def config_map(metadata: Object, data: dict[str, str]) -> Object:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def replica(count: int, restart: str, pod: Object) -> Object:
    """Return a group of equal pods of a job of kubeflow."""
    return {"replicas": count, "restartPolicy": restart, "template": {"spec": pod}}


def mpijob(metadata: Object, slots: int, policy: Object, replicas: Object, launcher_works: bool = False) -> Object:
    """Return an MPIJob of `replicas` (Launcher, Worker); `slots` are the ranks of each host."""
    works = {"runLauncherAsWorker": True} if launcher_works else {}
    spec = {"slotsPerWorker": slots, **works, "runPolicy": policy, "mpiReplicaSpecs": replicas}
    return {"apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob", "metadata": metadata, "spec": spec}


def devices(gpus: int, efa: int, hugepages: str) -> dict[str, str]:
    """Return the devices that a pod takes, as limits: GPUs, EFA interfaces, and the huge pages that libfabric uses."""
    return {
        **({"nvidia.com/gpu": str(gpus)} if gpus else {}),
        **({"vpc.amazonaws.com/efa": str(efa), "hugepages-2Mi": hugepages} if efa else {}),
    }


def shared_memory(size: str) -> tuple[Object, Object]:
    """Return the volume and the mount of /dev/shm: NCCL's and data loaders' shared memory needs more than 64 MB."""
    volume = {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": size}}
    return volume, {"name": "shm", "mountPath": "/dev/shm"}


def tolerations(keys: Iterable[str]) -> list[Object]:
    """Return tolerations of the taints that nodes with such devices have."""
    return [{"key": key, "operator": "Exists", "effect": "NoSchedule"} for key in keys]
