"""Uniformly random actions of every kind, as an algorithm that does not learn."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from counterpoint.algos.base import Actors, Algorithm
from counterpoint.core.actions import gumbel, heads_of, masked, one_hot_best
from counterpoint.core.nets import Layer
from counterpoint.core.spaces import Spec
from counterpoint.core.types import Key


def random_actors(spec: Spec) -> Actors:
    """Returns the same as plain networks, whose outputs are all zero."""
    n, o, a = spec.num_agents, spec.obs_size, spec.act_size
    return Actors(
        (Layer(weight=jnp.zeros((n, o, a)), bias=jnp.zeros((n, a))),), {"world_action": "one-hot", "noise": "uniform"}
    )


def random_algorithm(spec: Spec) -> Algorithm:
    """Returns an algorithm whose actions are uniform over each head's legal choices and over each box."""
    heads = heads_of(spec)

    def draw(obs: Float[Array, "E N O"], key: Key, legal: Any) -> Float[Array, "E N A"]:
        shape = (obs.shape[0], *spec.act_mask.shape)
        key_head, key_box = jax.random.split(key)
        choices = one_hot_best(heads, masked(heads, gumbel(key_head, shape), legal))
        if heads.mask is None:
            return choices
        continuous = jnp.broadcast_to(heads.mask & ~heads.discrete, shape)
        return jnp.where(continuous, jax.random.uniform(key_box, shape, minval=-1.0, maxval=1.0), choices)

    return Algorithm(
        init=lambda key: (),
        policy=lambda agents: (),
        begin=lambda key: key,
        act=lambda policy, carry, obs, key, step, legal=None: (draw(obs, key, legal), carry, ()),
        greedy=_greedy(draw),
        update=lambda agents, batch, key: (agents, {}),
        metrics=(),
    )


def _greedy(draw: Any) -> Any:
    """Returns a `greedy` that is just as random: the carry is the key of the next draw."""

    def greedy(policy: Any, carry: Key, obs: Float[Array, "E N O"], legal: Any = None) -> tuple[Float[Array, "E N A"], Key]:
        keys = jax.vmap(lambda key: jax.random.split(key))(carry)
        return draw(obs, keys[0, 0], legal), keys[:, 1]

    return greedy
