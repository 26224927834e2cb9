"""Render a run for each launcher: docker, ssh, Slurm. Pure text; the cluster does the scheduling.

Each starts the whole of scripts/gate.sh by standard input, so that the image needs none of our files.
"""

import re
import shlex
from collections.abc import Iterable, Sequence

from trainwright.runs import Run

END = "END_OF_GATE"
END_OF_RUN = "END_OF_RUN"
BASH = ["bash", "-s", "--"]
REGION = re.compile(r"\.dkr\.ecr(?:-fips)?\.([a-z0-9-]+)\.")
HOST_SCRIPT = """\
#!/usr/bin/env bash
# {title}
set -Eeuo pipefail
"""


def docker(run: Run, devices: Iterable[str]) -> list[str]:
    """Return the docker command, which reads scripts/gate.sh from standard input. `devices` are those of the host."""
    head, tail = _docker(run)
    return [*head, *(f"--device={device}" for device in devices), *tail]


def _docker(run: Run) -> tuple[list[str], list[str]]:
    """Return the words of the docker command before and behind the devices."""
    head = ["docker", "run", "--rm", "--interactive", "--init", "--name", run.name, "--gpus", "all"]
    return head, [*_limits(run), "--entrypoint", "bash", run.image, *BASH[1:], *run.words, *run.variables]


def _limits(run: Run) -> list[str]:
    return [f"--shm-size={run.settings.docker.shm_size}", *(f"--ulimit={one}" for one in run.settings.docker.ulimits)]


def with_script(command: str, script: str) -> str:
    """Return the shell text of a command that reads the script from a here-document."""
    return f"{command} <<'{END}'\n{script}{END}\n"


def docker_script(run: Run, script: str) -> str:
    """Return a script that runs the docker command and finds the devices where it runs."""
    head, tail = _docker(run)
    title, patterns = f"nccl-tests of {run.image} on the GPUs of this machine", " ".join(run.settings.docker.devices)
    return (
        HOST_SCRIPT.format(title=title)
        + f'devices=()\nfor d in {patterns}; do [ ! -e "$d" ] || devices+=("--device=$d"); done\n'
        + with_script(f'{shlex.join(head)} ${{devices[@]+"${{devices[@]}}"}} {shlex.join(tail)}', script)
    )


# --- ssh -------------------------------------------------------------------------------------------------------------


def ssh(run: Run, script: str) -> str:
    """Return a script for a machine that reaches every host: it uses containers or, without an image, the hosts."""
    return _containers(run, script) if run.image else _bare(run, script)


def _names(run: Run) -> str:
    """Return the names by which the hosts call each other: without the user."""
    return ",".join(host.rpartition("@")[2] for host in run.hosts)


def _bare(run: Run, script: str) -> str:
    words = shlex.join([*BASH, *run.words, "--hosts", _names(run), *run.variables])
    first = shlex.quote(run.hosts[0])
    pattern = shlex.quote(f"[b]ash -s -- --name {run.name} ")
    lines = [
        HOST_SCRIPT.format(
            title=f"nccl-tests as {len(run.hosts)} hosts have them, by mpirun on the first one"
        ).rstrip(),
        f"stop() {{ ssh -o BatchMode=yes {first} pkill -TERM -f {shlex.quote(pattern)} || true; }}",
        "trap 'stop; exit 130' INT",
        "trap 'stop; exit 143' TERM",
    ]
    command = f"ssh -o BatchMode=yes {first} {shlex.quote(words)} & wait $!"
    return "\n".join(lines) + "\n" + _fed(command, script)


def _fed(command: str, script: str) -> str:
    """Run the command in the background, so that signals are handled at once; it then needs an explicit stdin."""
    program, _, rest = command.partition(" & ")
    return f"{program} <<'{END}' &\n{script}{END}\n{rest}\n"


