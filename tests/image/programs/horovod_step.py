"""One rank of two: collectives with known values, and steps of an optimizer that one process takes as well."""

import json
import sys

import horovod.torch as hvd
import torch
from torch.nn.functional import mse_loss

STEPS = 5


def model() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))


def optimizer(of: torch.nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(of.parameters(), lr=0.1, momentum=0.9)


def train(of: torch.nn.Module, steps: torch.optim.Optimizer, samples: torch.Tensor, wanted: torch.Tensor) -> None:
    for _ in range(STEPS):
        steps.zero_grad()
        mse_loss(of(samples), wanted).backward()
        steps.step()


hvd.init()
rank, size = hvd.rank(), hvd.size()
numbers = torch.arange(1000.0)
torch.manual_seed(1)
samples, wanted = torch.randn(16, 4), torch.randn(16, 1)

alone = model()
train(alone, optimizer(alone), samples, wanted)

# Each rank sees its share of the samples; the mean of the shares' gradients is that of all of them.
together = model()
if rank:  # only a broadcast makes it the same model
    for parameter in together.parameters():
        torch.nn.init.zeros_(parameter)
hvd.broadcast_parameters(together.state_dict(), root_rank=0)
wrapped = hvd.DistributedOptimizer(optimizer(together), named_parameters=together.named_parameters())
hvd.broadcast_optimizer_state(wrapped, root_rank=0)
train(together, wrapped, samples[rank::size], wanted[rank::size])

pairs = zip(alone.parameters(), together.parameters(), strict=True)
found = {
    "rank": rank,
    "size": size,
    "mpi": bool(hvd.mpi_enabled()),  # whether MPI carries this job, and not only whether it was compiled in
    "sum": bool(torch.equal(hvd.allreduce(numbers * (rank + 1), op=hvd.Sum), numbers * 3)),
    "mean": bool(torch.equal(hvd.allreduce(numbers * (rank + 1), op=hvd.Average), numbers * 1.5)),
    "gathered": hvd.allgather(torch.full((rank + 1,), float(rank))).tolist(),
    "from_the_last": hvd.broadcast(torch.tensor([float(rank)]), root_rank=size - 1).tolist(),
    "moved": max(
        float((a - b).detach().abs().max()) for a, b in zip(model().parameters(), alone.parameters(), strict=True)
    ),
    "error": max(float((a - b).detach().abs().max()) for a, b in pairs),
}
sys.stdout.write(json.dumps(found) + "\n")
hvd.shutdown()
