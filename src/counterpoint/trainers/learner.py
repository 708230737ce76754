"""The networks of a trainer and the compiled functions that train them: all calls to `algos.maddpg` are in this file.

A trainer has perceptrons (`Sizes`) or networks of the user's own (`Model`). Perceptrons learn by `maddpg.update_agent`, as in
a compiled run. The same update for any other network is `_update_with`, which follows the same equations in the same order
with the same random numbers.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from counterpoint.algos import maddpg
from counterpoint.algos.base import TD_ERRORS
from counterpoint.core.actions import gumbel, heads_of, relaxed
from counterpoint.core.errors import UsageError
from counterpoint.core.nets import Normalise
from counterpoint.core.ops import Moments, add_moments, clip_by_norm, polyak, td_target
from counterpoint.core.spaces import Spec
from counterpoint.core.types import Key, Transition


@dataclass(frozen=True)
class Sizes:
    """Perceptrons with hidden layers of one width, for actor and critic alike."""

    num_units: int = 64
    """Width of the hidden layers."""
    num_layers: int = 2
    """Number of hidden layers."""
    norm: Normalise = "none"
    """Normalisation of the hidden layers: over their units, or over the minibatch."""


class Model(NamedTuple):
    """Networks of your own, for actor and critic alike."""

    init: Callable[..., Any]
    """(key, inputs[I], outputs[H]) → parameters, a pytree of arrays; the masks are 1 at real entries and 0 at padding."""
    apply: Callable[..., Any]
    """(parameters, x[*b, I]) → outputs[*b, H]."""


Networks = Sizes | Model
Rows = tuple[tuple[bool, ...], ...]
"""[N, N]: whether critic i (row) sees agent j; hashable."""


def networks_of(model: Any) -> Networks:
    """Returns the networks that the user chose: sizes, or any object with init and apply functions."""
    if isinstance(model, Sizes):
        return model
    if callable(getattr(model, "init", None)) and callable(getattr(model, "apply", None)):
        return Model(model.init, model.apply)
    raise UsageError(f"the model must be Sizes(...) or have functions init and apply, not {model!r}.")


def problem_of(spec: Spec, sees: Rows) -> maddpg.Problem:
    """Returns what is fixed for the learner of a team."""
    return maddpg.Problem(spec=spec, heads=heads_of(spec), sees=np.array(sees), axis=None)


@lru_cache(maxsize=32)
def starter(networks: Networks, config: maddpg.Config, spec: Spec, sees: Rows) -> Any:
    """Returns (key, i) → agent i at the start of training; all trainers of a team share it."""

    def start(key: Key, i: jax.Array) -> maddpg.Agent:
        problem = problem_of(spec, sees)
        if isinstance(networks, Model):
            agents = _init_with(networks, config, problem, key)
        else:
            agents = maddpg.init(config, problem, key)
        return jax.tree.map(lambda leaf: leaf[i], agents)

    return jax.jit(start)


@lru_cache(maxsize=32)
def learner(networks: Networks, config: maddpg.Config, spec: Spec, sees: Rows) -> Any:
    """Returns (own, target actors, column, batch, i, key) → (agent, metrics); all trainers of a team share it."""
    problem = problem_of(spec, sees)

    def learn(own: maddpg.Agent, targets: Any, mine: Transition, batch: Transition, i: jax.Array, key: Key) -> Any:
        if isinstance(networks, Model):
            return _update_with(networks, config, problem, own, targets, batch, i, key)
        team = maddpg.Agent(None, None, targets, None, None, None)  # pyright: ignore[reportArgumentType] — an update reads no more
        return maddpg.update_agent(config, problem, own, team, mine, batch, i, key)

    return jax.jit(learn)


@jax.jit
def gather(targets: list[Any], batch: Transition, i: jax.Array) -> tuple[Any, Transition]:
    """Returns all target actors stacked, and agent i's part of a batch. Inside `learn` this would change its rounding."""
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *targets), maddpg.column(batch, i)


@lru_cache(maxsize=32)
def outputs(model: Model) -> Any:
    """Returns (parameters, x[1, O]) → outputs[1, A], compiled."""
    return jax.jit(model.apply)


fold_in = jax.jit(jax.random.fold_in)


def _init_with(model: Model, config: maddpg.Config, problem: maddpg.Problem, key: Key) -> maddpg.Agent:
    """Returns fresh agents, leaves [N, …]; targets start as copies of their networks."""
    spec = problem.spec

    def init_agent(key: Key, obs_mask: jax.Array, act_mask: jax.Array, seen: jax.Array) -> maddpg.Agent:
        key_actor, key_critic = jax.random.split(key)
        actor, critic = model.init(key_actor, obs_mask, act_mask), model.init(key_critic, seen, jnp.ones(1))
        _check_outputs(model, actor, obs_mask, act_mask)
        _check_outputs(model, critic, seen, jnp.ones(1))
        copy = jax.tree.map(jnp.copy, (actor, critic))
        zero = jnp.zeros(())
        rewards = Moments(zero, zero, zero) if config.standardise_rewards else None
        opts = (optax.adam(config.lr).init(network) for network in (actor, critic))
        return maddpg.Agent(actor, critic, *copy, *opts, rewards=rewards)

    masks = (spec.obs_mask, spec.act_mask, maddpg.visible(spec, problem.sees))
    return jax.vmap(init_agent)(jax.random.split(key, spec.num_agents), *(jnp.asarray(mask, jnp.float32) for mask in masks))


