"""Values of the collectives of torch.distributed over gloo. No two ranks give the same numbers."""

import sys

import torch
import torch.distributed as dist

SIZE = 1000

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
steps = torch.arange(SIZE, dtype=torch.float64)
own = steps + 1000 * (rank + 1)
sums = steps * world + 1000 * world * (world + 1) / 2

total = own.clone()
dist.all_reduce(total)
assert torch.equal(total, sums)
most = own.clone()
dist.all_reduce(most, op=dist.ReduceOp.MAX)
assert torch.equal(most, steps + 1000 * world)

for source in range(world):
    sent = own.clone()
    dist.broadcast(sent, source)
    assert torch.equal(sent, steps + 1000 * (source + 1))

reduced = own.clone()
dist.reduce(reduced, world - 1)
assert rank != world - 1 or torch.equal(reduced, sums)

gathered = [torch.empty_like(own) for _ in range(world)]
dist.all_gather(gathered, own)
for source, held in enumerate(gathered):
    assert torch.equal(held, steps + 1000 * (source + 1))

part = torch.empty(SIZE, dtype=torch.float64)
dist.reduce_scatter_tensor(part, torch.cat([own + index for index in range(world)]))
assert torch.equal(part, sums + rank * world)

sys.stdout.write(f"checked: rank {rank} of {world}\n")
dist.destroy_process_group()
