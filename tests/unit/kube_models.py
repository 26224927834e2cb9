"""Check values against the types of Kubernetes and kubeflow's operators, as their clients' models define them.

PyTorchJob v1 is from kubeflow-training 1.9.4, which is generated from the operator's API; the core types are from the
kubernetes client 35. MPIJob v2beta1 has no client on PyPI: the fields below are copied from kubeflow/mpi-operator
pkg/apis/kubeflow/v2beta1/types.go@caa3c47 (July 2026), those of ComputeDomain from NVIDIA/k8s-dra-driver-gpu
api/nvidia.com/resource/v1beta1/computedomain.go@0a29b3d, all except their status. The models check no values, only that
required fields exist.
"""

import re
from functools import cache
from typing import Any

MPIJOB = {
    "MPIJob": {"apiVersion": "str", "kind": "str", "metadata": "V1ObjectMeta", "spec": "MPIJobSpec"},
    "MPIJobSpec": {
        "slotsPerWorker": "int",
        "runLauncherAsWorker": "bool",
        "runPolicy": "KubeflowOrgV1RunPolicy",  # of the same fields
        "mpiReplicaSpecs": "dict(str, KubeflowOrgV1ReplicaSpec)",
        "sshAuthMountPath": "str",
        "launcherCreationPolicy": "str",
        "mpiImplementation": "str",
    },
    "ComputeDomain": {"apiVersion": "str", "kind": "str", "metadata": "V1ObjectMeta", "spec": "ComputeDomainSpec"},
    "ComputeDomainSpec": {"numNodes": "int", "channel": "ComputeDomainChannel"},
    "ComputeDomainChannel": {"resourceClaimTemplate": "ComputeDomainTemplate", "allocationMode": "str"},
    "ComputeDomainTemplate": {"name": "str"},
}
PLAIN: dict[str, type] = {"str": str, "int": int, "bool": bool}
INSIDE = re.compile(r"(list|dict)[\[(](?:str, ?)?(\w+)[\])]")


def wrong(value: Any, kind: str, at: str = "") -> list[str]:
    """List the errors of a value of this kind: unknown fields, wrong types, missing fields."""
    if kind in PLAIN:
        return [] if type(value) is PLAIN[kind] else [f"{at}: {value!r} is no {kind}"]
    if found := INSIDE.fullmatch(kind):
        outer = list if found[1] == "list" else dict
        if not isinstance(value, outer):
            return [f"{at}: no {kind}"]
        rows = enumerate(value) if isinstance(value, list) else value.items()
        return [one for key, part in rows for one in wrong(part, found[2], f"{at}.{key}")]
    if not isinstance(value, dict):
        return [f"{at}: no {kind}"]
    fields = _fields(kind)
    unknown = [f"{at}.{key}: {kind} has no such field" for key in value if key not in fields]
    below = [one for key, part in value.items() if key in fields for one in wrong(part, fields[key], f"{at}.{key}")]
    return [*unknown, *(below or ([] if unknown else _missing(value, kind, at)))]


def _model(kind: str) -> Any:
    from kubeflow.training import models
    from kubernetes.client import models as core

    return getattr(models, kind, None) or getattr(core, kind)


@cache
def _settings() -> Any:
    """Return the settings of a client, which each model else makes for itself; that takes longer than its checks."""
    from kubernetes.client import Configuration

    return Configuration()


@cache
def _fields(kind: str) -> dict[str, str]:
    if kind in MPIJOB:
        return MPIJOB[kind]
    model = _model(kind)
    return {model.attribute_map[name]: kind for name, kind in model.openapi_types.items()}


def _missing(value: dict[str, Any], kind: str, at: str) -> list[str]:
    """List required fields that are missing; the models' constructors report them."""
    if kind in MPIJOB:
        return [] if kind != "MPIJobSpec" or "mpiReplicaSpecs" in value else [f"{at}: no mpiReplicaSpecs"]
    model = _model(kind)
    names = {model.attribute_map[name]: name for name in model.openapi_types}
    try:
        model(**{names[key]: part for key, part in value.items()}, local_vars_configuration=_settings())
    except ValueError as error:
        return [f"{at}: {error}"]
    return []
