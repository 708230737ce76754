"""COMA: counterfactual multi-agent policy gradients (Foerster et al. 2018, arXiv:1705.08926, Algorithm 1).

for each step:   a_i ~ π_i(o_i), a softmax mixed with a floor ε of uniform choice;  keep the rollout as it is
critic, central: descend (Q_i(o, a) − y)²,  y = TD(λ) or n-step return with V' of the target critic
for each agent:  b = Σ_a π_i(a) Q_i(o, (a_−i, a))                                      counterfactual baseline, Eq. 4
                 ascend (Q_i(o, a) − b) log π_i(a_i) + entropy                         actor
copy the critic to its target every so many updates, or move the target a little at each

Q_i is told all observations, the actions of all others, who i is and what it sees, and answers for each action of i at once.
It is not told i's own action: only so does the baseline not depend on it, and the advantage has mean zero under π_i.
Differs from the paper: V' is the mean of Q' over the agent's own next action, not Q' of the one it took (the same on average,
with less noise). A finished agent is no longer asked: those of its team who still play speak for the team's future.
"""

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Int

from counterpoint.algos.base import Actors, Algorithm, Carry, Entry, Metrics, Rollout
from counterpoint.core.actions import Heads, gumbel, head_sum, heads_of, masked, sampled, softmax
from counterpoint.core.checks import above, at_least, fraction
from counterpoint.core.nets import Gru, Params, affine, gru, gru_from_first, init_gru, init_mlp, mlp, mlp_from_first
from counterpoint.core.ops import (
    Moments,
    add_moments,
    clip_by_norm,
    lambda_returns,
    linear,
    masked_mean,
    n_step_returns,
    polyak,
)
from counterpoint.core.spaces import Box, Spec
from counterpoint.core.types import Key, Transition


@dataclass(frozen=True)
class Config:
    """Hyper-parameters; the defaults solve `switch2`."""

    lr: float = 5e-4
    """Adam step size of the actors."""
    critic_lr: float = 2e-3
    """Adam step size of the critic."""
    gamma: float = 0.97
    """Discount."""
    td_lambda: float = 0.8
    """Of the critic's targets (0: one reward and the next value; 1: all rewards of the rollout)."""
    n_steps: int = 0
    """Targets of this many rewards and then the value, instead of --td-lambda (0: off)."""
    target_every: int = 0
    """Updates after which the target becomes a copy of the critic (0: it moves by --tau at each)."""
    tau: float = 0.01
    """Fraction by which the target moves towards the critic after each update, unless it is copied."""
    critic_steps: int = 1
    """Gradient steps of the critic on each rollout, before the actors' one."""
    num_units: int = 64
    """Width of the hidden layers, actors and critic."""
    num_layers: int = 2
    """Number of hidden layers."""
    recurrent: bool = False
    """Actors remember the episode: their last hidden layer is a gated recurrent unit."""
    share_parameters: bool = False
    """One actor for all agents, which is also told whose turn it is."""
    learn_from: Literal["team", "own"] = "team"
    """Whose reward an agent is to increase: the mean of its team's, or its own."""
    standardise_rewards: bool = False
    """Learn from rewards shifted and scaled to mean 0 and variance 1 by all seen so far."""
    normalise_advantages: bool = False
    """Scale each agent's advantages to variance 1 in each rollout."""
    clip: float = 1.0
    """Largest gradient norm of a network (0: no limit)."""
    epsilon_start: float = 0.5
    """Share of uniform choice in every policy at the start."""
    epsilon_end: float = 0.02
    """And after `epsilon_steps`."""
    epsilon_steps: int = 400_000
    """World steps over which it changes, linearly."""
    entropy_start: float = 0.03
    """Weight of the policy's entropy in the actor's loss at the start."""
    entropy_end: float = 0.003
    """And after `entropy_steps`."""
    entropy_steps: int = 1_000_000
    """World steps over which it changes, linearly."""

    def __post_init__(self) -> None:
        above(self, 0, "lr", "critic_lr")
        at_least(self, 1, "num_units", "num_layers", "critic_steps", "epsilon_steps", "entropy_steps")
        at_least(self, 0, "clip", "n_steps", "target_every", "entropy_start", "entropy_end")
        fraction(self, "gamma", "tau", "td_lambda", "epsilon_start", "epsilon_end")


