"""Independent REINFORCE with a learned baseline, for discrete actions: an algorithm in a file of your own.

For each agent, with R the discounted sum of its rewards: ascend (R − V_i) log π_i(a) + entropy; descend (R − V_i)².
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from counterpoint.algos.base import Actors, Algorithm, Entry, Rollout
from counterpoint.core.actions import gumbel, heads_of, masked, sampled, softmax
from counterpoint.core.nets import init_mlp, mlp
from counterpoint.core.ops import lambda_returns


@dataclass(frozen=True)
class Settings:
    lr: float = 3e-3
    """Adam step size."""
    gamma: float = 0.95
    """Discount factor."""
    entropy: float = 0.01
    """Weight of the policy's entropy."""


class Agents(NamedTuple):
    nets: Any  # (actors, critics); every array is [N, …]
    opt: Any


def make(settings, spec, sees, axis=None):
    heads, adam = heads_of(spec), optax.adam(settings.lr)
    every = jax.vmap(mlp, in_axes=(0, -2), out_axes=-2)  # each agent's network on its own observation, [..., N, O]

    def init(key):
        obs, act = (jnp.asarray(mask, jnp.float32) for mask in (spec.obs_mask, spec.act_mask))
        fresh = jax.vmap(lambda key, inputs, outputs: init_mlp(key, inputs, (64,), outputs))
        keys = jax.random.split(key, (2, spec.num_agents))
        nets = fresh(keys[0], obs, act), fresh(keys[1], obs, jnp.ones((spec.num_agents, 1)))
        return Agents(nets, adam.init(nets))

    def greedy(actor, carry, obs, legal=None):
        logits = masked(heads, every(actor, obs), legal)
        return sampled(heads, logits, jnp.zeros_like(logits)), carry

    def act(actor, carry, obs, key, step, legal=None):
        logits = masked(heads, every(actor, obs), legal)
        return sampled(heads, logits, gumbel(key, logits.shape)), carry, ()

    def loss(nets, batch):
        pi = softmax(heads, masked(heads, every(nets[0], batch.obs), batch.legal))
        value, next_value = (every(nets[1], obs)[..., 0] for obs in (batch.obs, batch.next_obs))
        next_value = jax.lax.stop_gradient(jnp.where(batch.terminated, 0.0, next_value))  # a time limit ends no game
        cut = jnp.ones_like(batch.alive).at[:-1].set(~batch.alive[1:] | batch.done[:-1, :, None])
        advantage = lambda_returns(batch.reward, next_value, cut, settings.gamma, 1.0) - value
        log_pi = jnp.log(jnp.maximum(pi, 1e-8))
        gain = jax.lax.stop_gradient(advantage) * jnp.sum(batch.action * log_pi, axis=-1)
        gain -= settings.entropy * jnp.sum(pi * log_pi, axis=-1)
        counts = batch.alive if batch.own is None else batch.alive & batch.own  # in a league, earlier versions act too
        actor_loss, critic_loss = (jnp.mean(counts * part, axis=(0, 1)) for part in (-gain, advantage**2))
        return jnp.sum(actor_loss + critic_loss), {"actor_loss": actor_loss, "critic_loss": critic_loss}

    def update(agents, batch, key):
        grads, metrics = jax.grad(loss, has_aux=True)(agents.nets, batch)
        steps, opt = adam.update(grads, agents.opt)
        return Agents(optax.apply_updates(agents.nets, steps), opt), metrics

    metrics = ("actor_loss", "critic_loss")
    return Algorithm(init, lambda agents: agents.nets[0], lambda key: (), act, greedy, update, metrics)


rollout, training = lambda settings: Rollout(), {"num_envs": 16, "update_every": 400}
plain = lambda settings, spec, actor: Actors(actor, {"world_action": "one-hot"})  # noqa: E731
entry = Entry("reinforce", Settings, make, memory=rollout, training=training, actions=("discrete",), actors=plain)
