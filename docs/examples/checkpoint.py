"""A script that can be stopped at any time and goes on where it was: of a spot instance, by StopTrainingJob, ...

Stopped means: the platform sends SIGTERM and waits (SageMaker 120 s) before SIGKILL; trainwright-launch hands it to
every rank. The ranks agree on the step after which they stop, and rank 0 writes one file: model, optimizer, step, and
each rank's random numbers. The next start with the same folder takes the very next step. Who is killed without a
word goes on from the last checkpoint that was written on the way.

    trainwright run IMAGE checkpoint.py --checkpoints kept --steps 300             # one process
    trainwright run IMAGE checkpoint.py --checkpoints kept --steps 300 --nodes 2   # torchrun
"""

import argparse
import os
import signal
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

RANK, WORLD = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
STOPPED = 128 + signal.SIGTERM  # not 0: Kubernetes and Slurm must not take a stopped job for a finished one
EXAMPLES, SIZE = 4096, 64

stop = False


def on_sigterm(*_: object) -> None:
    """Only remember it: a step that is cut in two is a step that some ranks did and others did not."""
    global stop
    stop = True


def all_agree_to_stop() -> bool:
    """SIGTERM reaches the ranks at different moments: when one heard it, all stop after the same step."""
    if WORLD == 1:
        return stop
    heard = torch.tensor(int(stop))
    dist.all_reduce(heard, op=dist.ReduceOp.MAX)
    return bool(heard)


def save(file: Path, step: int, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Whole or not at all: SageMaker copies the folder while we write, and SIGKILL may come in the middle."""
    random = [torch.get_rng_state()]
    if WORLD > 1:
        random = [torch.empty_like(random[0]) for _ in range(WORLD)]
        dist.all_gather(random, torch.get_rng_state())
    if RANK == 0:
        state = {"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict(), "random": random}
        part = file.with_suffix(".part")
        with part.open("wb") as out:
            torch.save(state, out)
            out.flush()
            os.fsync(out.fileno())
        part.replace(file)
        print(f"saved step {step}", flush=True)
    if WORLD > 1:
        dist.barrier()  # torchrun and mpirun end the other ranks soon after the first one has left


def load(file: Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """Load the checkpoint and return the next step; 0 without a checkpoint. Every host must see the same folder."""
    if not file.exists():
        return 0
    state = torch.load(file, weights_only=True)
    if len(state["random"]) != WORLD:
        raise SystemExit(
            f"{file} is of {len(state['random'])} ranks, not of {WORLD}: start as many, or empty the folder"
        )
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    torch.set_rng_state(state["random"][RANK])
    print(f"rank {RANK}: resumed at step {state['step']}", flush=True)
    return int(state["step"])


def indices(step: int, batch: int, seed: int) -> torch.Tensor:
    """Which examples this rank sees in a step: computed from the step, so that no position has to be kept."""
    per_epoch = EXAMPLES // (batch * WORLD)
    epoch, at = divmod(step, per_epoch)
    order = torch.randperm(EXAMPLES, generator=torch.Generator().manual_seed(seed + epoch))
    first = (at * WORLD + RANK) * batch
    return order[first : first + batch]


def leave(code: int) -> None:
    """At once: gloo's threads outlive DistributedDataParallel, and may abort the end (docs/training.md)."""
    sys.stdout.flush()
    os._exit(code)


def train(args: argparse.Namespace) -> None:
    if WORLD > 1:
        dist.init_process_group("gloo")  # "nccl" on GPUs
    signal.signal(signal.SIGTERM, on_sigterm)
    data = torch.Generator().manual_seed(args.seed)
    inputs = torch.randn(EXAMPLES, SIZE, generator=data)
    targets = torch.sin(inputs @ torch.randn(SIZE, 1, generator=data))
    torch.manual_seed(args.seed)
    model = nn.Sequential(nn.Linear(SIZE, args.hidden_size), nn.ReLU(), nn.Dropout(0.1), nn.Linear(args.hidden_size, 1))
    learner = nn.parallel.DistributedDataParallel(model) if WORLD > 1 else model
    torch.manual_seed(args.seed + RANK)  # each rank drops out other units
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    args.checkpoint_dir.mkdir(parents=True, exist_ok=True)
    file = args.checkpoint_dir / "checkpoint.pt"
    for step in range(load(file, model, optimizer), args.steps):
        chosen = indices(step, args.batch_size, args.seed)
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(learner(inputs[chosen]), targets[chosen])
        loss.backward()
        optimizer.step()
        print(f"rank {RANK} step {step} loss {loss.item()!r}", flush=True)
        stopping = all_agree_to_stop()
        if stopping or (step + 1) % args.save_every == 0:
            save(file, step + 1, model, optimizer)
        if stopping:
            leave(STOPPED)
    if RANK == 0:
        torch.save(model.state_dict(), args.model_dir / "model.pt")
    if WORLD > 1:
        dist.barrier()  # rank 0 still writes: no rank leaves before it
        dist.destroy_process_group()
        leave(0)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--save-every", type=int, default=100)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--hidden-size", type=int, default=512)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--checkpoint-dir", type=Path, default=Path("/opt/ml/checkpoints"))
    parser.add_argument("--model-dir", type=Path, default=Path(os.environ.get("SM_MODEL_DIR", "/opt/ml/model")))
    train(parser.parse_args())
