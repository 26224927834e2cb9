"""Test what is emitted for each kind of cluster, a gate and a job: valid for its API, and without what it refuses."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from unit import kube_models
from unit.emitted import IMAGE, Emit, Json, read_all
from unit.emitted import pods as pods_of

from trainwright.schedulers import clusters

ROOT = Path(__file__).parents[3]
KINDS = clusters.load_kinds(ROOT).clusters
MODELS = {
    "ConfigMap": "V1ConfigMap",
    "ResourceClaimTemplate": "V1ResourceClaimTemplate",
    "ComputeDomain": "ComputeDomain",
    "Job": "V1Job",
    "MPIJob": "MPIJob",
    "PyTorchJob": "KubeflowOrgV1PyTorchJob",
}
TWO, RACK = ("--nodes", "2", "--instance", "p5.48xlarge"), ("--nodes", "4", "--instance", "p6e-gb200.36xlarge")
# Of each kind: the label of its nodes, whether huge pages are requested, how EFA is.
WANTED = {
    "kubernetes": ("p5.48xlarge", True, "counted"),
    "eks-karpenter": ("p5.48xlarge", False, "counted"),
    "eks-dra": ("p5.48xlarge", True, "claimed"),
    "hyperpod-eks": ("ml.p5.48xlarge", True, "counted"),
}


@pytest.fixture
def write(cli: Any, emit: Emit) -> Any:
    """Return a function that emits a gate (on slurm or kubernetes) or a job (any other --on)."""

    def run(on: str, *words: str) -> Any:
        if on in ("gate-slurm", "kubernetes"):
            return cli(ROOT, "gate", IMAGE, "--on", on.removeprefix("gate-"), "--emit", "-", *words)
        return emit(on, *words)

    return run


def written(ended: Any) -> tuple[list[Json], list[Json]]:
    """Return the documents of a file, each valid, and the pods that have devices."""
    pytest.importorskip("kubeflow.training", reason="not run: kubeflow-training is not installed (make setup)")
    assert ended.code == 0, ended.err
    found = read_all(ended.out)
    assert [kube_models.wrong(one, MODELS[one["kind"]]) for one in found] == [[]] * len(found)
    return found, [pod for pod in pods_of(found[-1]) if "resources" in pod["containers"][0]]


@pytest.mark.parametrize("on", ["kubernetes", "pytorchjob", "mpijob"])
@pytest.mark.parametrize("kind", [name for name, row in KINDS.items() if row.family == "kubernetes"])
def test_each_kind_of_kubernetes(write: Any, kind: str, on: str) -> None:
    label, huge, efa = WANTED[kind]
    found, pods = written(write(on, *TWO, "--cluster", kind))
    (job,) = [one for one in found if one["kind"] not in ("ConfigMap", "ResourceClaimTemplate")]
    templates = job["spec"].get("pytorchReplicaSpecs") or job["spec"]["mpiReplicaSpecs"]
    for replica in templates.values():
        kept = replica["template"].get("metadata", {}).get("annotations", {}).get("karpenter.sh/do-not-disrupt")
        assert kept == ("true" if kind == "eks-karpenter" else None)
    for pod in pods:
        health = pod["nodeSelector"].get("sagemaker.amazonaws.com/node-health-status")
        assert health == ("Schedulable" if kind == "hyperpod-eks" else None)
        (container,) = pod["containers"]
        assert pod["nodeSelector"]["node.kubernetes.io/instance-type"] == label
        limits = container["resources"]["limits"]
        assert ("hugepages-2Mi" in limits) is huge
        assert limits.get("vpc.amazonaws.com/efa") == {"counted": "32", "claimed": None}[efa]
        assert limits["nvidia.com/gpu"] == "8"
        if efa == "counted":
            assert "resourceClaims" not in pod
            continue
        name = f"{job['metadata']['name']}-efa"
        assert pod["resourceClaims"] == [{"name": "efa", "resourceClaimTemplateName": name}]
        assert container["resources"]["claims"] == [{"name": "efa"}]
        (template,) = [one for one in found if one["kind"] == "ResourceClaimTemplate"]
        assert (template["apiVersion"], template["metadata"]["name"]) == ("resource.k8s.io/v1", name)
        (request,) = template["spec"]["spec"]["devices"]["requests"]
        exactly = {"deviceClassName": "efa.networking.k8s.aws", "allocationMode": "ExactCount", "count": 32}
        assert request == {"name": "efa", "exactly": exactly}


def test_hyperpod_s_own_job_is_of_its_own_kind(write: Any) -> None:
    found, pods = written(write("hyperpod-eks", *TWO))
    assert {pod["nodeSelector"]["node.kubernetes.io/instance-type"] for pod in pods} == {"ml.p5.48xlarge"}
    assert found == written(write("hyperpod-eks", *TWO, "--cluster", "hyperpod-eks"))[0]


@pytest.mark.parametrize("on", ["gate-slurm", "slurm"])
@pytest.mark.parametrize("kind", [name for name, row in KINDS.items() if row.family == "slurm"])
@pytest.mark.parametrize(
    ("words", "counted"),
    [((), None), (("--gpus-per-node",), True), (("--no-gpus-per-node",), False)],
    ids=["default", "with", "without"],
)
def test_each_kind_of_slurm(
    write: Any, tmp_path: Path, kind: str, on: str, words: tuple[str, ...], counted: bool | None
) -> None:
    ended = write(on, *TWO, "--cluster", kind, *words)
    assert ended.code == 0, ended.err
    file = tmp_path / "job.sbatch"
    file.write_text(ended.out)
    subprocess.run([Path(sys.executable).parent / "shellcheck", "--severity", "warning", file], check=True)
    wanted = {"slurm": True, "hyperpod-slurm": False}[kind] if counted is None else counted
    assert ("#SBATCH --gpus-per-node=8\n" in ended.out) is wanted
    assert "#SBATCH --exclusive\n" in ended.out


@pytest.mark.parametrize(
    ("words", "said", "hook"), [((), "pmix", True), (("--mpi-type", "pmi2"), "pmi2", False)], ids=["pmix", "pmi2"]
)
def test_the_gate_of_slurm_names_what_pmix_requires(write: Any, words: tuple[str, ...], said: str, hook: bool) -> None:
    text = write("gate-slurm", *TWO, *words).out
    head, _, script = text.partition("bash -s")
    assert f" --srun 2 --mpi {said} " in script.splitlines()[0]
    assert ("50-slurm-pmi.sh" in head) is hook
    first = script.splitlines()[0]
    assert {"OMPI_MCA_pml=ob1", "OMPI_MCA_btl=self,tcp", "PMIX_MCA_gds=hash"} <= set(first.replace("'", "").split())


def test_the_hook_of_pmix_is_called_alike_everywhere() -> None:
    hook = clusters.load_kinds(ROOT).slurm.pmi_hook
    name = Path(hook.split()[2]).name
    quoted = ["scripts/gate.sh", "dockerfiles/causes/launch.toml", "docs/gate.md"]
    for file in quoted:
        lines = [
            line for line in (ROOT / file).read_text().splitlines() if f"/{name}" in line and "conf/hooks" not in line
        ]
        assert lines, file
        assert all(hook in line for line in lines), file
    others = [path for folder in ("build", "scripts", "dockerfiles") for path in (ROOT / folder).rglob("*.*")]
    texts = {path.relative_to(ROOT).as_posix(): path.read_text(errors="replace") for path in others if path.is_file()}
    assert {file for file, text in texts.items() if name in text} == {*quoted[:2], clusters.FILE}


def test_mpirun_of_the_gate_has_the_same_settings_as_srun() -> None:
    """scripts/gate.sh exports them itself for ssh and Kubernetes."""
    from trainwright.gate import spec

    (line,) = re.findall(r"^ +export (OMPI_MCA_pml=.*)$", (ROOT / "scripts/gate.sh").read_text(), re.MULTILINE)
    ours = spec.load_settings(ROOT).environment_slurm
    assert dict(word.split("=", 1) for word in line.split()) == {
        name: value for name, value in ours.items() if name.startswith("OMPI_")
    }


def test_the_gate_of_one_node_claims_its_interfaces_too(write: Any) -> None:
    ended = write("kubernetes", "--instance", "p5.48xlarge", "--cluster", "eks-dra")
    *_, template, job = read_all(ended.out)
    assert [kube_models.wrong(one, MODELS[one["kind"]]) for one in (template, job)] == [[], []]
    (claim,) = job["spec"]["template"]["spec"]["resourceClaims"]
    assert claim["resourceClaimTemplateName"] == template["metadata"]["name"]
    assert "vpc.amazonaws.com/efa:" not in ended.out.partition("kind: Job")[2]


@pytest.mark.parametrize("on", ["kubernetes", "pytorchjob", "mpijob"])
def test_options_override_the_kind(write: Any, on: str) -> None:
    _, pods = written(write(on, *TWO, "--no-huge-pages", "--efa-by", "dra", "--efa", "16"))
    for pod in pods:
        assert pod["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": "8"}
        assert [one["name"] for one in pod["resourceClaims"]] == ["efa"]
    _, pods = written(write(on, *TWO, "--cluster", "eks-karpenter", "--huge-pages"))
    assert all("hugepages-2Mi" in pod["containers"][0]["resources"]["limits"] for pod in pods)


def test_what_is_claimed_says_what_the_cluster_must_have(write: Any) -> None:
    for on, operator in (("pytorchjob", "training operators than 1.9"), ("kubernetes", "mpi-operators than 0.6")):
        head = [line for line in write(on, *TWO, "--cluster", "eks-dra").out.splitlines() if line.startswith("#")]
        assert any("Kubernetes 1.34 or newer" in line for line in head)
        assert any(operator in line for line in head)


# --- NVLink between hosts --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["kubernetes", "eks-dra"])
@pytest.mark.parametrize("on", ["kubernetes", "pytorchjob", "mpijob"])
def test_each_pod_of_a_gb200_gets_an_imex_channel(write: Any, kind: str, on: str) -> None:
    found, pods = written(write(on, *RACK, "--cluster", kind))
    (domain,) = [one for one in found if one["kind"] == "ComputeDomain"]
    name = domain["spec"]["channel"]["resourceClaimTemplate"]["name"]
    assert domain["spec"]["numNodes"] == 4
    for pod in pods:
        assert {"name": "imex", "resourceClaimTemplateName": name} in pod["resourceClaims"]
        assert {"name": "imex"} in pod["containers"][0]["resources"]["claims"]
    alone, _ = written(write("pytorchjob", "--instance", "p6e-gb200.36xlarge"))
    assert not [one for one in alone if one["kind"] == "ComputeDomain"]
    assert "ComputeDomain" not in write(on, *TWO).out


def test_docker_hands_imex_channels_in() -> None:
    from trainwright.gate import spec

    assert "/dev/nvidia-caps-imex-channels/channel*" in spec.load_settings(ROOT).docker.devices


# --- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("on", "words", "said", "fix"),
    [
        ("kubernetes", ("--cluster", "eks-dra", "--efa-by", "device-plugin"), "eks-dra does not give EFA by", "leave"),
        (
            "pytorchjob",
            ("--cluster", "hyperpod-eks", "--efa-by", "dra"),
            "does not give EFA by dra",
            "leave --efa-by out, or --cluster",
        ),
        ("pytorchjob", ("--efa-by", "drA"), "unknown way to EFA 'drA'", "--efa-by dra"),
        ("kubernetes", ("--cluster", "eks-karpente"), "unknown cluster 'eks-karpente'", "--cluster eks-karpenter"),
        ("kubernetes", ("--cluster", "slurm"), "--cluster slurm does not run --on kubernetes", "leave it out"),
        ("hyperpod-eks", ("--cluster", "eks-karpenter"), "does not run --on hyperpod-eks", "leave it out"),
        ("gate-slurm", ("--no-huge-pages",), "--no-huge-pages only applies to Kubernetes", "leave --no-huge-pages out"),
        ("slurm", ("--efa-by", "dra"), "--efa-by only applies to Kubernetes", "leave --efa-by out"),
        ("kubernetes", ("--mpi-type", "pmix"), "--mpi-type only applies to Slurm", "leave --mpi-type out"),
        ("mpijob", ("--gpus-per-node",), "--gpus-per-node only applies to Slurm", "leave --gpus-per-node out"),
        (
            "gate-docker",
            ("--cluster", "slurm"),
            "--cluster only applies to Slurm and Kubernetes",
            "leave --cluster out",
        ),
        ("pytorchjob", ("--efa-by", "dra"), "--efa-by has no effect without EFA", "leave --efa-by out, or --nodes 2"),
        ("mpijob", ("--no-huge-pages",), "--no-huge-pages has no effect without EFA", "leave --no-huge-pages out"),
        ("gate-slurm", ("--mpi-type", "p mix"), "'p mix' is not an MPI type", "--mpi-type pmix"),
    ],
)
def test_an_option_that_the_cluster_refuses(
    write: Any, cli: Any, on: str, words: tuple[str, ...], said: str, fix: str
) -> None:
    words = ("--instance", "p5.48xlarge", *words)
    if on == "gate-docker":
        ended = cli(ROOT, "gate", IMAGE, "--on", "docker", "--emit", "-", *words)
    else:
        ended = write(on, *words)
    text = re.sub(r"\s+", " ", ended.err)
    assert (ended.code, ended.out) == (2, "")
    assert said in text
    assert f"fix: {fix}" in text or fix in text.partition("fix:")[2]


@pytest.mark.parametrize(
    ("on", "words", "said"),
    [
        ("pytorchjob", ("--cluster", "eks-karpenter"), "Karpenter starts no node"),
        ("kubernetes", ("--cluster", "eks-karpenter"), "Karpenter starts no node"),
        ("hyperpod-eks", (), "--on hyperpod-eks cannot claim imex"),
    ],
)
def test_a_gb200_without_imex_is_refused(write: Any, on: str, words: tuple[str, ...], said: str) -> None:
    ended = write(on, *RACK, *words)
    assert (ended.code, ended.out) == (2, "")
    assert said in re.sub(r"\s+", " ", ended.err)


# --- rows ------------------------------------------------------------------------------------------------------------


def test_each_row_says_where_it_is_from() -> None:
    assert all(row.family and row.evidence for row in KINDS.values())
    assert {"slurm", "kubernetes"} <= KINDS.keys()  # the defaults of both families
    assert {way for row in KINDS.values() for way in row.efa_by} == {"device-plugin", "dra"}


def test_a_new_row_is_a_new_kind(cli: Any, tree: Path) -> None:
    (tree / "scripts/gate.sh").write_text("# the script\n")
    path = tree / "dockerfiles/clusters.toml"
    path.write_text(
        path.read_text() + '[clusters.ours]\nfamily = "kubernetes"\nhuge_pages = false\nevidence = "ours"\n'
    )
    ended = cli(tree, "gate", IMAGE, "--on", "kubernetes", "--cluster", "ours", *TWO, "--dry-run")
    assert ended.code == 0, ended.err
    assert "hugepages" not in ended.out
