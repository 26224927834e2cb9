"""Learns handwritten digits: what the training tests run as digits.py, and an example of a script for JAX.

A SageMaker script like any other: channels, hyperparameters and folders come from the SM_* environment. Nothing but
JAX: the optimizer is written out.

    channel training   digits-train.npz: images (n, 64) from 0 to 16, labels (n,)
    channel test       digits-test.npz: the same, held back
"""

import argparse
import json
import os
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy


def load(file: Path) -> tuple[jax.Array, jax.Array]:
    with numpy.load(file) as data:
        return jnp.asarray(data["images"], jnp.float32) / 16, jnp.asarray(data["labels"], jnp.int32)


def network(hidden_size: int, seed: int) -> dict[str, jax.Array]:
    first, second = jax.random.split(jax.random.key(seed))
    return {
        "w0": jax.random.normal(first, (64, hidden_size)) / 8,
        "b0": jnp.zeros(hidden_size),
        "w1": jax.random.normal(second, (hidden_size, 10)) / hidden_size**0.5,
        "b1": jnp.zeros(10),
    }


def logits(model: dict[str, jax.Array], images: jax.Array) -> jax.Array:
    return jax.nn.relu(images @ model["w0"] + model["b0"]) @ model["w1"] + model["b1"]


def loss(model: dict[str, jax.Array], images: jax.Array, labels: jax.Array) -> jax.Array:
    return -jnp.take_along_axis(jax.nn.log_softmax(logits(model, images)), labels[:, None], axis=1).mean()


def accuracy(model: dict[str, jax.Array], file: Path) -> float:
    images, labels = load(file)
    return float((logits(model, images).argmax(axis=1) == labels).mean())


def saved(folder: Path, file: Path) -> tuple[int, float]:
    """Of a model that `train` wrote: its hidden size, and its accuracy on a file."""
    with numpy.load(folder / "model.npz") as data:
        model = {name: jnp.asarray(data[name]) for name in data}
    return model["w0"].shape[1], accuracy(model, file)


@jax.jit
def step(model, moments, count, images, labels, rate):
    """One step of Adam."""
    value, slope = jax.value_and_grad(loss)(model, images, labels)
    first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, moments[0], slope)
    second = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, moments[1], slope)

    def moved(weight, m, v):
        return weight - rate * (m / (1 - 0.9**count)) / (jnp.sqrt(v / (1 - 0.999**count)) + 1e-8)

    return jax.tree.map(moved, model, first, second), (first, second), value


def train(args: argparse.Namespace) -> None:
    images, labels = load(args.training / "digits-train.npz")
    model = network(args.hidden_size, args.seed)
    zeros = jax.tree.map(jnp.zeros_like, model)
    moments, count, order = (zeros, zeros), 0, numpy.random.default_rng(args.seed)
    for epoch in range(args.epochs):
        shuffled = order.permutation(len(images))
        for start in range(0, len(images) - args.batch_size + 1, args.batch_size):
            batch, count = shuffled[start : start + args.batch_size], count + 1
            model, moments, value = step(model, moments, count, images[batch], labels[batch], args.learning_rate)
        print(f"rank 0 of 1, epoch {epoch}: loss {value:.4f}")
    found = accuracy(model, args.test / "digits-test.npz")
    print(f"test accuracy {found:.4f}")
    numpy.savez(args.model_dir / "model.npz", **model)
    metrics = {"accuracy": found, "epochs": args.epochs, "world_size": 1, "images": len(images)}
    (args.output_data_dir / "metrics.json").write_text(json.dumps(metrics))


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
