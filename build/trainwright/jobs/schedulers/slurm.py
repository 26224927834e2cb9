"""A job for sbatch, in containers of pyxis and enroot. Facts: sbatch(1) and srun(1) of 22.05 and later; pyxis."""

import shlex
from collections.abc import Sequence

from trainwright.jobs import prepare
from trainwright.jobs.spec import VARIABLE, Job, Mount
from trainwright.schedulers import placement
from trainwright.schedulers import slurm as files

STARTS = ("torchrun", "mpi", "tensorflow", "none")
KUBERNETES, HYPERPOD = False, False
STOPPED = 128 + 15  # the exit code of a script that SIGTERM stopped
EARLIER = 60  # seconds: sbatch(1), --signal
# Slurm's own count: half of the vCPUs where hyperthreads are off, when a number of vCPUs would stay pending for ever.
# Given to srun, because it does not take over that of sbatch since 22.05; without it, all ranks of a node share a core.
CPUS = '--cpus-per-task="$SLURM_CPUS_ON_NODE"'
# enroot's own default is a root file system that is read-only: no folder for the model, no pip, no /tmp. pyxis 0.11.
WRITABLE = "--container-writable"
NO_HOME = "--no-container-mount-home"  # as the gate: packages in ~/.local would replace those of the image
SINGLE = ["# shellcheck disable=SC2016 # the container's own shell reads that"]
RANDOM = "head -c 32 /dev/urandom | od -An -v -tx1 | tr -d ' \\n'"


def text(job: Job) -> str:
    return write(job, "Slurm")


def commands(job: Job, file: str) -> list[str]:
    return [f"job=$(sbatch --parsable {file})", f'tail -F "{job.name}-${{job%%;*}}.log"']


def write(job: Job, where: str, step: Sequence[str] = ()) -> str:
    """Return a file for sbatch: one task on each node, in containers of pyxis and enroot.

    `where` names the platform of the file, `step` are further options of the step.

    Slurm sends SIGTERM stop_seconds before the time limit, and requeues a job that was preempted or whose node failed.
    The file itself requeues a job that was stopped at its time limit and goes on from a checkpoint.
    """
    hours = job.hours or job.settings.slurm.hours
    options = [
        f"--job-name={job.name}",
        f"--nodes={job.nodes}",
        "--ntasks-per-node=1",
        *([f"--gpus-per-node={job.gpus}"] if job.gpus and job.cluster.gpus_per_node else []),
        "--exclusive",
        "--mem=0",
        f"--time={hours}:00:00",
        f"--signal=TERM@{job.settings.stop_seconds}",
        "--requeue",
        f"--output={job.name}-%j.log",
        "--open-mode=append",
        *placement.sbatch(job.placement),
    ]
    image = files.enroot(job.image)
    mounts = ",".join(f"{one.source}:{one.target}{':ro' if one.read_only else ''}" for one in job.mounts)
    # Without --container-env (pyxis 0.15) a variable that the image sets wins over --env.
    overriding = [name for name in job.environment if VARIABLE.fullmatch(name)]
    words = [
        "--kill-on-bad-exit=1",
        *step,
        f"--container-image={image}",
        WRITABLE,
        NO_HOME,
        *([f"--container-env={','.join(overriding)}"] if overriding else []),
    ]
    srun = [f"srun {shlex.join(words)}", CPUS]
    srun += [f"--container-mounts={shlex.quote(mounts)}"] if mounts else []
    srun += [f"--container-workdir={job.settings.folders.code}"] if job.has_code else []
    prepared = prepare.command(job.script.requirements, model=not job.keeps_model)
    srun += [shlex.join(prepared)] if prepared else []
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
        *files.without_gpus(job.gpus, job.cluster),
        "",
        "# The job's secret is made here, on the first node, and travels in the environment of this one step: it is in",
        "# no file, in no command line, and `scontrol show job` does not have it. Slurm hands it on like any variable.",
        f'TRAINWRIGHT_JOB_SECRET="$({RANDOM})"',
        "export TRAINWRIGHT_JOB_SECRET",
        *(f"export {name}={shlex.quote(value)}" for name, value in named.items() if VARIABLE.fullmatch(name)),
        "",
        *(f"mkdir -p {one.source} # on a file system that all nodes share" for one in job.mounts if _made(job, one)),
        *_again(job, [*(SINGLE if prepared else []), " \\\n  ".join(srun)]),
    ]
    return "\n".join(lines) + "\n"


def _again(job: Job, lines: list[str]) -> list[str]:
    """Return the step, and what queues the job again after its time limit; without a checkpoint it would start anew."""
    *before, step = lines
    if job.settings.folders.checkpoints not in {mount.target for mount in job.mounts}:
        return [*before, f"exec {step}"]
    seconds = job.settings.stop_seconds
    return [
        "code=0",
        *before,
        f"{step} || code=$?",
        "",
        f"# Slurm sends SIGTERM {seconds} s before the time limit, or a minute earlier. A script that saved and ended",
        f"# with {STOPPED} goes on from its checkpoint: the job is queued again. `scancel` ends it for good.",
        f'if [ "$code" = {STOPPED} ]; then',
        "  # Only Slurm 23.02 and later set the variable. An unknown end must not queue a failed job again and again.",
        "  end=${SLURM_JOB_END_TIME:-"
        '$(SLURM_TIME_FORMAT=%s squeue --noheader --jobs="$SLURM_JOB_ID" --format=%e || true)}',
        f'  if [[ "$end" =~ ^[0-9]+$ ]] && [ "$(date +%s)" -ge "$((end - {seconds + EARLIER}))" ]; then',
        '    scontrol requeue "$SLURM_JOB_ID"',
        "  fi",
        "fi",
        'exit "$code"',
    ]


def _made(job: Job, mount: Mount) -> bool:
    return mount.target in (job.settings.folders.checkpoints, job.settings.folders.model)
