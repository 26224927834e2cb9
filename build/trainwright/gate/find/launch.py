"""Render one run of a few hosts as shell text, from the gate's own description of all of them. Pure."""

import shlex
from collections.abc import Sequence

from trainwright.gate import launchers, spec
from trainwright.gate.find.model import Settings
from trainwright.gate.spec import Run
from trainwright.schedulers.kubernetes import kubectl

VISIBLE = "CUDA_VISIBLE_DEVICES"
# In the launcher's pod, which has no GPU: its hosts are those of a file, and it runs nothing itself.
IN_POD = 'printf "%s\\n" "$1" >"/tmp/$0"; shift; exec bash -s -- --hostfile "/tmp/$0" "$@"'
HEAD = "#!/usr/bin/env bash\nset -Eeuo pipefail\n"


def part(whole: Run, hosts: Sequence[str], on: str, settings: Settings, name: str, rail: int | None = None) -> Run:
    """Return the run of some hosts; with `rail` only with this GPU of each, and the network card that belongs to it.

    For docker the hosts are the GPUs of this machine.
    """
    asked, environment = settings.run, {**whole.environment, **settings.environment}
    if len(hosts) == 1:
        environment = {key: value for key, value in environment.items() if key not in whole.settings.environment_efa}
    gpus, nodes = whole.gpus if rail is None else 1, len(hosts)
    if on == "docker":
        gpus, nodes = len(hosts), 1
        environment[VISIBLE] = ",".join(host.removeprefix("gpu") for host in hosts)
    elif rail is not None:
        environment[VISIBLE] = str(rail)
    sweep = spec.Sweep(
        collectives=[asked.collective],
        limit=asked.limit if rail is None else asked.rail_limit,
        **asked.model_dump(include={"least", "most", "factor", "iterations", "warmup", "grace", "wait"}),
    )
    if on == "slurm":  # pyxis finds the container again by its name: a host imports the image in its first run only
        name, sweep = whole.name, sweep.model_copy(update={"wait": whole.sweep.wait})
    named = [] if on == "docker" else list(hosts)
    changed = {"name": name, "nodes": nodes, "gpus": gpus, "hosts": named, "sweep": sweep, "environment": environment}
    return whole.model_copy(update=changed)


def text(run: Run, on: str, script: str, job: str = "") -> str:
    """Return the shell text that runs it: by docker or ssh, in the allocation of Slurm, in the pods of a job."""
    if on == "docker":
        remove = shlex.join(["docker", "rm", "--force", "--volumes", run.name])
        return f"trap {shlex.quote(f'{remove} >/dev/null 2>&1')} EXIT\n{launchers.docker_script(run, script)}"
    if on == "ssh":
        return launchers.ssh(run, script)
    if on == "slurm":
        # gate.sh names them to srun, which has no variable for that; SLURM_EXACT lets other steps run beside.
        nodes = shlex.quote(",".join(run.hosts))
        return f"{HEAD}export GATE_NODELIST={nodes} SLURM_EXACT=1\n{launchers.slurm_script(run, script)}"
    words = ["bash", "-c", IN_POD, run.name, "\n".join(run.hosts), *run.words, "--trust-hosts", *run.variables]
    command = [*kubectl(run.placement.namespace).split(), "exec", "--stdin", f"job/{job}-launcher", "--", *words]
    return HEAD + launchers.with_script(shlex.join(command), script)
