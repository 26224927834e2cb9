"""What mpirun itself is not told, as it would follow it instead of its command line; its ranks are."""

import starting


def test_mpirun_does_not_know_that_it_runs_under_slurm_or_an_operator() -> None:
    """Open MPI 4.1.4 ends with "Not found in file ras_base_allocate.c", or asks for srun."""
    told = {"SLURM_JOBID": "1", "SLURM_NNODES": "2", "OMPI_MCA_orte_default_hostfile": "/etc/mpi/hostfile"}
    assert starting.for_mpirun({**told, "PATH": "/bin", "OMPI_MCA_btl": "tcp"}) == {
        "PATH": "/bin",
        "OMPI_MCA_btl": "tcp",
    }
    assert starting.of_rank({"OMPI_COMM_WORLD_RANK": "1"}, {"SLURM_JOBID": "1"}, [])["SLURM_JOBID"] == "1"