def _check_outputs(model: Model, params: Any, inputs: jax.Array, wanted: jax.Array) -> None:
    shape = jax.eval_shape(model.apply, params, jnp.zeros((1, inputs.size))).shape
    if shape != (1, wanted.size):
        raise UsageError(
            f"the model's apply must return shape (1, {wanted.size}) for one input of size {inputs.size}, not {shape}."
        )


def _update_with(
    model: Model,
    config: maddpg.Config,
    problem: maddpg.Problem,
    own: maddpg.Agent,
    targets: Any,
    batch: Transition,
    i: jax.Array,
    key: Key,
) -> tuple[maddpg.Agent, dict[str, jax.Array]]:
    """Returns agent i after a critic step (Eq. 6), an actor step (Eq. 5) and a move of its targets, and its metrics."""
    spec, heads = problem.spec, problem.heads
    relax = {"temperature": config.temperature, "straight_through": config.straight_through}
    seen, real = (jnp.asarray(table, jnp.float32)[i] for table in (maddpg.visible(spec, problem.sees), spec.act_mask))
    own_heads: Any = jax.tree.map(lambda table: jnp.asarray(table)[i], heads)
    mine = maddpg.column(batch, i)
    alive = mine.alive.astype(jnp.float32)
    living = jnp.maximum(jnp.mean(alive), 1e-6)
    key_target, key_actor = jax.random.split(key)
    size = alive.size

    def q_of(critic: Any, obs: jax.Array, action: jax.Array) -> jax.Array:
        joint = jnp.concatenate([obs.reshape(size, -1), action.reshape(size, -1)], axis=1)
        return model.apply(critic, joint * jnp.broadcast_to(seen, joint.shape))[:, 0]

    next_outputs = jax.vmap(model.apply, in_axes=(0, 1), out_axes=1)(targets, batch.next_obs)
    noise = jnp.moveaxis(gumbel(key_target, (spec.num_agents, spec.act_size, size)), -1, 0)
    next_q = q_of(own.target_critic, batch.next_obs, relaxed(heads, next_outputs, noise, **relax))
    rewards, reward = _standardised(own.rewards, mine.reward, alive)
    y = td_target(reward, mine.terminated, next_q, config.gamma)

    def critic_loss(critic: Any) -> tuple[jax.Array, jax.Array]:
        q = q_of(critic, batch.obs, batch.action)
        weight = alive if mine.weight is None else alive * mine.weight / jnp.max(mine.weight)
        return jnp.mean(weight * (q - y) ** 2) / living, q

    (loss_q, q), grads = jax.value_and_grad(critic_loss, has_aux=True)(own.critic)
    critic, critic_opt = _descend(config, config.critic_lr or config.lr, own.critic, grads, own.critic_opt)

    def actor_loss(actor: Any) -> jax.Array:
        out = model.apply(actor, mine.obs)
        out = out * jnp.broadcast_to(real, out.shape)
        now = relaxed(own_heads, out, gumbel(jax.random.fold_in(key_actor, i), out.shape[::-1]).T, **relax)
        value = q_of(critic, batch.obs, batch.action.at[:, i].set(now))
        cost = config.logit_cost * jnp.mean(alive[:, None] * out**2) / jnp.mean(real)
        return (-jnp.mean(alive * value) + cost) / living

    loss_p, grads = jax.value_and_grad(actor_loss)(own.actor)
    actor, actor_opt = _descend(config, config.lr, own.actor, grads, own.actor_opt)
    target_actor, target_critic = polyak((own.target_actor, own.target_critic), (actor, critic), config.tau)
    agent = maddpg.Agent(actor, critic, target_actor, target_critic, actor_opt, critic_opt, rewards)
    metrics = {"critic_loss": loss_q, "actor_loss": loss_p, "q": jnp.mean(alive * q) / living}
    metrics |= {"td_target": jnp.mean(alive * y) / living}
    return agent, metrics if mine.weight is None else metrics | {TD_ERRORS: alive * jnp.abs(q - y)}


def _standardised(moments: Moments | None, reward: jax.Array, alive: jax.Array) -> tuple[Moments | None, jax.Array]:
    """Returns the moments with this minibatch's rewards, and the rewards with mean 0 and variance 1 by them."""
    if moments is None:
        return None, reward
    count = jnp.sum(alive)
    mean = jnp.sum(alive * reward) / jnp.maximum(count, 1.0)
    variance = jnp.sum(alive * (reward - mean) ** 2) / jnp.maximum(count, 1.0)
    moments = add_moments(moments, count, mean, variance)
    return moments, (reward - moments.mean) / jnp.maximum(jnp.sqrt(moments.variance), 1e-4)


def _descend(config: maddpg.Config, lr: float, params: Any, grads: Any, opt: Any) -> tuple[Any, Any]:
    """Returns the parameters after one step of Adam, and its state."""
    updates, opt = optax.adam(lr).update(clip_by_norm(grads, config.clip, config.clip_by == "variable"), opt)
    return jax.tree.map(jnp.add, params, updates), opt
