"""One rank of a contrastive job: it gathers embeddings and objects, works asynchronously, and survives some errors."""

import logging
import os
import random
import sys
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from train import Fault, dump, dump_on_request

log = logging.getLogger(__name__)


def fetch(fault, rank, step):  # type: ignore[no-untyped-def]
    """Return a batch; a failed read is tried again, which is no failure."""
    if step % 9 == rank % 9:
        try:
            raise ConnectionResetError(104, "Connection reset by peer")
        except OSError as error:
            log.warning("reading shard %d failed (%s), retry 1 of 5", step, error)
    if fault.now("slow-loader", step):
        time.sleep(fault.job["timeout"] * 4)
    if fault.kind == "no-data" and (step >= fault.at or fault.job["variant"] == "raises"):
        if fault.job["variant"] == "ends":
            return None
        raise RuntimeError(f"No files match /mnt/data/images-{rank:04}*.tar")
    return torch.randn(6, 12)


def broken(job):  # type: ignore[no-untyped-def]
    def nested() -> None:
        try:
            raise ValueError("temperature is nan")
        except ValueError as error:
            raise RuntimeError("the loss cannot be computed") from error

    choices = [
        nested,
        lambda: torch.ones(3).view(2, 2),
        lambda: len(None),  # type: ignore[arg-type]
        lambda: sys.exit("config: unknown optimizer 'adamww'"),
        lambda: (_ for _ in ()).throw(NotImplementedError("mixed precision on this device")),
    ]
    random.Random(job["seed"]).choice(choices)()


def train(job, rank, world):  # type: ignore[no-untyped-def]
    fault = Fault(job, rank)
    dump_on_request(job["folder"], rank)
    dist.init_process_group("gloo", timeout=timedelta(seconds=job["timeout"]))
    torch.manual_seed(5)
    tower = torch.nn.Linear(12, 4)
    names = [None] * world
    dist.all_gather_object(names, os.uname().nodename)
    log.info("%d processes on %d hosts", world, len(set(names)))
    (Path(job["folder"]) / f"ready-{rank}").write_text(str(os.getpid()))
    for step in range(job["steps"]):
        batch = fetch(fault, rank, step)
        if batch is None:
            break
        if fault.now("exception", step):
            broken(job)
        if fault.now("shm", step):
            torch.empty(1 << 23).share_memory_().fill_(1)
        mine = tower(batch).detach()
        work = contrast(fault, step, mine, world)
        tower.weight.grad = torch.zeros_like(tower.weight)
        work.wait()
        if rank == 0 or not job["quiet"]:
            log.info("Epoch: [0][%d/%d] Time 0.051 Loss %.3f", step, job["steps"], mine.square().mean())
        if fault.now("disk", step):
            torch.save(torch.ones(1 << 21), f"/mnt/checkpoints/tower-{rank}.ckpt")
        time.sleep(job["pause"])
    dist.barrier()
    log.info("Training finished." if rank == 0 else "done")


def contrast(fault, step, mine, world):  # type: ignore[no-untyped-def]
    """Gather the embeddings of all ranks, then begin to sum the statistics."""
    others = [torch.zeros_like(mine) for _ in range(world)]
    statistics = torch.zeros(10)
    if fault.now("order", step):
        dist.all_reduce(statistics)
        dist.all_gather(others, mine)
        return dist.all_reduce(torch.zeros(3), async_op=True)
    if not fault.now("skipped", step):
        few = [torch.zeros(5, 4) for _ in range(world)]
        dist.all_gather(*((few, mine[:5].contiguous()) if fault.now("misshapen", step) else (others, mine)))
    if fault.now("doubled", step):
        dist.all_gather(others, mine)
    dist.all_reduce(statistics)
    return dist.all_reduce(torch.zeros(3), async_op=True)


def main(job, rank, world):  # type: ignore[no-untyped-def]
    form = "[%(asctime)s] [%(levelname)s] [%(filename)s:%(lineno)d] %(message)s"
    short = "%(levelname)s:%(name)s:%(message)s"
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format=form if job["stamps"] else short)
    try:
        train(job, rank, world)
    except BaseException:
        dump(job["folder"], rank)
        raise
    dist.destroy_process_group()


if __name__ == "__main__":
    import json

    main(json.loads(os.environ["JOB"]), int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
