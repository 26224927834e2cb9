"""Ranks of mpirun form one world, over all hosts."""

import socket
import sys

from mpi4py import MPI

world = MPI.COMM_WORLD
assert world.allreduce(world.rank + 1) == world.size * (world.size + 1) / 2
hosts = set(world.allgather(socket.gethostname()))
assert len(hosts) > 1, f"all ranks run on {hosts}"
sys.stdout.write(f"checked: rank {world.rank} of {world.size}\n")