def _containers(run: Run, script: str) -> str:
    devices = " ".join(run.settings.docker.devices)
    start = [
        "docker",
        "run",
        "--rm",
        "--interactive",
        "--init",
        "--name",
        run.name,
        "--network",
        "host",
        "--gpus",
        "all",
    ]
    # Because the remote shell also reads the words behind the devices, they are quoted once for it, once for this one.
    head = f'devices=; for d in {devices}; do [ ! -e "$d" ] || devices="$devices --device=$d"; done; '
    tail = ["--entrypoint", "bash", run.image, *BASH[1:], *run.words, "--port", str(run.settings.ssh.port)]
    tail += ["--hosts", _names(run)]
    common = f"{head}exec {shlex.join([*start, *_limits(run)])} $devices {shlex.join(tail)}"
    variables = shlex.join(run.variables)
    hosts = shlex.join(run.hosts)
    return (
        HOST_SCRIPT.format(title=f"nccl-tests of {run.image} in a container on each of {len(run.hosts)} hosts")
        + f"""\
hosts=({hosts}) name={run.name} work=$(mktemp -d)
remote=(ssh -o BatchMode=yes)
stop() {{
  trap '' INT TERM
  trap - EXIT
  for host in "${{hosts[@]}}"; do
    "${{remote[@]}}" "$host" "docker rm --force --volumes $name >/dev/null 2>&1 || true" </dev/null &
  done
  wait
  rm -rf "$work"
}}
trap stop EXIT
trap 'stop; exit 130' INT
trap 'stop; exit 143' TERM

# One key for the containers of this run, and for nothing else; it is gone with them.
ssh-keygen -q -t ed25519 -N '' -C gate -f "$work/key"
{{ printf 'GATE_KEY='; grep -v -e ----- "$work/key" | tr -d '\\n'; echo; cat <<'{END}'; }} >"$work/script"
{script}{END}
common={shlex.quote(common)}
for host in "${{hosts[@]:1}}"; do
  "${{remote[@]}}" "$host" "$common --serve" <"$work/script" >"$work/$host.log" 2>&1 &
done
code=0
"${{remote[@]}}" "${{hosts[0]}}" "$common "{shlex.quote(variables)} <"$work/script" &
wait $! || code=$?
if [ "$code" != 0 ]; then for host in "${{hosts[@]:1}}"; do sed "s/^/gate: $host: /" "$work/$host.log" >&2; done; fi
exit "$code"
"""
    )


# --- Slurm -----------------------------------------------------------------------------------------------------------


def slurm(run: Run, script: str) -> str:
    """Return a file for sbatch. With an image, its ranks run in containers of pyxis and enroot."""
    return slurm_options(run, run.name, run.seconds, [run]) + slurm_script(run, script)


def slurm_options(run: Run, name: str, seconds: int, runs: Sequence[Run]) -> str:
    """Return the head of the sbatch file for one image or several; an exit trap removes their containers."""
    minutes = -(-seconds // 60)
    lines = [
        "#!/bin/bash",
        f"#SBATCH --job-name={name}",
        f"#SBATCH --nodes={run.nodes}",
        f"#SBATCH --ntasks-per-node={run.gpus}",
        f"#SBATCH --gpus-per-node={run.gpus}",
        "#SBATCH --exclusive",
        f"#SBATCH --time={minutes // 60:02}:{minutes % 60:02}:00",
        f"#SBATCH --output={name}.log",
    ]
    images = [one for one in runs if one.image]
    for host in sorted({one.image.partition("/")[0] for one in images if enroot(one.image) != one.image}):
        lines += [
            f"# Every node pulls from {host}: enroot 3.3 or newer, and in its ~/.config/enroot/.credentials",
            f"# {credentials(host)}",
        ]
    if images:
        names = " ".join(f'"pyxis_{one.name}-$SLURM_JOB_ID"' for one in images)
        remove = f"srun --nodes={run.nodes} --ntasks={run.nodes} --ntasks-per-node=1 enroot remove --force {names}"
        lines += ["tidy() {", f"  {remove} >/dev/null 2>&1 || true # pyxis may have done it", "}", "trap tidy EXIT"]
    return "\n".join(lines) + "\n"


def slurm_script(run: Run, script: str) -> str:
    """Return the commands that run in the allocation."""
    words = [*BASH, *run.words, "--srun", str(run.nodes)]
    if run.image:
        words += ["--container", enroot(run.image)]
    return with_script(shlex.join([*words, *run.variables]), script)


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


def credentials(host: str) -> str:
    """Return a registry's line in enroot's credentials file; enroot runs what begins with $ (doc/cmd/import.md)."""
    host, region = host.partition(":")[0], REGION.search(host)
    if region:
        return f"machine {host} login AWS password $(aws ecr get-login-password --region {region[1]})"
    return f"machine {host} login <user> password <token>"


# --- two images in turn ----------------------------------------------------------------------------------------------


def in_turn(name: str, title: str, options: str, scripts: tuple[str, str], turns: Sequence[str]) -> str:
    """Return one script that runs A and B in the order of `turns`, 01-a, 02-b, ...; each log goes to a folder."""
    a, b = scripts
    return f"""\
{options.rstrip() or "#!/usr/bin/env bash"}
# {title}
set -Eeuo pipefail
mkdir {name} # where the logs go
cat >{name}/a.sh <<'{END_OF_RUN}'
{a}{END_OF_RUN}
cat >{name}/b.sh <<'{END_OF_RUN}'
{b}{END_OF_RUN}
for turn in {" ".join(turns)}; do
  echo "gate: run $turn of {len(turns)}"
  code=0
  bash "{name}/${{turn#*-}}.sh" >"{name}/$turn.log" 2>&1 </dev/null || code=$?
  if [ "$code" != 0 ]; then
    echo "gate: run $turn ended with code $code, and proves no speed: {name}/$turn.log" >&2
    exit "$code"
  fi
done
"""
