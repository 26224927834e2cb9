"""Test the local mode of SageMaker's SDK, versions 2 and 3, with one and two instances and no AWS account."""

import secrets
from collections.abc import Callable
from typing import Any

import pytest

pytestmark = [
    pytest.mark.sdk,
    pytest.mark.component("sagemaker-training"),
    pytest.mark.xdist_group("sagemaker-local"),  # the SDKs give their network one name
]
TWO = ["algo-1", "algo-2"]
SECRET = "TRAINWRIGHT_JOB_SECRET"


@pytest.mark.parametrize("version", ["v2", "v3"])
def test_one_instance(local_mode: Callable[..., Any], version: str) -> None:
    outcome = local_mode(version, "plain.py", hyperparameters={"epochs": 3})
    assert outcome.code == 0, outcome.said
    assert outcome.result == {"arguments": ["--epochs", "3"], "size": 1}
    assert outcome.said.count("matches its declaration") == 1


@pytest.mark.parametrize("version", ["v2", "v3"])
def test_a_script_that_fails_fails_the_call(local_mode: Callable[..., Any], version: str) -> None:
    outcome = local_mode(version, "fails.py")
    assert outcome.code != 0
    assert "Failed to run" in outcome.said  # the SDK's own words
    if version == "v3":  # version 2 takes the file away
        assert outcome.failure.startswith("algo-1: exit code 1\n")
        assert "RuntimeError: the script gave up" in outcome.failure
    else:
        assert "RuntimeError: the script gave up" in outcome.said


def two(outcome: Any, processes: int = 1) -> None:
    """Check that both hosts took part with `processes` ranks each, and that each host was checked once."""
    assert outcome.code == 0, outcome.said
    size = 2 * processes
    assert outcome.result["size"] == size, outcome.said
    assert [name[: len("algo-1")] for name in outcome.result["hosts"]] == TWO  # version 2 writes more behind it
    assert outcome.result["sum"] == [size * (size + 1) / 2]
    assert outcome.said.count("matches its declaration") == 2, outcome.said


@pytest.mark.component("torch")
def test_v2_torch_distributed(local_mode: Callable[..., Any]) -> None:
    two(local_mode("v2", "ranks_torch.py", 2, {"torch_distributed": {"enabled": True}}))


@pytest.mark.component("torch")
def test_v3_torchrun(local_mode: Callable[..., Any]) -> None:
    two(local_mode("v3", "ranks_torch.py", 2, {"torchrun": {"process_count_per_node": 1}}))


@pytest.mark.component("mpi4py")
def test_v2_mpi(local_mode: Callable[..., Any]) -> None:
    kind = {"mpi": {"enabled": True, "processes_per_host": 2}}
    two(local_mode("v2", "ranks_mpi.py", 2, kind, {SECRET: secrets.token_hex(32)}), processes=2)


@pytest.mark.component("mpi4py")
@pytest.mark.parametrize("options", [[], ["-np", "4"]], ids=["as-it-is", "-np"])
def test_v3_mpi(local_mode: Callable[..., Any], options: list[str]) -> None:
    """The SDK's own driver would start two ranks, both on algo-1, without the second: it forgets the hosts.

    Local mode names an interface that is not there, ethwe; the driver would hand that to mpirun.
    """
    kind = {"mpi": {"process_count_per_node": 2, "mpi_additional_options": options}}
    secret = secrets.token_hex(32)
    outcome = local_mode("v3", "ranks_mpi.py", 2, kind, {SECRET: secret})
    two(outcome, processes=2)
    assert secret not in outcome.said


@pytest.mark.component("mpi4py")
@pytest.mark.parametrize("version", ["v2", "v3"])
def test_mpi_on_two_hosts_wants_a_secret(local_mode: Callable[..., Any], version: str) -> None:
    kind = {"mpi": {"enabled": True}} if version == "v2" else {"mpi": {}}
    outcome = local_mode(version, "ranks_mpi.py", 2, kind)
    assert outcome.code != 0
    assert outcome.result == {}
    assert SECRET in outcome.said
    assert "TRAINWRIGHT_TRUST=network" in outcome.said


@pytest.mark.component("mpi4py")
def test_v3_mpi_in_a_network_that_is_trusted(local_mode: Callable[..., Any]) -> None:
    two(local_mode("v3", "ranks_mpi.py", 2, {"mpi": {}}, {"TRAINWRIGHT_TRUST": "network"}))
