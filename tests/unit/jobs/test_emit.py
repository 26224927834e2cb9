"""Test `trainwright emit`: the same job for each scheduler, in its format."""

import json
import re
import shlex
import shutil
import subprocess
import sys
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml
from unit import kube_models
from unit.emitted import DIGEST, IMAGE, KUBERNETES, SLURM, TWO, Emit, Json, documents, pods

from trainwright.jobs import spec

ROOT = Path(__file__).parents[3]
KINDS = {"mpijob": "MPIJob", "pytorchjob": "KubeflowOrgV1PyTorchJob", "hyperpod-eks": "KubeflowOrgV1PyTorchJob"}
# Of sbatch(1), 22.05 to 25.05: what we use, and how its value is written.
SBATCH = {
    "job-name": r"[a-z0-9-]+",
    "nodes": r"\d+",
    "ntasks-per-node": r"\d+",
    "gpus-per-node": r"\d+",
    "exclusive": "",
    "mem": "0",
    "partition": r"\S+",
    "account": r"\S+",
    "qos": r"\S+",
    "reservation": r"\S+",
    "time": r"\d+:\d\d:\d\d",
    "signal": r"[A-Z]+@\d+",
    "requeue": "",
    "output": r"\S+",
    "open-mode": "append|truncate",
}


# --- schemas ---------------------------------------------------------------------------------------------------------

INSTANCES = ("p5.48xlarge", "g5.xlarge", "c5n.18xlarge")
BARE: tuple[str, ...] = ()
MOUNTS = (
    *("--channel", "shared/images", "--channel", "more=shared/more"),
    *("--checkpoints", "kept", "--model", "m", "--hours", "3"),
)
CODE = ("--code", "shared/code", "--name", "x", "--namespace", "hyperpod-team")


@pytest.mark.parametrize(
    ("words", "instance", "nodes"),
    [
        *((BARE, instance, nodes) for instance in INSTANCES for nodes in ("1", "3")),
        *(
            (words, instance, nodes)
            for words in (MOUNTS, CODE)
            for instance, nodes in zip(INSTANCES, "313", strict=True)
        ),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, tuple) else value,
)
@pytest.mark.parametrize("on", KUBERNETES)
def test_the_schemas_of_kubernetes_and_its_operators(
    emit: Emit, on: str, words: tuple[str, ...], instance: str, nodes: str
) -> None:
    pytest.importorskip("kubeflow.training", reason="not run: kubeflow-training is not installed (make setup)")
    *configs, job = documents(emit(on, "--nodes", nodes, "--instance", instance, *words))
    assert kube_models.wrong(job, KINDS[on]) == []
    assert [kube_models.wrong(config, "V1ConfigMap") for config in configs] == [[] for _ in configs]
    assert (job["apiVersion"], job["kind"]) == {
        "mpijob": ("kubeflow.org/v2beta1", "MPIJob"),
    }.get(on, ("kubeflow.org/v1", "PyTorchJob"))
    for pod in pods(job):
        holds_together(pod)


def test_a_field_that_is_missing_is_seen() -> None:
    pytest.importorskip("kubeflow.training", reason="not run: kubeflow-training is not installed (make setup)")
    assert kube_models.wrong({"image": "a"}, "V1Container", "c") != []
    assert kube_models.wrong({"name": "a"}, "V1Container", "c") == []


def holds_together(pod: Json) -> None:
    """Check a pod against rules that the API server enforces and that are not in its schema."""
    (container,) = pod["containers"]
    names = [volume["name"] for volume in pod["volumes"]]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch("[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", name) for name in names)
    assert {mount["name"] for mount in container["volumeMounts"]} == set(names)
    paths = [mount["mountPath"] for mount in container["volumeMounts"]]
    assert len(set(paths)) == len(paths)
    assert len({one["name"] for one in container["env"]}) == len(container["env"])
    limits, requests = container["resources"].get("limits", {}), container["resources"]["requests"]
    assert limits.items() <= requests.items()  # of devices and huge pages both must be the same
    assert "memory" in requests  # huge pages want one of cpu and memory beside them
    assert all(re.fullmatch(r"\d+(Mi|Gi)?", value) for value in requests.values())


