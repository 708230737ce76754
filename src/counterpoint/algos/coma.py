"""COMA: counterfactual multi-agent policy gradients (Foerster et al. 2018, arXiv:1705.08926, Algorithm 1).

for each step:   a_i ~ π_i(o_i), a softmax mixed with a share ε of uniform choice;  keep the rollout
critic, central: descend (Q_i(o, a) − y)²,  y = TD(λ) or n-step return with V' of the target critic
for each agent:  b = Σ_a π_i(a) Q_i(o, (a_−i, a))                                      counterfactual baseline, Eq. 4
                 ascend (Q_i(o, a) − b) log π_i(a_i) + entropy                         actor
copy the critic to its target every few updates, or move the target a little at each

Q_i reads all observations, the actions of all other agents, the index of i and what i observes, and returns the value of each
action of i. It does not read the action of i: therefore the baseline does not depend on it, and the advantage has mean zero
under π_i. Differences from the paper: V' is the mean of Q' over the agent's own next action instead of Q' of the action that it
took (the same on average, with less noise). The value of a team's future is the mean over its members that still play.
"""

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Int

from counterpoint.algos import onpolicy
from counterpoint.algos.base import Actors, Algorithm, Carry, Entry, Metrics, Rollout
from counterpoint.algos.onpolicy import Network, Problem, agent_means, learning, num_heads, policy, shared, unroll
from counterpoint.core.actions import Heads, choosable, gumbel, head_sum, heads_of, masked, sampled, softmax
from counterpoint.core.checks import at_least, fraction
from counterpoint.core.nets import Params, init_mlp, mlp_from_first
from counterpoint.core.ops import Moments, masked_mean, polyak
from counterpoint.core.spaces import Spec
from counterpoint.core.types import Key, Transition

__all__ = ["Agents", "Config", "Problem", "init", "make", "policy", "probabilities", "unroll", "update"]


@dataclass(frozen=True)
class Config(onpolicy.Settings):
    """Hyperparameters; the defaults solve `switch2`."""

    td_lambda: float = 0.8
    """λ of the critic's targets (0: one reward and the next value; 1: all rewards of the rollout)."""
    n_steps: int = 0
    """Use targets of this many rewards and then the value, instead of --td-lambda (0: off)."""
    target_every: int = 0
    """Updates after which the target becomes a copy of the critic (0: it moves by --tau at each update)."""
    tau: float = 0.01
    """Fraction by which the target moves towards the critic after each update, unless it is copied."""
    critic_steps: int = 1
    """Gradient steps of the critic on each rollout before the step of the actors."""
    epsilon_start: float = 0.5
    """Initial share of uniform choice in every policy."""
    epsilon_end: float = 0.02
    """Final share of uniform choice."""
    epsilon_steps: int = 400_000
    """Environment steps over which the share of uniform choice changes linearly."""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, 1, "critic_steps", "epsilon_steps")
        at_least(self, 0, "n_steps", "target_every")
        fraction(self, "tau", "td_lambda", "epsilon_start", "epsilon_end")

    def epsilon(self, step: Int[Array, "*b"]) -> Float[Array, "*b"]:
        """Returns the share of uniform choice at an environment step."""
        return jnp.asarray(optax.linear_schedule(self.epsilon_start, self.epsilon_end, self.epsilon_steps)(step))


class Agents(NamedTuple):
    """The state of the learner; leaves of networks are [N, …], or [1, …] where all agents share one."""

    actor: Network
    critic: Params
    target_critic: Params
    actor_opt: optax.OptState
    critic_opt: optax.OptState
    rewards: Moments | None
    """[N]: moments of the rewards so far, if they are standardised."""
    updates: Int[Array, ""]
    step: Int[Array, ""]
    """Environment steps so far: the position in the schedules."""


class Acting(NamedTuple):
    """The part of the agents that acting needs."""

    actor: Network


