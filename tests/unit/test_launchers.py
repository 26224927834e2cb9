"""One run, and what each launcher is given of it: valid for that launcher, and the same run in all of them."""

import base64
import gzip
import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import botocore.session
import pytest
import yaml
from botocore.validate import ParamValidator
from hosts import DIGEST, GOOD, HANGS, LOGS, ROOT, Host
from pydantic import BaseModel, ConfigDict, Field

from trainwright import cloud_launchers, floors, gateable, instances, launchers, launching, linting, runs
from trainwright.errors import ConfigError, EnvironmentProblem
from trainwright.instances import Instance
from trainwright.runs import Run

IMAGE = f"123456789012.dkr.ecr.us-east-1.amazonaws.com/trainwright/pytorch@{DIGEST}"
SCRIPT = (ROOT / "scripts/gate.sh").read_text()
NOT_SET = ("FI_PROVIDER", "FI_EFA_USE_DEVICE_RDMA", "FI_EFA_FORK_SAFE", "RDMAV_FORK_SAFE", "NCCL_PROTO", "NCCL_ALGO")


@pytest.fixture(scope="module")
def table() -> dict[str, Instance]:
    return instances.load_instances(ROOT)


Make = Callable[..., Run]
Cli = Callable[..., Any]


@pytest.fixture
def make(table: dict[str, Instance]) -> Make:
    def of(**asked: Any) -> Run:
        settings = {"name": "gate-pytorch-20261122-060000", "image": IMAGE, "instance": "p5.48xlarge", "nodes": 2}
        return runs.make(runs.load_settings(ROOT), table, floors.load_floors(ROOT), **{**settings, **asked})

    return of


# --- the run ---------------------------------------------------------------------------------------------------------


def test_a_run_has_what_its_instance_type_has(make: Make) -> None:
    run = make()
    assert (run.gpus, run.efa, run.ranks) == (8, 32, 16)
    assert run.environment["NCCL_NET"] == "Libfabric"
    assert make(instance="ml.p5.48xlarge").instance == "p5.48xlarge"
    assert make(gpus=4).ranks == 8


def test_only_several_hosts_with_efa_insist_on_it(make: Make) -> None:
    assert "NCCL_NET" not in make(nodes=1).environment
    assert "NCCL_NET" not in make(instance="g5.xlarge").environment
    assert "NCCL_NET" not in make(instance="", gpus=8).environment


def test_what_the_plugin_knows_better_is_not_set(make: Make) -> None:
    assert not {name for name in make().environment if name.startswith(NOT_SET)}


