"""Rollouts of random numbers, for tests of learners."""

from typing import Any

import jax.numpy as jnp
import numpy as np

from counterpoint.core.spaces import Box, Spec
from counterpoint.core.types import Transition


def random_rollout(spec: Spec, times: int = 4, envs: int = 3, seed: int = 0, alive: float = 1.0, carry: Any = ()) -> Transition:
    """A rollout of random numbers whose actions are possible ones."""
    rng, lead, n = np.random.default_rng(seed), (times, envs), spec.num_agents
    obs, next_obs = (jnp.asarray(rng.normal(size=(*lead, n, spec.obs_size)) * spec.obs_mask, jnp.float32) for _ in "ab")
    action = np.zeros((*lead, n, spec.act_size), np.float32)
    for i, space in enumerate(spec.action_spaces):
        if isinstance(space, Box):
            action[..., i, : space.size] = np.clip(rng.normal(size=(*lead, space.size)), -1, 1)
        else:
            edges = np.cumsum((0, *space.heads))
            for first, width in zip(edges, space.heads, strict=False):
                action[..., i, first : first + width] = np.eye(width)[rng.integers(width, size=lead)]
    return Transition(
        obs=obs,
        action=jnp.asarray(action),
        reward=jnp.asarray(rng.normal(size=(*lead, n)), jnp.float32),
        next_obs=next_obs,
        terminated=jnp.asarray(rng.random((*lead, n)) < 0.2),
        alive=jnp.asarray(rng.random((*lead, n)) < alive),
        done=jnp.asarray(rng.random(lead) < 0.2),
        carry=carry,
    )
