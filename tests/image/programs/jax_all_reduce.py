"""argv: rank, world, coordinator. Every process contributes its number, every process must see the sum."""

import sys

import jax
import jax.numpy as jnp
from jax.experimental import multihost_utils
from jax.sharding import NamedSharding, PartitionSpec

rank, world, coordinator = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
jax.config.update("jax_cpu_collectives_implementation", "gloo")
jax.distributed.initialize(coordinator, num_processes=world, process_id=rank)
mesh = jax.make_mesh((world,), ("ranks",))
mine = jnp.full((1, 1000), float(rank + 1))
value = jax.make_array_from_single_device_arrays(
    (world, 1000), NamedSharding(mesh, PartitionSpec("ranks")), [jax.device_put(mine, jax.local_devices()[0])]
)
total = jax.jit(lambda x: x.sum(axis=0), out_shardings=NamedSharding(mesh, PartitionSpec()))(value)
own = multihost_utils.process_allgather(mine)
sys.stdout.write(
    f"rank {jax.process_index()} of {jax.process_count()}, {jax.device_count()} devices: "
    f"{float(total.min())} {float(total.max())} {float(own.sum(axis=0).max())}\n"
)
