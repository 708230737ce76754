"""MADDPG: decentralised actors, centralised critics (Lowe et al. 2017, arXiv:1706.02275, Algorithm 1), and independent DDPG.

for each step:  a_i = μ_i(o_i) + noise;  store (o, a, r, o')
for each agent: y = r_i + γ Q'_i(o', μ'_1(o'_1), …, μ'_N(o'_N))          td target
                descend (Q_i(o, a) − y)²                                  critic, Eq. 6
                ascend  Q_i(o, a | a_i = μ_i(o_i))                        actor,  Eq. 5
                move the targets: θ' ← τθ + (1 − τ)θ'

Critic i sees the agents in row i of `sees`: all of them in MADDPG, only its own in DDPG, so a MADDPG team can play a DDPG team.
Differences from the authors' code by default: all agents learn from one snapshot and one minibatch (theirs: one after
another, each with its own sample), and hidden weights start as in He et al. (2015). `--minibatch per-agent --order sequential
--init glorot` restores theirs. The layout of minibatches, masks, devices and reused products are in `offpolicy`.
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int

from counterpoint.algos import attention, exploration, offpolicy
from counterpoint.algos.base import TD_ERRORS, Entry
from counterpoint.algos.offpolicy import (
    Acting,
    Problem,
    View,
    column,
    critic_loss,
    joint,
    output_cost,
    q_with_own_action,
    visible,
)
from counterpoint.core.actions import Draw, draw, estimated, gumbel
from counterpoint.core.nets import Params
from counterpoint.core.ops import Moments, polyak
from counterpoint.core.types import Key, Transition

__all__ = [
    "Acting",
    "Agent",
    "Config",
    "Problem",
    "column",
    "critic_loss",
    "init",
    "joint",
    "make",
    "update",
    "update_agent",
    "visible",
]


@dataclass(frozen=True)
class Config(attention.Settings):
    """Hyperparameters; the defaults are those of the authors' code, except for `minibatch`, `order` and `init`."""


class Agent(NamedTuple):
    """One agent's networks and optimisers; stacked over agents, every leaf is [N, …]."""

    actor: Params | Any
    critic: Params | Any
    target_actor: Params | Any
    target_critic: Params | Any
    actor_opt: optax.OptState
    critic_opt: optax.OptState
    rewards: Moments | None = None
    """Moments of the replayed rewards, if they are standardised."""


def actor_loss(
    config: exploration.Settings,
    problem: Problem,
    actor: Params | Any,
    critic: Params | Any,
    view: View,
    drawn: Draw,
) -> Float[Array, ""]:
    """Returns −Q_i(o, a) with agent i acting now and the others as replayed (Eq. 5), plus the cost of large outputs."""
    outputs = offpolicy.outputs(problem, actor, view.obs, learning=True, begins=view.begins)
    action = estimated(config, view.heads, offpolicy.masked_columns(view.heads, outputs, view.legal), drawn)
    values = q_with_own_action(problem, critic, view, action)
    return -jnp.mean(view.alive * values) + output_cost(config.logit_cost, problem, view, outputs)


def update_agent(
    config: Config,
    problem: Problem,
    own: Agent,
    agents: Agent,
    mine: Transition,
    batch: Transition,
    i: Int[Array, ""],
    key: Key,
) -> tuple[Agent, dict[str, Float[Array, "*b"]]]:
    """Returns agent i after one critic step, one actor step and a move of its targets: the body of "for each agent".

    `own` is agent i of `agents`, `mine` its column of `batch`; the other agents are only read.
    """
    problem = offpolicy.with_networks(config, problem)
    key_target, key_actor = jax.random.split(key)
    mine, batch = offpolicy.in_columns(mine), offpolicy.in_columns(batch)
    view = offpolicy.view_of(problem, mine, batch, i)

    noise = gumbel(key_target, batch.action.shape)
    next_action = offpolicy.target_actions(problem, agents.target_actor, batch, config.relax, noise)
    next_inputs = offpolicy.seen_by(problem, joint(batch.next_obs, next_action), i)
    past = offpolicy.past_of(view)
    next_q = offpolicy.one_by_one(partial(offpolicy.next_q, problem), problem)(own.target_critic, next_inputs, *past)
    rewards = offpolicy.see_rewards(problem, own.rewards, mine.reward, view.alive)
    y = offpolicy.targets(config, problem, mine, batch, offpolicy.standardised(rewards, mine.reward), next_q)

    critic, critic_opt, values, critic_metrics = offpolicy.train_critic(config, problem, own.critic, own.critic_opt, view, y, i)
    drawn = draw(config, jax.random.fold_in(key_actor, i), mine.action.shape, offpolicy.steps_of(own.actor_opt))
    actor, actor_opt, actor_metrics = train_actor(config, problem, own, critic, view, drawn, i)

    agent = Agent(
        actor=actor,
        critic=critic,
        target_actor=polyak(own.target_actor, actor, config.tau),
        target_critic=polyak(own.target_critic, critic, config.tau),
        actor_opt=actor_opt,
        critic_opt=critic_opt,
        rewards=rewards,
    )
    metrics = critic_metrics | actor_metrics
    return agent, metrics if mine.weight is None else metrics | {TD_ERRORS: view.alive * jnp.abs(values - y)}


