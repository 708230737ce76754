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
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Int

from counterpoint.algos import inference, offpolicy
from counterpoint.algos.base import TD_ERRORS, Actors, Algorithm, Carry, Entry
from counterpoint.algos.offpolicy import Problem, View, column, joint, output_cost, q, q_with_own_action, visible
from counterpoint.core.actions import (
    Draw,
    EstimatorSettings,
    draw,
    estimated,
    gumbel,
    heads_of,
    masked,
    relaxed,
    sampled,
    target_action,
)
from counterpoint.core.checks import at_least
from counterpoint.core.nets import Params
from counterpoint.core.ops import Moments, polyak, td_target
from counterpoint.core.spaces import Spec
from counterpoint.core.types import Key, Transition

__all__ = ["Agent", "Config", "Problem", "column", "init", "joint", "make", "update", "update_agent", "visible"]


@dataclass(frozen=True)
class Config(EstimatorSettings, offpolicy.Settings):
    """Hyperparameters; the defaults are those of the authors' code, except for `minibatch`, `order` and `init`."""

    logit_cost: float = 1e-3
    """Weight of the mean squared policy output in the actor's loss."""
    world_action: Literal["soft", "one-hot"] = "soft"
    """Give the environment relaxed action vectors, as the authors' code does, or sampled one-hot vectors."""
    noise: Literal["gaussian", "ou"] = "gaussian"
    """Exploration noise of continuous agents: independent, or Ornstein-Uhlenbeck."""
    noise_start: float = 0.2
    """Initial standard deviation of the exploration noise (of actions in [−1, 1])."""
    noise_end: float = 0.05
    """Final standard deviation of the exploration noise."""
    noise_steps: int = 500_000
    """Environment steps over which the noise decays linearly."""

    def __post_init__(self) -> None:
        offpolicy.Settings.__post_init__(self)
        EstimatorSettings.__post_init__(self)
        at_least(self, 1, "noise_steps")
        at_least(self, 0, "logit_cost", "noise_start", "noise_end")

    @property
    def relax(self) -> offpolicy.Relax:
        """The actions of targets."""
        return partial(target_action, self)


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


class Acting(NamedTuple):
    """The part of the agents that acting needs."""

    actor: Params | Any


def critic_loss(
    problem: Problem, critic: Params | Any, view: View, y: Float[Array, " B"]
) -> tuple[Float[Array, ""], Float[Array, " B"]]:
    """Returns the mean of (Q_i(o, a) − y)² (Eq. 6), and the values."""
    values = q(problem, critic, view.inputs, learning=True)
    return jnp.mean(view.weight * (values - y) ** 2), values


def actor_loss(
    config: Config, problem: Problem, actor: Params | Any, critic: Params | Any, view: View, drawn: Draw
) -> Float[Array, ""]:
    """Returns −Q_i(o, a) with agent i acting now and the others as replayed (Eq. 5), plus the cost of large outputs."""
    outputs = offpolicy.outputs(problem, actor, view.obs, learning=True)
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
    next_q = offpolicy.one_by_one(partial(q, problem))(own.target_critic, next_inputs)
    rewards = offpolicy.see_rewards(problem, own.rewards, mine.reward, view.alive)
    y = td_target(offpolicy.standardised(rewards, mine.reward), mine.terminated, next_q, config.gamma)

    critic, critic_opt, values, critic_metrics = train_critic(config, problem, own, view, y, i)
    drawn = draw(config, jax.random.fold_in(key_actor, i), mine.action.shape, own.actor_opt[0].count)
    actor, actor_opt, actor_metrics = train_actor(config, problem, own, critic, view, drawn)

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


