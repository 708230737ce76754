"""Multi-layer perceptrons as plain arrays, initialised with the true fan-in of a padded network."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from counterpoint.types import Key


class Layer(NamedTuple):
    """An affine map."""

    weight: Float[Array, "*n I H"]
    bias: Float[Array, "*n H"]


Params = tuple[Layer, ...]


def init_mlp(key: Key, inputs: Float[Array, " I"], hidden: tuple[int, ...], outputs: Float[Array, " H"]) -> Params:
    """Glorot-uniform weights and zero biases; `inputs` and `outputs` are 1 where real and 0 where padded.

    Padded rows and columns are zero and, receiving zero gradients, stay zero: the network is exactly the un-padded one.
    """
    masks = [inputs, *(jnp.ones(size) for size in hidden), outputs]
    keys = jax.random.split(key, len(masks) - 1)
    return tuple(_init_layer(k, a, b) for k, a, b in zip(keys, masks[:-1], masks[1:], strict=True))


def _init_layer(key: Key, inputs: Float[Array, " I"], outputs: Float[Array, " H"]) -> Layer:
    limit = jnp.sqrt(6.0 / (jnp.sum(inputs) + jnp.sum(outputs)))
    weight = jax.random.uniform(key, (inputs.size, outputs.size), minval=-1.0, maxval=1.0) * limit
    return Layer(weight=weight * inputs[:, None] * outputs[None, :], bias=jnp.zeros(outputs.size))


def mlp(params: Params, x: Float[Array, "*b I"]) -> Float[Array, "*b H"]:
    """The network's output: ReLU between layers, nothing after the last."""
    return mlp_from_first(params, x @ params[0].weight)


def mlp_from_first(params: Params, product: Float[Array, "*b H"]) -> Float[Array, "*b A"]:
    """The network's output given its first matrix product, so that callers can share or amend that product."""
    x = _add(product, params[0].bias)
    for layer in params[1:]:
        x = _add(jax.nn.relu(x) @ layer.weight, layer.bias)
    return x


def _add(product: Float[Array, "*b H"], bias: Float[Array, " H"]) -> Float[Array, "*b H"]:
    return product + jnp.broadcast_to(bias, product.shape)
