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
    assert outcome.failure.startswith("algo-1: exit code 1\n")
    assert "RuntimeError: rank one gave up" in outcome.failure


@pytest.fixture(scope="module")
def mpi(job: Callable[..., Any]) -> Any:
    wanted = {"sagemaker_mpi_enabled": True, **TWO, "rounds": 3}
    keep = ("/opt/ml", "/etc/ssh", "/root", "/run", "/tmp")
    return job("ranks.py", {"ranks.py": RANKS}, wanted, keep=keep)


@pytest.mark.component("mpi4py")
def test_mpi(mpi: Any) -> None:
    assert mpi.code == 0, mpi.logs
    for rank in (0, 1):
        assert f"rank {rank} of 2 sums to 3.0 with ['--rounds', '3']" in mpi.logs


@pytest.mark.component("mpi4py")
def test_one_host_needs_no_key(mpi: Any) -> None:
    """Nobody logs in: no key is made, and none is left."""
    kept = [path for path in mpi.files if "ssh_host_" in path or path.endswith(("authorized_keys", "id_ed25519"))]
    assert kept == []
    assert not [path for path, content in mpi.files.items() if b"PRIVATE KEY" in content]


@pytest.mark.component("mpi4py")
def test_a_rank_of_mpi_that_fails(job: Callable[..., Any]) -> None:
    """The others wait for it in a collective; the exit code and the reason are its own."""
    script = (
        "import sys\nfrom mpi4py import MPI\nif MPI.COMM_WORLD.rank == 1:\n    sys.exit(3)\nMPI.COMM_WORLD.Barrier()\n"
    )
    outcome = job("ranks.py", {"ranks.py": script}, {"sagemaker_mpi_enabled": True, **TWO})
    assert outcome.code == 3, outcome.logs
    assert outcome.failure.startswith("algo-1: exit code 3")
