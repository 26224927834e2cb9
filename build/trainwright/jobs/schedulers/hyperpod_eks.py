"""A PyTorchJob on HyperPod's EKS, which replaces a broken node and resumes the job; clusters.toml has the names."""

from trainwright.jobs import pods
from trainwright.jobs.schedulers import pytorchjob
from trainwright.jobs.spec import Job

STARTS = pytorchjob.STARTS
KUBERNETES, HYPERPOD = True, True
commands = pytorchjob.commands


def text(job: Job) -> str:
    own = job.settings.hyperpod
    resumed = {own.resume: "true", own.retries: str(job.settings.retries)}
    return pods.text(job, pytorchjob.pytorchjob(job, resumed), pytorchjob.log(job))
