"""MATD3: MADDPG with twin critics, delayed actors and smoothed target actions (Ackermann et al. 2019, arXiv:1910.01465).

for each step:  a_i = μ_i(o_i) + noise;  store (o, a, r, o')
for each agent: a'_j = μ'_j(o'_j) + clip(ε, −c, c), for all j              target policy smoothing
                y = r_i + γ min_k Q'_ik(o', a'_1, …, a'_N), k = 1, 2       clipped double Q
                descend (Q_ik(o, a) − y)² for both k                       critics
                in every d-th update:
                    ascend Q_i1(o, a | a_i = μ_i(o_i))                     actor
                    move the targets: θ' ← τθ + (1 − τ)θ'

Continuous actions are smoothed by clipped Gaussian noise and stay in [−1, 1]; those of discrete agents are Gumbel-softmax
samples, whose own noise smooths them. Differences from the authors' code by default: it shakes only the agent's own next
action, and the differences that `maddpg` lists. Everything that is not said here is MADDPG's.
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Int

from counterpoint.algos import attention, maddpg, offpolicy
from counterpoint.algos.base import TD_ERRORS
from counterpoint.algos.offpolicy import Problem, View, joint, next_q
from counterpoint.core.actions import Draw, draw, gumbel
from counterpoint.core.checks import at_least
from counterpoint.core.nets import Params
from counterpoint.core.ops import Moments, polyak
from counterpoint.core.types import Key, Transition


@dataclass(frozen=True)
class Config(attention.Settings):
    """Hyperparameters: those of MADDPG, and what delays and smooths."""

    policy_delay: int = 2
    """Critic updates per update of actors and targets."""
    target_noise: float = 0.2
    """Standard deviation of the noise on continuous target actions (of actions in [−1, 1])."""
    target_noise_clip: float = 0.5
    """Largest size of that noise."""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, 1, "policy_delay")
        at_least(self, 0, "target_noise", "target_noise_clip")


Twins = tuple[Params | Any, Params | Any]


class Agent(NamedTuple):
    """One agent's networks and optimisers; stacked over agents, every leaf is [N, …]."""

    actor: Params | Any
    critics: Twins
    target_actor: Params | Any
    target_critics: Twins
    actor_opt: optax.OptState
    critic_opts: tuple[optax.OptState, optax.OptState]
    updates: Int[Array, "*n"]
    """How often the critics have learnt."""
    actor_loss: Float[Array, "*n"]
    """The actor's loss when it last learnt, for the metrics of the updates in between; of critics over the set of agents, the
    mean of the set."""
    rewards: Moments | None = None
    """Moments of the replayed rewards, if they are standardised."""


def smoothed(config: Config, problem: Problem, action: Float[Array, "N A B"], key: Key) -> Float[Array, "N A B"]:
    """Returns target actions with clipped Gaussian noise on the continuous ones."""
    heads = problem.heads
    if heads.mask is None or not config.target_noise or not (heads.mask & ~heads.discrete).any():
        return action
    noise = config.target_noise * jax.random.normal(key, action.shape, jnp.float32)
    noise = jnp.clip(noise, -config.target_noise_clip, config.target_noise_clip)
    continuous = jnp.broadcast_to((heads.mask & ~heads.discrete)[..., None], action.shape)
    return jnp.where(continuous, jnp.clip(action + noise, -1.0, 1.0), action)


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
    """Returns agent i after a step of both critics and, in every d-th update, one of its actor and a move of its targets."""
    problem = offpolicy.with_networks(config, problem)
    key_target, key_actor = jax.random.split(key)
    mine, batch = offpolicy.in_columns(mine), offpolicy.in_columns(batch)
    view = offpolicy.view_of(problem, mine, batch, i)

    noise = gumbel(key_target, batch.action.shape)
    next_action = offpolicy.target_actions(problem, agents.target_actor, batch, config.relax, noise)
    next_action = smoothed(config, problem, next_action, jax.random.fold_in(key_target, 1))
    next_inputs = offpolicy.seen_by(problem, joint(batch.next_obs, next_action), i)
    past = offpolicy.past_of(view)
    next_value = offpolicy.one_by_one(partial(smaller_q, problem), problem)(own.target_critics, next_inputs, *past)
    rewards = offpolicy.see_rewards(problem, own.rewards, mine.reward, view.alive)
    y = offpolicy.targets(config, problem, mine, batch, offpolicy.standardised(rewards, mine.reward), next_value)

    trained = [
        offpolicy.train_critic(config, problem, critic, opt, view, y, i)
        for critic, opt in zip(own.critics, own.critic_opts, strict=True)
    ]
    critics, critic_opts, values, metrics = zip(*trained, strict=True)
    due = (own.updates + 1) % config.policy_delay == 0
    drawn = draw(config, jax.random.fold_in(key_actor, i), mine.action.shape, offpolicy.steps_of(own.actor_opt))
    actor, actor_opt, actor_loss = train_actor(config, problem, own, critics[0], view, drawn, due, i)

    moved = (polyak(own.target_actor, actor, config.tau), polyak(own.target_critics, critics, config.tau))
    target_actor, target_critics = where(due, moved, (own.target_actor, own.target_critics))
    agent = Agent(
        actor=actor,
        critics=critics,
        target_actor=target_actor,
        target_critics=target_critics,
        actor_opt=actor_opt,
        critic_opts=critic_opts,
        updates=own.updates + 1,
        actor_loss=actor_loss,
        rewards=rewards,
    )
    means = jax.tree.map(lambda first, second: (first + second) / 2, *metrics) | {"actor_loss": actor_loss}
    errors = jnp.maximum(*(jnp.abs(each - y) for each in values))
    return agent, means if mine.weight is None else means | {TD_ERRORS: view.alive * errors}