def probabilities(
    heads: Heads, logits: Float[Array, "*b A"], epsilon: Float[Array, "*b"], legal: Bool[Array, "*b A"] | None = None
) -> Float[Array, "*b A"]:
    """Returns π: the softmax of each head, mixed with a share ε of uniform choice among its legal actions."""
    soft, share = softmax(heads, masked(heads, logits, legal)), epsilon[..., None]
    ones = jnp.ones_like(soft) if heads.discrete is None else jnp.broadcast_to(heads.discrete, soft.shape).astype(soft.dtype)
    if legal is not None:
        ones = choosable(heads, legal).astype(soft.dtype)
    share = jnp.broadcast_to(share, soft.shape)
    return (1 - share) * soft + share * ones / jnp.maximum(head_sum(heads, ones), 1.0)


def draw(heads: Heads, pi: Float[Array, "*b A"], legal: Bool[Array, "*b A"] | None, key: Key) -> Float[Array, "*b A"]:
    """Returns actions drawn from π as one-hot vectors; an illegal action is never drawn."""
    return sampled(heads, masked(heads, jnp.log(jnp.maximum(pi, 1e-8)), legal), gumbel(key, pi.shape))


def advantages(heads: Heads, pi: Float[Array, "*b A"], q: Float[Array, "*b A"]) -> Float[Array, "*b A"]:
    """Returns for every action Q(a) − Σ_a' π(a') Q(a') (Eq. 4), for each head."""
    return q - head_sum(heads, pi * q)


def critic_values(
    spec: Spec, critic: Params, obs: Float[Array, "*b N O"], action: Float[Array, "*b N A"]
) -> Float[Array, "*b N A"]:
    """Returns Q of each action of each agent, given the actions of the others; the agent's own `action` is not read.

    The input is all observations | all actions except the agent's own | its index | its observation.
    """
    lead, n = obs.shape[:-2], spec.num_agents
    shape = (*lead, n, n, spec.act_size)
    is_other = jnp.broadcast_to(~np.eye(n, dtype=bool)[..., None], shape)
    others = jnp.where(is_other, jnp.broadcast_to(action[..., None, :, :], shape), 0.0).reshape(*lead, n, -1)
    first, cut = critic[0].weight, n * spec.obs_size
    common = obs.reshape(*lead, cut) @ first[:cut]  # the same for every agent: multiplied once
    own = jnp.concatenate([others, onpolicy.indices(spec, obs), obs], axis=-1) @ first[cut:]
    return mlp_from_first(critic, own + jnp.broadcast_to(common[..., None, :], own.shape))


def critic_mask(spec: Spec) -> np.ndarray:
    """Returns [I]: 1 where an entry of the critic's input is real for some agent."""
    return np.concatenate([spec.obs_mask.ravel(), spec.act_mask.ravel(), np.ones(spec.num_agents + spec.obs_size)])


def critic_loss(
    problem: Problem, critic: Params, batch: Transition, y: Float[Array, "T E N"]
) -> tuple[Float[Array, ""], Float[Array, "T E N"]]:
    """Returns the mean of (Q(o, a) − y)² over agents that still play, and the squared errors themselves."""
    q = critic_values(problem.spec, critic, batch.obs, batch.action)
    errors = jnp.sum(batch.action * (q - jnp.broadcast_to(y[..., None], q.shape)) ** 2, axis=-1) / num_heads(problem, y)
    return masked_mean(errors, learning(batch)), errors


class Rates(NamedTuple):
    """The schedules' values for one rollout."""

    epsilon: Float[Array, " T"]
    entropy_cost: Float[Array, ""]


def actor_loss(
    config: Config,
    problem: Problem,
    logits: Float[Array, "T E N A"],
    batch: Transition,
    q: Float[Array, "T E N A"],
    rates: Rates,
) -> tuple[Float[Array, ""], tuple[Float[Array, " N"], Float[Array, " N"]]]:
    """Returns −A · log π of the actions taken minus the weighted entropy, summed over agents; and both for each agent."""
    heads = problem.heads
    pi = probabilities(heads, logits, over_agents(rates.epsilon, logits), batch.legal)
    log_pi = jnp.log(jnp.maximum(pi, 1e-8))
    advantage = jax.lax.stop_gradient(jnp.sum(batch.action * advantages(heads, pi, q), axis=-1))
    if config.normalise_advantages:
        advantage = onpolicy.normalised(advantage, learning(batch))
    taken = jnp.sum(batch.action * log_pi, axis=-1)
    entropy = agent_means(-jnp.sum(pi * log_pi, axis=-1), learning(batch))
    losses = -agent_means(advantage * taken, learning(batch)) - rates.entropy_cost * entropy
    return jnp.sum(losses), (losses, entropy)