def train_critic(
    config: Config, problem: Problem, own: Agent, view: View, y: Float[Array, " B"], i: Int[Array, ""]
) -> tuple[Params | Any, optax.OptState, Float[Array, " B"], dict[str, Float[Array, ""]]]:
    """Returns critic i after one step towards y, its optimiser, its values before the step, and metrics."""
    critic = offpolicy.with_averages(problem, own.critic, view.inputs, config.critic_activation)
    (loss, values), grads = offpolicy.gradient(partial(critic_loss, problem), has_aux=True)(critic, view, y)
    grads = offpolicy.only_visible(problem, grads, i)
    metrics = {"critic_loss": loss, "q": jnp.mean(view.alive * values), "td_target": jnp.mean(view.alive * y)}
    grads, metrics = offpolicy.per_living(problem, view, (grads, metrics))
    return *offpolicy.descend(config, config.critic_lr or config.lr, critic, grads, own.critic_opt), values, metrics


def train_actor(
    config: Config, problem: Problem, own: Agent, critic: Params | Any, view: View, drawn: Draw
) -> tuple[Params | Any, optax.OptState, dict[str, Float[Array, ""]]]:
    """Returns the actor after one step up the critic, its optimiser and metrics."""
    actor = offpolicy.with_averages(problem, own.actor, view.obs)
    loss, grads = offpolicy.gradient(partial(actor_loss, config, problem))(actor, critic, view, drawn)
    grads, metrics = offpolicy.per_living(problem, view, (grads, {"actor_loss": loss}))
    return *offpolicy.descend(config, config.lr, actor, grads, own.actor_opt), metrics


METRICS = ("critic_loss", "actor_loss", "q", "td_target")

update = partial(offpolicy.update, update_agent)
"""(config, problem, agents, batch, key) → (agents, metrics): all agents after one update."""
update_one = partial(offpolicy.update_one, update_agent)
"""(config, problem, agents, batch, i, key) → (agent i, its metrics)."""


def init(config: Config, problem: Problem, key: Key) -> Agent:
    """Returns fresh agents; targets start as copies of their networks."""
    problem = offpolicy.with_networks(config, problem)
    spec = problem.spec
    masks = (spec.obs_mask, spec.act_mask, visible(spec, problem.sees))
    return jax.vmap(partial(init_agent, config, problem))(
        jax.random.split(key, spec.num_agents), *(jnp.asarray(mask, jnp.float32) for mask in masks)
    )


def init_agent(
    config: Config, problem: Problem, key: Key, obs: Float[Array, " O"], act: Float[Array, " A"], seen: Float[Array, " I"]
) -> Agent:
    """Returns one fresh agent; the arrays are 1 where entries are real (and, for the critic, visible)."""
    key_actor, key_critic = jax.random.split(key)
    actor = offpolicy.init_net(config, problem, key_actor, obs, act)
    critic = offpolicy.init_net(config, problem, key_critic, seen, jnp.ones(1))
    targets = jax.tree.map(jnp.copy, (actor, critic))
    opts = (offpolicy.adam(config, config.lr).init(net) for net in (actor, critic))
    return Agent(actor, critic, *targets, *opts, rewards=offpolicy.fresh_moments(config))


def begin(config: Config, problem: Problem, key: Key) -> Carry:
    """Returns the Ornstein-Uhlenbeck noise of one environment at rest, if it is used."""
    return jnp.zeros(problem.spec.act_mask.shape) if config.noise == "ou" else ()


def act(
    config: Config,
    problem: Problem,
    policy: Acting,
    carry: Carry,
    obs: Float[Array, "E N O"],
    key: Key,
    step: Int[Array, ""],
    legal: Bool[Array, "E N A"] | None = None,
) -> tuple[Float[Array, "E N A"], Carry, tuple[()]]:
    """Returns exploring actions: sampled for discrete agents, with additive noise for continuous ones."""
    heads = problem.heads
    key_gumbel, key_noise = jax.random.split(key)
    outputs = policy_outputs(config, problem, policy, obs, legal)
    action = world_action(config, problem, outputs, gumbel(key_gumbel, outputs.shape))
    if heads.mask is None or not (heads.mask & ~heads.discrete).any():
        return action, carry, ()
    shock = jax.random.normal(key_noise, outputs.shape)
    if config.noise == "ou":
        shock = carry = 0.85 * carry + np.sqrt(1 - 0.85**2) * shock  # stationary with unit variance
    scale = optax.linear_schedule(config.noise_start, config.noise_end, config.noise_steps)(step)
    continuous = jnp.broadcast_to(heads.mask & ~heads.discrete, action.shape)
    return jnp.where(continuous, jnp.clip(action + scale * shock, -1.0, 1.0), action), carry, ()