class Actor(NamedTuple):
    """A policy network: a perceptron, or a perceptron, a recurrent unit and a last layer."""

    body: Params
    cell: Gru | None = None
    head: Params | None = None


class Agents(NamedTuple):
    """All that is learnt; leaves of networks are [N, …], or [1, …] where agents share one."""

    actor: Actor
    critic: Params
    target_critic: Params
    actor_opt: optax.OptState
    critic_opt: optax.OptState
    rewards: Moments | None
    """[N]: of the rewards seen, if they are standardised."""
    updates: Int[Array, ""]
    step: Int[Array, ""]
    """World steps learnt from: where the schedules are."""


class Acting(NamedTuple):
    """What acting needs of the agents."""

    actor: Actor


class Problem(NamedTuple):
    """What is fixed for a run."""

    spec: Spec
    heads: Heads
    side: np.ndarray
    """[N, N]: whether agent j's reward counts for agent i."""


def policy(config: Config, spec: Spec, actor: Actor, hidden: Carry, obs: Float[Array, "*b N O"]) -> Any:
    """Every agent's logits [*b, N, A] and what it remembers afterwards, one step on from `hidden`."""
    inputs = _actor_inputs(config, spec, obs)
    if actor.cell is None or actor.head is None:
        return _each(config, mlp)(actor.body, inputs), hidden
    hidden = _each(config, gru)(actor.cell, hidden, _each(config, _features)(actor.body, inputs))
    return _each(config, mlp)(actor.head, hidden), hidden