def fields(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    if isinstance(value, dict):
        return [found for key, part in value.items() for found in ((*path, key), *fields(part, (*path, key)))]
    if isinstance(value, list):
        return [found for number, part in enumerate(value) for found in fields(part, (*path, number))]
    return []


FREE = (
    "resources",
    "nodeSelector",
    "annotations",
    "data",
    "mpiReplicaSpecs",
    "pytorchReplicaSpecs",
)  # keys of one's own


@pytest.mark.parametrize("on", KUBERNETES)
def test_a_field_with_another_name_is_seen(emit: Emit, on: str) -> None:
    """Each field of each manifest in turn, misspelt."""
    pytest.importorskip("kubeflow.training", reason="not run: kubeflow-training is not installed (make setup)")
    (job,) = documents(emit(on, *TWO, "--code", "shared", "--checkpoints", "kept"))
    tried = 0
    for path in fields(job):
        if any(name in path[:-1] for name in FREE) and path[-2] in (*FREE, "limits", "requests"):
            continue
        wrong = deepcopy(job)
        above: Any = wrong
        for part in path[:-1]:
            above = above[part]
        above[f"{path[-1]}s"] = above.pop(path[-1])
        assert kube_models.wrong(wrong, KINDS[on]) != [], path
        tried += 1
    assert tried > 80


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("spec", "runPolicy", "backoffLimit"), "3"),
        (("spec", "mpiReplicaSpecs", "Worker", "replicas"), True),
        (("spec", "mpiReplicaSpecs", "Worker", "template", "spec", "containers"), {}),
        (("spec", "mpiReplicaSpecs", "Worker", "template", "spec", "containers", 0, "env", 0, "value"), 1),
    ],
)
def test_a_value_of_another_type_is_seen(emit: Emit, path: tuple[Any, ...], value: Any) -> None:
    pytest.importorskip("kubeflow.training", reason="not run: kubeflow-training is not installed (make setup)")
    _, job = documents(emit("mpijob", *TWO))
    above: Any = job
    for part in path[:-1]:
        above = above[part]
    above[path[-1]] = value
    assert kube_models.wrong(job, "MPIJob") != []


# --- what stands in them ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("on", KUBERNETES)
def test_a_host_gets_what_the_instance_type_has(emit: Emit, on: str) -> None:
    config, job = documents(emit(on, *TWO))
    assert config["data"] == {"train.py": "print('$(HOME)')\n"}
    for pod in pods(job):
        (container,) = pod["containers"]
        wanted = {"nvidia.com/gpu": "8", "vpc.amazonaws.com/efa": "32", "hugepages-2Mi": "5120Mi"}
        assert container["resources"]["limits"] == wanted
        assert container["image"] == IMAGE
        assert container["command"][:5] == [
            *("trainwright-launch", "--distribution"),
            "mpi" if on == "mpijob" else "torchrun",
            *("--processes", "8"),
        ]
        (shm,) = [volume["emptyDir"] for volume in pod["volumes"] if volume["name"] == "shm"]
        assert shm == {"medium": "Memory", "sizeLimit": "64Gi"}
        assert container["securityContext"] == {"capabilities": {"add": ["IPC_LOCK"]}}
        assert pod["terminationGracePeriodSeconds"] == 120
        assert "nvidia.com/gpu" in {one["key"] for one in pod["tolerations"]}
    assert sum(replica["replicas"] for replica in list(job["spec"].values())[-1].values()) == 2


@pytest.mark.parametrize("instance", ["p5en.48xlarge", "ml.p5en.48xlarge"])
@pytest.mark.parametrize(("words", "wanted"), [((), "16"), (("--efa", "15"), "15")])
def test_kubernetes_is_asked_for_all_interfaces_or_as_many_as_said(
    emit: Emit, instance: str, words: tuple[str, ...], wanted: str
) -> None:
    _, job = documents(emit("pytorchjob", "--nodes", "2", "--instance", instance, *words))
    assert pods(job)[0]["containers"][0]["resources"]["limits"]["vpc.amazonaws.com/efa"] == wanted
    assert pods(job)[0]["nodeSelector"] == {"node.kubernetes.io/instance-type": "p5en.48xlarge"}


