"""Horovod's allreduce and broadcast, and training with its optimizer: as one process on all the data."""

import sys

import horovod.torch as hvd
import torch
from torch.nn.functional import mse_loss

STEPS, ROWS = 5, 48


def model() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Tanh(), torch.nn.Linear(32, 4))


hvd.init()
rank, world = hvd.rank(), hvd.size()
own = torch.arange(1000, dtype=torch.float64) + 1000 * (rank + 1)
assert torch.equal(hvd.allreduce(own, op=hvd.Sum), torch.arange(1000) * world + 1000 * world * (world + 1) / 2)
assert hvd.broadcast(torch.tensor([rank]), world - 1).item() == world - 1

torch.manual_seed(1)
x, y = torch.randn(ROWS, 16), torch.randn(ROWS, 4)
mine = slice(rank * ROWS // world, (rank + 1) * ROWS // world)
reference, parallel = model(), model()
with torch.no_grad():
    for parameter in parallel.parameters():
        parameter += rank  # only rank 0 has the reference's, until it is broadcast
hvd.broadcast_parameters(parallel.state_dict(), root_rank=0)
optimizers = [torch.optim.SGD(trained.parameters(), lr=0.1) for trained in (reference, parallel)]
optimizers[1] = hvd.DistributedOptimizer(optimizers[1], named_parameters=parallel.named_parameters())
for _ in range(STEPS):
    for trained, rows, optimizer in ((reference, slice(None), optimizers[0]), (parallel, mine, optimizers[1])):
        optimizer.zero_grad()
        mse_loss(trained(x[rows]), y[rows]).backward()
        optimizer.step()
for one, other in zip(parallel.parameters(), reference.parameters(), strict=True):
    assert torch.allclose(one, other, atol=1e-6), (one - other).abs().max()
sys.stdout.write(f"checked: rank {rank} of {world}\n")
hvd.shutdown()