def test_the_largest_message_is_one_that_a_floor_asks_for(make: Make, table: dict[str, Instance]) -> None:
    for floor in floors.load_floors(ROOT).floors:
        for name in floor.instances:
            assert make(instance=name).sweep.most >= floor.size, name
    for name, row in table.items():
        if row.count:  # nccl-tests hold three buffers of it
            assert make(instance=name).sweep.most * 3 < row.memory_gib * 2**30, name


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"instance": "p5.48xlrge"}, "did you mean 'p5.48xlarge'"),
        ({"efa": 33}, "33 EFA interfaces are asked for, p5.48xlarge has 32"),
        ({"gpus": 9}, "9 GPUs are asked for, p5.48xlarge has 8"),
        ({"instance": ""}, "how many GPUs a host has"),
        ({"instance": "c5n.18xlarge"}, "has no GPU"),
        ({"collectives": ["allreduce"]}, "did you mean 'all_reduce'"),
        ({"hosts": ["one"]}, "1 hosts are named"),
        ({"hosts": ["one", "one"]}, "named twice"),
        ({"hosts": ["one", "two; reboot"]}, "is no host"),
    ],
)
def test_what_does_not_go_together_is_refused(make: Make, asked: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        make(**asked)
    assert said in f"{refused.value.what} {refused.value.why}"


def test_hosts_are_read_as_mpirun_reads_them() -> None:
    text = "# ours\nroot@10.0.0.1 slots=8\n\ntwo:8  # the other\n"
    assert runs.read_hosts(text) == ["root@10.0.0.1", "two"]


@pytest.mark.parametrize("subject", ["pytorch-2.15-cu132-py313-sagemaker-single-node", IMAGE, "", "a/b:1.0", "---"])
def test_a_name_suits_every_launcher(subject: str) -> None:
    name = runs.name_of(subject, "20261122-060000")
    assert re.fullmatch(r"[a-z]([a-z0-9-]*[a-z0-9])?", name)
    assert len(f"{name}-launcher") <= 63


# --- docker, ssh, Slurm ----------------------------------------------------------------------------------------------


def clean(text: str, tmp_path: Path) -> None:
    """Valid for bash, and for shellcheck."""
    path = tmp_path / "emitted.sh"
    path.write_text(text)
    subprocess.run(["bash", "-n", path], check=True)
    said = subprocess.run([linting._ours("shellcheck"), "--severity", "warning", path], capture_output=True, text=True)
    assert said.stdout == ""


def test_docker_gets_all_gpus_devices_and_limits(make: Make, tmp_path: Path) -> None:
    run = make(nodes=1)
    devices = [f"/dev/infiniband/uverbs{number}" for number in range(32)]
    words = launchers.docker(run, devices)
    assert words[words.index("--gpus") + 1] == "all"
    assert [word for word in words if word.startswith("--device=")] == [f"--device={device}" for device in devices]
    assert {"--ulimit=memlock=-1", "--ulimit=stack=67108864", "--shm-size=8g", "--rm", "--init"} <= set(words)
    assert words[words.index(IMAGE) - 2 :][:3] == ["--entrypoint", "bash", IMAGE]
    assert words[-len(run.variables) :] == run.variables
    clean(launchers.docker_script(run, SCRIPT), tmp_path)


def test_the_script_for_docker_finds_the_devices_where_it_runs(make: Make, cluster: Host, tmp_path: Path) -> None:
    for number in range(2):
        (tmp_path / f"uverbs{number}").touch()
    cluster.prints("all_reduce_perf", GOOD)
    run = make(nodes=1, collectives=["all_reduce"])
    patterns = {"devices": [f"{tmp_path}/uverbs*", f"{tmp_path}/gdrdrv"]}
    docker = run.settings.docker.model_copy(update=patterns)
    run = run.model_copy(update={"settings": run.settings.model_copy(update={"docker": docker})})
    assert run_here(cluster, launchers.docker_script(run, SCRIPT)).returncode == 0
    (ran,) = (cluster.folder / "docker.log").read_text().splitlines()
    assert re.findall(r"--device=(\S+)", ran) == [f"{tmp_path}/uverbs{number}" for number in range(2)]


def test_slurm_gets_options_that_sbatch_has(make: Make, tmp_path: Path) -> None:
    text = launchers.slurm(make(), SCRIPT)
    options = dict(re.findall(r"^#SBATCH --([a-z-]+)=?(.*)$", text, re.MULTILINE))
    known = {"job-name", "nodes", "ntasks-per-node", "gpus-per-node", "exclusive", "time", "output"}
    assert options.keys() == known  # sbatch(1)
    assert (options["nodes"], options["ntasks-per-node"], options["gpus-per-node"]) == ("2", "8", "8")
    assert re.fullmatch(r"\d\d:\d\d:00", options["time"])
    assert text.startswith("#!/bin/bash\n#SBATCH")  # what follows a command is none
    host = "123456789012.dkr.ecr.us-east-1.amazonaws.com"
    assert f"--container '{host}#trainwright/pytorch:{DIGEST}'" in text
    assert f"machine {host} login AWS password $(aws ecr get-login-password --region us-east-1)" in text
    assert f'enroot remove --force "pyxis_{make().name}-$SLURM_JOB_ID"' in text
    bare = launchers.slurm(make(image=""), SCRIPT)
    assert not [word for word in ("--container '1", "credentials", "enroot remove") if word in bare]
    clean(text, tmp_path)


def test_what_slurm_imported_is_removed_from_every_node(make: Make, cluster: Host) -> None:
    cluster.program("srun", 'echo "srun $*" | head -n 1 >> "${0%/*}/srun.log"')
    text = launchers.slurm(make(collectives=["all_reduce"]), SCRIPT)
    name = f"{make().name}-77"
    assert run_here(cluster, f"export SLURM_JOB_ID=77\n{text}").returncode == 0
    ran = (cluster.folder / "srun.log").read_text().splitlines()
    assert f"--container-name={name} " in next(line for line in ran if "--container-image" in line)
    assert ran[-1] == f"srun --nodes=2 --ntasks=2 --ntasks-per-node=1 enroot remove --force pyxis_{name}"


# The parsers of enroot 3.0.1 to 4.1.2 (src/docker.sh) all read these, and give the digest to the registry.
ENROOT = re.compile(r"(?:([^#/@]+)#)?([a-z0-9/._-]+)(?::([A-Za-z0-9._:-]+))?")


@pytest.mark.parametrize(
    ("reference", "read"),
    [
        ("localhost:5000/a/b:1", ("localhost:5000", "a/b", "1")),
        (f"localhost:5000/a/b@{DIGEST}", ("localhost:5000", "a/b", DIGEST)),
        (f"x.example/a/b:1@{DIGEST}", ("x.example", "a/b", DIGEST)),
        ("nvidia/cuda:13", (None, "nvidia/cuda", "13")),
        (f"nvidia/cuda@{DIGEST}", (None, "nvidia/cuda", DIGEST)),
    ],
)
def test_enroot_reads_a_reference_to_its_digest(reference: str, read: tuple[str | None, str, str]) -> None:
    found = ENROOT.fullmatch(launchers.enroot(reference))
    assert found
    assert found.groups() == read


def test_the_credentials_of_a_registry_are_said_as_enroot_takes_them() -> None:
    assert launchers.credentials("x.example:5000") == "machine x.example login <user> password <token>"


def test_ssh_scripts_are_sound(make: Make, tmp_path: Path) -> None:
    for image in (IMAGE, ""):
        clean(launchers.ssh(make(image=image, hosts=["ec2-user@one", "two"]), SCRIPT), tmp_path)


SSH_HERE = """\
while [ $# -gt 0 ]; do case $1 in -o | -F | -p) shift 2 ;; *) break ;; esac; done
shift
[ "$*" = true ] && exit 0
exec bash -c "$*"
"""
DOCKER_HERE = """\
echo "docker $*" | cut -c1-2000 >> "${0%/*}/docker.log"
[ "$1" = run ] || exit 0
while [ "$1" != --entrypoint ]; do shift; done
shift 3
exec bash "$@"
"""
MPIRUN_HERE = 'while [[ $1 != *_perf ]]; do if [ "$1" = -x ]; then shift; fi; shift; done\nexec "$@"'


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    """Two hosts that are this one: every program that would leave it stays here."""
    folder = tmp_path / "bin"
    folder.mkdir()
    host = Host(folder)
    for name, text in (("ssh", SSH_HERE), ("docker", DOCKER_HERE), ("mpirun", MPIRUN_HERE), ("sshd", "exec sleep 60")):
        host.program(name, text)
    monkeypatch.setenv("GATE_FOLDER", str(tmp_path / "work"))
    return host


def run_here(host: Host, text: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-c", text], env=host.environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60
    )


@pytest.mark.parametrize("image", [IMAGE, ""])
def test_ssh_runs_on_all_hosts_and_leaves_none_of_them_waiting(make: Make, cluster: Host, image: str) -> None:
    cluster.prints("all_reduce_perf", GOOD)
    run = make(image=image, hosts=["root@one", "two"], collectives=["all_reduce"], instance="", gpus=8)
    done = run_here(cluster, launchers.ssh(run, SCRIPT))
    assert done.returncode == 0, done.stderr
    assert "gate: all_reduce exited with code 0" in done.stdout
    assert (f"gate: image {IMAGE}" in done.stdout) is bool(image)
    assert "KEY" not in done.stdout + done.stderr
    assert cluster.left() == []
    if image:
        ran = (cluster.folder / "docker.log").read_text().splitlines()
        assert sorted(line.split()[1] for line in ran) == ["rm", "rm", "run", "run"]
        assert sum(" --serve" in line for line in ran) == 1
        assert all(" --network host --gpus all " in line for line in ran if line.startswith("docker run"))


# --- Kubernetes ------------------------------------------------------------------------------------------------------


class Strict(BaseModel):
    """What of Kubernetes we use; kubeflow/mpi-operator manifests/base/kubeflow.org_mpijobs.yaml@caa3c47."""

    model_config = ConfigDict(extra="forbid", strict=True)


Quantity = Field(pattern=r"^\d+(Mi|Gi)?$")
DnsName = Field(pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$")


class Metadata(Strict):
    name: str = DnsName
    labels: dict[str, str] = {}


class Resources(Strict):
    limits: dict[str, str]
    requests: dict[str, str]


class Mount(Strict):
    name: str
    mountPath: str = Field(pattern="^/")


class Capabilities(Strict):
    add: list[str]


class Security(Strict):
    capabilities: Capabilities


class Container(Strict):
    name: str
    image: str
    command: list[str]
    securityContext: Security | None = None
    resources: Resources | None = None
    volumeMounts: list[Mount] = []


class EmptyDir(Strict):
    medium: Literal["Memory"]
    sizeLimit: str = Quantity


class ConfigName(Strict):
    name: str


class Volume(Strict):
    name: str
    emptyDir: EmptyDir | None = None
    configMap: ConfigName | None = None


class Toleration(Strict):
    key: str = Field(pattern=r"^[a-z.]+/[a-z]+$")
    operator: Literal["Exists"]
    effect: Literal["NoSchedule"]


class Pod(Strict):
    containers: list[Container]
    tolerations: list[Toleration]
    volumes: list[Volume] = []
    nodeSelector: dict[str, str] = {}
    restartPolicy: Literal["Never", "OnFailure"] | None = None


class Template(Strict):
    spec: Pod


class Replica(Strict):
    replicas: int
    restartPolicy: Literal["Never", "OnFailure"]
    template: Template


class Replicas(Strict):
    Launcher: Replica
    Worker: Replica


class Policy(Strict):
    backoffLimit: int
    cleanPodPolicy: Literal["None", "Running", "All"]
    activeDeadlineSeconds: int


class MpiSpec(Strict):
    slotsPerWorker: int
    runPolicy: Policy
    mpiReplicaSpecs: Replicas


class MpiJob(Strict):
    apiVersion: Literal["kubeflow.org/v2beta1"]
    kind: Literal["MPIJob"]
    metadata: Metadata
    spec: MpiSpec


class JobSpec(Strict):
    backoffLimit: int
    activeDeadlineSeconds: int
    template: Template


class Job(Strict):
    apiVersion: Literal["batch/v1"]
    kind: Literal["Job"]
    metadata: Metadata
    spec: JobSpec


def documents(run: Run) -> list[dict[str, Any]]:
    return list(
        yaml.safe_load_all("---\n".join(cloud_launchers.yaml(one) for one in cloud_launchers.kubernetes(run, SCRIPT)))
    )


def test_an_mpijob_gives_each_worker_its_devices(make: Make) -> None:
    run = make()
    config, text = documents(run)
    assert config["data"]["gate.sh"] == SCRIPT  # to the byte
    job = MpiJob.model_validate(text)
    replicas = job.spec.mpiReplicaSpecs
    worker, launcher = replicas.Worker.template.spec, replicas.Launcher.template.spec
    resources = worker.containers[0].resources
    assert resources
    assert resources.limits == resources.requests  # Kubernetes takes no others of devices and huge pages
    wanted = {"nvidia.com/gpu": "8", "vpc.amazonaws.com/efa": "32", "hugepages-2Mi": "5120Mi", "memory": "32000Mi"}
    assert resources.limits == wanted
    assert worker.containers[0].securityContext == Security(capabilities=Capabilities(add=["IPC_LOCK"]))
    assert Mount(name="shm", mountPath="/dev/shm") in worker.containers[0].volumeMounts
    assert job.spec.slotsPerWorker * replicas.Worker.replicas == run.ranks
    assert launcher.containers[0].resources is None  # it needs no GPU
    assert launcher.nodeSelector == {"kubernetes.io/arch": "amd64"}
    assert not [word for word in launcher.containers[0].command if "$(" in word]  # Kubernetes would read them
    for pod in (worker, launcher):
        assert {"nvidia.com/gpu", "aws.amazon.com/efa"} <= {one.key for one in pod.tolerations}
        assert {mount.name for one in pod.containers for mount in one.volumeMounts} == {one.name for one in pod.volumes}


def test_one_node_needs_no_operator(make: Make) -> None:
    job = Job.model_validate(documents(make(nodes=1))[1])
    assert job.spec.template.spec.restartPolicy == "Never"
    assert {one.name for one in job.spec.template.spec.volumes} == {"shm", "script"}


@pytest.mark.parametrize(("asked", "wanted"), [({}, 15), ({"efa": 8}, 8), ({"efa": 16}, 16)])
def test_the_interfaces_asked_for_are_those_that_are_judged(asked: dict[str, Any], wanted: int) -> None:
    """Of a p5en.48xlarge Kubernetes schedules 15 of 16, a cluster maybe fewer: what is not all of them is declared."""
    what = launching.Subject(reference=IMAGE)
    none: dict[str, Any] = {"gpus": None, "hosts": None, "collectives": [], "limit": None}
    run = launching.prepare(ROOT, what, "kubernetes", instance="ml.p5en.48xlarge", nodes=2, **none, **asked)
    resources = (
        MpiJob.model_validate(documents(run)[1]).spec.mpiReplicaSpecs.Worker.template.spec.containers[0].resources
    )
    assert resources
    assert resources.limits["vpc.amazonaws.com/efa"] == str(wanted)
    said = launching.advice(run, "kubernetes", what, "gate.yaml")
    assert (f"--nics {wanted}" in said) is (wanted != 16)
    assert f"{wanted} EFA interfaces of each" in said


def test_without_efa_none_is_asked_for(make: Make) -> None:
    job = MpiJob.model_validate(documents(make(instance="g5.xlarge"))[1])
    resources = job.spec.mpiReplicaSpecs.Worker.template.spec.containers[0].resources
    assert resources
    assert resources.limits.keys() == {"nvidia.com/gpu", "memory"}


@pytest.mark.parametrize(
    "value", [{"a": []}, {"a": {}, "b": ["x\n\n  y", "z\n"]}, [[1, [2]], {"k": None}], {"n": "no", "t": "1e3"}]
)
def test_yaml_is_read_back_as_it_was(value: Any) -> None:
    assert yaml.safe_load(cloud_launchers.yaml(value)) == value


# --- SageMaker -------------------------------------------------------------------------------------------------------

ROLE, OUTPUT, KEY = "arn:aws:iam::123456789012:role/trainer", "s3://bucket/gate", "b3BlbnNzaC1rZXkt"


def request(run: Run, key: str = KEY) -> dict[str, Any]:
    at = cloud_launchers.place(ROLE, OUTPUT, ["subnet-0a1b2c3d"], ["sg-0a1b2c3d"])
    return cloud_launchers.sagemaker(run, SCRIPT, "ml.p5.48xlarge", at, key)


def wrong(asked: dict[str, Any]) -> str:
    """What botocore's own model of the API says of a request, its patterns and enumerations too."""
    model = botocore.session.get_session().get_service_model("sagemaker").operation_model("CreateTrainingJob")
    assert model.input_shape
    found = [ParamValidator().validate(asked, model.input_shape).generate_report()]

    def walk(value: Any, shape: Any, where: str) -> None:
        if shape.type_name == "structure":
            for name, one in value.items():
                walk(one, shape.members[name], f"{where}.{name}")
        elif shape.type_name == "list":
            for one in value:
                walk(one, shape.member, where)
        elif shape.type_name == "map":
            for name, one in value.items():
                walk(name, shape.key, where)
                walk(one, shape.value, where)
        elif shape.type_name == "string":
            if shape.enum and value not in shape.enum:
                found.append(f"{where}: {value} is none of its values")
            if len(value) > shape.metadata.get("max", len(value)):
                found.append(f"{where}: {len(value)} characters")
            pattern = shape.metadata.get("pattern")
            if pattern and not re.fullmatch(pattern, value, re.DOTALL):
                found.append(f"{where}: {value!r} is not {pattern}")

    walk(asked, model.input_shape, "")
    return "\n".join(filter(None, found))


def test_a_training_job_is_what_the_api_takes(make: Make) -> None:
    asked = request(make())
    assert wrong(asked) == ""
    arguments = asked["AlgorithmSpecification"]["ContainerArguments"]
    assert len(arguments) <= 100
    assert max(map(len, arguments)) <= 256
    assert asked["ResourceConfig"] == {"InstanceType": "ml.p5.48xlarge", "InstanceCount": 2, "VolumeSizeInGB": 50}
    assert asked["StoppingCondition"]["MaxRuntimeInSeconds"] >= make().seconds


def test_a_training_job_lies_where_it_was_put(make: Make) -> None:
    assert request(make())["VpcConfig"] == {"Subnets": ["subnet-0a1b2c3d"], "SecurityGroupIds": ["sg-0a1b2c3d"]}
    anywhere = cloud_launchers.place(ROLE, OUTPUT, [], [])
    assert "VpcConfig" not in cloud_launchers.sagemaker(make(), SCRIPT, "ml.p5.48xlarge", anywhere, KEY)


@pytest.mark.parametrize(
    ("role", "output", "subnets", "groups", "said"),
    [
        ("foo", OUTPUT, [], [], "--role"),
        (ROLE.replace("123456789012", "1234"), OUTPUT, [], [], "--role"),
        (ROLE.replace("role/", "user/"), OUTPUT, [], [], "--role"),
        (ROLE, "bucket/gate", [], [], "--output"),
        (ROLE, OUTPUT, ["vpc-1"], ["sg-1"], "--subnet"),
        (ROLE, OUTPUT, ["subnet-1"], ["default"], "--security-group"),
        (ROLE, OUTPUT, ["subnet-1"], ["sg-1"] * 6, "6 are too many"),
        (ROLE, OUTPUT, ["subnet-1"], [], "come together"),
    ],
)
def test_a_place_that_no_training_job_takes_is_refused(
    role: str, output: str, subnets: list[str], groups: list[str], said: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        cloud_launchers.place(role, output, subnets, groups)
    assert said in f"{refused.value.what} {refused.value.where}"


@pytest.mark.parametrize("role", [ROLE, "arn:aws-us-gov:iam::123456789012:role/service-role/a.b@c", f"{ROLE}/x+y=z"])
def test_roles_of_every_partition_are_taken(role: str) -> None:
    assert cloud_launchers.place(role, OUTPUT, [], []).role == role


@pytest.mark.parametrize(
    ("path", "value"),
    [("TrainingJobName", "with blanks"), ("ResourceConfig.InstanceType", "ml.p55.48xlarge"), ("RoleArn", "trainer")],
)
def test_the_model_of_the_api_says_no_to_what_is_wrong(make: Make, path: str, value: str) -> None:
    asked: Any = request(make())
    *folders, name = path.split(".")
    part = asked
    for folder in folders:
        part = part[folder]
    part[name] = value
    assert name in wrong(asked)


def test_the_arguments_of_a_training_job_are_the_script(make: Make) -> None:
    arguments = request(make())["AlgorithmSpecification"]["ContainerArguments"]
    count = int(arguments[2])
    assert gzip.decompress(base64.b64decode("".join(arguments[3 : 3 + count]))).decode() == SCRIPT


def test_a_training_job_of_one_host_runs(make: Make, cluster: Host, tmp_path: Path) -> None:
    """The very request, as the platform starts it."""
    config = tmp_path / "resourceconfig.json"
    config.write_text(
        json.dumps({"current_host": "algo-1", "hosts": ["algo-1"], "instance_groups": [{"hosts": ["algo-1"]}]})
    )
    cluster.prints("all_reduce_perf", GOOD)
    asked = request(make(nodes=1, collectives=["all_reduce"]), key="")
    assert "GATE_KEY" not in asked["Environment"]
    specification = asked["AlgorithmSpecification"]
    done = subprocess.run(
        [*specification["ContainerEntrypoint"], *specification["ContainerArguments"]],
        env={**cluster.environment, **asked["Environment"], "GATE_RESOURCES": str(config)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout
    assert f"gate: image {IMAGE}" in done.stdout


def test_a_key_is_made_for_one_job_and_fits_into_its_environment() -> None:
    first, second = launching.ephemeral_key(), launching.ephemeral_key()
    assert first != second
    assert re.fullmatch(r"[A-Za-z0-9+/=]{100,512}", first)


# --- the command -----------------------------------------------------------------------------------------------------


def test_without_a_gpu_it_is_not_run(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    if list(Path("/dev").glob("nvidia[0-9]*")):
        pytest.skip("not run: this machine has GPUs")
    monkeypatch.delenv("DOCKER_HOST")
    ended = cli(ROOT, "gate", IMAGE)
    assert ended.code == 7
    assert "this machine has no GPU" in ended.err


def test_what_is_emitted_says_how_to_submit_and_judge_it(cli: Cli, tmp_path: Path) -> None:
    for on, word in (("slurm", "sbatch"), ("kubernetes", "kubectl apply"), ("sagemaker", "create-training-job")):
        file = tmp_path / on
        words = ["--role", ROLE, "--output", OUTPUT] if on == "sagemaker" else []
        ended = cli(
            ROOT, "gate", IMAGE, "--on", on, "--nodes", "2", "--instance", "p5.48xlarge", "--emit", str(file), *words
        )
        assert (ended.code, ended.out) == (0, "")
        assert word in ended.err
        assert re.search("^[.a-z/]*trainwright judge ", ended.err, re.MULTILINE)
        assert "--nodes 2 --world-size 16 --instance p5.48xlarge" in ended.err
        assert ended.err.startswith("# 2 nodes with 8 GPUs each, 32 EFA interfaces of each\n")
        assert file.stat().st_mode & 0o777 == (0o600 if on == "sagemaker" else 0o644)


def test_one_node_by_default_is_said(cli: Cli) -> None:
    ended = cli(ROOT, "gate", IMAGE, "--on", "slurm", "--instance", "p5.48xlarge", "--emit", "-")
    assert ended.err.startswith(
        "# 1 node (--nodes: several, without which nothing of EFA is tested) with 8 GPUs each\n"
    )


def test_kubernetes_is_waited_for_without_a_race(cli: Cli) -> None:
    """A pod that `kubectl wait` does not find yet is an error of it, at once."""
    ended = cli(ROOT, "gate", IMAGE, "--on", "kubernetes", "--instance", "p5.48xlarge", "--emit", "-")
    assert "kubectl wait" not in ended.err
    pattern = r"^for try in \$\(seq (\d+)\); do kubectl logs --follow job/(\S+) > \2\.log && break; sleep 5; done$"
    ((tries, job),) = re.findall(pattern, ended.err, re.MULTILINE)
    assert f'name: "{job}"' in ended.out
    (deadline,) = re.findall(r"activeDeadlineSeconds: (\d+)", ended.out)
    assert 0 <= int(tries) * 5 - int(deadline) < 5


def test_a_dry_run_makes_no_key(cli: Cli) -> None:
    words = ["--on", "sagemaker", "--nodes", "2", "--instance", "p5.48xlarge", "--role", ROLE, "--output", OUTPUT]
    ended = cli(ROOT, "gate", IMAGE, *words, "--dry-run")
    assert json.loads(ended.out)["Environment"]["GATE_KEY"] == "***"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["pytorch-2.13-cpu-py311-sagemakr", "--on", "slurm"], "did you mean 'pytorch-2.13-cpu-py311-sagemaker'"),
        ([IMAGE, "--on", "dokcer"], "did you mean 'docker'"),
        ([IMAGE, "--on", "ssh"], "which hosts?"),
        ([IMAGE, "--on", "slurm", "--hosts", "README.md"], "--hosts belongs to --on ssh"),
        ([IMAGE, "--on", "sagemaker", "--instance", "p5.48xlarge"], "--role"),
        (["--on", "kubernetes"], "which image?"),
        ([IMAGE, "--on", "slurm", "--instance", "p5.48xlarge", "--role", ROLE], "--role is of a training job"),
        ([IMAGE, "--subnet", "subnet-1"], "--subnet is of a training job, and --on docker makes none"),
    ],
)
def test_what_is_asked_for_wrongly_is_refused(cli: Cli, words: list[str], said: str) -> None:
    ended = cli(ROOT, "gate", *words)
    assert ended.code == 2
    assert said in ended.err


SLURM = ["--on", "slurm", "--instance", "p5.48xlarge"]
SAGEMAKER = ["--on", "sagemaker", "--instance", "p5.48xlarge", "--role", ROLE, "--output", OUTPUT]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["pytorch-2.15-cu132-py313-sagemaker-single-node", *SLURM],
            "fix:   trainwright gate pytorch-2.15-cu132-py313",
        ),
        (["base-1.0-cu128-py312-ec2-nvidia-cuda", *SLURM], "has no nccl-tests"),
        (["pytorch-2.13-cpu-py311-sagemaker", *SLURM, "--dry-run"], "has no nccl-tests"),
        ([IMAGE, "--against", "jax-0.12-cpu-py313-ec2", *SLURM], "has no nccl-tests"),
        ([f"127.0.0.1:5000/a/b@{DIGEST}", *SLURM], "127.0.0.1:5000 is each host itself"),
        ([f"localhost:5000/a/b@{DIGEST}", *SAGEMAKER], "cannot pull"),
        ([f"[::1]:5000/a/b@{DIGEST}", "--on", "kubernetes", "--instance", "p5.48xlarge"], "make push REGISTRY=ecr"),
        ([f"public.ecr.aws/a/b@{DIGEST}", *SAGEMAKER], "TrainingImageConfig"),
        ([f"x.example/a/b@{DIGEST}", *SAGEMAKER], "SageMaker does not pull from x.example"),
    ],
)
def test_what_no_gate_can_come_of_is_not_emitted(cli: Cli, words: list[str], said: str) -> None:
    ended = cli(ROOT, "gate", *words)
    assert (ended.code, ended.out) == (2, "")
    assert said in ended.err.replace(".venv/bin/", "")


