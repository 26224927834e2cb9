"""Write a run as Kubernetes manifests or a SageMaker request. Pure: nothing is sent from here.

Sources: Kubernetes, kubeflow/mpi-operator `manifests/base/kubeflow.org_mpijobs.yaml`; SageMaker, botocore's
CreateTrainingJob.
"""

import base64
import gzip
import json
import re
from typing import Any

from pydantic import Field

from trainwright.errors import ConfigError
from trainwright.model import Model
from trainwright.runs import Run

# --- Kubernetes ------------------------------------------------------------------------------------------------------

# Because the images deliberately have no host keys, sshd generates them; StrictModes is off because of the modes of the
# keys that the operator mounts.
SSHD = "ssh-keygen -A && mkdir -p /run/sshd && exec /usr/sbin/sshd -De -o StrictModes=no"
INSTANCE_LABEL = "node.kubernetes.io/instance-type"
ARCHITECTURE_LABEL = "kubernetes.io/arch"


MOUNTED = "/gate"


def kubernetes(run: Run, script: str) -> list[dict[str, Any]]:
    """Return the manifests: an MPIJob for several nodes, a plain Job for one, and first the script as a ConfigMap,
    because Kubernetes expands $(...) in a command.
    """
    metadata = {"name": run.name, "labels": {"app.kubernetes.io/name": "trainwright-gate"}}
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"gate.sh": script}}
    return [config, _job(run, metadata)]


def _job(run: Run, metadata: dict[str, Any]) -> dict[str, Any]:
    command = ["bash", f"{MOUNTED}/gate.sh"]
    words = [*run.words, *run.variables]
    if run.nodes == 1:
        return {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": metadata,
            "spec": {
                "backoffLimit": 0,
                "activeDeadlineSeconds": run.seconds,
                "template": {"spec": _pod(run, [*command, *words])},
            },
        }
    hosts = ["--hostfile", "/etc/mpi/hostfile", "--trust-hosts"]
    launcher = {
        "name": "gate",
        "image": run.image,
        "command": [*command, *hosts, *words],
        "volumeMounts": [{"name": "script", "mountPath": MOUNTED}],
    }
    volumes = [{"name": "script", "configMap": {"name": run.name}}]
    # The launcher may run on any node with the image's architecture.
    where = {"nodeSelector": {ARCHITECTURE_LABEL: run.architecture}} if run.architecture else {}
    pod = {"containers": [launcher], "volumes": volumes, "tolerations": _tolerations(run), **where}
    return {
        "apiVersion": "kubeflow.org/v2beta1",
        "kind": "MPIJob",
        "metadata": metadata,
        "spec": {
            "slotsPerWorker": run.gpus,
            "runPolicy": {"backoffLimit": 0, "cleanPodPolicy": "Running", "activeDeadlineSeconds": run.seconds},
            "mpiReplicaSpecs": {
                "Launcher": {
                    "replicas": 1,
                    "restartPolicy": "Never",
                    "template": {"spec": pod},
                },
                "Worker": {
                    "replicas": run.nodes,
                    "restartPolicy": "Never",
                    "template": {"spec": _pod(run, ["bash", "-c", SSHD])},
                },
            },
        },
    }


def _pod(run: Run, command: list[str]) -> dict[str, Any]:
    settings = run.settings.kubernetes
    needs = {"nvidia.com/gpu": str(run.gpus), "memory": settings.memory}
    if run.efa:
        needs |= {"vpc.amazonaws.com/efa": str(run.efa), "hugepages-2Mi": settings.hugepages}
    container: dict[str, Any] = {
        "name": "gate",
        "image": run.image,
        "command": command,
        "securityContext": {"capabilities": {"add": ["IPC_LOCK"]}},
        "resources": {"limits": needs, "requests": needs},
        "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}],
    }
    pod: dict[str, Any] = {
        "containers": [container],
        "volumes": [{"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": settings.shm}}],
        "tolerations": _tolerations(run),
    }
    if run.nodes == 1:
        container["volumeMounts"].append({"name": "script", "mountPath": MOUNTED})
        pod["volumes"].append({"name": "script", "configMap": {"name": run.name}})
        pod["restartPolicy"] = "Never"
    if run.instance:
        pod["nodeSelector"] = {INSTANCE_LABEL: run.instance}
    return pod


def _tolerations(run: Run) -> list[dict[str, str]]:
    return [{"key": key, "operator": "Exists", "effect": "NoSchedule"} for key in run.settings.kubernetes.tolerations]


PLAIN = re.compile(r"(--?)?[A-Za-z/][\w./@=+-]*", re.ASCII)
NO_STRINGS = ("true", "false", "yes", "no", "on", "off", "null", "y", "n")  # of YAML 1.1 and 1.2
BEYOND = re.compile(r"[^\x20-\x7e]")  # includes characters that some readers take for line ends
FLOW = 90  # most characters of a list or mapping on one line


