"""A job for the Slurm of HyperPod, which replaces a broken node and starts the step again.

Facts: `srun --auto-resume=1` of AWS's page sagemaker-hyperpod-resiliency-slurm-auto-resume (November 2026).
"""

from trainwright.jobs.schedulers import slurm
from trainwright.jobs.spec import Job

STARTS = slurm.STARTS
KUBERNETES, HYPERPOD = False, True
commands = slurm.commands


def text(job: Job) -> str:
    where = "Slurm of HyperPod, which replaces a broken node and starts the step again"
    return slurm.write(job, where, ["--auto-resume=1"])