def train_actor(
    config: Config, problem: Problem, own: Agent, critic: Params | Any, view: View, drawn: Draw, i: Int[Array, ""]
) -> tuple[Params | Any, optax.OptState, dict[str, Float[Array, ""]]]:
    """Returns the actor after one step up the critic, its optimiser and metrics."""
    actor = offpolicy.with_averages(problem, own.actor, view.obs)
    loss, grads = offpolicy.gradient(partial(actor_loss, config, problem), problem)(actor, critic, view, drawn)
    grads, metrics = offpolicy.per_living(problem, view, (grads, {"actor_loss": loss}), actor=i)
    return *offpolicy.descend(config, config.lr, actor, grads, own.actor_opt), metrics


METRICS = ("critic_loss", "actor_loss", "q", "td_target")


def update_set(
    config: Config, problem: Problem, roles: np.ndarray, own: Agent, data: attention.Data, key: Key
) -> tuple[Agent, dict[str, Array]]:
    """Returns one set of parameters after the same steps with a critic over the set of agents, and its agents' metrics."""
    rewards, data = attention.standardised(problem, own.rewards, data)
    (critic,), (critic_opt,), metrics = attention.train_critics(
        config, problem, roles, (own.critic,), (own.target_critic,), (own.critic_opt,), data
    )
    gradient = attention.actor_gradient(config, problem, roles, own, critic, data, key)
    grads, losses = offpolicy.mean_over(problem.axis)(gradient)
    actor, actor_opt = offpolicy.descend(config, config.lr, own.actor, grads, own.actor_opt)
    agent = Agent(
        actor=actor,
        critic=critic,
        target_actor=polyak(own.target_actor, actor, config.tau),
        target_critic=polyak(own.target_critic, critic, config.tau),
        actor_opt=actor_opt,
        critic_opt=critic_opt,
        rewards=rewards,
    )
    return agent, metrics | {"actor_loss": losses}


update = partial(attention.update, update_agent, update_set)
"""(config, problem, agents, batch, key) → (agents, metrics): all agents after one update."""


def init_agent(
    config: Config, problem: Problem, key: Key, obs: Float[Array, " O"], act: Float[Array, " A"], seen: Float[Array, " I"]
) -> Agent:
    """Returns one fresh agent; the arrays are 1 where entries are real (and, for the critic, visible)."""
    key_actor, key_critic = jax.random.split(key)
    actor = offpolicy.init_net(config, problem, key_actor, obs, act)
    critic = attention.init_critic(config, problem, key_critic, seen)
    targets = jax.tree.map(jnp.copy, (actor, critic))
    opts = (offpolicy.adam(config, config.lr).init(net) for net in (actor, critic))
    return Agent(actor, critic, *targets, *opts, rewards=offpolicy.fresh_moments(config))


init = partial(offpolicy.init_agents, init_agent)
"""(config, problem, key) → fresh agents; targets start as copies of their networks."""

make = partial(attention.make, init, update_agent, update_set, METRICS)
"""(config, spec, sees, axis) → the algorithm for a spec; critics see what `sees` [N, N] allows."""

MADDPG = Entry(
    name="maddpg",
    settings=Config,
    make=make,
    memory=offpolicy.memory_of,
    actors=exploration.actors,
    learners=True,
    splits_batch=True,
    ensembles=True,
    recurrent=lambda config: config.recurrent,
)
DDPG = replace(MADDPG, name="ddpg", critic="own", refuses=("critic", "agents_per_sample"))
ENTRIES = (MADDPG, DDPG)
