"""Turns the outputs of policy networks into action vectors, for agents of every kind at once.

Arrays are [..., N, A] over all agents. The vector of a discrete agent holds one probability vector per head; that of a
continuous agent is in [−1, 1] here and in the environment's own range only where it enters the environment (`to_world`).
Padding is always zero.
"""

from itertools import pairwise
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from counterpoint.core.spaces import Box, Discrete, Spec
from counterpoint.core.types import Key

LOWEST = -1e9
"""Replaces minus infinity in masked maxima; it is finite so that gradients stay finite."""


Table = Any
"""A static array (NumPy), one agent's row of it (traced), or None."""


class Heads(NamedTuple):
    """The layout of heads: static tables, [N, …] or one agent's. None if every agent has one discrete head of width A."""

    mask: Table
    """[N, A]: real entries."""
    discrete: Table
    """[N, A]: entries of a discrete head."""
    same: Table
    """[N, A, A]: whether two entries belong to the same head."""


def heads_of(spec: Spec) -> Heads:
    """Returns the tables of a spec's action spaces."""
    if all(space == Discrete((spec.act_size,)) for space in spec.action_spaces):
        return Heads(mask=None, discrete=None, same=None)
    shape = (spec.num_agents, spec.act_size)
    discrete, same = np.zeros(shape, bool), np.zeros((*shape, shape[1]), bool)
    for i, space in enumerate(spec.action_spaces):
        if isinstance(space, Discrete):
            edges = np.cumsum((0, *space.heads))
            for start, stop in pairwise(edges):
                same[i, start:stop, start:stop] = True
            discrete[i, : space.size] = True
    return Heads(mask=spec.act_mask, discrete=discrete, same=same)


def choosable(heads: Heads, legal: Bool[Array, "*b A"]) -> Bool[Array, "*b A"]:
    """Returns which entries may be chosen: the legal ones of each discrete head, or all of a head without a legal one."""
    discrete = jnp.ones_like(legal) if heads.discrete is None else jnp.broadcast_to(heads.discrete, legal.shape)
    possible = head_sum(heads, (legal & discrete).astype(jnp.float32)) > 0
    return discrete & (legal | ~possible)


def masked(heads: Heads, outputs: Float[Array, "*b A"], legal: Bool[Array, "*b A"] | None) -> Float[Array, "*b A"]:
    """Returns outputs under which illegal choices have probability zero; None means that all choices are legal."""
    if legal is None:
        return outputs
    forbidden = ~choosable(heads, legal)
    if heads.discrete is not None:
        forbidden &= jnp.broadcast_to(heads.discrete, outputs.shape)
    return jnp.where(forbidden, LOWEST, outputs)


def softmax(heads: Heads, logits: Float[Array, "*b A"]) -> Float[Array, "*b A"]:
    """Returns probabilities within each discrete head, zero elsewhere."""
    if heads.same is None:
        return jax.nn.softmax(logits, axis=-1)
    _, discrete, same = _over(heads, logits)
    peers = jnp.where(same, logits[..., None, :], LOWEST)
    top = jax.lax.stop_gradient(jnp.max(peers, axis=-1))
    weight = jnp.where(discrete, jnp.exp(jnp.where(discrete, logits - top, 0.0)), 0.0)
    total = jnp.sum(jnp.where(same, weight[..., None, :], 0.0), axis=-1)
    return weight / jnp.where(discrete, total, 1.0)


def head_sum(heads: Heads, values: Float[Array, "*b A"]) -> Float[Array, "*b A"]:
    """Returns at each entry the sum over its head; zero outside discrete heads."""
    if heads.same is None:
        return jnp.broadcast_to(jnp.sum(values, axis=-1, keepdims=True), values.shape)
    return jnp.sum(jnp.where(_over(heads, values).same, values[..., None, :], 0.0), axis=-1)


def one_hot_best(heads: Heads, scores: Float[Array, "*b A"]) -> Float[Array, "*b A"]:
    """Returns 1 at the largest score of each discrete head (the first of equal ones), zero elsewhere."""
    size = scores.shape[-1]
    if heads.same is None:
        return jax.nn.one_hot(jnp.argmax(scores, axis=-1), size, dtype=scores.dtype)
    _, discrete, same = _over(heads, scores)
    before = jnp.broadcast_to(np.tri(size, k=-1, dtype=bool), same.shape)
    mine, theirs = scores[..., :, None], scores[..., None, :]
    beaten = same & ((theirs > mine) | ((theirs == mine) & before))
    return (discrete & ~jnp.any(beaten, axis=-1)).astype(scores.dtype)


def gumbel(key: Key, shape: tuple[int, ...]) -> Float[Array, "..."]:
    """Returns standard Gumbel noise, −log(−log U)."""
    return jax.random.gumbel(key, shape, jnp.float32)


def relaxed_columns(
    heads: Heads, outputs: Float[Array, "A B"], noise: Float[Array, "A B"], temperature: float, straight_through: bool
) -> Float[Array, "A B"]:
    """Returns `relaxed` for one agent's minibatch in columns."""
    if heads.same is None and not straight_through:
        return jax.nn.softmax((outputs + noise) / temperature, axis=0)
    return relaxed(heads, outputs.T, noise.T, temperature, straight_through).T


def relaxed(
    heads: Heads, outputs: Float[Array, "*b A"], noise: Float[Array, "*b A"], temperature: float, straight_through: bool
) -> Float[Array, "*b A"]:
    """Returns differentiable actions: Gumbel-softmax in discrete heads (one-hot forward if straight-through), else tanh."""
    soft = softmax(heads, (outputs + noise) / temperature)
    if straight_through:
        soft = soft + jax.lax.stop_gradient(one_hot_best(heads, outputs + noise) - soft)
    return _merge(heads, soft, outputs)


def sampled(heads: Heads, outputs: Float[Array, "*b A"], noise: Float[Array, "*b A"]) -> Float[Array, "*b A"]:
    """Returns actions drawn from the policy as one-hot vectors (Gumbel-max); tanh for continuous agents."""
    return _merge(heads, one_hot_best(heads, outputs + noise), outputs)


def _merge(heads: Heads, discrete: Float[Array, "*b A"], outputs: Float[Array, "*b A"]) -> Float[Array, "*b A"]:
    if heads.same is None:
        return discrete
    mask, is_discrete, _ = _over(heads, outputs)
    return jnp.where(is_discrete, discrete, jnp.where(mask, jnp.tanh(outputs), 0.0))


def _over(heads: Heads, vectors: Float[Array, "*b A"]) -> Heads:
    """Returns the tables broadcast to the shape of action vectors."""
    shape = vectors.shape
    return Heads(
        mask=jnp.broadcast_to(heads.mask, shape),
        discrete=jnp.broadcast_to(heads.discrete, shape),
        same=jnp.broadcast_to(heads.same, (*shape, shape[-1])),
    )


def to_world(spec: Spec, action: Float[Array, "*b N A"]) -> Float[Array, "*b N A"]:
    """Returns actions in the environment's range: continuous ones scaled from [−1, 1], discrete ones unchanged."""
    scale, shift = np.ones(spec.act_mask.shape), np.zeros(spec.act_mask.shape)
    for i, space in enumerate(spec.action_spaces):
        if isinstance(space, Box):
            scale[i, : space.size], shift[i, : space.size] = space.half_width, space.middle
    if (scale == 1).all() and (shift == 0).all():
        return action
    scale, shift = (jnp.broadcast_to(table.astype(action.dtype), action.shape) for table in (scale, shift))
    return action * scale + shift
