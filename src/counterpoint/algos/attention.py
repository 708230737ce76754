"""A critic over the set of agents, for many agents: its cost grows like N, that of N joint critics like N³.

One network reads each agent's observation and action, e_j = φ(o_j, a_j), and attention pools them:

    p = Σ_j w_j e_j / Σ_j w_j,  w_j = exp(s(e_j))          the same for all agents: computed once
    Q_i(o, a) = ψ(e_i, p)

With another action of agent i only e_i and its part of both sums change, so the values that all actors ascend cost as much as
the values themselves. Agents share parameters (`sharing`): each set has an actor and a critic, whose gradients are sums over
its agents. Where there are several roles, φ also reads the role of agent j. Arrays are rows, [B, N, …]: one matrix product
serves all agents. An algorithm's `update_set` (`maddpg`, `matd3`) updates one set of parameters, of all its agents at once.

`init_critic`, `update` and `make` choose between this critic and the joint critics of `offpolicy`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float

from counterpoint.algos import exploration, offpolicy, sharing
from counterpoint.algos.base import Algorithm, Metrics
from counterpoint.algos.offpolicy import Problem
from counterpoint.algos.sharing import Sharing
from counterpoint.core.actions import Draw, draw, estimated_rows, gumbel, heads_of, masked, relaxed, sampled
from counterpoint.core.errors import UsageError
from counterpoint.core.nets import Activation, Params, affine, init_mlp, mlp, mlp_from_first
from counterpoint.core.ops import Moments, td_target
from counterpoint.core.spaces import Spec
from counterpoint.core.types import Key, Transition

LARGEST_SCORE = 5.0
"""Scores stay within ±5, so that their exponentials need no maximum, and one agent's part can be exchanged in a sum."""


