"""Test what an operator of a cluster asks of an emitted job: requirements, a second run, queues, time limits."""

import json
import re
import shlex
import time
from pathlib import Path
from typing import Any

import pytest
from unit import kube_models
from unit.emitted import KUBECTL, KUBERNETES, SLURM, TOKEN, TWO, Emit, documents, owners_are_right, pods, program, ran

from trainwright.jobs import emit as jobs_emit

CHECKPOINTS = ("--checkpoints", "kept", "--model", "model")


# --- requirements.txt ------------------------------------------------------------------------------------------------

PYTHON = '#!/bin/sh\necho "$@" >>log\nexit ${PIP:-0}\n'
LAUNCH = "#!/bin/sh\necho launched >>log\n"


@pytest.fixture
def host(tmp_path: Path) -> Path:
    """Make a folder with stand-ins for python and the launcher; each writes to the file log what it was asked."""
    folder = tmp_path / "host"
    folder.mkdir()
    program(folder, "python", PYTHON)
    program(folder, "trainwright-launch", LAUNCH)
    return folder


@pytest.mark.parametrize("on", KUBERNETES)
def test_each_pod_installs_requirements_before_its_launcher(emit: Emit, tmp_path: Path, host: Path, on: str) -> None:
    (tmp_path / "checkout/requirements.txt").write_text("einops==0.8.1\n")
    ended = emit(on, *TWO)
    assert "each host installs requirements.txt before the script starts" in ended.err
    config, job = documents(ended)
    assert config["data"].keys() == {"train.py", "requirements.txt"}
    for pod in pods(job):
        (host / "requirements.txt").write_text(config["data"]["requirements.txt"])
        (container,) = pod["containers"]
        assert ran([*container["command"], *container["args"]], host).returncode == 0
        installed, launched = (host / "log").read_text().splitlines()
        assert re.fullmatch("-m pip install .*-r requirements.txt", installed)
        assert launched == "launched"
        assert ran([*container["command"], *container["args"]], host, PIP="3").returncode == 3
        assert (host / "log").read_text().count("launched") == 1
        (host / "log").unlink()
    (tmp_path / "checkout/requirements.txt").unlink()
    assert "pip install" not in emit(on, *TWO).out


@pytest.mark.parametrize("on", SLURM)
@pytest.mark.parametrize("script", ["train.py", "sub/train.py"])
def test_slurm_installs_once_for_each_host(emit: Emit, tmp_path: Path, host: Path, on: str, script: str) -> None:
    """The file beside the script counts, as for `run` and `launch`, not one at the top of the folder."""
    (tmp_path / "checkout/sub").mkdir()
    (tmp_path / "checkout/sub/train.py").touch()
    beside = Path(script).with_name("requirements.txt")
    assert "pip install" not in emit(on, *TWO, "--model", "m", script=script).out
    (tmp_path / "checkout" / beside).write_text("einops\n")
    (host / beside).parent.mkdir(exist_ok=True)
    (host / beside).touch()
    program(
        host, "srun", '#!/bin/bash\nwhile [[ "$1" == --* ]]; do shift; done\n"$@" && "$@"\n'
    )  # two tasks, two hosts
    assert ran(["bash", "-c", emit(on, *TWO, "--model", "m", script=script).out], host).returncode == 0
    said = (host / "log").read_text().splitlines()
    assert [line.rpartition(" ")[2] for line in said] == [str(beside), "launched"] * 2
    assert "--ntasks-per-node=1" in emit(on, *TWO).out


def test_code_of_a_mount_has_its_requirements_at_the_top(emit: Emit, host: Path) -> None:
    """Whether there are any is seen on the hosts."""
    (job,) = documents(emit("pytorchjob", *TWO, "--code", "fsx/code", script="sub/x.py"))
    (container,) = pods(job)[0]["containers"]
    for known in (False, True):
        (host / "log").unlink(missing_ok=True)
        if known:
            (host / "requirements.txt").touch()
        assert ran(container["command"], host).returncode == 0
        assert ("pip" in (host / "log").read_text()) is known
    assert "pip install" not in emit("pytorchjob", *TWO, "--name", "train", script="/opt/ml/train.py").out


