"""Under mpirun: 8 MB from every rank, summed by the MPI library that mpi4py really loaded."""

import sys

import numpy
from mpi4py import MPI

world = MPI.COMM_WORLD
total = numpy.empty(1_000_000)
world.Allreduce(numpy.full(1_000_000, world.rank + 1.0), total)
sys.stdout.write(
    f"rank {world.rank} of {world.size}: {total.min()} {total.max()}; {MPI.Get_library_version().split(',')[0]}\n"
)  # print() writes twice, and ranks mix
