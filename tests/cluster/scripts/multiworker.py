"""MultiWorkerMirroredStrategy: a sum over all workers, and training as numpy does it on all the data."""

import json
import os
import sys

import numpy
import tensorflow as tf

STEPS, ROWS, RATE = 5, 48, 0.1

strategy = tf.distribute.MultiWorkerMirroredStrategy()
said = json.loads(os.environ["TF_CONFIG"])
rank, world = said["task"]["index"], len(said["cluster"]["worker"])
assert strategy.num_replicas_in_sync == world, strategy.num_replicas_in_sync

numbers = numpy.random.default_rng(1)
x, y = numbers.normal(size=(ROWS, 16)), numbers.normal(size=(ROWS, 4))
mine = slice(rank * ROWS // world, (rank + 1) * ROWS // world)
with strategy.scope():
    weights = tf.Variable(tf.zeros((16, 4), tf.float64), aggregation=tf.VariableAggregation.SUM)


@tf.function
def step(rows: tf.Tensor, wanted: tf.Tensor) -> tf.Tensor:
    def replica(rows: tf.Tensor, wanted: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum((rows @ weights - wanted) ** 2) / (ROWS * 4)
        weights.assign_sub(RATE * tape.gradient(loss, weights))
        return loss

    return strategy.reduce(tf.distribute.ReduceOp.SUM, strategy.run(replica, (rows, wanted)), axis=None)


reference = numpy.zeros((16, 4))
for _ in range(STEPS):
    off = x @ reference - y
    loss = step(tf.constant(x[mine]), tf.constant(y[mine]))
    assert numpy.allclose(loss.numpy(), (off**2).mean()), (loss.numpy(), (off**2).mean())
    reference -= RATE * 2 * x.T @ off / (ROWS * 4)
    assert numpy.allclose(weights.numpy(), reference), abs(weights.numpy() - reference).max()
sys.stdout.write(f"checked: rank {rank} of {world}\n")
