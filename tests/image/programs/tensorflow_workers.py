"""argv: rank, then host:port of every worker. MultiWorkerMirroredStrategy: sums over workers, and learns with them."""

import json
import os
import sys

rank, workers = int(sys.argv[1]), sys.argv[2:]
os.environ["TF_CONFIG"] = json.dumps({"cluster": {"worker": workers}, "task": {"type": "worker", "index": rank}})

import tensorflow as tf  # noqa: E402

strategy = tf.distribute.MultiWorkerMirroredStrategy()


@tf.function
def summed():
    def mine():
        context = tf.distribute.get_replica_context()
        return context.all_reduce("sum", tf.fill([1000], float(rank + 1)))

    return strategy.run(mine)


total = summed()
with strategy.scope():
    weight = tf.Variable(0.0)


@tf.function
def step():
    def mine():
        # Each worker pulls towards its own number; the mean of both is where they meet.
        slope = 2 * (weight - float(rank + 1))
        mean = tf.distribute.get_replica_context().all_reduce("mean", slope)
        weight.assign_sub(0.1 * mean)

    strategy.run(mine)


for _ in range(100):
    step()
sys.stdout.write(
    f"rank {rank} of {strategy.num_replicas_in_sync}: "
    f"{float(tf.reduce_min(total))} {float(tf.reduce_max(total))} {float(weight.numpy()):.4f}\n"
)