def test_an_image_of_others_may_have_nccl_tests(tree: Path) -> None:
    for name in ("pytorch-2.12-cu132-py312-ec2-ngc", "pytorch-2.8-cu129-py312-sagemaker-dlc", "x/y:1"):
        gateable.check_image(ROOT, name)


def test_a_registry_on_this_machine_is_enough_for_it_alone() -> None:
    image = f"127.0.0.1:5000/a/b@{DIGEST}"
    gateable.check_hosts(image, "docker", [])
    gateable.check_hosts(image, "ssh", ["root@localhost"])
    with pytest.raises(ConfigError, match="cannot pull"):
        gateable.check_hosts(image, "ssh", ["localhost", "two"])


@pytest.mark.parametrize(
    ("image", "instance", "fits"),
    [
        ("pytorch-2.15-cu132-py313-ec2", "g5g.xlarge", False),
        ("pytorch-2.15-cu132-py313-ec2-arm64", "p5.48xlarge", False),
        ("pytorch-2.15-cu132-py313-ec2-arm64", "g5g.xlarge", True),
        ("", "g5g.xlarge", True),
    ],
)
def test_an_image_goes_where_its_programs_run(image: str, instance: str, fits: bool) -> None:
    what = launching.Subject(reference=IMAGE, id=image)
    words: dict[str, Any] = {"nodes": 1, "gpus": None, "hosts": None, "collectives": [], "limit": None}
    if fits:
        launching.prepare(ROOT, what, "slurm", instance=instance, **words)
        return
    with pytest.raises(ConfigError, match="the image is of a"):
        launching.prepare(ROOT, what, "slurm", instance=instance, **words)


