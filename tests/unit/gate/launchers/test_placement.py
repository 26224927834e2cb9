"""Test the gate where several teams share a cluster: a second submission, what it leaves, and the words of `emit`."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hosts import ROOT
from unit import kube_models
from unit.emitted import KUBECTL, owners_are_right, pods, program, ran, read_all
from unit.gate.launchers.conftest import IMAGE, Cli

TWO, ONE = ("--nodes", "2", "--instance", "p5.48xlarge"), ("--instance", "p5.48xlarge")
CLAIMED = ("--cluster", "eks-dra")
LAYER = "topology.k8s.aws/network-node-layer-3"
QUEUED = ("--queue", "team-queue", "--topology", LAYER, "--namespace", "team")
OTHERS = ("--priority-class", "high", "--service-account", "train", "--pull-secret", "registry")
SELECTED = ("--node-selector", "team=a")


@pytest.fixture
def gate(cli: Cli) -> Any:
    def run(on: str, *words: str, image: str = IMAGE, file: str = "-") -> Any:
        return cli(ROOT, "gate", image, "--on", on, "--emit", file, *words)

    return run


def emitted(ended: Any) -> tuple[Any, Any, list[Any]]:
    """Return the ConfigMap, the job and its pods."""
    assert ended.code == 0, ended.err
    config, *_, job = read_all(ended.out)
    return config, job, pods(job) if job["kind"] == "MPIJob" else [job["spec"]["template"]["spec"]]


@pytest.mark.parametrize("words", [ONE, TWO, (*TWO, *CLAIMED), (*TWO, "--namespace", "team")])
def test_a_gate_is_submitted_twice_and_owns_its_objects(gate: Any, tmp_path: Path, words: tuple[str, ...]) -> None:
    pytest.importorskip("kubeflow.training", reason="not run: kubeflow-training is not installed (make setup)")
    program(tmp_path, "kubectl", KUBECTL)
    commands = list[str]()
    for image in (IMAGE, IMAGE.replace("/pytorch@", "/another@")):  # a name has one second; these differ anyway
        said = json.loads(gate("kubernetes", *words, "--json", image=image, file=str(tmp_path / "gate.yaml")).out)
        commands = [line for line in said["advice"] if line.startswith(("kubectl", "uid=", "for one"))]
        done = ran(["bash", "-ec", "\n".join(commands)], tmp_path)
        assert (done.returncode, done.stderr) == (0, "")
        assert not [line for line in commands if ("-n team" in line) != ("team" in words)]
    again = ran(["bash", "-ec", "\n".join(commands)], tmp_path)
    assert "AlreadyExists" in again.stderr, "a file that ran already must not seem to run"
    owners_are_right(tmp_path, 2, 4 if set(CLAIMED) <= set(words) else 2)


@pytest.mark.parametrize("words", [ONE, TWO])
def test_a_finished_gate_is_removed(gate: Any, words: tuple[str, ...]) -> None:
    _, job, _ = emitted(gate("kubernetes", *words))
    assert job["spec"].get("runPolicy", job["spec"])["ttlSecondsAfterFinished"] > 3600


@pytest.mark.parametrize("words", [ONE, TWO])
def test_the_gate_has_the_words_of_emit(gate: Any, words: tuple[str, ...]) -> None:
    pytest.importorskip("kubeflow.training", reason="not run: kubeflow-training is not installed (make setup)")
    config, job, found = emitted(gate("kubernetes", *words, *QUEUED, *OTHERS, *SELECTED))
    assert kube_models.wrong(job, "MPIJob" if words == TWO else "V1Job") == []
    assert {config["metadata"]["namespace"], job["metadata"]["namespace"]} == {"team"}
    assert job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "team-queue"
    assert "kueue.x-k8s.io/queue-name" not in config["metadata"]["labels"]
    assert job["spec"].get("runPolicy", job["spec"])["suspend"] is True
    for pod in found:
        assert (pod["priorityClassName"], pod["serviceAccountName"]) == ("high", "train")
        assert pod["imagePullSecrets"] == [{"name": "registry"}]
        assert pod["nodeSelector"]["team"] == "a"
    assert len(re.findall(f"podset-required-topology: {LAYER}", yaml.safe_dump(job))) == 1  # the pods with GPUs
    _, plain, (pod, *_) = emitted(gate("kubernetes", *words))
    assert "suspend" not in plain["spec"].get("runPolicy", plain["spec"])
    assert not {"priorityClassName", "serviceAccountName", "imagePullSecrets"} & pod.keys()


def test_hyperpod_s_task_governance_takes_its_priority_as_a_label(gate: Any) -> None:
    words = ("--priority-class", "training-priority", "--cluster", "hyperpod-eks")
    _, job, found = emitted(gate("kubernetes", *TWO, "--queue", "hyperpod-ns-team-localqueue", *words))
    assert job["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] == "training-priority"
    assert not any("priorityClassName" in pod for pod in found)
    _, job, found = emitted(gate("kubernetes", *TWO, *words))  # without a queue it is Kubernetes' own
    assert "kueue.x-k8s.io/priority-class" not in job["metadata"]["labels"]
    assert {pod["priorityClassName"] for pod in found} == {"training-priority"}


KARPENTER = ("--cluster", "eks-karpenter")
TEAM = "a team's queue of task governance is in hyperpod-ns-TEAM"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ("--queue", "q"),
            ("must be a LocalQueue of kubectl's current namespace", "does not cross Availability Zones"),
        ),
        (("--queue", "q", "--cluster", "hyperpod-eks"), ("kubectl's current namespace", TEAM)),
        (("--queue", "q", "--cluster", "hyperpod-eks", "--namespace", "kubeflow"), ("namespace kubeflow", TEAM)),
        (
            ("--queue", "q", "--cluster", "hyperpod-eks", "--namespace", "hyperpod-ns-a"),
            ("of the namespace hyperpod-",),
        ),
        (("--queue", "q", *CLAIMED), ("deviceClassMapping",)),
        (QUEUED, ("of the namespace team",)),
        (("--node-selector", "topology.kubernetes.io/zone=us-east-1a"), ()),
    ],
)
def test_what_the_file_cannot_enforce_is_said(gate: Any, words: tuple[str, ...], said: tuple[str, ...]) -> None:
    ended = gate("kubernetes", *TWO, *words)
    head = "\n".join(line for line in ended.out.splitlines() if line.startswith("# "))
    for text in (ended.err, head):
        assert [one for one in said if one not in text] == []
        zone = "Availability Zones" in text
        assert zone == (not {"--topology", "topology.kubernetes.io/zone=us-east-1a"} & set(words))
        assert (TEAM in text) == (TEAM in said)
    assert "Availability Zones" not in gate("kubernetes", *ONE, *words).err


def test_a_gate_without_huge_pages_keeps_libfabric_from_them(gate: Any) -> None:
    assert "FI_EFA_USE_HUGE_PAGE=0" in gate("kubernetes", *TWO, *KARPENTER).out
    for words in (TWO, (*ONE, *KARPENTER)):
        assert "FI_EFA_USE_HUGE_PAGE" not in gate("kubernetes", *words).out


@pytest.mark.parametrize(
    ("on", "fix"),
    [
        ("hyperpod-slurm", "--on slurm --cluster hyperpod-slurm"),
        ("hyperpod-eks", "--on kubernetes --cluster hyperpod-eks"),
        ("pytorchjob", "--on kubernetes"),
    ],
)
def test_a_word_of_emit_s_on_names_the_gate_s(gate: Any, on: str, fix: str) -> None:
    ended = gate(on, *TWO)
    assert (ended.code, ended.out) == (2, "")
    assert fix in re.sub(r"\s+", " ", ended.err)


def test_slurm_has_words_of_its_own(gate: Any) -> None:
    words = ("--partition", "gpu", "--account", "team", "--qos", "high", "--reservation", "week")
    both = ("--against", IMAGE.replace("/pytorch@", "/another@"))
    for more in ((), both):
        lines = gate("slurm", *TWO, *words, *more).out.splitlines()
        first = next(number for number, line in enumerate(lines[1:], 1) if not line.startswith("#"))
        for option, value in zip(words[::2], words[1::2], strict=True):
            assert f"#SBATCH {option}={value}" in lines[:first]
        assert "#SBATCH --partition" not in gate("slurm", *TWO, *more).out


@pytest.mark.parametrize(
    ("on", "words", "said", "fix"),
    [
        ("slurm", ("--queue", "a"), "--queue only applies to Kubernetes", "--partition"),
        ("kubernetes", ("--partition", "a"), "--partition only applies to Slurm", "--queue"),
        ("docker", ("--namespace", "a"), "--namespace only applies to Kubernetes", "leave --namespace out"),
        ("ssh", ("--node-selector", "a=b"), "--node-selector only applies to Kubernetes", "leave --node-selector out"),
        ("sagemaker", ("--qos", "a"), "--qos only applies to Slurm", "leave --qos out"),
        ("kubernetes", ("--topology", LAYER), "--topology requires --queue", "kubectl get localqueues"),
        ("kubernetes", ("--namespace", "A b"), "'A b' is not a valid value of --namespace", "lower-case"),
    ],
)
def test_words_that_a_launcher_does_not_know(gate: Any, on: str, words: tuple[str, ...], said: str, fix: str) -> None:
    ended = gate(on, *TWO, *words)
    assert (ended.code, ended.out) == (2, "")
    text = re.sub(r"\s+", " ", ended.err)
    assert said in text
    assert fix in text


@pytest.mark.parametrize(
    ("on", "words", "said", "fix"),
    [
        ("docker", (*ONE, "--efa", "8"), "--efa requires several nodes", "leave --efa out"),
        ("slurm", (*ONE, "--efa", "8"), "--efa requires several nodes", "--nodes 2"),
        ("slurm", ("--nodes", "2", "--gpus", "8", "--efa", "8"), "--efa requires --instance", "--instance TYPE"),
        ("slurm", ("--nodes", "2", "--instance", "g5.xlarge", "--efa", "1"), "g5.xlarge has 0", "leave --efa out"),
        ("kubernetes", ("--instance", "g5.xlarge", "--efa-by", "dra"), "--efa-by has no effect without EFA", "leave"),
        ("kubernetes", ("--gpus", "8", "--no-huge-pages"), "--no-huge-pages has no effect without EFA", "--efa NUMBER"),
    ],
)
def test_options_about_efa_that_have_no_effect(gate: Any, on: str, words: tuple[str, ...], said: str, fix: str) -> None:
    ended = gate(on, *words)
    assert (ended.code, ended.out) == (2, "")
    text = re.sub(r"\s+", " ", ended.err)
    assert said in text
    assert fix in text.partition("fix:")[2]
    assert gate("kubernetes", *ONE, "--efa", "8", "--no-huge-pages").code == 0
    assert gate("slurm", *TWO, "--efa", "8").code == 0