def yaml(value: Any, indent: int = 0) -> str:
    """Return a value as readable YAML: block style, short lists and mappings on one line, a script as a block scalar. A
    string that YAML could read as a number, a boolean or syntax is quoted as in JSON.
    """
    pad = "  " * indent
    if isinstance(value, dict) and value:
        return "".join(f"{pad}{_scalar(key)}:{_below(one, indent)}" for key, one in value.items())
    if isinstance(value, list) and value:
        return "".join(f"{pad}- {_row(one, indent)}" for one in value)
    return f"{pad}{_scalar(value)}\n"


def _row(value: Any, indent: int) -> str:
    if isinstance(value, dict) and (line := _flow(value)):
        return f"{line}\n"
    return yaml(value, indent + 1).removeprefix("  " * (indent + 1))


def _flow(value: Any) -> str:
    """Return the value in flow style on one line, or "" if it is too long or contains nested values."""
    parts = list(value.values()) if isinstance(value, dict) else value
    if not parts or any(isinstance(part, dict | list) or "\n" in str(part) for part in parts):
        return ""
    words = [_scalar(part) for part in parts]
    if isinstance(value, dict):
        line = f"{{{', '.join(f'{_scalar(key)}: {word}' for key, word in zip(value, words, strict=True))}}}"
    else:
        line = f"[{', '.join(words)}]"
    return line if len(line) <= FLOW else ""


def _scalar(value: Any) -> str:
    plain = isinstance(value, str) and PLAIN.fullmatch(value) and value.lower() not in NO_STRINGS
    if plain:
        return str(value)
    # JSON escapes a character beyond 16 bits as two surrogates; YAML has one escape for it.
    return BEYOND.sub(lambda found: f"\\U{ord(found[0]):08x}", json.dumps(value, ensure_ascii=False))


def _below(value: Any, indent: int) -> str:
    if isinstance(value, str) and "\n" in value and _is_block(value):
        pad = "  " * (indent + 1)
        lines = "".join(f"{pad}{line}\n" if line else "\n" for line in value.removesuffix("\n").split("\n"))
        return f" |{'' if value.endswith(chr(10)) else '-'}\n{lines}"
    if isinstance(value, list) and (line := _flow(value)):
        return f" {line}\n"
    if isinstance(value, dict | list) and value:
        return "\n" + yaml(value, indent + 1)
    return f" {_scalar(value)}\n"


def _is_block(value: str) -> bool:
    """Return whether a block scalar preserves a text: printable characters, and at most one newline at its end."""
    marks = all(mark in "\n\t" or mark.isprintable() for mark in value)
    return marks and not value.startswith((" ", "\n", "\t")) and not value.endswith("\n\n")


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
BUCKET = "a bucket's name is 3 to 63 small letters, digits, dots and hyphens; it begins and ends with a letter or digit"
HEXADECIMAL = "behind the first hyphen are small hexadecimal digits alone"
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
        raise ConfigError("a training job has a role and a place for its output", fix="--role ARN --output s3://...")
    if bool(subnets) != bool(security_groups):
        raise ConfigError(
            "subnets and security groups come together", fix="--subnet subnet-... --security-group sg-..."
        )
    asked = [
        ("--role", [role], ROLE, 1, "arn:aws:iam::<12 digits>:role/<name>", "it is the ARN of a role of IAM"),
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
            raise ConfigError(f"{len(values)} are too many, a training job takes {most}", where=option)
    return Place(role=role, output=output, subnets=subnets, security_groups=security_groups)


def sagemaker(run: Run, script: str, sagemaker_name: str, at: Place, key: str) -> dict[str, Any]:
    """Return a request for CreateTrainingJob. `key` is one line, the body of an OpenSSH key of this job between its two
    markers; "" for one host. Raises ConfigError if the instance type has no training jobs.
    """
    if not sagemaker_name:
        raise ConfigError(f"SageMaker has no training jobs on {run.instance or 'an instance type that nobody named'}")
    packed = base64.b64encode(gzip.compress(script.encode(), mtime=0)).decode()
    chunks = [packed[i : i + LONGEST_ARGUMENT] for i in range(0, len(packed), LONGEST_ARGUMENT)]
    arguments = [UNPACK, "gate", str(len(chunks)), *chunks, "--sagemaker", *run.words]
    if len(arguments) > MOST_ARGUMENTS:
        raise ConfigError(f"{len(arguments)} arguments, SageMaker takes {MOST_ARGUMENTS}", why="the script is too long")
    long = next((one for one in arguments if len(one) > LONGEST_ARGUMENT), "")
    if long:
        raise ConfigError(f"an argument is longer than SageMaker takes ({LONGEST_ARGUMENT})", why=long)
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
