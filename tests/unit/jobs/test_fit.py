"""Test images against instance types: an image that cannot train there is refused before the job costs money."""

import pytest

from trainwright.core.errors import ConfigError
from trainwright.jobs import fit as jobs_fit
from trainwright.jobs import submit
from trainwright.matrix import instances
from trainwright.matrix.matrix import Intent

CPU, EFA = "pytorch-2.13-cpu-py311-sagemaker", "pytorch-2.15-cu132-py313-sagemaker"
SINGLE, ARM = f"{EFA}-single-node", f"{EFA}-arm64"
TYPES = submit.instance_types()


def fit(intent: Intent, identity: str, name: str, hosts: int = 1, allow_tcp: bool = False) -> list[str]:
    found, row = jobs_fit.instance(name, intent.instances, TYPES)
    return jobs_fit.fit(intent.recipe(identity), found, row, hosts, allow_tcp)


def test_the_architecture_is_in_the_name(intent: Intent) -> None:
    of = {name: row.architecture for name, row in intent.instances.items()}
    assert [name for name in of if instances.architecture(name) != of[name]] == ["p6e-gb200.36xlarge"]
    assert {instances.architecture(name.removeprefix("ml.")) for name in TYPES} <= {"amd64", "arm64"}


def test_the_names_of_the_table_are_those_of_the_api(intent: Intent) -> None:
    assert {one.sagemaker for one in intent.instances.values() if one.sagemaker} <= set(TYPES)


@pytest.mark.parametrize("name", ["p5.48xlarge", "ml.p5.48xlarge"])
def test_both_names_are_the_same_type(intent: Intent, name: str) -> None:
    found, row = jobs_fit.instance(name, intent.instances, TYPES)
    assert found == "ml.p5.48xlarge"
    assert row is not None
    assert row.count == 8


@pytest.mark.parametrize(
    ("name", "what", "more"),
    [
        ("ml.p5.48xlarg", "unknown instance type 'p5.48xlarg'", "did you mean 'p5.48xlarge'"),
        ("m5.xlarg", "unknown instance type 'm5.xlarg'", "did you mean 'm5.xlarge'"),
        ("p6-b300.48xlarg", "unknown instance type", "p6-b300.48xlarge"),
        (
            "g5g.xlarge",
            "SageMaker has no training jobs on g5g.xlarge",
            "docs/training.md",
        ),  # no g5: of amd64
        ("hpc7g.16xlarge", "SageMaker has no training jobs on hpc7g.16xlarge", "docs/training.md"),  # no p3.16xlarge
        ("hpc6a.48xlarge", "SageMaker has no training jobs on hpc6a.48xlarge", "docs/training.md"),
        ("g4dn.metal", "SageMaker has no training jobs on g4dn.metal", "did you mean 'ml.g4dn."),
        ("hpc7g.16xlarg", "unknown instance type", "has no similar name"),
        ("pp5.48xlarge", "unknown instance type", "did you mean 'p5.48xlarge'"),
    ],
)
def test_what_is_no_type_of_sagemaker(intent: Intent, name: str, what: str, more: str) -> None:
    with pytest.raises(ConfigError, match=what) as raised:
        jobs_fit.instance(name, intent.instances, TYPES)
    assert more in raised.value.why


@pytest.mark.parametrize(
    ("identity", "name", "hosts", "what", "fix"),
    [
        (EFA, "p6e-gb200.36xlarge", 1, "is for amd64, but ml.p6e-gb200.36xlarge is arm64", "list --instance p6e-gb200"),
        (ARM, "p5.48xlarge", 1, "is for arm64, but ml.p5.48xlarge is amd64", "list --instance p5.48xlarge"),
        (ARM, "m5.xlarge", 1, "is for arm64, but ml.m5.xlarge is amd64", "trainwright list"),
        (EFA, "m5.xlarge", 1, "requires NVIDIA GPUs, ml.m5.xlarge has none", "--instance p4d.24xlarge or"),
        (SINGLE, "p5.48xlarge", 2, "has no aws-ofi-nccl: 2 hosts", "--allow-tcp"),
        ("pytorch-2.13-cpu-py311-ec2", "m5.xlarge", 1, "is not for SageMaker", "pytorch-2.13-cpu-py311-sagemaker"),
    ],
)
def test_what_cannot_train_is_refused(
    intent: Intent, identity: str, name: str, hosts: int, what: str, fix: str
) -> None:
    with pytest.raises(ConfigError, match=what) as raised:
        fit(intent, identity, name, hosts)
    assert fix in raised.value.fix


@pytest.mark.parametrize(
    ("identity", "name", "hosts", "allow_tcp", "said"),
    [
        (EFA, "p5.48xlarge", 2, False, ""),
        (SINGLE, "p5.48xlarge", 1, False, ""),
        (SINGLE, "p5.48xlarge", 2, True, "would use TCP instead of 32 EFA interfaces"),
        (SINGLE, "g5.xlarge", 2, False, "not for ml.g5.xlarge"),  # it has no EFA
        (CPU, "m5.xlarge", 2, False, "the devices of ml.m5.xlarge are unknown"),
        (CPU, "c5n.18xlarge", 2, False, ""),  # without NCCL libfabric is enough
        (CPU, "p5.48xlarge", 1, False, "the 8 GPUs of ml.p5.48xlarge are paid for but not used"),
        ("pytorch-2.5-cu124-py311-sagemaker-smddp", "p4d.24xlarge", 2, False, ""),  # nobody knows what it lacks
    ],
)
def test_what_can_and_what_one_should_know(
    intent: Intent, identity: str, name: str, hosts: int, allow_tcp: bool, said: str
) -> None:
    notes = fit(intent, identity, name, hosts, allow_tcp)
    assert (said in notes[0]) if said else notes == []