@pytest.mark.parametrize("line", ["-r more.txt", "-e .", "./wheel.whl", "x @ file:///x", "--constraint=c.txt"])
def test_requirements_that_name_other_files_are_not_sent_alone(emit: Emit, tmp_path: Path, line: str) -> None:
    (tmp_path / "checkout/requirements.txt").write_text(f"einops\n{line}\n")
    ended = emit("pytorchjob", *TWO)
    assert (ended.code, ended.out) == (2, "")
    assert "requirements.txt:2" in ended.err
    assert "--code CLAIM" in ended.err
    assert emit("slurm", *TWO).code == 0


# --- a second submission ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("on", KUBERNETES)
def test_the_same_job_is_submitted_twice_and_owns_its_objects(
    emit: Emit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, on: str
) -> None:
    """A stand-in for kubectl refuses a name that is taken, as the API server does."""
    pytest.importorskip("kubeflow.training", reason="not run: kubeflow-training is not installed (make setup)")
    program(tmp_path, "kubectl", KUBECTL)
    monkeypatch.undo()  # names are new each time
    for _ in range(2):
        said = json.loads(emit(on, *TWO, "--output", str(tmp_path / "job.yaml"), "--json").out)
        done = ran(["bash", "-ec", "\n".join(said["commands"])], tmp_path)
        assert (done.returncode, done.stderr) == (0, "")
    assert ran(["bash", "-ec", "\n".join(said["commands"])], tmp_path).returncode != 0, "one file is one submission"
    owners_are_right(tmp_path, 2, 4)  # a Secret and a ConfigMap of each


@pytest.mark.parametrize("on", KUBERNETES)
def test_a_finished_job_is_removed(emit: Emit, on: str) -> None:
    _, job = documents(emit(on, *TWO))
    policy = job["spec"]["runPolicy"]
    assert policy["ttlSecondsAfterFinished"] > 3600
    assert policy["cleanPodPolicy"] == "Running"


def test_a_name_is_of_one_submission(monkeypatch: pytest.MonkeyPatch) -> None:
    assert jobs_emit.new_token() != jobs_emit.new_token()
    assert re.fullmatch("[0-9a-f]{6}", jobs_emit.new_token())


# --- where it may run ------------------------------------------------------------------------------------------------

LAYER = "topology.k8s.aws/network-node-layer-3"
QUEUED = ("--queue", "team-queue", "--topology", LAYER)
OTHERS = ("--priority-class", "high", "--service-account", "train", "--pull-secret", "registry")
SELECTED = ("--node-selector", "team=a", "--node-selector", "example.com/zone=b")


def test_a_word_of_the_gate_s_on_names_emit_s(emit: Emit) -> None:
    ended = emit("kubernetes", *TWO)
    assert (ended.code, ended.out) == (2, "")
    assert "--on pytorchjob or --on mpijob" in re.sub(r"\s+", " ", ended.err)


@pytest.mark.parametrize("on", SLURM)
def test_slurm_mounts_the_script_s_folder_and_no_home(emit: Emit, tmp_path: Path, on: str) -> None:
    ended = emit(on, *TWO)
    assert f"every node must see the folder {tmp_path / 'checkout'}" in ended.err
    assert "--no-container-mount-home" in ended.out
    assert "every node must see" not in emit(on, *TWO, "--code", "/fsx/code").err


def test_a_queue_belongs_to_a_namespace(emit: Emit) -> None:
    for on, words, said in (
        ("hyperpod-eks", (), "of the namespace kubeflow"),
        ("pytorchjob", (), "kubectl's current namespace"),
        ("hyperpod-eks", ("--namespace", "hyperpod-ns-a"), "of the namespace hyperpod-ns-a"),
    ):
        ended = emit(on, *TWO, "--queue", "q", *words)
        for text in (ended.err, ended.out):
            assert f"--queue q must be a LocalQueue of {said.replace('of ', '', 1)}" in text
            assert ("--namespace hyperpod-ns-TEAM" in text) == (on == "hyperpod-eks" and not words)
            assert "EFA does not cross Availability Zones" in text
    alone = emit("pytorchjob", "--nodes", "1", "--instance", "p5.48xlarge", "--efa", "1")
    assert "Availability" not in alone.err + emit("slurm", *TWO).err


