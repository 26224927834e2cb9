"""Render a run for each launcher: docker, ssh, Slurm, Kubernetes manifests, a SageMaker request. Pure text."""

import base64
import gzip
import json
import re
import shlex
from collections.abc import Iterable, Sequence
from typing import Any

from pydantic import Field

from trainwright.core.errors import ConfigError
from trainwright.core.toml import Model
from trainwright.gate.spec import Run
from trainwright.schedulers import dra, placement
from trainwright.schedulers import kubernetes as objects
from trainwright.schedulers import slurm as slurm_files

END = "END_OF_GATE"
END_OF_RUN = "END_OF_RUN"
BASH = ["bash", "-s", "--"]
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
    """Return the words of the docker command before and after the devices."""
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
    # Without pkill, which small images lack. The brackets keep the pattern from matching its own command line.
    pattern = shlex.quote(f"^[b]ash -s -- --name {run.name} ")
    # It tidies up on the other hosts, and is waited for.
    ending = (
        "for p in /proc/[0-9]*; do "
        f"if tr '\\0' ' ' <$p/cmdline 2>/dev/null | grep -q -- {pattern}; then kill -TERM ${{p#/proc/}}; "
        "n=0; while [ -e $p ] && [ $n -lt 75 ]; do sleep 0.2; n=$((n + 1)); done; fi; done"
    )
    lines = [
        HOST_SCRIPT.format(
            title=f"nccl-tests as {len(run.hosts)} hosts have them, by mpirun on the first one"
        ).rstrip(),
        f"tidy() {{ ssh -o BatchMode=yes -o ConnectTimeout=10 {first} {shlex.quote(ending)} || true; }}",
        # Again without the connection that starts the run, which may not have started it the first time.
        'stop() { tidy; kill "${!:-}" 2>/dev/null || true; tidy; }',
        "trap 'stop; exit 130' INT",
        "trap 'stop; exit 143' TERM",
    ]
    command = f"ssh -o BatchMode=yes {first} {shlex.quote(words)} & wait $!"
    return "\n".join(lines) + "\n" + _fed(command, script)


def _fed(command: str, script: str) -> str:
    """Return shell text that runs the command in the background, so that signals are handled at once.

    A command in the background needs an explicit standard input: the script.
    """
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
remove() (
  for host in "${{hosts[@]}}"; do
    "${{remote[@]}}" "$host" "docker rm --force --volumes $name >/dev/null 2>&1 || true" </dev/null &
  done
  wait
)
stop() {{
  trap '' INT TERM
  trap - EXIT
  remove
  wait
  rm -rf "$work"
}}
interrupted() {{
  trap '' INT TERM
  remove
  jobs -p | while read -r pid; do kill "$pid" 2>/dev/null || true; done # one may not have started its container yet
  exit "$1"
}}
trap stop EXIT
trap 'interrupted 130' INT
trap 'interrupted 143' TERM

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
    options = [
        f"--job-name={name}",
        f"--nodes={run.nodes}",
        f"--ntasks-per-node={run.gpus}",
        *([f"--gpus-per-node={run.gpus}"] if run.cluster.gpus_per_node else []),
        "--exclusive",
        f"--time={minutes // 60:02}:{minutes % 60:02}:00",
        "--mem=0",
        f"--output={name}.log",
        *placement.sbatch(run.placement),
    ]
    lines = slurm_files.head(options)
    images = [one for one in runs if one.image]
    if images and run.kinds and run.cluster.mpi_type.startswith("pmix"):
        lines += slurm_files.pmix(run.kinds.slurm.pmi_hook)
    for host in sorted({one.image.partition("/")[0] for one in images if slurm_files.enroot(one.image) != one.image}):
        lines += slurm_files.pull(host)
    lines += slurm_files.without_gpus(run.gpus, run.cluster)
    if images:
        names = " ".join(f'"pyxis_{one.name}-$SLURM_JOB_ID"' for one in images)
        remove = f"srun --nodes={run.nodes} --ntasks={run.nodes} --ntasks-per-node=1 enroot remove --force {names}"
        lines += ["tidy() {", f"  {remove} >/dev/null 2>&1 || true # pyxis may have done it", "}", "trap tidy EXIT"]
    return "\n".join(lines) + "\n"


def slurm_script(run: Run, script: str) -> str:
    """Return the commands that run in the allocation."""
    words = [*BASH, *run.words, "--srun", str(run.nodes), "--mpi", run.cluster.mpi_type]
    if run.image:
        words += ["--container", slurm_files.enroot(run.image)]
    return with_script(shlex.join([*words, *run.variables]), script)


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


# --- Kubernetes ------------------------------------------------------------------------------------------------------

# Because the images deliberately have no host keys, sshd generates them; StrictModes is off because of the modes of the
# keys that the operator mounts.
SSHD = "ssh-keygen -A && mkdir -p /run/sshd && exec /usr/sbin/sshd -De -o StrictModes=no"


