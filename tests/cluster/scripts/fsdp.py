"""What a model sharded over all ranks learns is what one process learns on all the data; each rank holds a part."""

import os
import sys

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.functional import mse_loss

STEPS, ROWS = 5, 48


def model() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Tanh(), torch.nn.Linear(32, 4))


dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(1)
x, y = torch.randn(ROWS, 16), torch.randn(ROWS, 4)
mine = slice(rank * ROWS // world, (rank + 1) * ROWS // world)

reference, sharded = model(), model()
mesh = init_device_mesh("cpu", (world,))
for layer in (sharded[0], sharded[2], sharded):
    fully_shard(layer, mesh=mesh)
held = sum(parameter.to_local().numel() for parameter in sharded.parameters())
assert held <= sum(parameter.numel() for parameter in reference.parameters()) / world, held

optimizers = [torch.optim.SGD(trained.parameters(), lr=0.1) for trained in (reference, sharded)]
for _ in range(STEPS):
    for trained, rows, optimizer in ((reference, slice(None), optimizers[0]), (sharded, mine, optimizers[1])):
        optimizer.zero_grad()
        mse_loss(trained(x[rows]), y[rows]).backward()
        optimizer.step()
for one, other in zip(sharded.parameters(), reference.parameters(), strict=True):
    assert torch.allclose(one.full_tensor(), other, atol=1e-6), (one.full_tensor() - other).abs().max()
sys.stdout.write(f"checked: rank {rank} of {world}\n")
dist.destroy_process_group()
sys.stdout.flush()
os._exit(0)  # gloo's threads outlive the wrapped model, and now and then abort an ending interpreter