def over_agents(epsilon: Float[Array, " T"], logits: Float[Array, "T E N A"]) -> Float[Array, "T E N"]:
    """Returns a schedule's values for every environment and agent."""
    return jnp.broadcast_to(epsilon[:, None, None], logits.shape[:-1])


METRICS = ("critic_loss", "actor_loss", "q", "td_target", "entropy")


def update(config: Config, problem: Problem, agents: Agents, batch: Transition, key: Key) -> tuple[Agents, Metrics]:
    """Returns the agents after one rollout [T, E, …]: first the critic learns, then the actors, then the target moves."""
    spec = problem.spec
    batch = batch._replace(action=jnp.where(batch.alive[..., None], batch.action, 0.0))  # finished agents do not act
    num_times, num_envs = batch.done.shape
    epsilon = config.epsilon(agents.step + num_envs * jnp.arange(num_times))
    rewards, reward = onpolicy.see_rewards(problem, agents.rewards, batch)

    start = jax.tree.map(lambda leaf: leaf[0], batch.carry)
    (logits, after), pull = jax.vjp(lambda actor: unroll(config, spec, actor, start, batch.obs, batch.done), agents.actor)
    next_logits, _ = policy(config, spec, agents.actor, after, batch.next_obs)
    next_pi = probabilities(problem.heads, next_logits, over_agents(epsilon, next_logits), batch.next_legal)
    next_action = next_actions(problem, batch, next_pi, key)
    next_q = critic_values(spec, shared(agents.target_critic), batch.next_obs, next_action)
    next_value = jnp.sum(next_pi * next_q, axis=-1)
    y = targets(config, problem, batch, reward, next_value / num_heads(problem, next_value))

    critic, critic_opt, errors = agents.critic, agents.critic_opt, jnp.zeros_like(y)
    for _ in range(config.critic_steps):
        grads, errors = jax.grad(lambda critic: critic_loss(problem, shared(critic), batch, y), has_aux=True)(critic)
        critic, critic_opt = onpolicy.descend(config, config.critic_lr, critic, grads, critic_opt)

    q = critic_values(spec, shared(critic), batch.obs, batch.action)
    rates = Rates(
        epsilon, jnp.asarray(optax.linear_schedule(config.entropy_start, config.entropy_end, config.entropy_steps)(agents.step))
    )
    grads, (losses, entropy) = jax.grad(actor_loss, argnums=2, has_aux=True)(config, problem, logits, batch, q, rates)
    (grads,) = pull((grads, jax.tree.map(jnp.zeros_like, after)))
    actor, actor_opt = onpolicy.descend(config, config.lr, agents.actor, grads, agents.actor_opt)

    updates = agents.updates + 1
    moved = Agents(
        actor=actor,
        critic=critic,
        target_critic=move_target(config, agents.target_critic, critic, updates),
        actor_opt=actor_opt,
        critic_opt=critic_opt,
        rewards=rewards,
        updates=updates,
        step=agents.step + batch.done.size,
    )
    taken = jnp.sum(batch.action * q, axis=-1) / num_heads(problem, y)
    means = [agent_means(values, learning(batch)) for values in (errors, taken, y)]
    return moved, dict(zip(METRICS, (means[0], losses, *means[1:], entropy), strict=True))


def targets(
    config: Config, problem: Problem, batch: Transition, reward: Float[Array, "T E N"], next_value: Float[Array, "T E N"]
) -> Float[Array, "T E N"]:
    """Returns y: what Q of the actions taken should be."""
    kind = onpolicy.Returns(config.gamma, config.td_lambda, config.n_steps)
    return onpolicy.team_returns(kind, problem, batch, reward, next_value)


