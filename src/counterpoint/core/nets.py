"""Multi-layer perceptrons and gated recurrent units as plain arrays, with the true fan-in of a padded network.

Activations are rows, [*b, I], or columns, [I, B]; `units` names the axis of a layer's inputs and outputs. Acting uses rows.
Minibatches use columns, so that every sum, softmax and mask runs along the batch (ADR 0011).
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
Activation = Literal["relu", "silu"]

AVERAGE_RATE = 0.1
"""The fraction by which a running average moves towards each minibatch."""


class Norm(NamedTuple):
    """Normalises the product of a hidden layer before the bias: over units, or over the batch if there are averages."""

    scale: Float[Array, "*n H"]
    mean: Float[Array, "*n H"] | None = None
    """Running averages, used by acting and targets. No loss depends on them, so no optimiser changes them."""
    variance: Float[Array, "*n H"] | None = None


class Layer(NamedTuple):
    """An affine map, optionally with a normalised product."""

    weight: Float[Array, "*n I H"]
    bias: Float[Array, "*n H"]
    norm: Norm | None = None


Params = tuple[Layer, ...]

ROWS, COLUMNS = -1, -2
"""The axis of units in activations."""


class Model(NamedTuple):
    """A network of the user's own."""

    init: Callable[..., Any]
    """(key, inputs[I], outputs[H]) → params. The vectors are 1 where entries are real and 0 where they are padding."""
    apply: Callable[..., Float[Array, "*b H"]]
    """(params, x[*b, I]) → [*b, H]."""


def init_mlp(
    key: Key,
    inputs: Float[Array, " I"],
    hidden: tuple[int, ...],
    outputs: Float[Array, " H"],
    norm: Normalise = "none",
    init: Init = "glorot",
) -> Params:
    """Returns uniform weights and zero biases; `inputs` and `outputs` are 1 where entries are real and 0 where padded.

    Glorot's limit counts the inputs and outputs of a layer; He's, for layers before a ReLU, counts only inputs (ADR 0013).
    Padded rows and columns start at zero and receive zero gradients: the network equals the unpadded one exactly.
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
    """Returns the output of a network with ReLU between its layers and nothing after the last."""
    return mlp_from_first(params, times(params[0].weight, x, units), learning, units)


def mlp_from_first(
    params: Params,
    product: Float[Array, "..."],
    learning: bool = False,
    units: int = ROWS,
    activation: Activation = "relu",
) -> Float[Array, "..."]:
    """Returns the output of a network given its first matrix product, so that callers can share or change that product.

    When learning, batch normalisation uses the statistics of this batch; otherwise it uses running averages.
    """
    act = getattr(jax.nn, activation)
    x = _add(_normalised(params[0].norm, product, learning, units), params[0].bias, units)
    for layer in params[1:]:
        x = _add(_normalised(layer.norm, times(layer.weight, act(x), units), learning, units), layer.bias, units)
    return x


def times(weight: Float[Array, "I H"], x: Float[Array, "..."], units: int = ROWS) -> Float[Array, "..."]:
    """Returns the matrix product of a layer."""
    return x @ weight if units == ROWS else weight.T @ x


def move_averages(
    params: Params, x: Float[Array, "I B"], mean_over: Callable[[Any], Any], activation: Activation = "relu"
) -> Params:
    """Returns a network with its running averages, if any, moved towards the statistics of a batch in columns.

    `mean_over` averages over the devices that share the batch, so that all devices agree.
    """
    moved = []
    for layer in params[:-1]:
        if layer.norm is None or layer.norm.mean is None:
            return params
        product = times(layer.weight, x, COLUMNS)
        seen = layer.norm._replace(**dict(zip(("mean", "variance"), mean_over(_moments(product, COLUMNS)), strict=True)))
        moved.append(layer._replace(norm=polyak(layer.norm, seen, AVERAGE_RATE)))
        x = getattr(jax.nn, activation)(
            _add(_normalised(layer.norm, product, learning=True, units=COLUMNS), layer.bias, COLUMNS)
        )
    return (*moved, params[-1])


def _moments(product: Float[Array, "..."], units: int) -> tuple[Float[Array, " H"], Float[Array, " H"]]:
    """Returns the mean and variance of each unit over the batch."""
    batch = tuple(axis for axis in range(product.ndim) if axis != product.ndim + units)
    return jnp.mean(product, axis=batch), jnp.var(product, axis=batch)


def _normalised(norm: Norm | None, product: Float[Array, "..."], learning: bool, units: int) -> Float[Array, "..."]:
    if norm is None:
        return product
    if norm.mean is None or norm.variance is None:
        moments = jnp.mean(product, axis=units, keepdims=True), jnp.var(product, axis=units, keepdims=True)
        mean, variance = (jnp.broadcast_to(part, product.shape) for part in moments)
    else:
        averages = _moments(product, units) if learning else (norm.mean, norm.variance)
        mean, variance = (_over_batch(part, product, units) for part in averages)
    return (product - mean) * jax.lax.rsqrt(variance + 1e-5) * _over_batch(norm.scale, product, units)


def _add(product: Float[Array, "..."], bias: Float[Array, " H"], units: int = ROWS) -> Float[Array, "..."]:
    return product + _over_batch(bias, product, units)


def _over_batch(vector: Float[Array, " H"], product: Float[Array, "..."], units: int) -> Float[Array, "..."]:
    """Returns one number per unit, broadcast over the batch."""
    return jnp.broadcast_to(vector if units == ROWS else vector[:, None], product.shape)


class Gru(NamedTuple):
    """A gated recurrent unit; its columns belong to the reset gate, the update gate and the candidate."""

    inputs: Layer
    """[I, 3H]."""
    state: Layer
    """[H, 3H]."""


def init_gru(key: Key, inputs: Float[Array, " I"], num_units: int) -> Gru:
    """Returns Glorot-uniform weights for each gate, and zero biases."""

    def gates(key: Key, inputs: Float[Array, " I"]) -> Layer:
        weights = [_init_layer(k, inputs, jnp.ones(num_units)).weight for k in jax.random.split(key, 3)]
        return Layer(weight=jnp.concatenate(weights, axis=-1), bias=jnp.zeros(3 * num_units))

    key_inputs, key_state = jax.random.split(key)
    return Gru(inputs=gates(key_inputs, inputs), state=gates(key_state, jnp.ones(num_units)))


def gru(params: Gru, hidden: Float[Array, "*b H"], x: Float[Array, "*b I"]) -> Float[Array, "*b H"]:
    """Returns the next hidden state (Cho et al. 2014, with the reset gate after the product)."""
    return gru_from_first(params, hidden, affine(params.inputs, x))


def gru_from_first(params: Gru, hidden: Float[Array, "*b H"], gates: Float[Array, "*b G"]) -> Float[Array, "*b H"]:
    """Returns the next hidden state given the inputs' part of the gates, which is known for all time steps at once."""
    reset, update, candidate = jnp.split(gates, 3, axis=-1)
    reset_by, update_by, candidate_by = jnp.split(affine(params.state, hidden), 3, axis=-1)
    keep = jax.nn.sigmoid(update + update_by)
    new = jnp.tanh(candidate + jax.nn.sigmoid(reset + reset_by) * candidate_by)
    return keep * hidden + (1 - keep) * new


def affine(layer: Layer, x: Float[Array, "*b I"]) -> Float[Array, "*b H"]:
    """Returns the output of one layer without an activation."""
    return _add(x @ layer.weight, layer.bias)