@dataclass(frozen=True)
class Settings(exploration.Settings):
    """Hyperparameters of off-policy algorithms with deterministic actors, whose critics may be one over the set of agents."""

    critic: Literal["joint", "attention"] = "joint"
    """One critic for each agent, which reads all observations and actions, or, for many agents that share parameters, one that
    pools them by attention."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.critic == "joint":
            return
        if self.share == "none":
            raise UsageError("--critic attention is one network for many agents: add --share role or --share all.")
        if self.recurrent:
            raise UsageError("--critic attention does not remember: leave out it or --recurrent.")
        for name, usual in (("minibatch", "shared"), ("norm", "none"), ("model", "")):
            if getattr(self, name) != usual:
                value = getattr(self, name)
                raise UsageError(f"--critic attention and --{name} {value} exclude each other: leave out one of them.")


class SetCritic(NamedTuple):
    """φ, s and ψ."""

    pair: Params
    """[O + A (+ roles), H]."""
    score: Params
    """[H, 1]."""
    pooled: Params
    """[H, H]: what the pool adds to the first layer of `value`; its bias is not used."""
    value: Params
    """[H, H], …, [H, 1]."""


UpdateSet = Callable[..., tuple[Any, dict[str, Any]]]
"""(config, problem, roles, own, batch, next_action, rows, key) → (one set of parameters, the metrics of its agents [K, …])."""


class Pool(NamedTuple):
    """Embeddings of all agents, and the sums that pool them."""

    embedding: Float[Array, "B N H"]
    weight: Float[Array, "B N 1"]
    total: Float[Array, "B H"]
    norm: Float[Array, "B 1"]


# --- The critic.


def role_table(spec: Spec) -> np.ndarray:
    """Returns [N, R]: the role of each agent as a one-hot vector; R is 0 if all have the same."""
    names = sorted(set(spec.roles))
    if len(names) == 1:
        return np.zeros((spec.num_agents, 0), np.float32)
    return np.eye(len(names), dtype=np.float32)[[names.index(role) for role in spec.roles]]


def init_critic(config: Settings, problem: Problem, key: Key, seen: Float[Array, " I"]) -> Params | Any:
    """Returns a fresh critic of the kind that the settings name; `seen` is 1 where a joint critic reads an entry."""
    if config.critic == "attention":
        return init_set_critic(config, problem.spec, key)
    return offpolicy.init_net(config, problem, key, seen, jnp.ones(1))


def init_set_critic(config: Settings, spec: Spec, key: Key) -> SetCritic:
    """Returns a fresh critic over the set of agents."""
    keys, width = jax.random.split(key, 4), config.num_units
    real = np.concatenate([spec.obs_mask.max(axis=0), spec.act_mask.max(axis=0), np.ones(role_table(spec).shape[1])])
    inputs, ones = jnp.asarray(real, jnp.float32), jnp.ones(width)
    first, *_ = init_mlp(keys[0], inputs, (width,), jnp.ones(1), init=config.init)
    *_, rest = init_mlp(keys[2], ones, (), ones)
    return SetCritic(
        pair=(first,),
        score=init_mlp(keys[1], ones, (), jnp.ones(1)),
        pooled=(rest,),
        value=init_mlp(keys[3], ones, (width,) * max(config.num_layers - 1, 1), jnp.ones(1), init=config.init),
    )


def embedded(
    critic: SetCritic, activation: Activation, roles: np.ndarray, obs: Float[Array, "B N O"], action: Float[Array, "B N A"]
) -> tuple[Float[Array, "B N H"], Float[Array, "B N 1"]]:
    """Returns e_j and w_j of every agent."""
    parts = [obs, action]
    if roles.shape[-1]:
        parts.append(jnp.broadcast_to(jnp.asarray(roles, obs.dtype), (*obs.shape[:-1], roles.shape[-1])))
    embedding = getattr(jax.nn, activation)(affine(critic.pair[0], jnp.concatenate(parts, axis=-1)))
    score = affine(critic.score[0], embedding)
    return embedding, jnp.exp(LARGEST_SCORE * jnp.tanh(score / LARGEST_SCORE))


def pool(critic: SetCritic, activation: Activation, roles: np.ndarray, obs: Array, action: Array) -> Pool:
    """Returns the pool of all agents."""
    embedding, weight = embedded(critic, activation, roles, obs, action)
    return Pool(embedding, weight, jnp.sum(weight * embedding, axis=1), jnp.sum(weight, axis=1))


def values(
    critic: SetCritic, activation: Activation, embedding: Float[Array, "B K H"], pooled: Float[Array, "B _k H"]
) -> Float[Array, "B K"]:
    """Returns Q of agents with these embeddings; `pooled` is that of each of them, or one for all."""
    common = pooled @ critic.pooled[0].weight
    product = embedding @ critic.value[0].weight
    return mlp_from_first(critic.value, product + jnp.broadcast_to(common, product.shape), activation=activation)[..., 0]


def q(critic: SetCritic, activation: Activation, everyone: Pool, members: np.ndarray) -> Float[Array, "B K"]:
    """Returns Q_i of these agents."""
    return values(critic, activation, everyone.embedding[:, members], (everyone.total / everyone.norm)[:, None])


def q_with_own_actions(
    critic: SetCritic,
    activation: Activation,
    everyone: Pool,
    members: np.ndarray,
    new: tuple[Float[Array, "B K H"], Float[Array, "B K 1"]],
) -> Float[Array, "B K"]:
    """Returns Q_i of these agents, each with new embedding and weight of its own and the others as replayed."""
    embedding, weight = new
    old, was = everyone.embedding[:, members], everyone.weight[:, members]
    total = everyone.total[:, None] + weight * embedding - was * old
    return values(critic, activation, embedding, total / (everyone.norm[:, None] + weight - was))


# --- The update.


class Rows(NamedTuple):
    """The part of a minibatch that belongs to the agents of one set, [B, K, …]."""

    members: np.ndarray
    heads: Any
    obs: Float[Array, "B K I"]
    """With the agent's index, if actors read it."""
    legal: Bool[Array, "B K A"] | None
    reward: Float[Array, "B K"]
    terminated: Bool[Array, "B K"]
    alive: Float[Array, "B K"]
    living: Float[Array, " K"]
    """The share of the living samples, over all devices."""
    weight: Float[Array, "B K"]


