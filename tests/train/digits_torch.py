"""Learns handwritten digits: what the training tests run as digits.py, and an example of a script for PyTorch.

A SageMaker script like any other: channels, hyperparameters and folders come from the SM_* environment. Under
torchrun (`torch_distributed`) every rank learns from its share of the data.

    channel training   digits-train.npz: images (n, 64) from 0 to 16, labels (n,)
    channel test       digits-test.npz: the same, held back
"""

import argparse
import json
import os
import sys
from pathlib import Path

import numpy
import torch
import torch.distributed as dist
from torch import nn


def load(file: Path) -> tuple[torch.Tensor, torch.Tensor]:
    with numpy.load(file) as data:
        return torch.from_numpy(data["images"]).float() / 16, torch.from_numpy(data["labels"]).long()


def network(hidden_size: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(64, hidden_size), nn.ReLU(), nn.Linear(hidden_size, 10))


def accuracy(model: nn.Module, file: Path) -> float:
    images, labels = load(file)
    with torch.no_grad():
        return (model(images).argmax(dim=1) == labels).float().mean().item()


def saved(folder: Path, file: Path) -> tuple[int, float]:
    """Of a model that `train` wrote: its hidden size, and its accuracy on a file."""
    found = torch.load(folder / "model.pt", weights_only=True)
    model = network(found["hidden_size"])
    model.load_state_dict(found["weights"])
    return model[0].out_features, accuracy(model, file)


def train(args: argparse.Namespace) -> None:
    rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    if world > 1:
        dist.init_process_group("gloo")
    torch.manual_seed(args.seed)
    images, labels = load(args.training / "digits-train.npz")
    images, labels = images[rank::world], labels[rank::world]
    model = network(args.hidden_size)
    learner = nn.parallel.DistributedDataParallel(model) if world > 1 else model
    optimizer = torch.optim.Adam(learner.parameters(), lr=args.learning_rate)
    for epoch in range(args.epochs):
        for batch in torch.randperm(len(images)).split(args.batch_size):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(learner(images[batch]), labels[batch])
            loss.backward()
            optimizer.step()
        print(f"rank {rank} of {world}, epoch {epoch}: loss {loss.item():.4f}")
    if rank == 0:
        found = accuracy(model, args.test / "digits-test.npz")
        print(f"test accuracy {found:.4f}")
        torch.save({"hidden_size": args.hidden_size, "weights": model.state_dict()}, args.model_dir / "model.pt")
        metrics = {"accuracy": found, "epochs": args.epochs, "world_size": world, "images": len(images)}
        (args.output_data_dir / "metrics.json").write_text(json.dumps(metrics))
    if world > 1:
        dist.barrier()  # rank 0 still writes: nobody leaves before it
        dist.destroy_process_group()
        sys.stdout.flush()
        # What DistributedDataParallel still holds of the group can abort the interpreter's exit: one run in 26 here,
        # https://github.com/pytorch/pytorch/issues/190489
        os._exit(0)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--hidden-size", type=int, default=64)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--learning-rate", type=float, default=3e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--training", type=Path, default=os.environ.get("SM_CHANNEL_TRAINING"))
    parser.add_argument("--test", type=Path, default=os.environ.get("SM_CHANNEL_TEST"))
    parser.add_argument("--model-dir", type=Path, default=os.environ.get("SM_MODEL_DIR"))
    parser.add_argument("--output-data-dir", type=Path, default=os.environ.get("SM_OUTPUT_DATA_DIR"))
    train(parser.parse_args())
