"""Open MPI starts two ranks in the one container, as root, as a SageMaker job does."""

from typing import Any

import pytest

pytestmark = pytest.mark.component("openmpi")
TWO = "mpirun -np 2 --oversubscribe"  # a machine with one core has one slot


def test_two_ranks(host: Any) -> None:
    ranks = host.check_output(f"{TWO} sh -c 'echo $OMPI_COMM_WORLD_RANK of $OMPI_COMM_WORLD_SIZE'").splitlines()
    assert sorted(ranks) == ["0 of 2", "1 of 2"]


def test_a_failing_rank_fails_the_job(host: Any) -> None:
    patience = (
        "OMPI_MCA_odls_base_sigkill_timeout=0"  # Open MPI 4 gives a rank two seconds to end, also where none is left
    )
    assert host.run(f"{patience} {TWO} sh -c 'exit $OMPI_COMM_WORLD_RANK'").rc == 1