def test_pods_without_huge_pages_keep_libfabric_from_them(emit: Emit) -> None:
    def value(*words: str) -> list[str]:
        *_, job = documents(emit("pytorchjob", *TWO, *words))
        named = [one for pod in pods(job) for one in pod["containers"][0]["env"]]
        return [one["value"] for one in named if one["name"] == "FI_EFA_USE_HUGE_PAGE"]

    assert value() == []
    assert value("--no-huge-pages") == value("--cluster", "eks-karpenter") == ["0", "0"]
    assert value("--no-huge-pages", "--env", "FI_EFA_USE_HUGE_PAGE=1") == ["1", "1"]


@pytest.mark.parametrize("nodes", ["1", "3"])
@pytest.mark.parametrize("on", KUBERNETES)
def test_the_same_words_for_every_scheduler_of_kubernetes(emit: Emit, on: str, nodes: str) -> None:
    pytest.importorskip("kubeflow.training", reason="not run: kubeflow-training is not installed (make setup)")
    instance = ("--nodes", nodes, "--instance", "p5.48xlarge")
    config, job = documents(emit(on, *instance, *QUEUED, *OTHERS, *SELECTED))
    kind = "MPIJob" if on == "mpijob" else "KubeflowOrgV1PyTorchJob"
    assert kube_models.wrong(job, kind) == []
    priority = {"kueue.x-k8s.io/priority-class": "high"} if on == "hyperpod-eks" else {}
    assert job["metadata"]["labels"] == {"kueue.x-k8s.io/queue-name": "team-queue", **priority}
    assert job["spec"]["runPolicy"]["suspend"] is True
    assert "labels" not in config["metadata"]
    replicas = next(value for key, value in job["spec"].items() if key.endswith("ReplicaSpecs"))
    group = {"kueue.x-k8s.io/podset-group-name": f"train-{TOKEN}"} if nodes == "3" else {}
    for replica in replicas.values():
        template = replica["template"]
        assert template["metadata"]["annotations"] == {"kueue.x-k8s.io/podset-required-topology": LAYER, **group}
        pod = template["spec"]
        assert pod["serviceAccountName"] == "train"
        # Task governance has no PriorityClass of that name: pods that name one are refused.
        assert pod.get("priorityClassName") == (None if priority else "high")
        assert pod["imagePullSecrets"] == [{"name": "registry"}]
        assert pod["nodeSelector"].items() >= {"team": "a", "example.com/zone": "b"}.items()
    _, plain = documents(emit(on, *instance))
    assert "suspend" not in plain["spec"]["runPolicy"]
    assert not {"priorityClassName", "serviceAccountName", "imagePullSecrets"} & pods(plain)[0].keys()


@pytest.mark.parametrize("on", SLURM)
def test_slurm_has_words_of_its_own(emit: Emit, on: str) -> None:
    words = ("--partition", "gpu,p5", "--account", "team", "--qos", "high", "--reservation", "week")
    lines = emit(on, *TWO, *words).out.splitlines()
    for option, value in zip(words[::2], words[1::2], strict=True):
        assert f"#SBATCH {option}={value}" in lines
        assert lines.index(f"#SBATCH {option}={value}") < lines.index("set -euo pipefail")
        assert not [line for line in emit(on, *TWO).out.splitlines() if line.startswith(f"#SBATCH {option}")]


