"""MPI for Python: it loads the image's own MPI library, whatever others its wheel was built for."""

from typing import Any

import pytest

pytestmark = [pytest.mark.component("mpi4py"), pytest.mark.component("openmpi")]


def test_all_reduce_from_python(host: Any, programs: str) -> None:
    two = "mpirun -np 2 --oversubscribe"  # a machine with one core has one slot
    lines = sorted(host.check_output(f"{two} python -m mpi4py {programs}/mpi_all_reduce.py").splitlines())
    assert [line.split(";")[0] for line in lines] == ["rank 0 of 2: 3.0 3.0", "rank 1 of 2: 3.0 3.0"]
    version = host.check_output("mpirun --version").splitlines()[0].split()[-1]
    assert all(line.endswith(f"Open MPI v{version}") for line in lines), "mpi4py loaded another MPI library"