def test_one_host_needs_no_interfaces_and_no_workers(emit: Emit) -> None:
    for on in KUBERNETES:
        _, job = documents(emit(on, "--instance", "p5.48xlarge"))
        assert len(pods(job)) == 1
        assert pods(job)[0]["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": "8"}


def test_mpijob_s_workers_wait_for_the_launcher_and_know_the_hosts(emit: Emit) -> None:
    _, job = documents(emit("mpijob", *TWO))
    launcher, worker = pods(job)
    assert job["spec"]["runLauncherAsWorker"] is True
    assert job["spec"]["runPolicy"]["backoffLimit"] == 0
    assert "--worker" not in launcher["containers"][0]["command"]
    assert worker["containers"][0]["command"][-1] == "--worker"
    (hosts,) = [volume["configMap"] for volume in worker["volumes"] if volume["name"] == "hosts"]
    assert hosts == {"name": "train-a1b2c3-config", "items": [{"key": "hostfile", "path": "hostfile"}]}
    assert {"name": "hosts", "mountPath": "/etc/mpi", "readOnly": True} in worker["containers"][0]["volumeMounts"]
    assert "hosts" not in {volume["name"] for volume in launcher["volumes"]}  # the operator's own mount is there


def test_hyperpod_resumes_the_job_on_healthy_nodes(emit: Emit) -> None:
    _, job = documents(emit("hyperpod-eks", *TWO))
    assert job["metadata"] == {
        "name": "train-a1b2c3",
        "namespace": "kubeflow",
        "annotations": {
            "sagemaker.amazonaws.com/enable-job-auto-resume": "true",
            "sagemaker.amazonaws.com/job-max-retry-count": "3",
        },
    }
    for pod in pods(job):
        assert pod["nodeSelector"] == {
            "node.kubernetes.io/instance-type": "ml.p5.48xlarge",
            "sagemaker.amazonaws.com/node-health-status": "Schedulable",
        }
    assert {one["restartPolicy"] for one in job["spec"]["pytorchReplicaSpecs"].values()} == {"OnFailure"}
    _, plain = documents(emit("pytorchjob", *TWO))
    assert "annotations" not in plain["metadata"]


def test_words_reach_the_script_as_they_are(emit: Emit) -> None:
    """Kubernetes reads $(NAME) and $$ in words and variables."""
    words = ["--lr", "$(HOME)", "$$", "--nodes=7", "a b"]
    _, job = documents(emit("pytorchjob", *TWO, "--env", "WHERE=$(HOME)", "--", *words))
    container = pods(job)[0]["containers"][0]
    assert container["args"] == ["train.py", "--lr", "$$(HOME)", "$$$$", "--nodes=7", "a b"]
    assert {"name": "WHERE", "value": "$$(HOME)"} in container["env"]
    ended = emit("slurm", *TWO, "--env", "WHERE=$(id) 'x'", "--", *words)
    assert shlex.split(ended.out.splitlines()[-1])[-6:] == ["train.py", *words]
    (line,) = [line for line in ended.out.splitlines() if line.startswith("export WHERE")]
    assert shlex.split(line)[1] == "WHERE=$(id) 'x'"


def test_claims_and_their_folders(emit: Emit) -> None:
    words = ("--channel", "fsx/images", "--channel", "Val.1=fsx/val", "--checkpoints", "kept.one", "--code", "fsx/code")
    (job,) = documents(emit("pytorchjob", *TWO, *words, script="sub/x.py"))
    for pod in pods(job):
        (container,) = pod["containers"]
        claims = [volume["persistentVolumeClaim"] for volume in pod["volumes"] if "persistentVolumeClaim" in volume]
        assert claims == [{"claimName": "fsx"}, {"claimName": "kept.one"}]
        rows = {one["mountPath"]: one for one in container["volumeMounts"]}
        assert rows["/opt/ml/code"] == {
            "name": "claim-fsx",
            "mountPath": "/opt/ml/code",
            "subPath": "code",
            "readOnly": True,
        }
        assert rows["/opt/ml/input/data/training"]["subPath"] == "images"
        assert "readOnly" not in rows["/opt/ml/checkpoints"]
        assert container["args"] == ["sub/x.py"]
        assert {"name": "SM_CHANNEL_TRAINING", "value": "/opt/ml/input/data/training"} in container["env"]


