"""An MPIJob of kubeflow's mpi-operator: the launcher is the first host, and starts the ranks of all by ssh."""

from typing import Any

from trainwright.jobs import pods
from trainwright.jobs.spec import Job
from trainwright.schedulers import kubernetes as objects

STARTS = ("mpi",)  # its workers wait for MPI
KUBERNETES, HYPERPOD = True, False
REMARKS = (
    "The launcher is a host like the others (runLauncherAsWorker), the first one. The operator gives the list",
    "of hosts to the launcher alone; the workers mount it, too: it has the job's name, with -config. The",
    "operator's own ssh key is not used: each container makes its own.",
)


def text(job: Job) -> str:
    return pods.text(job, _mpijob(job), _log(job), REMARKS if job.nodes > 1 else ())


def commands(job: Job, file: str) -> list[str]:
    return pods.commands(job, file, _mpijob(job), _log(job))


def _log(job: Job) -> str:
    return f"job/{job.name}-launcher"


def _mpijob(job: Job) -> dict[str, Any]:
    """Return the MPIJob, whose launcher (a batch Job) is never retried.

    Because the workers end with the first launcher, a second one would find none running.
    """
    replicas = {"Launcher": pods.replica(job, 1, "Never", "mpi")}
    if job.nodes > 1:
        replicas["Worker"] = pods.replica(job, job.nodes - 1, "Never", "mpi", worker=True)
    return objects.mpijob(pods.metadata(job), job.processes, pods.policy(job, 0), replicas, launcher_works=True)