def test_what_is_emitted_is_data_where_that_is_asked_for(cli: Cli, tmp_path: Path) -> None:
    said = json.loads(cli(ROOT, "gate", IMAGE, *SLURM, "--json").out)
    assert said["text"].startswith("#!/bin/bash")
    assert "sbatch FILE" in said["advice"]
    file = tmp_path / "gate.sbatch"
    ended = cli(ROOT, "gate", IMAGE, *SLURM, "--emit", str(file), "--json")
    said = json.loads(ended.out)
    assert (said["file"], ended.err) == (str(file), "")
    assert f"sbatch {file}" in said["advice"]
    assert json.loads(cli(ROOT, "gate", IMAGE, *SLURM, "--dry-run", "--json").out)["text"].startswith("#!/bin/bash")
    ended = cli(ROOT, "gate", IMAGE, "--instance", "p5.48xlarge", "--dry-run", "--json")
    assert json.loads(ended.out)["command"].startswith("docker run")
    ended = cli(ROOT, "gate", IMAGE, "--against", IMAGE, *SLURM, "--json")
    assert any("compare --a " in line for line in json.loads(ended.out)["advice"])


def test_interfaces_are_judged_as_they_were_asked_for(
    cli: Cli, cluster: Host, tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tree / "scripts/gate.sh").write_text(SCRIPT)
    text = (LOGS / "07_ok_p4d_2node_efa_old_error_column_interleaved_log.txt").read_text()
    (tree / "printed").write_text(text.replace("Selected Provider is efa", "Selected Provider is efa (found 3 nics)"))
    (tree / "hosts").write_text("one\ntwo\n")
    cluster.program("all_reduce_perf", f"cat {tree / 'printed'}")
    for name in ("PATH", "MARK"):
        monkeypatch.setenv(name, cluster.environment[name])
    words = ["--on", "ssh", "--hosts", "hosts", "--instance", "p4d.24xlarge", "--collective", "all_reduce"]
    for more, state in ((["--efa", "3"], "pass"), ([], "fail")):
        (said,) = json.loads(cli(tree, "gate", IMAGE, *words, *more, "--json").out)
        assert [one["state"] for one in said["checks"] if one["name"] == "nics"] == [state]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("p5", "p5.4xlarge"),
        ("p6.48xlarge", "p6"),
        ("p5.48xlrge", "p5.48xlarge"),
    ],
)
def test_an_unknown_instance_type_names_those_of_its_family(cli: Cli, name: str, said: str) -> None:
    ended = cli(ROOT, "gate", IMAGE, "--on", "slurm", "--instance", name)
    assert ended.code == 2
    assert f"did you mean '{said}" in ended.err
    assert f"fix:   --instance {said}" in ended.err
    assert "row" not in ended.err


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launching, "gpus_here", lambda: 8)