@pytest.mark.parametrize("on", [*KUBERNETES, *SLURM])
def test_where_the_model_goes(emit: Emit, on: str) -> None:
    """Each script finds SM_MODEL_DIR, and the folder; where nothing keeps it, the file and we say so."""
    said = "/opt/ml/model (SM_MODEL_DIR) is lost with its container: --model"
    for words in ((), ("--model", "fsx/models")):
        ended = emit(on, *TWO, *words)
        head = [line for line in ended.out.splitlines() if line.startswith(f"# {said}")]
        assert (len(head), ended.err.count(said)) == ((0, 0) if words else (1, 1))
        for pod in pods(documents(ended)[-1]) if on in KUBERNETES else []:
            (container,) = pod["containers"]
            assert {"name": "SM_MODEL_DIR", "value": "/opt/ml/model"} in container["env"]
            (mount,) = [one for one in container["volumeMounts"] if one["mountPath"] == "/opt/ml/model"]
            kept = {"name": "claim-fsx", "mountPath": "/opt/ml/model", "subPath": "models"}
            assert mount == (kept if words else {"name": "model", "mountPath": "/opt/ml/model"})


def test_slurm_makes_the_folder_of_the_model_in_the_container(emit: Emit, tmp_path: Path) -> None:
    """The image has none. Where the file says --env, what is said there wins."""
    srun, launch = tmp_path / "srun", tmp_path / "trainwright-launch"
    writable = '[[ " $* " == *" --container-writable "* ]] || { echo "Read-only file system" >&2 && exit 1; }'
    srun.write_text(f'#!/bin/bash\n{writable}\nwhile [[ "$1" == --* ]]; do shift; done\nexec "$@"\n')
    launch.write_text('#!/bin/sh\ntest -d "$SM_MODEL_DIR" && echo "$SM_MODEL_DIR" "$@"\n')
    for program in (srun, launch):
        program.chmod(0o755)
    text = emit("slurm", *TWO, "--env", f"SM_MODEL_DIR={tmp_path}/a b").out
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "SLURM_CPUS_ON_NODE": "96"}
    ran = subprocess.run(["bash"], input=text, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert (ran.stdout, ran.stderr) == (f"{tmp_path}/a b --distribution torchrun --processes 8 train.py\n", "")


def test_what_env_says_wins_over_the_image_on_slurm(emit: Emit) -> None:
    """pyxis hands a variable of the host to a container whose image sets it only if srun names it."""
    text = emit("slurm", *TWO, "--env", "NCCL_DEBUG=INFO", "--env", "OMP_NUM_THREADS=4").out
    assert "--container-env=NCCL_DEBUG,OMP_NUM_THREADS" in text
    assert "--container-env" not in emit("slurm", *TWO).out


def test_a_script_of_the_image_takes_nothing_along(emit: Emit) -> None:
    (job,) = documents(emit("pytorchjob", *TWO, "--name", "train", script="/opt/ml/train.py"))
    (container,) = pods(job)[0]["containers"]
    assert container["args"] == ["/opt/ml/train.py"]
    assert "workingDir" not in container
    ended = emit("slurm", *TWO, script="/opt/ml/train.py")
    assert "--container-mounts" not in ended.out
    assert "/opt/ml/train.py does not exist here: it is used as a path in the image" in ended.err
    assert "used as a path" not in emit("slurm", *TWO).err


def test_what_a_script_imports_from_beside_it_is_said(emit: Emit, tmp_path: Path) -> None:
    assert "is sent, not" not in emit("pytorchjob", *TWO).err
    (tmp_path / "checkout/model.py").touch()
    assert "only train.py is sent, not model.py beside it" in emit("pytorchjob", *TWO).err
    assert "is sent, not" not in emit("slurm", *TWO).err


@pytest.mark.parametrize("on", ["slurm", "pytorchjob"])
def test_a_script_that_hides_a_module_of_python_is_refused(emit: Emit, tmp_path: Path, on: str) -> None:
    (tmp_path / "checkout/profile.py").touch()
    ended = emit(on, *TWO, script="profile.py")
    assert (ended.code, ended.out) == (2, "")
    assert "profile.py has the name of a standard module of Python" in ended.err
    assert emit(on, *TWO).code == (2 if on == "slurm" else 0)  # on Kubernetes the script goes along alone


@pytest.mark.parametrize("script", ["my train.py", "émil.py"])
def test_a_script_whose_name_is_no_key_of_a_configmap(emit: Emit, tmp_path: Path, script: str) -> None:
    (tmp_path / "checkout" / script).touch()
    ended = emit("pytorchjob", *TWO, "--name", "train", script=script)
    assert (ended.code, ended.out) == (2, "")
    assert "not a valid name on Kubernetes" in ended.err
    assert emit("slurm", *TWO, "--name", "train", script=script).code == 0
    assert emit("pytorchjob", *TWO, "--name", "train", "--code", "claim", script=script).code == 0


def test_a_channel_whose_variable_no_shell_can_export(emit: Emit, tmp_path: Path) -> None:
    """A stand-in for srun starts what would run in the container; one for the launcher says what it got."""
    for name, said in {"srun": 'while [ "$1" != sh ]; do shift; done; exec "$@"', "trainwright-launch": "env"}.items():
        (tmp_path / name).write_text(f"#!/bin/bash\n{said}\n")
        (tmp_path / name).chmod(0o755)
    model = ("--env", f"SM_MODEL_DIR={tmp_path}/model")
    text = emit("slurm", *TWO, *model, "--channel", "my-data=/fsx/a", "--channel", "val=/fsx/b").out
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "SLURM_CPUS_ON_NODE": "96"}
    ran = subprocess.run(["bash"], input=text, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert (ran.returncode, ran.stderr) == (0, "")
    said = ran.stdout.splitlines()
    assert "SM_CHANNEL_MY-DATA=/opt/ml/input/data/my-data" in said
    assert "SM_CHANNEL_VAL=/opt/ml/input/data/val" in said


def test_the_log_that_is_followed_is_that_of_the_job(emit: Emit, tmp_path: Path) -> None:
    """Before the job starts there is no log: what the shell finds by a pattern is another job's, or none."""
    for name, said in {"sbatch": "echo '17;cluster'", "tail": 'echo "$@"'}.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{said}\n")
        (tmp_path / name).chmod(0o755)
    commands = json.loads(emit("slurm", *TWO, "--json", "--output", "my job.sbatch").out)["commands"]
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "SLURM_CPUS_ON_NODE": "96"}
    ran = subprocess.run(
        ["bash"], input="\n".join(commands), env=environment, capture_output=True, text=True, check=True
    )
    assert ran.stdout == "-F train-17.log\n"


