"""Test the MPIJob, and the Job of one node: valid for the API, and the same run."""

import re
from typing import Any, Literal

import pytest
import yaml
from hosts import ROOT
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field
from unit.gate.launchers.conftest import IMAGE, SCRIPT, Make

from trainwright.core import yaml_text
from trainwright.gate import launchers
from trainwright.gate import run as gate_run
from trainwright.gate.spec import Run


class Strict(BaseModel):
    """The fields that we use, from kubeflow/mpi-operator manifests/base/kubeflow.org_mpijobs.yaml@caa3c47."""

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
    ttlSecondsAfterFinished: int = Field(gt=0)
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
    ttlSecondsAfterFinished: int = Field(gt=0)
    activeDeadlineSeconds: int
    template: Template


class Job(Strict):
    apiVersion: Literal["batch/v1"]
    kind: Literal["Job"]
    metadata: Metadata
    spec: JobSpec


def documents(run: Run) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(yaml_text.dump(*launchers.kubernetes(run, SCRIPT))))


def test_an_mpijob_gives_each_worker_its_devices(make: Make) -> None:
    run = make()
    config, text = documents(run)
    assert config["data"]["gate.sh"] == SCRIPT  # to the byte
    job = MpiJob.model_validate(text)
    replicas = job.spec.mpiReplicaSpecs
    worker, launcher = replicas.Worker.template.spec, replicas.Launcher.template.spec
    resources = worker.containers[0].resources
    assert resources
    assert resources.limits == {"nvidia.com/gpu": "8", "vpc.amazonaws.com/efa": "32", "hugepages-2Mi": "5120Mi"}
    assert (
        resources.limits.items() <= resources.requests.items()
    )  # Kubernetes takes no others of devices and huge pages
    assert {name: resources.requests[name] for name in ("cpu", "memory")} == {"cpu": "181", "memory": "1729Gi"}
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


@pytest.mark.parametrize(("asked", "wanted"), [({}, 16), ({"efa": 15}, 15), ({"efa": 8}, 8)])
def test_the_interfaces_asked_for_are_those_that_are_judged(asked: dict[str, Any], wanted: int) -> None:
    """A p5en.48xlarge has 16 interfaces; a number that is not all of them is declared to the judge."""
    what = gate_run.Subject(reference=IMAGE)
    none: dict[str, Any] = {"gpus": None, "hosts": None, "collectives": [], "limit": None}
    run = gate_run.prepare(ROOT, what, "kubernetes", instance="ml.p5en.48xlarge", nodes=2, **none, **asked)
    resources = (
        MpiJob.model_validate(documents(run)[1]).spec.mpiReplicaSpecs.Worker.template.spec.containers[0].resources
    )
    assert resources
    assert resources.limits["vpc.amazonaws.com/efa"] == str(wanted)
    said = gate_run.advice(run, "kubernetes", what, "gate.yaml")
    assert (f"--nics {wanted}" in said) is (wanted != 16)
    assert f"{wanted} EFA interfaces each" in said


def test_without_efa_none_is_asked_for(make: Make) -> None:
    job = MpiJob.model_validate(documents(make(instance="g5.xlarge"))[1])
    resources = job.spec.mpiReplicaSpecs.Worker.template.spec.containers[0].resources
    assert resources
    assert resources.limits.keys() == {"nvidia.com/gpu"}
    assert resources.requests == {"nvidia.com/gpu": "1", "cpu": "3", "memory": "12Gi"}  # of 4 and 16 GiB


@pytest.mark.parametrize(
    "value",
    [
        {"a": []},
        {"a": {}, "b": ["x\n\n  y", "z\n"]},
        [[1, [2]], {"k": None}],
        {"n": "no", "t": "1e3"},
        [
            "--x",
            "-",
            "--",
            "On",
            "a:",
            "a:b",
            "a:\tb",
            "x\t#y",
            "1:30",
            ".inf",
            "0x1",
            "~",
            "=",
            "@a",
            "/",
            "k=v",
            "-1",
        ],
        [
            {"a": "b:c", "d": "e,f", "g": 1, "h": True},
            {"i": "_1", "j": "null"},
            {"k": []},
            {"l": "m\nn"},
            ["..."],
            ["é"],
        ],
        ["", "a: b", "x #y", "k, v", "[a]", "a: "],
    ],
)
def test_yaml_is_read_back_as_it_was(value: Any) -> None:
    assert yaml.safe_load(yaml_text.dump(value)) == value


@example("print()\n\n", "\n")
@example("\x0cimport os\n", " indented\n")
@given(st.text(), st.text("a \n\t\f\r\x85\u2028\U0001f600:#-", max_size=12))
def test_a_script_comes_back_from_yaml_to_the_mark(one: str, other: str) -> None:
    value = {"data": {"train.py": one, "b": other}, "args": [one, other], "env": [{"name": "A", "value": other}]}
    assert yaml.safe_load(yaml_text.dump(value)) == value


def test_people_can_read_the_script_in_the_yaml(make: Make) -> None:
    """A character beyond ASCII, or a blank at the end of a line, would make one long quoted line of it."""
    text = yaml_text.dump(*launchers.kubernetes(make("kubernetes"), SCRIPT))
    assert re.search(r"gate\.sh: \|\n +#!/usr/bin/env bash\n", text)
