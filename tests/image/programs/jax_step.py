"""Least squares by gradient descent in a compiled step, and what it must come to: prints JSON."""

import json

import jax
import jax.numpy as jnp

features = jax.random.normal(jax.random.key(0), (256, 3))
truth = jnp.array([1.0, -2.0, 0.5])


def loss(weights):
    return jnp.mean((features @ weights - features @ truth) ** 2)


@jax.jit
def step(weights):
    value, slope = jax.value_and_grad(loss)(weights)
    return weights - 0.1 * slope, value


weights, losses = jnp.zeros(3), []
for _ in range(200):
    weights, value = step(weights)
    losses.append(float(value))
by_hand = 2 * features.T @ (features @ jnp.ones(3) - features @ truth) / len(features)
print(
    json.dumps(
        {
            "first": losses[0],
            "last": losses[-1],
            "weights": weights.tolist(),
            "gradient_error": float(jnp.abs(jax.grad(loss)(jnp.ones(3)) - by_hand).max()),
            "platform": jax.default_backend(),
        }
    )
)