@pytest.mark.parametrize("on", KUBERNETES)
def test_the_head_says_which_operator_it_is_for(emit: Emit, on: str) -> None:
    assert f"for {spec.load_settings(ROOT).operators[on]}" in emit(on, *TWO).out.splitlines()[0]


# --- the secret ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("on", [*KUBERNETES, *SLURM])
def test_no_file_has_a_secret(emit: Emit, on: str) -> None:
    ended = emit(on, *TWO)
    assert re.findall(r"\b[0-9a-f]{24,}\b", ended.out.replace("5" * 64, "")) == []
    for pod in pods(documents(ended)[-1]) if on in KUBERNETES else []:
        (secret,) = [volume["secret"] for volume in pod["volumes"] if "secret" in volume]
        assert secret == {"secretName": "train-a1b2c3-secret", "defaultMode": 0o400}
        (named,) = [one["value"] for one in pod["containers"][0]["env"] if one["name"] == "TRAINWRIGHT_JOB_SECRET_FILE"]
        assert {"name": "secret", "mountPath": str(Path(named).parent), "readOnly": True} in pod["containers"][0][
            "volumeMounts"
        ]


def test_the_command_for_the_secret_makes_one(emit: Emit) -> None:
    """kubectl's own dry run: nothing is sent. The file's name in it is the one that the pods read."""
    if not (shutil.which("kubectl") and shutil.which("openssl")):
        pytest.skip("not run: no kubectl, or no openssl")
    ended = emit("hyperpod-eks", *TWO)
    (command,) = [line for line in ended.err.splitlines() if "create secret" in line]
    assert f"# {command}" in ended.out.splitlines()
    said = subprocess.run(
        ["bash", "-c", f"{command} --dry-run=client -o json"], capture_output=True, text=True, check=True, timeout=60
    )
    made = json.loads(said.stdout)
    assert made["metadata"]["name"] == "train-a1b2c3-secret"
    assert made["metadata"]["namespace"] == "kubeflow"
    assert list(made["data"]) == ["secret"]
    assert len(made["data"]["secret"]) > 80