def test_a_gate_here_leaves_one_log_and_its_verdict(
    cli: Cli, cluster: Host, gpu: None, tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tree / "scripts/gate.sh").write_text(SCRIPT)
    cluster.prints("all_reduce_perf", GOOD)
    for name in ("PATH", "MARK"):
        monkeypatch.setenv(name, cluster.environment[name])
    ended = cli(tree, "gate", IMAGE, "--collective", "all_reduce", "--json")
    assert ended.code == 0, ended.err
    (verdict,) = json.loads(ended.out)
    assert (verdict["verdict"], verdict["image"]) == ("pass", DIGEST)
    (log,) = (tree / "out/gate").iterdir()
    assert log.suffix == ".log"
    assert "all_reduce exited with code 0" in ended.err
    cluster.program("all_reduce_perf", "exit 7")
    assert cli(tree, "gate", IMAGE, "--collective", "all_reduce").code == 6


def test_an_interrupt_ends_the_container_and_keeps_no_half_log(
    make: Make, cluster: Host, tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tree / "scripts/gate.sh").write_text(SCRIPT)
    cluster.program("all_reduce_perf", HANGS)
    for name in ("PATH", "MARK"):
        monkeypatch.setenv(name, cluster.environment[name])

    def interrupt(line: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        launching.execute(tree, make(nodes=1, collectives=["all_reduce"]), "docker", interrupt)
    assert list((tree / "out/gate").iterdir()) == []
    assert cluster.left() == []
    assert "docker rm --force" in (cluster.folder / "docker.log").read_text()


def test_a_launcher_that_starts_nothing_is_no_verdict(
    make: Make, cluster: Host, tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tree / "scripts/gate.sh").write_text(SCRIPT)
    cluster.program("docker", "echo 'could not select device driver with capabilities: [[gpu]]' >&2; exit 125")
    monkeypatch.setenv("PATH", cluster.environment["PATH"])
    with pytest.raises(EnvironmentProblem) as refused:
        launching.execute(tree, make(nodes=1), "docker", print)
    assert "could not select device driver" in refused.value.why
    assert list((tree / "out/gate").iterdir()) == []