def smaller_q(problem: Problem, critics: Twins, next_inputs: Float[Array, "I B"], *past: Array) -> Float[Array, " B"]:
    """Returns the smaller of two critics' values of what follows each step."""
    return jnp.minimum(*(next_q(problem, critic, next_inputs, *past) for critic in critics))


def train_actor(
    config: Config,
    problem: Problem,
    own: Agent,
    critic: Params | Any,
    view: View,
    drawn: Draw,
    due: Bool[Array, ""],
    i: Int[Array, ""],
) -> tuple[Params | Any, optax.OptState, Float[Array, ""]]:
    """Returns the actor after one step up the first critic, its optimiser and its loss; as they were if it is not due."""
    actor = offpolicy.with_averages(problem, own.actor, view.obs)
    loss, grads = offpolicy.gradient_if(partial(maddpg.actor_loss, config, problem), problem)(due, actor, critic, view, drawn)
    grads, loss = offpolicy.per_living(problem, view, (grads, loss), actor=i)
    stepped = (*offpolicy.descend(config, config.lr, actor, grads, own.actor_opt), loss)
    return where(due, stepped, (own.actor, own.actor_opt, own.actor_loss))


def update_set(
    config: Config, problem: Problem, roles: np.ndarray, own: Agent, data: attention.Data, key: Key
) -> tuple[Agent, dict[str, Array]]:
    """Returns one set of parameters after the same steps with critics over the set of agents, and its agents' metrics."""
    shaken = smoothed(config, problem, jnp.moveaxis(data.next_action, 0, -1), jax.random.fold_in(key, 1))
    data = data._replace(next_action=jnp.moveaxis(shaken, -1, 0))
    rewards, data = attention.standardised(problem, own.rewards, data)
    critics, critic_opts, metrics = attention.train_critics(
        config, problem, roles, own.critics, own.target_critics, own.critic_opts, data
    )

    def gradient() -> Any:
        return attention.actor_gradient(config, problem, roles, own, critics[0], data, key)

    def nothing() -> Any:
        return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), jax.eval_shape(gradient))

    due = (own.updates + 1) % config.policy_delay == 0
    grads, losses = offpolicy.mean_over(problem.axis)(jax.lax.cond(due, gradient, nothing))
    actor, actor_opt = offpolicy.descend(config, config.lr, own.actor, grads, own.actor_opt)
    moved = (
        *(actor, actor_opt, polyak(own.target_actor, actor, config.tau)),
        *(polyak(own.target_critics, critics, config.tau), jnp.mean(losses)),
    )
    kept = (own.actor, own.actor_opt, own.target_actor, own.target_critics, own.actor_loss)
    actor, actor_opt, target_actor, target_critics, actor_loss = where(due, moved, kept)
    agent = Agent(
        actor=actor,
        critics=critics,
        target_actor=target_actor,
        target_critics=target_critics,
        actor_opt=actor_opt,
        critic_opts=critic_opts,
        updates=own.updates + 1,
        actor_loss=actor_loss,
        rewards=rewards,
    )
    last = jnp.where(due, losses, jnp.full_like(losses, own.actor_loss))
    return agent, metrics | {"actor_loss": last}


def where(condition: Bool[Array, ""], true: Any, false: Any) -> Any:
    """Returns one of two trees."""
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), true, false)


def init_agent(
    config: Config, problem: Problem, key: Key, obs: Float[Array, " O"], act: Float[Array, " A"], seen: Float[Array, " I"]
) -> Agent:
    """Returns one fresh agent; the arrays are 1 where entries are real (and, for the critics, visible)."""
    key_actor, *key_critics = jax.random.split(key, 3)
    actor = offpolicy.init_net(config, problem, key_actor, obs, act)
    first, second = (attention.init_critic(config, problem, each, seen) for each in key_critics)
    start = offpolicy.adam(config, config.lr).init
    return Agent(
        actor=actor,
        critics=(first, second),
        target_actor=jax.tree.map(jnp.copy, actor),
        target_critics=jax.tree.map(jnp.copy, (first, second)),
        actor_opt=start(actor),
        critic_opts=(start(first), start(second)),
        updates=jnp.zeros((), jnp.int32),
        actor_loss=jnp.zeros(()),
        rewards=offpolicy.fresh_moments(config),
    )


init = partial(offpolicy.init_agents, init_agent)
"""(config, problem, key) → fresh agents; targets start as copies of their networks."""
make = partial(attention.make, init, update_agent, update_set, maddpg.METRICS)
"""(config, spec, sees, axis) → the algorithm for a spec; critics see what `sees` [N, N] allows."""

ENTRIES = (replace(maddpg.MADDPG, name="matd3", settings=Config, make=make),)
