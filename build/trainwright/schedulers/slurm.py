"""Write text for Slurm with pyxis and enroot: heads of sbatch files, image references, enroot's credentials."""

import re
from collections.abc import Iterable, Sequence

from trainwright.schedulers.clusters import Cluster

ECR = re.compile(r"\.dkr\.ecr(?:-fips)?\.([a-z0-9-]+)\.")  # the region of a registry of Amazon ECR


def pmix(hook: str) -> list[str]:
    """Return the comment on how ranks find each other; `hook` is the command that turns on enroot's hook."""
    return [
        "# Ranks find each other by PMIx, in containers by a hook of enroot, which is off by default. On every node:",
        f"# {hook}",
        "# Without it each rank is a world of its own, and the gate ends at once.",
    ]


def head(options: Sequence[str], comments: Iterable[str] = ()) -> list[str]:
    """Return the first lines of an sbatch file; sbatch reads its options up to the first command."""
    return ["#!/bin/bash", *(f"# {line}" for line in comments), *(f"#SBATCH {option}" for option in options)]


def without_gpus(gpus: int, cluster: Cluster) -> list[str]:
    """Return the lines that end a file's job at its start, where Slurm counts GPUs and the file requests none.

    Whether a step gets GPUs is asked of a step: --exclusive gives them to the job, and hides that the step has none.
    """
    if not gpus or cluster.gpus_per_node:
        return []
    return [
        'if [ -z "${SLURM_GPUS_PER_NODE:-}${SLURM_GPUS:-}" ] &&',
        """  scontrol show node "${SLURMD_NODENAME:-}" 2>/dev/null | grep -qE '^ *Gres=(.*,)?gpu:' &&""",
        '  [ -z "$(srun --nodes=1 --ntasks=1 --ntasks-per-node=1 printenv SLURM_STEP_GPUS || true)" ]; then',
        '  echo "this Slurm counts GPUs (GRES), and the job requested none: emit its file with --gpus-per-node" >&2',
        "  exit 2",
        "fi",
    ]


def enroot(reference: str) -> str:
    """Convert Docker's registry/path:tag@digest to enroot's form: registry#path:digest.

    Every enroot from 3.0.1 to 4.1.2 reads the digest in the place of a tag (src/docker.sh); behind an @ only enroot 4
    does.
    """
    reference, _, digest = reference.partition("@")
    if digest:
        folder, slash, name = reference.rpartition("/")
        reference = f"{folder}{slash}{name.partition(':')[0]}:{digest}"
    host, _, path = reference.partition("/")
    return f"{host}#{path}" if path and ("." in host or ":" in host or host == "localhost") else reference


def pull(host: str) -> list[str]:
    """Return the comment on what every node needs to pull from a registry that requires credentials."""
    return [
        f"# Every node pulls from {host}: enroot 3.3 or newer, and in its ~/.config/enroot/.credentials",
        f"# {credentials(host)}",
    ]


def credentials(host: str) -> str:
    """Return a registry's line in enroot's credentials file; enroot runs what begins with $ (doc/cmd/import.md)."""
    host, region = host.partition(":")[0], ECR.search(host)
    if region:
        return f"machine {host} login AWS password $(aws ecr get-login-password --region {region[1]})"
    return f"machine {host} login <user> password <token>"
