"""Gradients of DistributedDataParallel, and what training makes of them, are those of one process on all the data."""

import os
import sys

import torch
import torch.distributed as dist
from torch.nn.functional import mse_loss
from torch.nn.parallel import DistributedDataParallel

STEPS, ROWS = 5, 48


def model() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Tanh(), torch.nn.Linear(32, 4))


dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(1)
x, y = torch.randn(ROWS, 16), torch.randn(ROWS, 4)
mine = slice(rank * ROWS // world, (rank + 1) * ROWS // world)

reference, parallel, alone = model(), DistributedDataParallel(model()), model()
mse_loss(alone(x[mine]), y[mine]).backward()
optimizers = [torch.optim.SGD(trained.parameters(), lr=0.1) for trained in (reference, parallel)]
for step in range(STEPS):
    for trained, rows, optimizer in ((reference, slice(None), optimizers[0]), (parallel, mine, optimizers[1])):
        optimizer.zero_grad()
        mse_loss(trained(x[rows]), y[rows]).backward()
    for one, other, own in zip(parallel.parameters(), reference.parameters(), alone.parameters(), strict=True):
        assert torch.allclose(one.grad, other.grad, atol=1e-6), (one.grad - other.grad).abs().max()
        assert step or world == 1 or not torch.allclose(own.grad, other.grad, atol=1e-6)  # else this proves nothing
    for optimizer in optimizers:
        optimizer.step()
for one, other in zip(parallel.parameters(), reference.parameters(), strict=True):
    assert torch.allclose(one, other, atol=1e-6)
sys.stdout.write(f"checked: rank {rank} of {world}\n")
dist.destroy_process_group()
sys.stdout.flush()
os._exit(0)  # gloo's threads outlive the wrapped model, and now and then abort an ending interpreter
