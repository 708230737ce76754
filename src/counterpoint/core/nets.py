"""Multi-layer perceptrons and gated recurrent units as plain arrays, with the true fan-in of a padded network.

Activations are rows, [*b, I], or columns, [I, B], as `units` says: the axis along which a layer's inputs and outputs lie.
Rows suit acting; columns suit minibatches, whose every sum, softmax and mask then runs along the batch (ADR 0011).
"""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from counterpoint.core.ops import polyak
from counterpoint.core.types import Key

Normalise = Literal["none", "layer", "batch"]
Init = Literal["he", "glorot"]

AVERAGE_RATE = 0.1
"""How far a running average moves towards each minibatch."""


class Norm(NamedTuple):
    """Normalises a hidden layer's product, before the bias: over its units, or over the batch if there are averages."""

    scale: Float[Array, "*n H"]
    mean: Float[Array, "*n H"] | None = None
    """Running averages: what acting and targets use. No loss depends on them, so no optimiser moves them."""
    variance: Float[Array, "*n H"] | None = None


class Layer(NamedTuple):
    """An affine map, perhaps with its product normalised."""

    weight: Float[Array, "*n I H"]
    bias: Float[Array, "*n H"]
    norm: Norm | None = None


Params = tuple[Layer, ...]

ROWS, COLUMNS = -1, -2
"""Where the units of activations are."""


def init_mlp(
    key: Key,
    inputs: Float[Array, " I"],
    hidden: tuple[int, ...],
    outputs: Float[Array, " H"],
    norm: Normalise = "none",
    init: Init = "glorot",
) -> Params:
    """Uniform weights and zero biases; `inputs` and `outputs` are 1 where real and 0 where padded.

    Glorot's limit counts a layer's inputs and outputs, He's, which is for layers before a ReLU, its inputs only (ADR 0013).
    Padded rows and columns are zero and, receiving zero gradients, stay zero: the network is exactly the un-padded one.
    """
    masks = [inputs, *(jnp.ones(size) for size in hidden), outputs]
    keys = jax.random.split(key, len(masks) - 1)
    *before_relu, last = zip(keys, masks[:-1], masks[1:], strict=True)
    layers = [*(_init_layer(*facts, init) for facts in before_relu), _init_layer(*last)]
    return (*(layer._replace(norm=_init_norm(norm, layer.bias)) for layer in layers[:-1]), layers[-1])


def _init_norm(kind: Normalise, units: Float[Array, " H"]) -> Norm | None:
    if kind == "none":
        return None
    averages = (jnp.zeros_like(units), jnp.ones_like(units)) if kind == "batch" else ()
    return Norm(jnp.ones_like(units), *averages)


def _init_layer(key: Key, inputs: Float[Array, " I"], outputs: Float[Array, " H"], init: Init = "glorot") -> Layer:
    fans = jnp.sum(inputs) if init == "he" else jnp.sum(inputs) + jnp.sum(outputs)
    limit = jnp.sqrt(6.0 / fans)
    weight = jax.random.uniform(key, (inputs.size, outputs.size), minval=-1.0, maxval=1.0) * limit
    return Layer(weight=weight * inputs[:, None] * outputs[None, :], bias=jnp.zeros(outputs.size))


def mlp(params: Params, x: Float[Array, "..."], learning: bool = False, units: int = ROWS) -> Float[Array, "..."]:
    """The network's output: ReLU between layers, nothing after the last."""
    return mlp_from_first(params, times(params[0].weight, x, units), learning, units)


def mlp_from_first(
    params: Params, product: Float[Array, "..."], learning: bool = False, units: int = ROWS
) -> Float[Array, "..."]:
    """The network's output given its first matrix product, so that callers can share or amend that product.

    When learning, batch normalisation takes the statistics of this very batch; otherwise its running averages.
    """
    x = _add(_normalised(params[0].norm, product, learning, units), params[0].bias, units)
    for layer in params[1:]:
        x = _add(_normalised(layer.norm, times(layer.weight, jax.nn.relu(x), units), learning, units), layer.bias, units)
    return x


def times(weight: Float[Array, "I H"], x: Float[Array, "..."], units: int = ROWS) -> Float[Array, "..."]:
    """A layer's matrix product."""
    return x @ weight if units == ROWS else weight.T @ x