MOUNTED = "/gate"


def kubernetes(run: Run, script: str) -> list[dict[str, Any]]:
    """Return the manifests: an MPIJob for several nodes, a plain Job for one, and before it what `_beside` says."""
    return [*_beside(run, script), _job(run)]


def kubernetes_commands(run: Run, file: str) -> list[str]:
    """List the commands that submit the manifests."""
    return objects.submission(file, _job(run), _beside(run, ""))


def _metadata(run: Run, name: str, labels: dict[str, str] | None = None) -> dict[str, Any]:
    return objects.metadata(
        name, run.placement.namespace, {"app.kubernetes.io/name": "trainwright-gate", **(labels or {})}
    )


def _script(run: Run) -> str:
    return f"{run.name}-script"


def _beside(run: Run, script: str) -> list[dict[str, Any]]:
    """Return what the job needs first: the script as a ConfigMap, because Kubernetes expands $(...) in a command, and
    what the pods claim (DRA).
    """
    config = objects.config_map(_metadata(run, _script(run)), {"gate.sh": script})
    return [config, *dra.documents(run.claims, _metadata(run, run.name))]


def _job(run: Run) -> dict[str, Any]:
    kinds = run.kinds
    assert kinds
    metadata = _metadata(run, run.name, placement.labels(run.placement, run.cluster, kinds.kueue))
    ended = objects.lifetime(kinds.kubernetes.ttl_seconds, run.seconds, bool(run.placement.queue))
    command = ["bash", f"{MOUNTED}/gate.sh"]
    words = [*run.words, *run.variables]
    # Topology is for the workers: the launcher has no GPU, and may run anywhere.
    notes = placement.annotations(run.placement, run.cluster, kinds.kueue, run.name, 1)
    if run.nodes == 1:
        pod = _pod(run, [*command, *words])
        spec = {"backoffLimit": 0, **ended, "template": objects.template(pod, notes)}
        return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}
    hosts = ["--hostfile", f"{objects.MPI_HOSTS}/hostfile", "--trust-hosts"]
    launcher = {
        "name": "gate",
        "image": run.image,
        "command": [*command, *hosts, *words],
        "volumeMounts": [{"name": "script", "mountPath": MOUNTED}],
    }
    volumes = [{"name": "script", "configMap": {"name": _script(run)}}]
    # The launcher may run on any node with the image's architecture.
    where = {objects.ARCHITECTURE_LABEL: run.architecture} if run.architecture else {}
    pod = {"containers": [launcher], "volumes": volumes, **_placed(run, where)}
    policy = {"backoffLimit": 0, "cleanPodPolicy": "Running", **ended}
    replicas = {
        "Launcher": objects.replica(1, "Never", pod, run.cluster.annotations),
        "Worker": objects.replica(run.nodes, "Never", _pod(run, ["bash", "-c", SSHD]), notes),
    }
    return objects.mpijob(metadata, run.gpus, policy, replicas)


def _placed(run: Run, labels: dict[str, str]) -> dict[str, Any]:
    """Return where a pod may run and in whose name; `labels` are those that its node must have anyway."""
    selector = {**labels, **run.cluster.node_labels, **run.placement.node_selector}
    return {
        **placement.pod(run.placement, run.cluster),
        **({"nodeSelector": selector} if selector else {}),
        "tolerations": objects.tolerations(run.settings.kubernetes.tolerations),
    }


def _pod(run: Run, command: list[str]) -> dict[str, Any]:
    settings = run.settings.kubernetes
    limits = objects.devices(run.cluster, run.gpus, run.efa, settings.hugepages)
    volume, mount = objects.shared_memory(settings.shm)
    container: dict[str, Any] = {
        "name": "gate",
        "image": run.image,
        "command": command,
        "securityContext": objects.IPC_LOCK,
        "resources": {"limits": limits, "requests": {**limits, **run.requests}},
        "volumeMounts": [mount],
    }
    where = {objects.INSTANCE_LABEL: run.node_type} if run.node_type else {}
    pod: dict[str, Any] = {"containers": [container], "volumes": [volume], **_placed(run, where)}
    if run.nodes == 1:
        container["volumeMounts"].append({"name": "script", "mountPath": MOUNTED})
        pod["volumes"].append({"name": "script", "configMap": {"name": _script(run)}})
        pod["restartPolicy"] = "Never"
    dra.attach(run.claims, pod)
    return pod


def json_text(value: Any) -> str:
    return json.dumps(value, indent=2) + "\n"


# --- SageMaker -------------------------------------------------------------------------------------------------------

