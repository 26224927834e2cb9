"""Test what a pod requests of its node: more than a node has left never starts, a sliver starves its ranks."""

import pytest
from hosts import ROOT
from unit.emitted import KUBERNETES, Emit, documents, pods

from trainwright.gate import spec as gate_spec
from trainwright.matrix.instances import load_instances
from trainwright.schedulers import kubernetes

SYSTEM = gate_spec.load_settings(ROOT).kubernetes.system
# What karpenter computes that pods may take of a node: "Resources" in the file that instances.toml names as its source.
ALLOCATABLE = {  # CPUs, MiB
    "g5.xlarge": (3.92, 14162),
    "g5g.xlarge": (3.92, 6525),
    "g5.48xlarge": (191.45, 723299),
    "g7.2xlarge": (7.91, 27161),
    "p5.48xlarge": (191.45, 1938410),
    "c8gn.16xlarge": (63.77, 112181),
}
DAEMONSETS = (0.5, 1024)


@pytest.mark.parametrize("name", ALLOCATABLE)
def test_a_pod_fits_beside_kubelet_daemonsets_and_huge_pages(name: str) -> None:
    row = load_instances(ROOT)[name]
    asked = kubernetes.requests(row, SYSTEM)
    cpus, memory = ALLOCATABLE[name]
    pages = 5128 * 2 if row.efa else 0
    assert int(asked["cpu"]) <= cpus - DAEMONSETS[0]
    assert int(asked["memory"].removesuffix("Gi")) * 1024 <= memory - DAEMONSETS[1] - pages


def test_no_type_is_asked_for_more_than_it_has_or_for_a_sliver() -> None:
    for name, row in load_instances(ROOT).items():
        asked = kubernetes.requests(row, SYSTEM)
        assert row.vcpus * 0.7 <= int(asked["cpu"]) < row.vcpus, name
        assert row.ram_gib * 0.6 <= int(asked["memory"].removesuffix("Gi")) < row.ram_gib, name


def test_some_of_the_gpus_take_their_share_of_the_node() -> None:
    row = load_instances(ROOT)["p5.48xlarge"]
    whole, half = (kubernetes.requests(row, SYSTEM, gpus) for gpus in (8, 4))
    assert int(half["cpu"]) == int(whole["cpu"]) // 2
    assert kubernetes.requests(row, SYSTEM) == whole


@pytest.mark.parametrize("on", KUBERNETES)
@pytest.mark.parametrize(("instance", "cpu", "ram"), [("g5.xlarge", "3", "12Gi"), ("p5.48xlarge", "181", "1729Gi")])
def test_an_emitted_job_requests_what_its_instance_has(emit: Emit, on: str, instance: str, cpu: str, ram: str) -> None:
    _, job = documents(emit(on, "--instance", instance))
    resources = pods(job)[0]["containers"][0]["resources"]
    assert (resources["requests"]["cpu"], resources["requests"]["memory"]) == (cpu, ram)
    assert not {"cpu", "memory"} & resources["limits"].keys()