def rows_of(problem: Problem, shared: Sharing, batch: Transition, m: int) -> Rows:
    """Returns the rows of the agents of set m."""
    members = np.flatnonzero(shared.sets == m)
    alive = batch.alive[:, members].astype(batch.reward.dtype)
    weight = alive
    if batch.weight is not None:
        weight = alive * (batch.weight / offpolicy.max_over(problem.axis, batch.weight))[:, None]
    return Rows(
        members=members,
        heads=jax.tree.map(lambda table: table[members], problem.heads),
        obs=sharing.with_indices(shared, batch.obs)[:, members],
        legal=None if batch.legal is None else batch.legal[:, members],
        reward=batch.reward[:, members],
        terminated=batch.terminated[:, members],
        alive=alive,
        living=offpolicy.mean_over(problem.axis)(jnp.mean(alive, axis=0)),
        weight=weight,
    )


def critic_loss(
    activation: Activation, roles: np.ndarray, critic: SetCritic, batch: Transition, rows: Rows, y: Float[Array, "B K"]
) -> tuple[Float[Array, ""], tuple[Float[Array, " K"], Float[Array, "B K"]]]:
    """Returns the sum over agents of the mean of (Q_i(o, a) − y_i)² over living samples; each of them, and the values."""
    found = q(critic, activation, pool(critic, activation, roles, batch.obs, batch.action), rows.members)
    losses = _per_living(rows, rows.weight * (found - y) ** 2)
    return jnp.sum(losses), (losses, found)


def actor_loss(
    config: Settings,
    roles: np.ndarray,
    actor: Params,
    critic: SetCritic,
    everyone: Pool,
    batch: Transition,
    rows: Rows,
    drawn: Draw,
) -> tuple[Float[Array, ""], Float[Array, " K"]]:
    """Returns the sum over agents of −Q_i(o, a | a_i = μ_i(o_i)), plus the cost of large outputs; and each of them."""
    members, activation = rows.members, config.critic_activation
    raw = mlp(actor, rows.obs)
    action = estimated_rows(config, rows.heads, masked(rows.heads, raw, rows.legal), drawn)
    new = embedded(critic, activation, roles[members], batch.obs[:, members], action)
    found = q_with_own_actions(critic, activation, everyone, members, new)
    losses = _per_living(rows, -rows.alive * found) + config.logit_cost * _per_living(rows, rows.alive * _squares(rows, raw))
    return jnp.sum(losses), losses


def _squares(rows: Rows, raw: Float[Array, "B K A"]) -> Float[Array, "B K"]:
    """Returns the mean square of the real and legal outputs."""
    counts = jnp.ones(raw.shape, bool) if rows.heads.mask is None else jnp.broadcast_to(rows.heads.mask, raw.shape)
    counts = counts if rows.legal is None else counts & rows.legal
    return jnp.sum(jnp.where(counts, raw**2, 0.0), axis=-1) / jnp.maximum(jnp.sum(counts, axis=-1), 1)


def _per_living(rows: Rows, weighted: Float[Array, "B K"]) -> Float[Array, " K"]:
    """Returns means over living samples, given numbers that are zero for the others."""
    return jnp.mean(weighted, axis=0) / jnp.maximum(rows.living, 1e-6)


def make(
    init: Any,
    update_agent: offpolicy.UpdateAgent,
    update_set: UpdateSet,
    metrics: tuple[str, ...],
    config: Settings,
    spec: Spec,
    sees: np.ndarray,
    axis: str | None = None,
    ensemble: tuple[int, ...] = (),
) -> Algorithm:
    """Returns `exploration.make`'s algorithm, which learns by `update` of this module."""
    if config.critic == "attention" and not sees.all():
        raise UsageError("--critic attention sees all agents: leave it out beside ddpg.")
    algo = exploration.make(init, update_agent, metrics, config, spec, sees, axis, ensemble)
    if config.critic == "joint":
        return algo
    return algo._replace(update=partial(update, update_agent, update_set, config, Problem(spec, heads_of(spec), sees, axis)))


def update(
    update_agent: offpolicy.UpdateAgent,
    update_set: UpdateSet,
    config: Settings,
    problem: Problem,
    agents: Any,
    batch: Transition,
    key: Key,
) -> tuple[Any, Metrics]:
    """Returns all agents after one update: each by `update_agent`, or all sets at once if one critic reads all agents."""
    if config.critic == "attention":
        return update_sets(update_set, config, problem, agents, batch, key)
    return offpolicy.update(update_agent, config, problem, agents, batch, key)