MOST_ARGUMENTS, LONGEST_ARGUMENT = 100, 256  # botocore 1.44.5: TrainingContainerArguments, TrainingContainerArgument
# Reassembles the script and leaves its arguments; this text is passed as an argument, too.
UNPACK = (
    'n=$1; shift; s=; while [ "$n" -gt 0 ]; do s+=$1; shift; n=$((n-1)); done; '
    'exec bash -c "$(base64 -d <<<"$s" | gunzip)" gate "$@"'
)
KEY = "GATE_KEY"
# botocore 1.44.5: RoleArn, S3Uri, SubnetId, SecurityGroupId, and the maximum number of the last two
ROLE = re.compile(r"arn:aws[a-z-]*:iam::\d{12}:role/[\w+=,.@/-]+")
S3 = re.compile(r"s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/.*)?")
BUCKET = "a bucket name has 3 to 63 lower-case letters, digits, dots and hyphens; a letter or digit is first and last"
HEXADECIMAL = "only lower-case hexadecimal digits may follow the first hyphen"
SUBNET, GROUP, MOST_SUBNETS, MOST_GROUPS = re.compile(r"subnet-[0-9a-f]+"), re.compile(r"sg-[0-9a-f]+"), 16, 5


class Place(Model):
    """The account-specific settings of a training job."""

    role: str
    output: str
    subnets: list[str] = Field(default=[])
    security_groups: list[str] = Field(default=[])


def place(role: str, output: str, subnets: list[str], security_groups: list[str]) -> Place:
    """Validate the settings and return them. Raises ConfigError for values that CreateTrainingJob does not accept."""
    if not (role and output):
        raise ConfigError("a training job requires a role and an output location", fix="--role ARN --output s3://...")
    if bool(subnets) != bool(security_groups):
        raise ConfigError(
            "--subnet and --security-group must be given together", fix="--subnet subnet-... --security-group sg-..."
        )
    asked = [
        ("--role", [role], ROLE, 1, "arn:aws:iam::<12 digits>:role/<name>", "expected the ARN of an IAM role"),
        ("--output", [output], S3, 1, "s3://<bucket>/<prefix>", BUCKET),
        ("--subnet", subnets, SUBNET, MOST_SUBNETS, "subnet-0123456789abcdef0", HEXADECIMAL),
        ("--security-group", security_groups, GROUP, MOST_GROUPS, "sg-0123456789abcdef0", HEXADECIMAL),
    ]
    for option, values, pattern, most, example, why in asked:
        if wrong := [value for value in values if not pattern.fullmatch(value)]:
            raise ConfigError(
                f"{option} {wrong[0]!r} is not valid for a training job",
                where=option,
                why=why,
                fix=f"{option} {example}",
            )
        if len(values) > most:
            raise ConfigError(f"{len(values)} values are too many, a training job accepts {most}", where=option)
    return Place(role=role, output=output, subnets=subnets, security_groups=security_groups)


def sagemaker(run: Run, script: str, sagemaker_name: str, at: Place, key: str) -> dict[str, Any]:
    """Return a request for CreateTrainingJob. `key` is one line, the body of an OpenSSH key of this job between its two
    markers; "" for one host. Raises ConfigError if the instance type has no training jobs.
    """
    if not sagemaker_name:
        raise ConfigError(f"SageMaker has no training jobs on {run.instance or 'an unknown instance type'}")
    packed = base64.b64encode(gzip.compress(script.encode(), mtime=0)).decode()
    chunks = [packed[i : i + LONGEST_ARGUMENT] for i in range(0, len(packed), LONGEST_ARGUMENT)]
    arguments = [UNPACK, "gate", str(len(chunks)), *chunks, "--sagemaker", *run.words]
    if len(arguments) > MOST_ARGUMENTS:
        raise ConfigError(
            f"SageMaker accepts at most {MOST_ARGUMENTS} arguments, not {len(arguments)}", why="the script is too long"
        )
    long = next((one for one in arguments if len(one) > LONGEST_ARGUMENT), "")
    if long:
        raise ConfigError(f"an argument is longer than SageMaker accepts ({LONGEST_ARGUMENT})", why=long)
    return {
        "TrainingJobName": run.name,
        "AlgorithmSpecification": {
            "TrainingImage": run.image,
            "TrainingInputMode": "File",
            "ContainerEntrypoint": ["bash", "-c"],
            "ContainerArguments": arguments,
        },
        "RoleArn": at.role,
        "OutputDataConfig": {"S3OutputPath": at.output},
        **({"VpcConfig": {"SecurityGroupIds": at.security_groups, "Subnets": at.subnets}} if at.subnets else {}),
        "ResourceConfig": {
            "InstanceType": sagemaker_name,
            "InstanceCount": run.nodes,
            "VolumeSizeInGB": run.settings.sagemaker.volume_gb,
        },
        "StoppingCondition": {"MaxRuntimeInSeconds": run.seconds},
        "Environment": {**run.environment, **({KEY: key} if key else {})},
    }
