"""A job for sbatch, in containers of pyxis and enroot. Facts: sbatch(1) and srun(1) of 22.05 and later; pyxis."""

import shlex
from collections.abc import Sequence

from trainwright.jobs.spec import VARIABLE, Job, Mount
from trainwright.schedulers import slurm as files

STARTS = ("torchrun", "mpi", "tensorflow", "none")
KUBERNETES, HYPERPOD = False, False
MAKE = 'mkdir -p "$SM_MODEL_DIR" && exec "$@"'  # the image lacks this folder
RANDOM = "head -c 32 /dev/urandom | od -An -v -tx1 | tr -d ' \\n'"


def text(job: Job) -> str:
    return write(job, "Slurm")


def commands(job: Job, file: str) -> list[str]:
    return [f"job=$(sbatch --parsable {shlex.quote(file)})", f'tail -F "{job.name}-${{job%%;*}}.log"']


def write(job: Job, where: str, step: Sequence[str] = ()) -> str:
    """Return a file for sbatch: one task on each node, in containers of pyxis and enroot.

    `where` names the platform of the file, `step` are further options of the step.

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
    image = files.enroot(job.image)
    mounts = ",".join(f"{_folder(one)}:{one.target}{':ro' if one.read_only else ''}" for one in job.mounts)
    words = [
        "--kill-on-bad-exit=1",
        *step,
        f"--container-image={image}",
    ]
    srun = [f"srun {shlex.join(words)}"]
    srun += [f'--container-mounts="{mounts}"'] if mounts else []
    srun += [f"--container-workdir={job.settings.folders.code}"] if job.has_code else []
    srun += [] if job.keeps_model else [shlex.join(["sh", "-c", MAKE, "sh"])]
    named = job.variables
    odd = [f"{name}={value}" for name, value in named.items() if not VARIABLE.fullmatch(name)]
    # SageMaker's spelling SM_CHANNEL_MY-DATA needs env, because no shell exports such a name and dash drops it.
    srun += [shlex.join([*(["env", *odd] if odd else []), *job.launcher, job.script.path, *job.words])]
    needs_password = image != job.image and files.ECR.search(job.image)
    lines = [
        *files.head(
            options, [f"{job.title}, in containers of pyxis and enroot; for {where}:  sbatch THIS-FILE", *job.lost]
        ),
        *(files.pull(job.image.partition("/")[0]) if needs_password else []),
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
    """Return the folder as text for double quotes; a relative one is below the folder where sbatch was called."""
    if mount.source.startswith("/"):
        return mount.source
    return "$PWD" if mount.source in ("", ".") else f"$PWD/{mount.source}"


def _made(job: Job, mount: Mount) -> bool:
    return mount.target in (job.settings.folders.checkpoints, job.settings.folders.model)
