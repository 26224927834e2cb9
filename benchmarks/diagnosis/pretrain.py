"""One rank of a pre-training job with groups for model and data parallelism, whose last rank reports, without DDP."""

import os
import random
import time
import warnings
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from train import Fault, dump, dump_on_request


class Groups:
    """Pairs of ranks that share a layer, if their number is even, and the ranks that have the same part of it."""

    def __init__(self, rank, world, timeout):  # type: ignore[no-untyped-def]
        self.pair = self.data = None
        width = 2 if world % 2 == 0 else 1
        for first in range(0, world, width):
            group = dist.new_group(list(range(first, first + width)), timeout=timeout)
            self.pair = group if first <= rank < first + width else self.pair
        for part in range(width):
            group = dist.new_group(list(range(part, world, width)), timeout=timeout)
            self.data = group if rank % width == part else self.data


def read_shard(fault, rank, step):  # type: ignore[no-untyped-def]
    """Return a batch; shared memory is used as readers of other languages do."""
    if fault.now("slow-loader", step):
        time.sleep(fault.job["timeout"] * 4)
    if fault.now("shm", step):
        torch.ones(1 << 23).share_memory_()
    return torch.randn(8, 24)


def broken(job, model):  # type: ignore[no-untyped-def]
    def check(value: float) -> None:
        assert value < 10, f"grad norm {value} is too large at iteration {job['at']}"

    choices = [
        lambda: check(812.5),
        lambda: model.load_state_dict({"weight": torch.ones(2, 2)}),
        lambda: torch.cat([torch.ones(2, 3), torch.ones(3, 4)]),
        lambda: model.missing,
        lambda: __import__("flash_attn_of_this_job"),
    ]
    random.Random(job["seed"]).choice(choices)()


def train(job, rank, world):  # type: ignore[no-untyped-def]
    fault = Fault(job, rank)
    dump_on_request(job["folder"], rank)
    if rank == 0:
        print(f"using world size: {world}, data-parallel size: {world // 2 or 1}", flush=True)
    timeout = timedelta(seconds=job["timeout"])
    dist.init_process_group("gloo", timeout=timeout)
    groups = Groups(rank, world, timeout)  # a group has a timeout of its own, by default half an hour
    print(f"> initialized rank {rank} of {world}", flush=True)
    if fault.kind == "no-data" and job["variant"] == "raises":
        torch.load(f"/mnt/data/corpus_{rank}_text_document.idx")
    torch.manual_seed(11)
    model = torch.nn.Linear(24, 6)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    if rank == world - 1:
        warnings.warn("the optimizer's fused kernel failed to load; the slow path is used", stacklevel=2)
    (Path(job["folder"]) / f"ready-{rank}").write_text(str(os.getpid()))
    for step in range(1, job["steps"] + 1):
        if fault.kind == "no-data" and step == fault.at:
            break  # its shard is shorter
        began, batch = time.time(), read_shard(fault, rank, step)
        if fault.now("exception", step):
            broken(job, model)
        loss = model(batch).square().mean()
        loss.backward()
        average(fault, step, groups, model)
        optimizer.step()
        optimizer.zero_grad()
        if rank == world - 1 or not job["quiet"]:
            took = f"elapsed time per iteration (ms): {(time.time() - began) * 1000:.1f}"
            print(f" iteration {step:8}/{job['steps']:8} | {took} | lm loss: {loss.item():.6E} | skipped: 0 |")
        if fault.now("disk", step):
            Path(f"/mnt/checkpoints/mp_rank_{rank:02}.bin").write_bytes(bytes(1 << 22))
        time.sleep(job["pause"])
    dist.barrier()
    if rank == world - 1:
        print(" training completed after", step, "iterations")


def average(fault, step, groups, model):  # type: ignore[no-untyped-def]
    """Sum gradients over the data group, and share what the pair needs."""
    flat = torch.cat([one.grad.flatten() for one in model.parameters()])
    shared = torch.zeros(4)
    if fault.now("order", step):
        dist.all_reduce(shared)
    if not fault.now("skipped", step):
        dist.all_reduce(flat[:7] if fault.now("misshapen", step) else flat, group=groups.data)
    if fault.now("doubled", step):
        dist.all_reduce(flat, group=groups.data)
    dist.all_reduce(torch.ones(2), group=groups.pair)
    if not fault.now("order", step):
        dist.all_reduce(shared)


def main(job, rank, world):  # type: ignore[no-untyped-def]
    try:
        train(job, rank, world)
    except BaseException:
        dump(job["folder"], rank)
        raise
    dist.destroy_process_group()


if __name__ == "__main__":
    import json

    main(json.loads(os.environ["JOB"]), int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