def greedy(
    config: Config,
    problem: Problem,
    policy: Acting,
    carry: Carry,
    obs: Float[Array, "E N O"],
    legal: Bool[Array, "E N A"] | None = None,
) -> tuple[Float[Array, "E N A"], Carry]:
    """Returns actions without noise, in the form in which training gives them to the environment."""
    outputs = policy_outputs(config, problem, policy, obs, legal)
    return world_action(config, problem, outputs, jnp.zeros_like(outputs)), carry


def policy_outputs(
    config: Config,
    problem: Problem,
    policy: Acting,
    obs: Float[Array, "E N O"],
    legal: Bool[Array, "E N A"] | None = None,
) -> Float[Array, "E N A"]:
    """Returns the outputs of every actor for its own observation, with illegal choices masked."""
    outputs = offpolicy.acting_outputs(offpolicy.with_networks(config, problem), policy.actor, obs)
    return masked(problem.heads, outputs, legal)


def world_action(
    config: Config, problem: Problem, outputs: Float[Array, "E N A"], noise: Float[Array, "E N A"]
) -> Float[Array, "E N A"]:
    """Returns actions in the form that the environment gets: relaxed or one-hot."""
    if config.world_action == "soft":
        return relaxed(problem.heads, outputs, noise, config.temperature)
    return sampled(problem.heads, outputs, noise)


def make(config: Config, spec: Spec, sees: np.ndarray, axis: str | None = None) -> Algorithm:
    """Returns the algorithm for a spec; critics see what `sees` [N, N] allows."""
    problem = Problem(spec=spec, heads=heads_of(spec), sees=sees, axis=axis)
    offpolicy.with_networks(config, problem)  # refuses an unusable --model before anything is computed
    if config.infer_policies:
        inferring_init, inferring_update = inference.wrapped(init, update_agent)
        return Algorithm(
            init=partial(inferring_init, config, problem),
            begin=partial(begin, config, problem),
            act=partial(act, config, problem),
            greedy=partial(greedy, config, problem),
            update=partial(offpolicy.update, inferring_update, config, problem),
            policy=lambda agents: Acting(agents.actor),
            metrics=(*METRICS, *inference.METRICS),
        )
    return Algorithm(
        init=partial(init, config, problem),
        begin=partial(begin, config, problem),
        act=partial(act, config, problem),
        greedy=partial(greedy, config, problem),
        update=partial(update, config, problem),
        policy=lambda agents: Acting(agents.actor),
        metrics=METRICS,
        # It travels to learners in other processes, so it must not hold a lambda.
        update_one=partial(update_one, config, problem) if config.order == "snapshot" else None,
        gather=partial(offpolicy.gather, config, problem),
    )


def actors(config: Config, spec: Spec, policy: Acting) -> Actors | None:
    """Returns the policy as plain networks, or None if the network is the user's own."""
    names = ("world_action", "temperature", "noise", "noise_start", "noise_end", "noise_steps")
    return None if config.model else Actors(policy.actor, {name: getattr(config, name) for name in names})


MADDPG = Entry(
    name="maddpg",
    settings=Config,
    make=make,
    memory=offpolicy.memory_of,
    actors=actors,
    learners=True,
    splits_batch=True,
)
DDPG = replace(MADDPG, name="ddpg", critic="own")
ENTRIES = (MADDPG, DDPG)
