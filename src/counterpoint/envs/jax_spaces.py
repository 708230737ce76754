"""What the adapters of gymnax and JaxMARL share: action spaces, native actions, and states whose types do not change."""

from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from counterpoint.core.errors import UsageError
from counterpoint.core.spaces import ActionSpace, Box, Discrete


def space_of(space: Any, agent: str, name: str) -> ActionSpace:
    """Returns our action space for one of gymnax's or JaxMARL's."""
    kind = type(space).__name__
    if kind == "Discrete":
        return Discrete((int(space.n),))
    if kind == "MultiDiscrete":
        return Discrete(tuple(np.asarray(space.num_categories).tolist()))
    if kind == "Box":
        low, high = (np.broadcast_to(np.asarray(b, float), space.shape).ravel() for b in (space.low, space.high))
        if np.isfinite([low, high]).all() and (low < high).all():
            return Box(low.size, tuple(low.tolist()), tuple(high.tolist()))
    raise UsageError(
        f"--env {name}: the actions of {agent}, {kind}, must be Discrete, MultiDiscrete or Box with finite bounds."
    )


def native(space: Any, own: ActionSpace, vector: Float[Array, " A"]) -> Array:
    """Returns an action vector as gymnax and JaxMARL expect it: an integer, integers, or an array."""
    if isinstance(own, Box):
        return vector[: own.size].reshape(space.shape).astype(space.dtype)
    edges = np.cumsum((0, *own.heads)).tolist()
    chosen = [jnp.argmax(vector[a:b]) for a, b in pairwise(edges)]
    return jnp.stack(chosen).astype(space.dtype) if space.shape else chosen[0].astype(space.dtype)


def typed(state: Any) -> Any:
    """Returns a first state with Python numbers as arrays of a definite type, so that a loop can carry it."""
    return jax.tree.map(
        lambda leaf: leaf if _is_key(leaf) else jax.lax.convert_element_type(leaf, jnp.result_type(leaf)), state
    )


def like(state: Any, before: Any) -> Any:
    """Returns a later state in the types of the state before it."""
    return jax.tree.map(lambda new, old: new if _is_key(old) else jnp.asarray(new, old.dtype), state, before)


def _is_key(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
