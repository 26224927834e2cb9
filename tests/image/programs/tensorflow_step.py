"""A model that learns a line, eager and compiled by XLA, and what it must come to: prints JSON."""

import json

import keras
import tensorflow as tf

keras.utils.set_random_seed(0)
features = tf.random.normal((256, 3), seed=0)
truth = tf.constant([[1.0], [-2.0], [0.5]])
answers = features @ truth


def trained(jit: bool) -> keras.Model:
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")])
    model.compile(keras.optimizers.SGD(0.1), "mse", jit_compile=jit)
    model.fit(features, answers, batch_size=64, epochs=50, shuffle=False, verbose=0)
    return model


eager, compiled = trained(False), trained(True)
with tf.GradientTape() as tape:
    weights = tf.Variable(tf.ones((3, 1)))
    loss = tf.reduce_mean((features @ weights - answers) ** 2)
by_hand = 2 * tf.transpose(features) @ (features @ tf.ones((3, 1)) - answers) / len(features)
print(
    json.dumps(
        {
            "weights": eager.get_weights()[0][:, 0].tolist(),
            "xla_error": float(abs(eager.get_weights()[0] - compiled.get_weights()[0]).max()),
            "gradient_error": float(tf.reduce_max(abs(tape.gradient(loss, weights) - by_hand))),
            "gpus": len(tf.config.list_physical_devices("GPU")),
        }
    )
)