# --- Slurm -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("words", [(), ("--channel", "/fsx/images", "--checkpoints", "kept")], ids=["bare", "mounts"])
@pytest.mark.parametrize("on", SLURM)
def test_a_file_for_sbatch(emit: Emit, tmp_path: Path, on: str, words: tuple[str, ...]) -> None:
    ended = emit(on, *TWO, *words)
    assert ended.code == 0
    file = tmp_path / "job.sbatch"
    file.write_text(ended.out)
    subprocess.run(["bash", "-n", file], check=True)
    subprocess.run([Path(sys.executable).parent / "shellcheck", file], check=True)
    lines = ended.out.splitlines()
    options = [line.removeprefix("#SBATCH --").partition("=") for line in lines if line.startswith("#SBATCH")]
    assert [name for name, _, value in options if not re.fullmatch(SBATCH[name], value)] == []
    said = {name: value for name, _, value in options}
    assert (said["nodes"], said.get("gpus-per-node")) == ("2", "8" if on == "slurm" else None)
    assert (said["ntasks-per-node"], said["signal"], "requeue" in said) == ("1", "TERM@120", True)
    first = next(number for number, line in enumerate(lines) if line and not line.startswith("#"))
    assert not [line for line in lines[first:] if line.startswith("#SBATCH")]  # sbatch reads none below a command
    assert f"123456789012.dkr.ecr.us-east-1.amazonaws.com#trainwright/pytorch:{DIGEST}" in ended.out
    assert ("--auto-resume=1" in ended.out) is (on == "hyperpod-slurm")


def test_slurm_starts_one_launcher_with_a_new_secret(emit: Emit, tmp_path: Path) -> None:
    """A stand-in for srun says what it was given."""
    srun = tmp_path / "srun"
    srun.write_text('#!/bin/sh\nprintf "%s\\n" "$TRAINWRIGHT_JOB_SECRET" "$SM_CHANNEL_VAL" "$SM_MODEL_DIR" "$@"\n')
    srun.chmod(0o755)
    kept = ("--channel", "val=/fsx/val", "--checkpoints", "kept", "--model", "made")
    text = emit("slurm", *TWO, *kept, "--distribution", "mpi").out
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "SLURM_CPUS_ON_NODE": "96"}
    said = [
        subprocess.run(
            ["bash"], input=text, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
        ).stdout.splitlines()
        for _ in range(2)
    ]
    assert re.fullmatch("[0-9a-f]{64}", said[0][0])
    assert said[0][0] != said[1][0]
    assert said[0][0] not in said[0][1:]
    assert said[0][1:3] == ["/opt/ml/input/data/val", "/opt/ml/model"]
    code = tmp_path / "checkout"  # where `emit` was called, wherever the file is submitted
    mounts = [f"{code}:/opt/ml/code:ro", "/fsx/val:/opt/ml/input/data/val:ro"]
    mounts += [f"{code}/kept:/opt/ml/checkpoints", f"{code}/made:/opt/ml/model"]
    assert f"--container-mounts={','.join(mounts)}" in said[0]
    assert said[0][-6:] == ["trainwright-launch", "--distribution", "mpi", "--processes", "8", "train.py"]
    assert "--cpus-per-task=96" in said[0]
    assert (code / "kept").is_dir()
    assert (code / "made").is_dir()


