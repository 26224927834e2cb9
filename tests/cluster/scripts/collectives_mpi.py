"""Values of the collectives of MPI, through mpi4py. No two ranks give the same numbers."""

import sys

import numpy
from mpi4py import MPI

SIZE = 1000

world = MPI.COMM_WORLD
rank, size = world.rank, world.size
steps = numpy.arange(SIZE, dtype=numpy.float64)
own = steps + 1000 * (rank + 1)
sums = steps * size + 1000 * size * (size + 1) / 2

total = numpy.empty(SIZE)
world.Allreduce(own, total)
assert numpy.array_equal(total, sums)
world.Allreduce(own, total, op=MPI.MAX)
assert numpy.array_equal(total, steps + 1000 * size)

for source in range(size):
    sent = own.copy()
    world.Bcast(sent, root=source)
    assert numpy.array_equal(sent, steps + 1000 * (source + 1))

reduced = numpy.zeros(SIZE)
world.Reduce(own, reduced, root=size - 1)
assert numpy.array_equal(reduced, sums if rank == size - 1 else numpy.zeros(SIZE))

gathered = numpy.empty((size, SIZE))
world.Allgather(own, gathered)
for source in range(size):
    assert numpy.array_equal(gathered[source], steps + 1000 * (source + 1))

part = numpy.empty(SIZE)
world.Reduce_scatter_block(numpy.concatenate([own + index for index in range(size)]), part)
assert numpy.array_equal(part, sums + rank * size)

sys.stdout.write(f"checked: rank {rank} of {size}\n")
