"""Memories of the loop: what is added after a rollout and what an update is given.

`uniform` is a ring of packed rows, one float32 row per transition, so that adding is one slice and sampling one gather.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from counterpoint.types import Key, Spec, Transition


class Memory(NamedTuple):
    """A memory bound to its sizes: init() → state, add(state, Transition[T, E, …]) → state, sample(state, key) → batch."""

    init: Callable[[], Any]
    add: Callable[[Any, Transition], Any]
    sample: Callable[[Any, Key], Transition]
    split: Callable[[Any, Any], Any]
    """(keep, split) → for each field of the state, whether devices that share a run hold it all or a part each."""


class Ring(NamedTuple):
    """The last `capacity` transitions."""

    rows: Float[Array, "C D"]
    added: Int[Array, ""]
    """How many transitions were ever added."""


def row_size(spec: Spec) -> int:
    """Floats per stored transition."""
    return spec.num_agents * (2 * spec.obs_size + spec.act_size + 3)


def pack(steps: Transition) -> Float[Array, "R D"]:
    """Transitions [T, E, …] as rows: obs, action, reward, next_obs, terminated, alive."""
    fields = (steps.obs, steps.action, steps.reward, steps.next_obs, steps.terminated, steps.alive)
    count = steps.done.size
    return jnp.concatenate([field.reshape(count, -1).astype(jnp.float32) for field in fields], axis=1)


def unpack(spec: Spec, rows: Float[Array, "*b D"]) -> Transition:
    """The transitions of packed rows. `done` is not stored: learners from single steps have no use for it."""
    n, lead = spec.num_agents, rows.shape[:-1]
    sizes = [n * spec.obs_size, n * spec.act_size, n, n * spec.obs_size, n, n]
    obs, action, reward, next_obs, terminated, alive = jnp.split(rows, np.cumsum(sizes)[:-1], axis=-1)
    return Transition(
        obs=obs.reshape(*lead, n, spec.obs_size),
        action=action.reshape(*lead, n, spec.act_size),
        reward=reward,
        next_obs=next_obs.reshape(*lead, n, spec.obs_size),
        terminated=terminated > 0,
        alive=alive > 0,
        done=jnp.zeros(lead, bool),
    )


def uniform(spec: Spec, capacity: int, batch_size: int, per_add: int, num_batches: int = 1) -> Memory:
    """A ring sampled uniformly with replacement; `per_add` transitions arrive at a time and must divide the capacity.

    With `num_batches` above 1 a sample is that many independent minibatches, [num_batches, B, …].
    """
    if capacity % per_add:
        raise ValueError(f"capacity {capacity} is no multiple of the {per_add} transitions added at a time")
    shape = (batch_size,) if num_batches == 1 else (num_batches, batch_size)

    def init() -> Ring:
        return Ring(rows=jnp.zeros((capacity, row_size(spec)), jnp.float32), added=jnp.zeros((), jnp.int32))

    def add(ring: Ring, steps: Transition) -> Ring:
        if steps.done.size != per_add:  # a slice of another size would be moved to fit, over the wrong rows
            raise ValueError(f"this memory takes {per_add} transitions at a time, not {steps.done.size}")
        rows = jax.lax.dynamic_update_slice_in_dim(ring.rows, pack(steps), ring.added % capacity, axis=0)
        return Ring(rows=rows, added=ring.added + per_add)

    def sample(ring: Ring, key: Key) -> Transition:
        index = jax.random.randint(key, shape, 0, jnp.minimum(ring.added, capacity))
        return unpack(spec, ring.rows.at[index].get(mode="promise_in_bounds"))

    return Memory(init=init, add=add, sample=sample, split=lambda keep, split: Ring(rows=split, added=keep))
