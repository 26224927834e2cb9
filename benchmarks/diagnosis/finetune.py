"""One rank of a fine-tuning job with a progress bar: it prints, evaluates, and rank 0 writes checkpoints."""

import os
import random
import sys
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler
from train import Fault, dump, dump_on_request

VOCABULARY = 50


class CorruptSample(Exception):  # a name of the script's own
    pass


class Texts(Dataset):  # type: ignore[misc]
    """Token rows; one of them may be broken."""

    def __init__(self, fault, count):  # type: ignore[no-untyped-def]
        self.fault, self.count = fault, count

    def __len__(self):  # type: ignore[no-untyped-def]
        return self.count

    def __getitem__(self, index):  # type: ignore[no-untyped-def]
        width = 1 << 20 if self.fault.kind == "shm" else 32
        return torch.randint(0, VOCABULARY, (width,)), torch.tensor(index % 5)


class Classifier(torch.nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = torch.nn.Embedding(VOCABULARY, 16), torch.nn.Linear(16, 5)

    def forward(self, tokens):  # type: ignore[no-untyped-def]
        return self.head(self.embedding(tokens).mean(dim=1))


def broken(job):  # type: ignore[no-untyped-def]
    """Raise what a user's code raises."""

    def corrupt() -> None:
        raise CorruptSample("shard 14, record 3021: the checksum does not match")

    choices = [
        corrupt,
        lambda: Classifier()(torch.full((1, 32), VOCABULARY)),
        lambda: [1, 2, 3][7],
        lambda: {"input_ids": []}["attention_mask"],
        lambda: 1 / (job["steps"] - job["steps"]),
        lambda: "caf\xe9".encode("ascii"),
    ]
    random.Random(job["seed"]).choice(choices)()


def train(job, rank, world):  # type: ignore[no-untyped-def]
    fault = Fault(job, rank)
    dump_on_request(job["folder"], rank)
    dist.init_process_group("gloo", timeout=timedelta(seconds=job["timeout"]))
    print(f"Rank {rank}/{world} is ready on {os.uname().nodename}", flush=True)
    if fault.kind == "no-data" and job["variant"] == "raises":
        with Path(f"/mnt/data/part-{rank:03}.jsonl").open() as rows:
            print(len(list(rows)))
    texts = Texts(fault, job["steps"] * 4 * world)
    if fault.kind == "no-data":
        texts.count = fault.at * 4 * world
    workers = 1 if fault.kind == "shm" else 0
    loader = DataLoader(texts, 4, sampler=DistributedSampler(texts, world, rank), num_workers=workers)
    torch.manual_seed(3)
    model = DistributedDataParallel(Classifier())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    (Path(job["folder"]) / f"ready-{rank}").write_text(str(os.getpid()))
    begun = time.time()
    for step, (tokens, labels) in enumerate(loader):
        if fault.now("slow-loader", step):
            time.sleep(job["timeout"] * 4)
        if fault.now("exception", step):
            broken(job)
        loss = torch.nn.functional.cross_entropy(model(tokens[:, :32]), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        mean = loss.detach().clone()
        evaluate(fault, step, mean)
        if rank == 0:
            done = f"\r{step * 100 // job['steps']:3}%|{'#' * (step // 4):<10}| {step}/{job['steps']} "
            print(f"{done}[{time.time() - begun:.0f}s, 14.2it/s]", end="", file=sys.stderr, flush=True)
        if (rank == 0 and step % 5 == 0) or not job["quiet"]:
            print({"loss": round(mean.item(), 4), "learning_rate": 0.001, "epoch": round(step / job["steps"], 2)})
        if fault.now("disk", step) or (rank == 0 and step % 10 == 9):
            pad = torch.ones(1 << 20 if fault.now("disk", step) else 1)
            torch.save({"model": model.state_dict(), "pad": pad}, f"/mnt/checkpoints/step-{step}-{rank}.pt")
        time.sleep(job["pause"])
    dist.barrier()
    if rank == 0:
        print({"train_runtime": round(time.time() - begun, 1), "train_loss": round(mean.item(), 4), "epoch": 1.0})


def evaluate(fault, step, mean):  # type: ignore[no-untyped-def]
    """Average the loss, and share the best one of rank 0."""
    best = torch.zeros(3)
    if fault.now("order", step):
        dist.broadcast(best, 0)
    if not fault.now("skipped", step):
        dist.all_reduce(mean.repeat(9) if fault.now("misshapen", step) else mean, op=dist.ReduceOp.SUM)
    if fault.now("doubled", step):
        dist.all_reduce(mean, op=dist.ReduceOp.SUM)
    if not fault.now("order", step):
        dist.broadcast(best, 0)


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