def move_averages(params: Params, x: Float[Array, "I B"], mean_over: Callable[[Any], Any]) -> Params:
    """The network with its running averages moved towards the statistics of a batch in columns, if it keeps any.

    `mean_over` averages over the devices that share the batch, so that they agree.
    """
    moved = []
    for layer in params[:-1]:
        if layer.norm is None or layer.norm.mean is None:
            return params
        product = times(layer.weight, x, COLUMNS)
        seen = layer.norm._replace(**dict(zip(("mean", "variance"), mean_over(_moments(product, COLUMNS)), strict=True)))
        moved.append(layer._replace(norm=polyak(layer.norm, seen, AVERAGE_RATE)))
        x = jax.nn.relu(_add(_normalised(layer.norm, product, learning=True, units=COLUMNS), layer.bias, COLUMNS))
    return (*moved, params[-1])


def _moments(product: Float[Array, "..."], units: int) -> tuple[Float[Array, " H"], Float[Array, " H"]]:
    """Each unit's mean and variance over the batch."""
    batch = tuple(axis for axis in range(product.ndim) if axis != product.ndim + units)
    return jnp.mean(product, axis=batch), jnp.var(product, axis=batch)


def _normalised(norm: Norm | None, product: Float[Array, "..."], learning: bool, units: int) -> Float[Array, "..."]:
    if norm is None:
        return product
    if norm.mean is None or norm.variance is None:
        figures = jnp.mean(product, axis=units, keepdims=True), jnp.var(product, axis=units, keepdims=True)
        mean, variance = (jnp.broadcast_to(part, product.shape) for part in figures)
    else:
        averages = _moments(product, units) if learning else (norm.mean, norm.variance)
        mean, variance = (_over_batch(part, product, units) for part in averages)
    return (product - mean) * jax.lax.rsqrt(variance + 1e-5) * _over_batch(norm.scale, product, units)


def _add(product: Float[Array, "..."], bias: Float[Array, " H"], units: int = ROWS) -> Float[Array, "..."]:
    return product + _over_batch(bias, product, units)


def _over_batch(vector: Float[Array, " H"], product: Float[Array, "..."], units: int) -> Float[Array, "..."]:
    """One number per unit, repeated over the batch."""
    return jnp.broadcast_to(vector if units == ROWS else vector[:, None], product.shape)


class Gru(NamedTuple):
    """A gated recurrent unit; columns are those of the reset gate, the update gate and the candidate."""

    inputs: Layer
    """[I, 3H]."""
    state: Layer
    """[H, 3H]."""


def init_gru(key: Key, inputs: Float[Array, " I"], num_units: int) -> Gru:
    """Glorot-uniform weights, gate by gate, and zero biases."""

    def gates(key: Key, inputs: Float[Array, " I"]) -> Layer:
        weights = [_init_layer(k, inputs, jnp.ones(num_units)).weight for k in jax.random.split(key, 3)]
        return Layer(weight=jnp.concatenate(weights, axis=-1), bias=jnp.zeros(3 * num_units))

    key_inputs, key_state = jax.random.split(key)
    return Gru(inputs=gates(key_inputs, inputs), state=gates(key_state, jnp.ones(num_units)))


def gru(params: Gru, hidden: Float[Array, "*b H"], x: Float[Array, "*b I"]) -> Float[Array, "*b H"]:
    """The next hidden state (Cho et al. 2014, with the reset gate after the product)."""
    return gru_from_first(params, hidden, affine(params.inputs, x))


def gru_from_first(params: Gru, hidden: Float[Array, "*b H"], gates: Float[Array, "*b G"]) -> Float[Array, "*b H"]:
    """The next hidden state given the part of the gates that depends on the input, which is known for all times at once."""
    reset, update, candidate = jnp.split(gates, 3, axis=-1)
    reset_by, update_by, candidate_by = jnp.split(affine(params.state, hidden), 3, axis=-1)
    keep = jax.nn.sigmoid(update + update_by)
    new = jnp.tanh(candidate + jax.nn.sigmoid(reset + reset_by) * candidate_by)
    return keep * hidden + (1 - keep) * new


def affine(layer: Layer, x: Float[Array, "*b I"]) -> Float[Array, "*b H"]:
    """One layer without anything after it."""
    return _add(x @ layer.weight, layer.bias)