def update_sets(
    update_set: UpdateSet, config: Settings, problem: Problem, agents: Any, batch: Transition, key: Key
) -> tuple[Any, Metrics]:
    """Returns all sets of parameters after one update, each by `update_set`."""
    problem = offpolicy.with_networks(config, problem)
    shared, roles = problem.sharing, role_table(problem.spec)
    assert shared is not None
    key_target, key_actor = jax.random.split(key)
    raw = offpolicy.acting_outputs(problem, agents.target_actor, batch.next_obs)
    raw, noise = masked(problem.heads, raw, batch.next_legal), gumbel(key_target, raw.shape)
    if config.estimator == "soft":
        next_action = relaxed(problem.heads, raw, noise, config.temperature)
    else:
        next_action = sampled(problem.heads, raw, noise)

    moved, found = [], []
    for m in range(shared.num_sets):
        own = jax.tree.map(lambda leaf, m=m: leaf[m], agents)
        rows = rows_of(problem, shared, batch, m)
        key_set = jax.random.fold_in(key_actor, m)
        agent, metrics = update_set(config, problem, roles, own, batch, next_action, rows, key_set)
        moved.append(agent)
        found.append(metrics)
    order = np.argsort(np.concatenate([np.flatnonzero(shared.sets == m) for m in range(shared.num_sets)]))
    metrics = {name: jnp.concatenate([one[name] for one in found])[order] for name in found[0]}
    agents = jax.tree.map(lambda *leaves: jnp.stack(leaves), *moved)
    return agents, offpolicy.gather(config, problem, batch, metrics)


def next_values(
    config: Settings,
    roles: np.ndarray,
    target_critic: SetCritic | Any,
    batch: Transition,
    next_action: Float[Array, "B N A"],
    rows: Rows,
) -> Float[Array, "B K"]:
    """Returns Q' of what follows each step, for the agents of one set."""
    later = pool(target_critic, config.critic_activation, roles, batch.next_obs, next_action)
    return q(target_critic, config.critic_activation, later, rows.members)


def targets(
    config: Settings, problem: Problem, moments: Moments | None, batch: Transition, rows: Rows, next_q: Float[Array, "B K"]
) -> tuple[Moments | None, Float[Array, "B K"]]:
    """Returns the moments of the set's rewards after another minibatch, and r + γ Q'."""
    rewards = offpolicy.add_rewards(offpolicy.mean_over(problem.axis), moments, rows.reward, rows.alive)
    discount = config.gamma if batch.discount is None else jnp.broadcast_to(batch.discount[:, None], next_q.shape)
    return rewards, td_target(offpolicy.standardised(rewards, rows.reward), rows.terminated, next_q, discount)


def train_critic(
    config: Settings,
    problem: Problem,
    roles: np.ndarray,
    critic: SetCritic | Any,
    opt: optax.OptState,
    batch: Transition,
    rows: Rows,
    y: Float[Array, "B K"],
) -> tuple[SetCritic | Any, optax.OptState, Float[Array, "B K"], dict[str, Float[Array, " K"]]]:
    """Returns a set's critic after one step towards y, its optimiser, its values before the step, and metrics."""
    (_, (losses, before)), grads = jax.value_and_grad(critic_loss, argnums=2, has_aux=True)(
        config.critic_activation, roles, critic, batch, rows, y
    )
    means = {"critic_loss": losses, "q": _per_living(rows, rows.alive * before), "td_target": _per_living(rows, rows.alive * y)}
    grads, metrics = offpolicy.mean_over(problem.axis)((grads, means))
    return *offpolicy.descend(config, config.critic_lr or config.lr, critic, grads, opt), before, metrics


def actor_gradient(
    config: Settings,
    problem: Problem,
    roles: np.ndarray,
    own: Any,
    critic: SetCritic | Any,
    batch: Transition,
    rows: Rows,
    key: Key,
) -> tuple[Params, Float[Array, " K"]]:
    """Returns the gradient of a set's actor and the losses of its agents, both still those of this device's samples."""
    everyone = pool(critic, config.critic_activation, roles, batch.obs, batch.action)
    drawn = draw(config, key, (*rows.reward.shape, problem.spec.act_size), offpolicy.steps_of(own.actor_opt))
    (_, losses), grads = jax.value_and_grad(actor_loss, argnums=2, has_aux=True)(
        config, roles, own.actor, critic, everyone, batch, rows, drawn
    )
    return grads, losses