@pytest.mark.parametrize(
    ("on", "words", "said", "fix"),
    [
        ("slurm", ("--queue", "a"), "--queue only applies to Kubernetes", "--partition"),
        ("slurm", ("--node-selector", "a=b"), "--node-selector only applies to Kubernetes", "--partition"),
        ("mpijob", ("--partition", "a"), "--partition only applies to Slurm", "--queue"),
        ("mpijob", ("--topology", LAYER), "--topology requires --queue", "kubectl get localqueues"),
        ("pytorchjob", ("--queue", "A b"), "'A b' is not a valid value of --queue", "lower-case"),
        ("pytorchjob", ("--priority-class", "x" * 254), "is not a valid value of --priority-class", "lower-case"),
        ("pytorchjob", ("--node-selector", "a"), "--node-selector a is not NAME=VALUE", "--node-selector NAME=VALUE"),
        ("pytorchjob", ("--node-selector", "a=b c"), "a=b c is not a label of a node", "expected"),
        ("pytorchjob", ("--node-selector", "a=b", "--node-selector", "a=c"), "given twice", "once"),
        ("slurm", ("--qos", "a\nb"), "is not a valid value of --qos", "only letters"),
    ],
)
def test_words_that_a_scheduler_does_not_know(emit: Emit, on: str, words: tuple[str, ...], said: str, fix: str) -> None:
    ended = emit(on, *TWO, *words)
    assert (ended.code, ended.out) == (2, "")
    text = re.sub(r"\s+", " ", ended.err)
    assert said in text
    assert fix in text


# --- the time limit --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "left", "words", "again"),
    [
        (143, 100, CHECKPOINTS, True),
        (143, 3600, CHECKPOINTS, False),  # another one sent SIGTERM
        (1, 100, CHECKPOINTS, False),
        (0, 100, CHECKPOINTS, False),
        (143, 100, ("--model", "model"), False),  # it would start from the beginning
    ],
)
def test_a_job_at_its_time_limit_is_queued_again_if_it_can_go_on(
    emit: Emit, tmp_path: Path, code: int, left: int, words: tuple[str, ...], again: bool
) -> None:
    program(tmp_path, "srun", f"#!/bin/sh\nexit {code}\n")
    program(tmp_path, "scontrol", '#!/bin/sh\necho "scontrol $*"\n')
    text = emit("slurm", *TWO, *words).out
    done = ran(["bash", "-c", text], tmp_path, SLURM_JOB_END_TIME=str(int(time.time()) + left))
    assert (done.returncode, done.stderr) == (code, "")
    assert done.stdout == ("scontrol requeue 17\n" if again else "")


@pytest.mark.parametrize(
    ("said", "again"), [("$(($(date +%s) + 100))", True), ("$(($(date +%s) + 3600))", False), ("", False)]
)
def test_a_slurm_that_sets_no_end_of_the_job_is_asked_for_it(
    emit: Emit, tmp_path: Path, said: str, *, again: bool
) -> None:
    """Slurm before 23.02; without an answer a job that always ends so would be queued for ever."""
    program(tmp_path, "srun", "#!/bin/sh\nexit 143\n")
    program(tmp_path, "scontrol", '#!/bin/sh\necho "scontrol $*"\n')
    program(tmp_path, "squeue", f'#!/bin/sh\n[ "$SLURM_TIME_FORMAT" = %s ] && echo {said}\n[ "{said}" ]\n')
    done = ran(["bash", "-c", emit("slurm", *TWO, *CHECKPOINTS).out], tmp_path)
    assert (done.returncode, done.stderr) == (143, "")
    assert done.stdout == ("scontrol requeue 17\n" if again else "")


def test_the_page_about_the_time_limit_is_linked_from_the_others() -> None:
    docs = Path(__file__).parents[3] / "docs"
    assert "\n## At the time limit\n" in (docs / "training.md").read_text()
    for page in ("slurm", "clusters", "eks", "launch"):
        assert "training.md#at-the-time-limit" in (docs / f"{page}.md").read_text(), page


def test_words_of_the_script_survive_the_shell_in_front(emit: Emit, tmp_path: Path, host: Path) -> None:
    """The shell hands on what it was given: no word is read again."""
    program(host, "trainwright-launch", '#!/bin/sh\nprintf "%s\\n" "$@"\n')
    program(host, "srun", '#!/bin/bash\nwhile [[ "$1" == --* ]]; do shift; done\nexec "$@"\n')
    words = ["a b", "$(id)", "'", '"$HOME"', "*"]
    text: Any = emit("slurm", *TWO, "--env", f"SM_MODEL_DIR={tmp_path}/m", "--", *words).out
    assert ran(["bash", "-c", text], host).stdout.splitlines()[-5:] == words
    assert shlex.split(text.splitlines()[-1])[-5:] == words
