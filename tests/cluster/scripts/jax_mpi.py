"""JAX over several processes that mpirun started: a gradient over data of all of them is that of one process."""

import sys

import jax
import jax.numpy as jnp
import numpy
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

ROWS = 48

jax.config.update("jax_cpu_collectives_implementation", "gloo")
jax.distributed.initialize(cluster_detection_method="mpi4py")
rank, world = jax.process_index(), jax.process_count()
assert multihost_utils.process_allgather(jnp.array([rank + 1])).sum() == world * (world + 1) / 2

numbers = numpy.random.default_rng(1)
x, y = numbers.normal(size=(ROWS, 16)).astype("float32"), numbers.normal(size=(ROWS, 4)).astype("float32")
mine = slice(rank * ROWS // world, (rank + 1) * ROWS // world)
sharding = NamedSharding(Mesh(jax.devices(), ("data",)), PartitionSpec("data"))
rows, wanted = (jax.make_array_from_process_local_data(sharding, array[mine]) for array in (x, y))


@jax.jit
def gradient(weights: jax.Array, rows: jax.Array, wanted: jax.Array) -> jax.Array:
    return jax.grad(lambda held: ((rows @ held - wanted) ** 2).mean())(weights)


found = numpy.asarray(gradient(jnp.ones((16, 4)), rows, wanted))
reference = 2 * x.T @ (x @ numpy.ones((16, 4)) - y) / (ROWS * 4)
assert numpy.allclose(found, reference, atol=1e-5), abs(found - reference).max()
sys.stdout.write(f"checked: rank {rank} of {world}\n")