def unroll(
    config: Config, spec: Spec, actor: Actor, hidden: Carry, obs: Float[Array, "T E N O"], done: Bool[Array, "T E"]
) -> tuple[Float[Array, "T E N A"], Carry]:
    """The logits of a whole rollout that began with `hidden` [E, …], and what was remembered after each step [T, E, …]."""
    if actor.cell is None or actor.head is None:
        return policy(config, spec, actor, hidden, obs)[0], ()
    cell = actor.cell
    features = _each(config, _features)(actor.body, _actor_inputs(config, spec, obs))
    gates = _each(config, affine)(cell.inputs, features)

    def proceed(hidden: jax.Array, now: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        gates, done = now
        after = _each(config, gru_from_first)(cell, hidden, gates)
        return jnp.where(done[:, None, None], 0.0, after), after

    _, after = jax.lax.scan(proceed, hidden, (gates, done))
    return _each(config, mlp)(actor.head, after), after


def _features(body: Params, inputs: Float[Array, "*b I"]) -> Float[Array, "*b H"]:
    return jax.nn.relu(mlp(body, inputs)) if body else inputs


def _actor_inputs(config: Config, spec: Spec, obs: Float[Array, "*b N O"]) -> Float[Array, "*b N I"]:
    """What the actors see: with one for all, also whose turn it is."""
    return jnp.concatenate([obs, _names(spec, obs)], axis=-1) if config.share_parameters else obs


def _names(spec: Spec, like: Float[Array, "*b N O"]) -> Float[Array, "*b N N"]:
    """Every agent's number as a one-hot vector."""
    n = spec.num_agents
    return jnp.broadcast_to(jnp.eye(n), (*like.shape[:-2], n, n))


def _each(config: Config, function: Any) -> Any:
    """(params [N, …], arrays [*b, N, …]) → the function of every agent's own; or of the one that all share, params [1, …]."""

    def apply(params: Any, *arrays: jax.Array) -> jax.Array:
        if config.share_parameters:
            return function(jax.tree.map(lambda leaf: leaf[0], params), *arrays)
        return jax.vmap(function, in_axes=(0, *(-2 for _ in arrays)), out_axes=-2)(params, *arrays)

    return apply


def probabilities(heads: Heads, logits: Float[Array, "*b A"], epsilon: Float[Array, "*b"]) -> Float[Array, "*b A"]:
    """π: the softmax of each head, mixed with a share ε of uniform choice."""
    soft, share = softmax(heads, logits), epsilon[..., None]
    ones = jnp.ones_like(soft) if heads.discrete is None else jnp.broadcast_to(heads.discrete, soft.shape).astype(soft.dtype)
    share = jnp.broadcast_to(share, soft.shape)
    return (1 - share) * soft + share * ones / jnp.maximum(head_sum(heads, ones), 1.0)


def advantages(heads: Heads, pi: Float[Array, "*b A"], q: Float[Array, "*b A"]) -> Float[Array, "*b A"]:
    """Of every action: Q(a) − Σ_a' π(a') Q(a') (Eq. 4), head by head."""
    return q - head_sum(heads, pi * q)


def critic_values(
    spec: Spec, critic: Params, obs: Float[Array, "*b N O"], action: Float[Array, "*b N A"]
) -> Float[Array, "*b N A"]:
    """Q of each action of each agent, given what the others do; the agent's own entry of `action` is not read.

    Input: all observations | all actions, the agent's own left out | who it is | what it sees.
    """
    lead, n = obs.shape[:-2], spec.num_agents
    shape = (*lead, n, n, spec.act_size)
    is_other = jnp.broadcast_to(~np.eye(n, dtype=bool)[..., None], shape)
    others = jnp.where(is_other, jnp.broadcast_to(action[..., None, :, :], shape), 0.0).reshape(*lead, n, -1)
    first, cut = critic[0].weight, n * spec.obs_size
    shared = obs.reshape(*lead, cut) @ first[:cut]  # the same for every agent: multiplied once
    own = jnp.concatenate([others, _names(spec, obs), obs], axis=-1) @ first[cut:]
    return mlp_from_first(critic, own + jnp.broadcast_to(shared[..., None, :], own.shape))


def critic_mask(spec: Spec) -> np.ndarray:
    """[I]: 1 where an entry of the critic's input is real for some agent."""
    return np.concatenate([spec.obs_mask.ravel(), spec.act_mask.ravel(), np.ones(spec.num_agents + spec.obs_size)])


def team_mean(values: Float[Array, "*b N"], side: np.ndarray, counts: Bool[Array, "*b N"]) -> Float[Array, "*b N"]:
    """For each agent the mean over those on its side who count; 0 if none does."""
    weight, members = counts.astype(values.dtype), jnp.asarray(side.T, values.dtype)
    return (jnp.where(counts, values, 0.0) @ members) / jnp.maximum(weight @ members, 1.0)


def targets(
    config: Config, problem: Problem, batch: Transition, reward: Float[Array, "T E N"], next_value: Float[Array, "T E N"]
) -> Float[Array, "T E N"]:
    """What Q of the actions taken should be, given rewards and every agent's value of the next state."""
    side = problem.side
    playing = batch.alive & ~batch.terminated  # a time limit does not end the game
    value = team_mean(next_value, side, playing)
    over = jnp.ones_like(batch.alive).at[:-1].set(~batch.alive[1:] | batch.done[:-1, :, None])
    cut = jnp.all(over[..., None, :] | ~jnp.asarray(side)[None, None], axis=-1)  # nobody on its side plays on
    if config.n_steps:
        return n_step_returns(reward, value, cut, config.gamma, config.n_steps)
    return lambda_returns(reward, value, cut, config.gamma, config.td_lambda)


def critic_loss(
    problem: Problem, critic: Params, batch: Transition, y: Float[Array, "T E N"]
) -> tuple[Float[Array, ""], Float[Array, "T E N"]]:
    """Mean squared TD error of the actions taken, over agents that still play; and the squared errors themselves."""
    q = critic_values(problem.spec, critic, batch.obs, batch.action)
    wrong = jnp.sum(batch.action * (q - jnp.broadcast_to(y[..., None], q.shape)) ** 2, axis=-1) / _num_heads(problem, y)
    return masked_mean(wrong, batch.alive), wrong


def actor_loss(
    config: Config,
    problem: Problem,
    logits: Float[Array, "T E N A"],
    batch: Transition,
    q: Float[Array, "T E N A"],
    epsilon: Float[Array, " T"],
    entropy_cost: Float[Array, ""],
) -> tuple[Float[Array, ""], tuple[Float[Array, " N"], Float[Array, " N"]]]:
    """Minus advantage · log π of the actions taken, minus the weighted entropy, summed over agents; and both of each agent."""
    heads = problem.heads
    pi = probabilities(heads, logits, jnp.broadcast_to(epsilon[:, None, None], logits.shape[:-1]))
    log_pi = jnp.log(jnp.maximum(pi, 1e-8))
    advantage = jax.lax.stop_gradient(jnp.sum(batch.action * advantages(heads, pi, q), axis=-1))
    if config.normalise_advantages:
        size = jnp.sqrt(_agent_means(advantage**2, batch.alive))
        advantage = advantage / jnp.broadcast_to(jnp.maximum(size, 1e-6), advantage.shape)
    taken = jnp.sum(batch.action * log_pi, axis=-1)
    entropy = _agent_means(-jnp.sum(pi * log_pi, axis=-1), batch.alive)
    losses = -_agent_means(advantage * taken, batch.alive) - entropy_cost * entropy
    return jnp.sum(losses), (losses, entropy)


def _agent_means(values: Float[Array, "T E N"], counts: Bool[Array, "T E N"]) -> Float[Array, " N"]:
    """Each agent's mean over the steps that count."""
    return jax.vmap(masked_mean, in_axes=-1)(values, counts)


def _num_heads(problem: Problem, like: Float[Array, "*b N"]) -> Float[Array, "*b N"]:
    counts = np.array([len(space.heads) for space in problem.spec.action_spaces if not isinstance(space, Box)], np.float32)
    return jnp.broadcast_to(counts, like.shape)


METRICS = ("critic_loss", "actor_loss", "q", "td_target", "entropy")


def update(config: Config, problem: Problem, agents: Agents, batch: Transition, key: Key) -> tuple[Agents, Metrics]:
    """The agents after one rollout [T, E, …]: critic, then actors, then the target."""
    spec, heads = problem.spec, problem.heads
    batch = batch._replace(action=jnp.where(batch.alive[..., None], batch.action, 0.0))  # nobody hears the finished
    num_times, num_envs = batch.done.shape
    epsilon = linear(
        config.epsilon_start, config.epsilon_end, config.epsilon_steps, agents.step + num_envs * jnp.arange(num_times)
    )
    rewards, reward = see_rewards(config, problem, agents.rewards, batch)

    start = jax.tree.map(lambda leaf: leaf[0], batch.carry)
    (logits, after), pull = jax.vjp(lambda actor: unroll(config, spec, actor, start, batch.obs, batch.done), agents.actor)
    next_logits, _ = policy(config, spec, agents.actor, after, batch.next_obs)
    next_pi = probabilities(heads, next_logits, jnp.broadcast_to(epsilon[:, None, None], next_logits.shape[:-1]))
    next_action = next_actions(problem, batch, next_pi, key)
    next_q = critic_values(spec, _one(agents.target_critic), batch.next_obs, next_action)
    next_value = jnp.sum(next_pi * next_q, axis=-1)
    y = targets(config, problem, batch, reward, next_value / _num_heads(problem, next_value))

    critic, critic_opt, wrong = agents.critic, agents.critic_opt, jnp.zeros_like(y)
    for _ in range(config.critic_steps):
        grads, wrong = jax.grad(lambda critic: critic_loss(problem, _one(critic), batch, y), has_aux=True)(critic)
        critic, critic_opt = _descend(config, config.critic_lr, critic, grads, critic_opt)

    q = critic_values(spec, _one(critic), batch.obs, batch.action)
    entropy_cost = linear(config.entropy_start, config.entropy_end, config.entropy_steps, agents.step)
    grads, (losses, entropy) = jax.grad(actor_loss, argnums=2, has_aux=True)(
        config, problem, logits, batch, q, epsilon, entropy_cost
    )
    (grads,) = pull((grads, jax.tree.map(jnp.zeros_like, after)))
    actor, actor_opt = _descend(config, config.lr, agents.actor, grads, agents.actor_opt)

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
    taken = jnp.sum(batch.action * q, axis=-1) / _num_heads(problem, y)
    figures = (
        _agent_means(wrong, batch.alive),
        losses,
        _agent_means(taken, batch.alive),
        _agent_means(y, batch.alive),
        entropy,
    )
    return moved, dict(zip(METRICS, figures, strict=True))


def see_rewards(
    config: Config, problem: Problem, moments: Moments | None, batch: Transition
) -> tuple[Moments | None, Float[Array, "T E N"]]:
    """The moments with this rollout's rewards, and the rewards to learn from: a team's mean, standardised if asked for."""
    reward = team_mean(batch.reward, problem.side, jnp.ones_like(batch.alive))
    if moments is None:
        return None, reward
    mean = _agent_means(reward, batch.alive)
    variance = _agent_means((reward - jnp.broadcast_to(mean, reward.shape)) ** 2, batch.alive)
    moments = add_moments(moments, jnp.sum(batch.alive, axis=(0, 1)).astype(jnp.float32), mean, variance)
    centre, size = (jnp.broadcast_to(x, reward.shape) for x in (moments.mean, jnp.sqrt(moments.variance)))
    return moments, (reward - centre) / jnp.maximum(size, 1e-4)


def next_actions(problem: Problem, batch: Transition, next_pi: Float[Array, "T E N A"], key: Key) -> Float[Array, "T E N A"]:
    """What was done next; where the recording is cut, what might have been; nothing where the agent has finished."""
    drawn = sampled(problem.heads, jnp.log(jnp.maximum(next_pi, 1e-8)), gumbel(key, next_pi.shape))
    later = jnp.where(batch.done[:-1, :, None, None], drawn[:-1], batch.action[1:])
    playing = batch.alive & ~batch.terminated
    return jnp.where(playing[..., None], drawn.at[:-1].set(later), 0.0)


def move_target(config: Config, target: Params, critic: Params, updates: Int[Array, ""]) -> Params:
    """The target after that many updates: moved a little, or a copy every so often."""
    if not config.target_every:
        return polyak(target, critic, config.tau)
    due = updates % config.target_every == 0
    return jax.tree.map(lambda slow, fast: jnp.where(due, fast, slow), target, critic)


def _one(params: Params) -> Params:
    """The network that all agents share, without its axis of one."""
    return jax.tree.map(lambda leaf: leaf[0], params)


def _adam(lr: float) -> Any:
    """Adam; typed loosely because optax's annotations do not admit our parameters."""
    return optax.adam(lr)


def _descend(config: Config, lr: float, params: Any, grads: Any, opt: optax.OptState) -> tuple[Any, optax.OptState]:
    """One step of Adam for stacked networks, the gradient of each clipped by its own norm."""
    grads = jax.vmap(lambda grads: clip_by_norm(grads, config.clip, per_variable=False))(grads)
    updates, opt = _adam(lr).update(grads, opt)
    return jax.tree.map(jnp.add, params, updates), opt


def init(config: Config, problem: Problem, key: Key) -> Agents:
    """Fresh agents; the target starts as a copy of the critic."""
    spec = problem.spec
    key_actor, key_critic = jax.random.split(key)
    obs_mask, act_mask = (np.asarray(mask, np.float32) for mask in (spec.obs_mask, spec.act_mask))
    if config.share_parameters:
        obs_mask = np.concatenate([obs_mask.max(axis=0), np.ones(spec.num_agents, np.float32)])[None]
        act_mask = act_mask.max(axis=0)[None]
    keys = jax.random.split(key_actor, obs_mask.shape[0])
    actor = jax.vmap(lambda key, inputs, outputs: init_actor(config, key, inputs, outputs))(
        keys, jnp.asarray(obs_mask), jnp.asarray(act_mask)
    )
    hidden, outputs = (config.num_units,) * config.num_layers, jnp.ones(spec.act_size)
    critic = init_mlp(key_critic, jnp.asarray(critic_mask(spec), jnp.float32), hidden, outputs)
    critic = jax.tree.map(lambda leaf: leaf[None], critic)
    zero = jnp.zeros((), jnp.int32)
    none_seen = jnp.zeros(spec.num_agents)
    return Agents(
        actor=actor,
        critic=critic,
        target_critic=jax.tree.map(jnp.copy, critic),
        actor_opt=_adam(config.lr).init(actor),
        critic_opt=_adam(config.critic_lr).init(critic),
        rewards=Moments(none_seen, none_seen, none_seen) if config.standardise_rewards else None,
        updates=zero,
        step=zero,
    )


def init_actor(config: Config, key: Key, inputs: Float[Array, " I"], outputs: Float[Array, " A"]) -> Actor:
    """One agent's policy network."""
    width, depth = config.num_units, config.num_layers
    if not config.recurrent:
        return Actor(init_mlp(key, inputs, (width,) * depth, outputs))
    key_body, key_cell, key_head = jax.random.split(key, 3)
    ones = jnp.ones(width)
    return Actor(
        body=init_mlp(key_body, inputs, (width,) * (depth - 2), ones) if depth > 1 else (),
        cell=init_gru(key_cell, ones if depth > 1 else inputs, width),
        head=init_mlp(key_head, ones, (), outputs),
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
    """Actions drawn from π, as one-hot vectors."""
    logits, carry = policy(config, problem.spec, acting.actor, carry, obs)
    epsilon = linear(config.epsilon_start, config.epsilon_end, config.epsilon_steps, step)
    pi = probabilities(problem.heads, logits, jnp.broadcast_to(epsilon, logits.shape[:-1]))
    return sampled(problem.heads, jnp.log(jnp.maximum(pi, 1e-8)), gumbel(key, pi.shape)), carry, ()


def greedy(
    config: Config,
    problem: Problem,
    acting: Acting,
    carry: Carry,
    obs: Float[Array, "E N O"],
    legal: Bool[Array, "E N A"] | None = None,
) -> tuple[Float[Array, "E N A"], Carry]:
    """The likeliest actions."""
    logits, carry = policy(config, problem.spec, acting.actor, carry, obs)
    logits = masked(logits, legal)
    return sampled(problem.heads, logits, jnp.zeros_like(logits)), carry


def make(config: Config, spec: Spec, sees: np.ndarray | None = None, axis: str | None = None) -> Algorithm:
    """The algorithm for a spec whose agents' actions are all discrete."""
    teams = np.array(spec.teams)
    own = np.eye(spec.num_agents, dtype=bool)
    side = own if config.learn_from == "own" else teams[:, None] == teams[None]
    problem = Problem(spec=spec, heads=heads_of(spec), side=side)
    return Algorithm(
        init=lambda key: init(config, problem, key),
        begin=lambda key: jnp.zeros((spec.num_agents, config.num_units)) if config.recurrent else (),
        act=lambda *args: act(config, problem, *args),
        greedy=lambda *args: greedy(config, problem, *args),
        update=lambda *args: update(config, problem, *args),
        policy=lambda agents: Acting(agents.actor),
        metrics=METRICS,
    )


def actors(config: Config, spec: Spec, acting: Acting) -> Actors | None:
    """Returns the policy as plain networks, or None if it is recurrent."""
    if config.recurrent:
        return None
    schedule = {"floor_start": config.epsilon_start, "floor_end": config.epsilon_end, "floor_steps": config.epsilon_steps}
    rules = {"world_action": "one-hot"} | schedule
    return Actors(_unshared(spec, acting.actor.body) if config.share_parameters else acting.actor.body, rules)


def _unshared(spec: Spec, body: Params) -> Params:
    """Returns an actor for each agent made of the one that all share: the agent's number becomes a part of the first bias."""
    first, *rest = [
        layer._replace(
            weight=jnp.repeat(layer.weight, spec.num_agents, axis=0), bias=jnp.repeat(layer.bias, spec.num_agents, axis=0)
        )
        for layer in body
    ]
    seen, number = jnp.split(first.weight, [spec.obs_size], axis=1)
    return (first._replace(weight=seen, bias=first.bias + number[0]), *rest)


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