def test_a_script_elsewhere_brings_its_folder(emit: Emit, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/job.py").touch()
    for script in (str(tmp_path / "elsewhere/job.py"), "../elsewhere/job.py"):
        assert f"--container-mounts={tmp_path}/elsewhere:/opt/ml/code:ro" in emit("slurm", *TWO, script=script).out


@pytest.mark.parametrize(
    ("tag", "noted"),
    [("latest", True), (f"{IMAGE.partition('@')[0].rpartition('/')[2]}-0123456789ab", False), ("id-2026.11.0", False)],
)
def test_a_tag_that_may_move_is_noted(emit: Emit, tag: str, noted: bool) -> None:
    said = emit("slurm", *TWO, image=f"registry.example.com/trainwright/pytorch:{tag}").err
    assert ("its tag may change between two starts" in said) == noted


# --- the examples ----------------------------------------------------------------------------------------------------

TRAIN = ("train.py", "--code", "shared/train", "--model", "shared/model")
CHECKPOINT = ("checkpoint.py", "--steps", "300", "--name", "train")
SHARED = ("--code", "shared/train", "--checkpoints", "shared/checkpoints", "--model", "shared/model")
EXAMPLES = {
    "kubernetes-mpijob.yaml": ("mpijob", *TRAIN),
    "kubernetes-pytorchjob.yaml": ("pytorchjob", *CHECKPOINT, *SHARED),
    "hyperpod-eks.yaml": ("hyperpod-eks", *CHECKPOINT, *SHARED),
    "slurm.sbatch": ("slurm", *CHECKPOINT, *(word.replace("shared", "/fsx") for word in SHARED)),
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_examples_are_what_it_writes(emit: Emit, name: str) -> None:
    on, script, *words = EXAMPLES[name]
    ended = emit(on, *words, *TWO, image="registry.example.com/trainwright/pytorch:IMAGE", script=script)
    assert ended.out == (ROOT / "docs/examples" / name).read_text()


# --- the command -----------------------------------------------------------------------------------------------------


def test_a_file_and_what_to_do_with_it(emit: Emit, tmp_path: Path) -> None:
    file = tmp_path / "deep/job.yaml"
    ended = emit("pytorchjob", *TWO, "--output", str(file), "--namespace", "team", "--json")
    said = json.loads(ended.out)
    assert said["file"] == str(file)
    assert said["commands"][1] == f"kubectl -n team create -f {file}"
    assert said["commands"][-1] == (
        "while kubectl -n team get pytorchjob train-a1b2c3 >/dev/null && "
        "! kubectl -n team logs --follow pod/train-a1b2c3-master-0; do sleep 10; done"
    )
    assert all("kubectl -n team " in command for command in said["commands"])
    assert (said["distribution"], said["nodes"], said["processes"], said["efa"]) == ("torchrun", 2, 8, 32)
    assert {one["metadata"]["namespace"] for one in yaml.safe_load_all(file.read_text())} == {"team"}


def test_a_file_that_cannot_be_written(emit: Emit, tmp_path: Path) -> None:
    (tmp_path / "taken").touch()
    for file in (tmp_path / "taken/job.yaml", tmp_path):
        ended = emit("slurm", *TWO, "--output", str(file))
        assert (ended.code, ended.out) == (10, "")
        assert "cannot be written" in ended.err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkout", "taken"]


def test_a_tag_is_said_to_move(emit: Emit) -> None:
    assert "is no digest" not in emit("slurm", *TWO).err
    assert "registry.example.com/x:1 has no digest" in emit("slurm", *TWO, image="registry.example.com/x:1").err


@pytest.mark.parametrize(
    ("on", "words", "said"),
    [
        ("slrum", TWO, "did you mean 'slurm'"),
        ("slurm", (), "no instance type was given"),
        ("slurm", ("--instance", "p5.48xlrge"), "did you mean 'p5.48xlarge'"),
        ("slurm", (*TWO, "--namespace", "a"), "--namespace only applies to Kubernetes"),
        ("slurm", (*TWO, "--efa", "8"), "--efa only applies to Kubernetes"),
        ("slurm", (*TWO, "--processes", "9"), "p5.48xlarge has 8 GPUs"),
        ("slurm", (*TWO, "--distribution", "plain", "--processes", "2"), "one process on each node"),
        ("slurm", (*TWO, "--distribution", "torchrn"), "did you mean 'torchrun'"),
        ("slurm", (*TWO, "--node", "3"), "did you mean --nodes?"),
        ("slurm", (*TWO, "--channel", "a:b"), "not a folder that can be mounted"),
        ("slurm", (*TWO, "--channel", "a/b=c"), "is not a channel name"),
        ("slurm", (*TWO, "--channel", "a", "--channel", "b"), "training is given twice"),
        ("slurm", (*TWO, "--env", "A"), "--env NAME=VALUE"),
        ("slurm", (*TWO, "--env", "TRAINWRIGHT_JOB_SECRET=x"), "the job's secret must not be in --env"),
        ("mpijob", (*TWO, "--env", "TRAINWRIGHT_JOB_SECRET_FILE=/x"), "the job's secret must not be in --env"),
        ("mpijob", (*TWO, "--distribution", "torchrun"), "--on mpijob does not start torchrun"),
        ("pytorchjob", (*TWO, "--distribution", "mpi"), "--on slurm or --on mpijob"),
        ("pytorchjob", (*TWO, "--checkpoints", "/fsx"), "PersistentVolumeClaim"),
        ("pytorchjob", (*TWO, "--name", "Train"), "is not a job name"),
        ("pytorchjob", (*TWO, "--name", "x" * 60), "is not a job name"),
        ("pytorchjob", (*TWO, "--code", "fsx/../x"), "is not a claim"),
        ("hyperpod-eks", (*TWO, "--namespace", "team"), "HyperPod does not resume jobs in the namespace team"),
        ("hyperpod-eks", ("--instance", "g4dn.metal"), "HyperPod does not offer g4dn.metal"),
    ],
)
def test_what_is_asked_for_wrongly_is_refused(emit: Emit, on: str, words: tuple[str, ...], said: str) -> None:
    ended = emit(on, *words)
    assert (ended.code, ended.out) == (2, "")
    assert said in re.sub(r"\s+", " ", ended.err)


def test_a_script_goes_along_to_the_mark(emit: Emit, tmp_path: Path) -> None:
    for text in ("#!/bin/sh\r\nexit\r\n", "\tx = 'é\U0001f600'\n\n\n", "a: b", "\x0c\n"):
        (tmp_path / "checkout/train.py").write_bytes(text.encode())
        config, _ = documents(emit("pytorchjob", *TWO))
        assert config["data"] == {"train.py": text}


def test_scripts_that_cannot_go_along(emit: Emit, tmp_path: Path) -> None:
    assert "script trian.py does not exist" in emit("pytorchjob", *TWO, script="trian.py").err
    assert "unprintable characters" in emit("slurm", *TWO, "--code", "c", script="a\nrm x.py").err
    assert "is not in --code" in emit("pytorchjob", *TWO, "--code", "c", script="../x.py").err
    (tmp_path / "checkout/train.py").write_bytes(b"\xff\xfe\xfa")
    assert "train.py cannot be read as text" in emit("pytorchjob", *TWO).err
    (tmp_path / "checkout/train.py").write_text("#" * 1_000_001)
    assert "too long to be sent" in emit("pytorchjob", *TWO).err
    assert emit("slurm", *TWO).code == 0
