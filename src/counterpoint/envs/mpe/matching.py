"""Optimal one-to-one matching of agents and places, compiled: the least total distance (the linear assignment problem)."""

from itertools import permutations

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

EXHAUSTIVE = 5
"""Up to this many agents, all orders are compared: 120 sums cost less than the steps of a search."""


def matched(cost: Float[Array, "N N"]) -> Float[Array, " N"]:
    """Returns what each row pays in the matching of rows and columns with the least sum."""
    column = _exhaustive(cost) if cost.shape[0] <= EXHAUSTIVE else assignment(cost)
    return jnp.take_along_axis(cost, column[:, None], axis=1)[:, 0]


def _exhaustive(cost: Float[Array, "N N"]) -> Int[Array, " N"]:
    n = cost.shape[0]
    orders = np.array(list(permutations(range(n))), np.int32)
    chosen = np.eye(n)[orders].reshape(len(orders), n * n)  # which entries each order sums
    sums = jnp.matmul(jnp.asarray(chosen, cost.dtype), cost.reshape(-1), precision=jax.lax.Precision.HIGHEST)
    return jnp.asarray(orders)[jnp.argmin(sums)]


def assignment(cost: Float[Array, "N N"]) -> Int[Array, " N"]:
    """Returns the column of each row in the matching with the least sum: shortest augmenting paths, one row at a time.

    Column 0 and row 0 below stand for "none"; the real ones count from 1. `u` and `v` are the dual prices of rows and columns.
    """
    n = cost.shape[0]
    padded = jnp.zeros((n + 1, n + 1), cost.dtype).at[1:, 1:].set(cost)
    nobody = jnp.zeros(n + 1, jnp.int32)
    far = jnp.full(n + 1, jnp.inf, cost.dtype)

    def insert(row: Array, carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        u, v, owner = carry
        owner = owner.at[0].set(row.astype(jnp.int32))

        def searching(search: tuple[Array, ...]) -> Array:
            owner_here = owner[search[0]]
            return owner_here != 0

        def extend(search: tuple[Array, ...]) -> tuple[Array, ...]:
            here, u, v, least, way, used = search
            used = used.at[here].set(True)
            mine = owner[here]
            slack = padded[mine] - u[mine] - v
            better = ~used & (slack < least)
            least, way = jnp.where(better, slack, least), jnp.where(better, here, way)
            open_ = jnp.where(used, jnp.inf, least).at[0].set(jnp.inf)
            there = jnp.argmin(open_).astype(jnp.int32)
            delta = open_[there]
            u = u.at[owner].add(jnp.where(used, delta, 0.0))
            v = jnp.where(used, v - delta, v)
            return there, u, v, jnp.where(used, least, least - delta), way, used

        start = (jnp.zeros((), jnp.int32), u, v, far, nobody, jnp.zeros(n + 1, bool))
        here, u, v, _, way, _ = jax.lax.while_loop(searching, extend, start)

        def back(walk: tuple[Array, Array]) -> tuple[Array, Array]:
            here, owner = walk
            return way[here], owner.at[here].set(owner[way[here]])

        _, owner = jax.lax.while_loop(lambda walk: walk[0] != 0, back, (here, owner))
        return u, v, owner

    zeros = jnp.zeros(n + 1, cost.dtype)
    _, _, owner = jax.lax.fori_loop(1, n + 1, insert, (zeros, zeros, nobody))
    return jnp.zeros(n, jnp.int32).at[owner[1:] - 1].set(jnp.arange(n, dtype=jnp.int32))