def next_actions(problem: Problem, batch: Transition, next_pi: Float[Array, "T E N A"], key: Key) -> Float[Array, "T E N A"]:
    """Returns the next actions: as recorded, drawn where the recording is cut, zero where the agent has finished."""
    drawn = draw(problem.heads, next_pi, batch.next_legal, key)
    later = jnp.where(batch.done[:-1, :, None, None], drawn[:-1], batch.action[1:])
    return jnp.where(onpolicy.playing_on(batch)[..., None], drawn.at[:-1].set(later), 0.0)


def move_target(config: Config, target: Params, critic: Params, updates: Int[Array, ""]) -> Params:
    """Returns the target after that many updates: moved a little, or copied every `target_every` updates."""
    if not config.target_every:
        return polyak(target, critic, config.tau)
    due = updates % config.target_every == 0
    return jax.tree.map(lambda slow, fast: jnp.where(due, fast, slow), target, critic)


def init(config: Config, problem: Problem, key: Key) -> Agents:
    """Returns fresh agents; the target starts as a copy of the critic."""
    spec = problem.spec
    key_actor, key_critic = jax.random.split(key)
    actor = onpolicy.init_actors(config, spec, key_actor)
    critic = init_mlp(key_critic, jnp.asarray(critic_mask(spec), jnp.float32), config.hidden, jnp.ones(spec.act_size))
    critic = jax.tree.map(lambda leaf: leaf[None], critic)
    zero = jnp.zeros((), jnp.int32)
    return Agents(
        actor=actor,
        critic=critic,
        target_critic=jax.tree.map(jnp.copy, critic),
        actor_opt=onpolicy.adam(config.lr).init(actor),
        critic_opt=onpolicy.adam(config.critic_lr).init(critic),
        rewards=onpolicy.fresh_moments(config, spec),
        updates=zero,
        step=zero,
    )


def act(
    config: Config,
    problem: Problem,
    acting: Acting,
    carry: Carry,
    obs: Float[Array, "E N O"],
    key: Key,
    step: Int[Array, ""],
    legal: Bool[Array, "E N A"] | None = None,
) -> tuple[Float[Array, "E N A"], Carry, tuple[()]]:
    """Returns actions drawn from π as one-hot vectors."""
    logits, carry = policy(config, problem.spec, acting.actor, carry, obs)
    pi = probabilities(problem.heads, logits, jnp.broadcast_to(config.epsilon(step), logits.shape[:-1]), legal)
    return draw(problem.heads, pi, legal, key), carry, ()


def greedy(
    config: Config,
    problem: Problem,
    acting: Acting,
    carry: Carry,
    obs: Float[Array, "E N O"],
    legal: Bool[Array, "E N A"] | None = None,
) -> tuple[Float[Array, "E N A"], Carry]:
    """Returns the most likely actions."""
    logits, carry = policy(config, problem.spec, acting.actor, carry, obs)
    return sampled(problem.heads, masked(problem.heads, logits, legal), jnp.zeros_like(logits)), carry


def make(config: Config, spec: Spec, sees: np.ndarray | None = None, axis: str | None = None) -> Algorithm:
    """Returns the algorithm for a spec whose actions are all discrete."""
    problem = Problem(spec=spec, heads=heads_of(spec), side=onpolicy.side_of(config, spec))
    return Algorithm(
        init=partial(init, config, problem),
        begin=lambda key: onpolicy.begin(config, spec),
        act=partial(act, config, problem),
        greedy=partial(greedy, config, problem),
        update=partial(update, config, problem),
        policy=lambda agents: Acting(agents.actor),
        metrics=METRICS,
    )


def actors(config: Config, spec: Spec, acting: Acting) -> Actors | None:
    """Returns the policy as plain networks."""
    body = onpolicy.plain_actors(config, spec, acting.actor)
    floor = {"floor_start": config.epsilon_start, "floor_end": config.epsilon_end, "floor_steps": config.epsilon_steps}
    return None if body is None else Actors(body, {"world_action": "one-hot"} | floor)


COMA = Entry(
    name="coma",
    settings=Config,
    make=make,
    memory=lambda config: Rollout(),
    training={"num_episodes": 60_000, "num_envs": 32, "update_every": 800},
    actions=("discrete",),
    actors=actors,
    recurrent=lambda config: config.recurrent,
)
ENTRIES = (COMA,)
