"""A PyTorchJob of kubeflow's training operator: a main pod that the others look for by name."""

from typing import Any

from trainwright.jobs import pods
from trainwright.jobs.spec import Job

STARTS = ("torchrun", "none")  # only the main pod has a name that the others must know
KUBERNETES, HYPERPOD = True, False


def text(job: Job) -> str:
    return pods.text(job, pytorchjob(job), log(job))


def commands(job: Job, file: str) -> list[str]:
    return pods.commands(job, file, pytorchjob(job), log(job))


def log(job: Job) -> str:
    return f"pod/{job.name}-master-0"


def pytorchjob(job: Job, annotations: dict[str, str] | None = None) -> dict[str, Any]:
    """Return the PyTorchJob; `annotations` are those of a platform that runs it."""
    metadata = pods.metadata(job)
    if annotations:
        metadata["annotations"] = annotations
    replicas = {
        "Master": pods.replica(job, 1, "OnFailure", "pytorch")
    }  # the operator looks for a container of this name
    if job.nodes > 1:
        replicas["Worker"] = pods.replica(job, job.nodes - 1, "OnFailure", "pytorch")
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": metadata,
        "spec": {
            "nprocPerNode": str(job.processes),
            "runPolicy": pods.policy(job, job.settings.retries),
            "pytorchReplicaSpecs": replicas,
        },
    }
