"""Learns handwritten digits: what the training tests run as digits.py, and an example of a script for TensorFlow.

A SageMaker script like any other: channels, hyperparameters and folders come from the SM_* environment.

    channel training   digits-train.npz: images (n, 64) from 0 to 16, labels (n,)
    channel test       digits-test.npz: the same, held back
"""

import argparse
import json
import os
from pathlib import Path

import keras
import numpy


def load(file: Path) -> tuple[numpy.ndarray, numpy.ndarray]:
    with numpy.load(file) as data:
        return data["images"].astype("float32") / 16, data["labels"]


def network(hidden_size: int) -> keras.Model:
    layers = [keras.Input((64,)), keras.layers.Dense(hidden_size, activation="relu"), keras.layers.Dense(10)]
    return keras.Sequential(layers)


def accuracy(model: keras.Model, file: Path) -> float:
    images, labels = load(file)
    return float((model.predict(images, verbose=0).argmax(axis=1) == labels).mean())


def saved(folder: Path, file: Path) -> tuple[int, float]:
    """Of a model that `train` wrote: its hidden size, and its accuracy on a file."""
    model = keras.saving.load_model(folder / "model.keras")
    return model.layers[0].units, accuracy(model, file)


def train(args: argparse.Namespace) -> None:
    keras.utils.set_random_seed(args.seed)
    images, labels = load(args.training / "digits-train.npz")
    model = network(args.hidden_size)
    model.compile(
        keras.optimizers.Adam(args.learning_rate), keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    )
    for epoch in range(args.epochs):
        history = model.fit(images, labels, batch_size=args.batch_size, verbose=0)
        print(f"rank 0 of 1, epoch {epoch}: loss {history.history['loss'][-1]:.4f}")
    found = accuracy(model, args.test / "digits-test.npz")
    print(f"test accuracy {found:.4f}")
    model.save(args.model_dir / "model.keras")
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
