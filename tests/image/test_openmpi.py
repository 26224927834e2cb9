"""Open MPI starts two ranks in the one container, as root, as a SageMaker job does."""

from typing import Any

import pytest

pytestmark = pytest.mark.component("openmpi")
TWO = "mpirun -np 2 --oversubscribe"  # a machine with one core has one slot


def test_two_ranks(host: Any) -> None:
    ranks = host.check_output(f"{TWO} sh -c 'echo $OMPI_COMM_WORLD_RANK of $OMPI_COMM_WORLD_SIZE'").splitlines()
    assert sorted(ranks) == ["0 of 2", "1 of 2"]


@pytest.mark.component("mpi4py")
def test_all_reduce_from_python(host: Any, programs: str) -> None:
    lines = sorted(host.check_output(f"{TWO} python -m mpi4py {programs}/mpi_all_reduce.py").splitlines())
    assert [line.split(";")[0] for line in lines] == ["rank 0 of 2: 3.0 3.0", "rank 1 of 2: 3.0 3.0"]
    version = host.check_output("mpirun --version").splitlines()[0].split()[-1]
    assert all(line.endswith(f"Open MPI v{version}") for line in lines), "mpi4py loaded another MPI library"


def test_a_failing_rank_fails_the_job(host: Any) -> None:
    assert host.run(f"{TWO} sh -c 'exit $OMPI_COMM_WORLD_RANK'").rc == 1
