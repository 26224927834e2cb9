"""Two ranks on one host, as the hyperparameters of an SDK ask for them; the toolkit alone would start one process."""

import json
from collections.abc import Callable
from typing import Any

import pytest

pytestmark = pytest.mark.component("sagemaker-training")
TWO = {"sagemaker_mpi_num_of_processes_per_host": 2}
RANKS = """
import os, sys
import numpy
from mpi4py import MPI
world = MPI.COMM_WORLD
total = numpy.empty(1000)
world.Allreduce(numpy.full(1000, world.rank + 1.0), total)
sys.stdout.write(f"rank {world.rank} of {world.size} sums to {total.max()} with {sys.argv[1:]}\\n")
"""


@pytest.mark.component("torch")
def test_torch_distributed(job: Callable[..., Any], digits_script: Any, digits: Any) -> None:
    wanted = {"sagemaker_torch_distributed_enabled": True, **TWO, "epochs": 25}
    outcome = job("digits.py", digits_script, wanted, digits)
    assert outcome.code == 0, outcome.logs
    for rank in (0, 1):
        assert f"rank {rank} of 2, epoch 24" in outcome.logs
    metrics = json.loads(outcome.files["/opt/ml/output/data/metrics.json"])
    assert metrics["world_size"] == 2
    assert metrics["accuracy"] >= 0.95


@pytest.mark.component("torch")
def test_a_failing_rank_fails_the_job(job: Callable[..., Any]) -> None:
    script = "import os\nif os.environ['RANK'] == '1':\n    raise RuntimeError('rank one gave up')\n"
    outcome = job("ranks.py", {"ranks.py": script}, {"sagemaker_torch_distributed_enabled": True, **TWO})
    assert outcome.code == 1
    assert "rank one gave up" in outcome.failure


@pytest.fixture(scope="module")
def mpi(job: Callable[..., Any]) -> list[Any]:
    """Two jobs of the same image. The toolkit ends each with 30 seconds of sleep."""
    wanted = {"sagemaker_mpi_enabled": True, **TWO, "rounds": 3}
    keep = ("/opt/ml", "/etc/ssh", "/root")
    return [job("ranks.py", {"ranks.py": RANKS}, wanted, keep=keep) for _ in range(2)]


@pytest.mark.component("mpi4py")
def test_mpi(mpi: list[Any]) -> None:
    assert mpi[0].code == 0, mpi[0].logs
    for rank in (0, 1):
        assert f"rank {rank} of 2 sums to 3.0 with ['--rounds', '3']" in mpi[0].logs


@pytest.mark.component("mpi4py")
def test_every_container_has_keys_of_its_own(mpi: list[Any]) -> None:
    for path in ("/etc/ssh/ssh_host_ed25519_key", "/root/.ssh/id_ed25519", "/root/.ssh/authorized_keys"):
        assert len({outcome.files[path] for outcome in mpi}) == 2, path
