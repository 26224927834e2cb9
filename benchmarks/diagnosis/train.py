"""One rank of a small training job over Gloo, with a fault on request. It runs in a Python with PyTorch."""

import logging
import os
import random
import sys
import threading
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

log = logging.getLogger("train")


class Samples(Dataset):  # type: ignore[misc]
    """Random samples; `bytes_each` is large where shared memory is to overflow."""

    def __init__(self, count, width):  # type: ignore[no-untyped-def]
        self.count, self.width = count, width

    def __len__(self):  # type: ignore[no-untyped-def]
        return self.count

    def __getitem__(self, index):  # type: ignore[no-untyped-def]
        return torch.randn(self.width), torch.tensor(index % 10)


class Fault:
    """What this rank does wrong, and at which step."""

    def __init__(self, job, rank):  # type: ignore[no-untyped-def]
        self.kind = job["fault"] if rank in job["culprits"] else ""
        self.job, self.at = job, job["at"]

    def now(self, kind, step):  # type: ignore[no-untyped-def]
        return self.kind == kind and step == self.at


def dump(folder, rank):  # type: ignore[no-untyped-def]
    """Write what the flight recorder holds, as a watchdog does where the back end has one."""
    try:
        data = torch._C._distributed_c10d._dump_fr_trace_json()
        path = Path(folder) / f"fr_trace_{rank}"
        path.with_suffix(".part").write_bytes(data)
        path.with_suffix(".part").rename(path)
    except Exception as error:  # a job that failed before it had a process group
        print(f"no dump: {error}", file=sys.stderr)


def dump_on_request(folder, rank):  # type: ignore[no-untyped-def]
    def wait() -> None:
        while not (Path(folder) / "dump-now").exists():
            time.sleep(0.1)
        dump(folder, rank)

    threading.Thread(target=wait, daemon=True).start()


def load_data(fault, rank, world):  # type: ignore[no-untyped-def]
    """Return this rank's loader."""
    root = Path("/mnt/data")
    if fault.kind == "no-data" and fault.job["variant"] == "raises":
        shards = sorted(root.glob("*.bin"))
        if not shards:
            raise FileNotFoundError(f"no shards for rank {rank} in {root}/shard-{rank:05d}-*.bin")
    samples = Samples(fault.job["steps"] * 8 * world, 1 << 20 if fault.kind == "shm" else 64)
    if fault.kind == "no-data":
        samples.count = fault.at * 8 * world
    sampler = DistributedSampler(samples, world, rank, shuffle=False)
    return DataLoader(samples, batch_size=8, sampler=sampler, num_workers=1 if fault.kind == "shm" else 0)


def collectives(fault, step, world):  # type: ignore[no-untyped-def]
    """Call what a step has beside its gradients: the mean of the loss, now and then the settings of rank 0."""
    loss, settings = torch.ones(1), torch.zeros(16)
    if fault.now("order", step):
        dist.broadcast(settings, 0)
        dist.all_reduce(loss)
        return
    if not fault.now("skipped", step):
        dist.all_reduce(torch.ones(5) if fault.now("misshapen", step) else loss)
    if fault.now("doubled", step):
        dist.all_reduce(loss)
    dist.broadcast(settings, 0)


def train(job, rank, world):  # type: ignore[no-untyped-def]
    fault = Fault(job, rank)
    dump_on_request(job["folder"], rank)
    log.info("rank %d of %d starts on %s", rank, world, os.uname().nodename)
    dist.init_process_group("gloo", timeout=timedelta(seconds=job["timeout"]))
    loader = load_data(fault, rank, world)
    torch.manual_seed(7)
    model = torch.nn.Linear(64, 10)
    ddp = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.01)
    (Path(job["folder"]) / f"ready-{rank}").write_text(str(os.getpid()))
    for step, (inputs, labels) in enumerate(loader):
        if fault.now("slow-loader", step):
            log.info("loading the next shard")
            time.sleep(job["timeout"] * 4)
        if fault.now("exception", step):
            broken = [
                lambda: {"tokens": 1}["labels"],
                lambda: torch.ones(8, 10) @ torch.ones(9, 4),
                lambda: int("n/a"),
                lambda: (_ for _ in ()).throw(AssertionError("loss is negative: -0.31")),
            ]
            random.Random(job["seed"]).choice(broken)()
        loss = torch.nn.functional.cross_entropy(ddp(inputs[:, :64]), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        collectives(fault, step, world)
        if rank == 0 or not job["quiet"]:
            log.info("step %d loss %.4f", step, loss.item())
        if fault.now("disk", step):
            torch.save({"model": model.state_dict(), "pad": torch.ones(1 << 20)}, f"/mnt/checkpoints/rank-{rank}.pt")
        time.sleep(job["pause"])
    dist.barrier()
    if rank == 0:
        log.info("training finished after %d steps", step + 1)


def main(job, rank, world):  # type: ignore[no-untyped-def]
    if job["stamps"]:
        logging.basicConfig(
            level=logging.INFO, stream=sys.stdout, format="%(asctime)s %(name)s %(levelname)s %(message)s"
        )
    else:
        logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(message)s")
    try:
        train(job, rank, world)
    except BaseException:
        dump(job["folder"], rank)
        raise
    dist.destroy_process_group()


if __name__ == "__main__":
    import json

    main(json.loads(os.environ["JOB"]), int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
