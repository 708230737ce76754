"""MADDPG: decentralised actors, centralised critics (Lowe et al. 2017, arXiv:1706.02275, Algorithm 1), and independent DDPG.

for each step:  a_i = μ_i(o_i) + noise;  store (o, a, r, o')
for each agent: y = r_i + γ Q'_i(o', μ'_1(o'_1), …, μ'_N(o'_N))          td target
                descend (Q_i(o, a) − y)²                                  critic, Eq. 6
                ascend  Q_i(o, a | a_i = μ_i(o_i))                        actor,  Eq. 5
                move the targets: θ' ← τθ + (1 − τ)θ'

Whom critic i sees is row i of `sees`: everybody is MADDPG, only itself is DDPG, so a MADDPG team may meet a DDPG team.
What a critic does not see has weight zero for ever (masked initialisation, masked gradient).
Differs from the authors' code by default: all agents learn from one snapshot and one minibatch (theirs: one after another,
each its own sample), and hidden weights start as He et al. (2015) want them; theirs is
`--minibatch per-agent --order sequential --init glorot`.
Networks are given a minibatch in columns, [features, B]: its last axis, not its first, is the batch (`in_columns`).
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, Int

from counterpoint.algos.base import TD_ERRORS, Actors, Algorithm, Carry, Entry, Metrics, Replay
from counterpoint.core.actions import Heads, gumbel, heads_of, masked, relaxed, relaxed_columns, sampled
from counterpoint.core.checks import above, at_least, fraction
from counterpoint.core.nets import COLUMNS, Init, Normalise, Params, init_mlp, mlp, mlp_from_first, move_averages, times
from counterpoint.core.ops import Moments, Tree, add_moments, clip_by_norm, polyak, td_target
from counterpoint.core.spaces import Spec
from counterpoint.core.types import Key, Transition


@dataclass(frozen=True)
class Config:
    """Hyper-parameters; defaults are the authors' code's, but for `minibatch`, `order` and `init`."""

    lr: float = 1e-2
    """Adam step size, actors and critics."""
    critic_lr: float = 0.0
    """Adam step size of the critics, if it is to differ (0: the same)."""
    gamma: float = 0.95
    """Discount."""
    tau: float = 0.01
    """Fraction by which targets move towards their networks after each update."""
    num_units: int = 64
    """Width of the hidden layers, actors and critics."""
    num_layers: int = 2
    """Number of hidden layers."""
    clip: float = 0.5
    """Largest gradient norm (0: no limit)."""
    clip_by: Literal["variable", "global"] = "variable"
    """Clip each array by its own norm, or all of a network by their common one."""
    logit_cost: float = 1e-3
    """Weight of the mean squared policy output in the actor's loss."""
    temperature: float = 1.0
    """Of the Gumbel-softmax."""
    straight_through: bool = False
    """One-hot actions forward, soft gradients backward, in losses and targets."""
    world_action: Literal["soft", "one-hot"] = "soft"
    """How discrete actions reach the world: relaxed vectors as in the authors' code, or sampled one-hot vectors."""
    minibatch: Literal["shared", "per-agent"] = "shared"
    """One minibatch for all agents, or one each."""
    order: Literal["snapshot", "sequential"] = "snapshot"
    """All agents learn from the same snapshot, or one after another."""
    noise: Literal["gaussian", "ou"] = "gaussian"
    """Exploration of continuous agents: independent, or Ornstein-Uhlenbeck."""
    noise_start: float = 0.2
    """Standard deviation of the exploration noise at the start (of actions in [−1, 1])."""
    noise_end: float = 0.05
    """And after `noise_steps`."""
    noise_steps: int = 500_000
    """World steps over which it decays, linearly."""
    init: Init = "he"
    """Hidden weights at the start: scaled for the ReLUs after them, or by inputs and outputs as in the authors' code."""
    norm: Normalise = "none"
    """Normalise the hidden layers of actors and critics, over their units or over the minibatch."""
    standardise_rewards: bool = False
    """Learn from rewards shifted and scaled to mean 0 and variance 1, per agent, by all replayed so far."""
    replay: Literal["uniform", "prioritised"] = "uniform"
    """Draw all transitions alike, or more often those whose values are most wrong."""
    priority_exponent: float = 0.6
    """Of the TD error in the chance to be drawn, if prioritised (0: uniform)."""
    priority_beta: float = 0.4
    """How far the critics' loss makes up for drawing unevenly, if prioritised (1: wholly)."""

    def __post_init__(self) -> None:
        above(self, 0, "lr", "temperature")
        at_least(self, 1, "num_units", "num_layers", "noise_steps")
        at_least(self, 0, "critic_lr", "clip", "logit_cost", "noise_start", "noise_end")
        fraction(self, "gamma", "tau", "priority_exponent", "priority_beta")

    @property
    def hidden(self) -> tuple[int, ...]:
        return (self.num_units,) * self.num_layers


class Agent(NamedTuple):
    """One agent's networks and optimiser; stacked, every leaf is [N, …]."""

    actor: Params
    critic: Params
    target_actor: Params
    target_critic: Params
    actor_opt: optax.OptState
    critic_opt: optax.OptState
    rewards: Moments | None = None
    """Of the replayed rewards, if they are standardised."""


class Acting(NamedTuple):
    """What acting needs of the agents."""

    actor: Params


class Problem(NamedTuple):
    """What is fixed for a run: who acts how, and whom each critic sees."""

    spec: Spec
    heads: Heads
    sees: np.ndarray
    """[N, N]: whether critic i (row) sees agent j."""
    axis: str | None
    """The device axis over which a minibatch is split, if it is."""


def one_by_one(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, of which `vmap` makes a loop on processors: one agent's minibatch fits a core's cache, not that of all."""
    return jax.custom_batching.sequential_vmap(function) if jax.default_backend() == "cpu" else function


def joint(obs: Float[Array, "N O B"], action: Float[Array, "N A B"]) -> Float[Array, "I B"]:
    """A critic's input: all observations, then all actions."""
    batch = obs.shape[-1]
    return jnp.concatenate([obs.reshape(-1, batch), action.reshape(-1, batch)])


def visible(spec: Spec, sees: np.ndarray) -> np.ndarray:
    """[N, I]: 1 where an entry of the joint vector is real and seen by critic i."""
    obs = sees[:, :, None] & spec.obs_mask[None]
    action = sees[:, :, None] & spec.act_mask[None]
    n = spec.num_agents
    return np.concatenate([obs.reshape(n, -1), action.reshape(n, -1)], axis=1).astype(np.float32)


def value(critic: Params, product: Float[Array, "H B"], learning: bool = False) -> Float[Array, " B"]:
    """Q, given the critic's first matrix product."""
    return mlp_from_first(critic, product, learning, COLUMNS)[0]


def first_product(critic: Params, inputs: Float[Array, "I B"]) -> Float[Array, "H B"]:
    """What `value` starts from."""
    return times(critic[0].weight, inputs, COLUMNS)


def target_value(critic: Params, inputs: Float[Array, "I B"]) -> Float[Array, " B"]:
    """Q of a network that does not learn."""
    return value(critic, first_product(critic, inputs))


def critic_loss(
    critic: Params, inputs: Float[Array, "I B"], y: Float[Array, " B"], weight: Float[Array, " B"]
) -> tuple[Float[Array, ""], Float[Array, " B"]]:
    """Mean squared TD error (Eq. 6), and the values."""
    q = value(critic, first_product(critic, inputs), learning=True)
    return jnp.mean(weight * (q - y) ** 2), q


def actor_loss(
    config: Config,
    heads: Heads,
    actor: Params,
    critic: Params,
    obs: Float[Array, "O B"],
    action: Float[Array, "A B"],
    legal: Bool[Array, "A B"] | None,
    inputs: Float[Array, "I B"],
    first: Int[Array, ""],
    noise: Float[Array, "A B"],
    weight: Float[Array, " B"],
) -> Float[Array, ""]:
    """Minus the value of acting now while the others keep their replayed actions (Eq. 5), plus the cost of large outputs.

    `action` is the agent's replayed one; it begins at `first` in the joint vector, and only that part of the critic's first
    product changes.
    """
    outputs = mlp(actor, obs, learning=True, units=COLUMNS)
    now = relaxed_columns(heads, masked(outputs, legal), noise, config.temperature, config.straight_through)
    own_rows = jax.lax.dynamic_slice_in_dim(critic[0].weight, first, action.shape[0])
    product = first_product(critic, inputs) + times(own_rows, now - action, COLUMNS)
    q = value(critic, product, learning=True)
    return -jnp.mean(weight * q) + config.logit_cost * jnp.mean(weight[None] * outputs**2) / _share(heads, outputs.dtype)


def _share(heads: Heads, dtype: Any) -> Float[Array, ""] | float:
    """The share of real entries in an agent's padded outputs."""
    return 1.0 if heads.mask is None else jnp.mean(heads.mask, dtype=dtype)


def target_actions(
    config: Config,
    heads: Heads,
    target_actor: Params,
    next_obs: Float[Array, "N O B"],
    next_legal: Bool[Array, "N A B"] | None,
    key: Key,
) -> Float[Array, "N A B"]:
    """What all target actors would do next."""
    outputs = masked(jax.vmap(one_by_one(partial(mlp, units=COLUMNS)))(target_actor, next_obs), next_legal)
    relax = partial(relaxed_columns, temperature=config.temperature, straight_through=config.straight_through)
    return jax.vmap(relax)(heads, outputs, gumbel(key, outputs.shape))


def update_agent(
    config: Config,
    problem: Problem,
    own: Agent,
    agents: Agent,
    mine: Transition,
    batch: Transition,
    i: Int[Array, ""],
    key: Key,
) -> tuple[Agent, dict[str, Float[Array, ""]]]:
    """Agent i after one critic step, one actor step and a move of its targets: the body of "for each agent".

    `own` is agent i out of `agents`, `mine` its column of `batch`; the others are read only.
    """
    mean = _mean_over(problem.axis)
    key_target, key_actor = jax.random.split(key)
    mine, batch = in_columns(mine), in_columns(batch)
    alive = mine.alive.astype(mine.reward.dtype)

    next_action = target_actions(config, problem.heads, agents.target_actor, batch.next_obs, batch.next_legal, key_target)
    next_q = one_by_one(target_value)(own.target_critic, joint(batch.next_obs, next_action))
    rewards = None if own.rewards is None else see_rewards(own.rewards, mine.reward, alive, mean)
    y = td_target(standardised(rewards, mine.reward), mine.terminated, next_q, config.gamma)

    inputs = joint(batch.obs, batch.action)
    importance = alive if mine.weight is None else alive * mine.weight / _max_over(problem.axis, mine.weight)
    critic, critic_opt, q, figures_q = train_critic(config, problem, own, inputs, y, alive, importance, i)
    noise = gumbel(jax.random.fold_in(key_actor, i), mine.action.shape)
    actor, actor_opt, figures_p = train_actor(config, problem, own, critic, mine, inputs, noise, alive, i)

    agent = Agent(
        actor=actor,
        critic=critic,
        target_actor=polyak(own.target_actor, actor, config.tau),
        target_critic=polyak(own.target_critic, critic, config.tau),
        actor_opt=actor_opt,
        critic_opt=critic_opt,
        rewards=rewards,
    )
    figures = figures_q | figures_p
    return agent, figures if mine.weight is None else figures | {TD_ERRORS: alive * jnp.abs(q - y)}


def train_critic(
    config: Config,
    problem: Problem,
    own: Agent,
    inputs: Float[Array, "I B"],
    y: Float[Array, " B"],
    alive: Float[Array, " B"],
    importance: Float[Array, " B"],
    i: Int[Array, ""],
) -> tuple[Params, optax.OptState, Float[Array, " B"], Metrics]:
    """Agent i's critic after one step towards y, its optimiser, the values before the step and figures."""
    mean = _mean_over(problem.axis)
    critic = move_averages(own.critic, inputs, mean)
    (loss, q), grads = one_by_one(jax.value_and_grad(critic_loss, has_aux=True))(critic, inputs, y, importance)
    if not problem.sees.all():
        seen = jnp.asarray(visible(problem.spec, problem.sees))[i]
        grads = (grads[0]._replace(weight=grads[0].weight * seen[:, None]), *grads[1:])
    figures = {"critic_loss": loss, "q": jnp.mean(alive * q), "td_target": jnp.mean(alive * y)}
    grads, figures = _per_living(mean, alive, (grads, figures))
    return *_descend(config, config.critic_lr or config.lr, critic, grads, own.critic_opt), q, figures


def train_actor(
    config: Config,
    problem: Problem,
    own: Agent,
    critic: Params,
    mine: Transition,
    inputs: Float[Array, "I B"],
    noise: Float[Array, "A B"],
    alive: Float[Array, " B"],
    i: Int[Array, ""],
) -> tuple[Params, optax.OptState, Metrics]:
    """Agent i's actor after one step up the critic, its optimiser and figures."""
    spec, mean = problem.spec, _mean_over(problem.axis)
    heads: Heads = jax.tree.map(lambda table: jnp.asarray(table)[i], problem.heads)
    first = spec.num_agents * spec.obs_size + i * spec.act_size
    actor = move_averages(own.actor, mine.obs, mean)
    climb = one_by_one(jax.value_and_grad(partial(actor_loss, config), argnums=1))
    loss, grads = climb(heads, actor, critic, mine.obs, mine.action, mine.legal, inputs, first, noise, alive)
    grads, figures = _per_living(mean, alive, (grads, {"actor_loss": loss}))
    return *_descend(config, config.lr, actor, grads, own.actor_opt), figures


def _per_living(mean: Callable[[Any], Any], alive: Float[Array, " B"], means: Tree) -> Tree:
    """Means over a minibatch, of what counts the living only, made means over the living; devices meet but once for it."""
    share, means = mean((jnp.mean(alive), means))
    return jax.tree.map(lambda leaf: leaf / jnp.maximum(share, 1e-6), means)


def see_rewards(
    moments: Moments, reward: Float[Array, " B"], alive: Float[Array, " B"], mean: Callable[[Array], Array]
) -> Moments:
    """The moments after another minibatch; `mean` is over devices."""
    count = mean(jnp.sum(alive))
    centre = mean(jnp.sum(alive * reward)) / jnp.maximum(count, 1.0)
    spread = mean(jnp.sum(alive * (reward - centre) ** 2)) / jnp.maximum(count, 1.0)
    return add_moments(moments, count, centre, spread)


def standardised(moments: Moments | None, reward: Float[Array, " B"]) -> Float[Array, " B"]:
    """Rewards with mean 0 and variance 1 as far as the moments know, or as they are if there are none."""
    if moments is None:
        return reward
    return (reward - moments.mean) / jnp.maximum(jnp.sqrt(moments.variance), 1e-4)


def _mean_over(axis: str | None) -> Callable[[Any], Any]:
    """The mean over devices that share a minibatch: of one vector, because devices wait for one another at each array."""

    def mean(tree: Any) -> Any:
        vector, tree_of = ravel_pytree(tree)
        return tree_of(jax.lax.pmean(vector, axis))

    return mean if axis else lambda tree: tree


def _max_over(axis: str | None, values: Float[Array, " B"]) -> Float[Array, ""]:
    """The maximum of a minibatch that devices may share."""
    return jax.lax.pmax(jnp.max(values), axis) if axis else jnp.max(values)


def _adam(lr: float) -> Any:
    """Adam; typed loosely because optax's annotations do not admit our parameters, a layer's absent norm among them."""
    return optax.adam(lr)


def _descend(config: Config, lr: float, params: Params, grads: Params, opt: optax.OptState) -> tuple[Params, optax.OptState]:
    grads = clip_by_norm(grads, config.clip, per_variable=config.clip_by == "variable")
    updates, opt = _adam(lr).update(grads, opt)
    return jax.tree.map(jnp.add, params, updates), opt


METRICS = ("critic_loss", "actor_loss", "q", "td_target")

AGENTS_AXIS = Transition(obs=1, action=1, reward=1, next_obs=1, terminated=1, alive=1, done=None)  # pyright: ignore[reportArgumentType]
"""Where a batch [B, N, …] has its agents."""


def agents_axis(batch: Transition) -> Transition:
    """Returns where each array of a batch has its agents."""
    masks = None if batch.legal is None else 1
    return AGENTS_AXIS._replace(legal=masks, next_legal=masks)  # pyright: ignore[reportArgumentType]


def update(config: Config, problem: Problem, agents: Agent, batch: Transition, key: Key) -> tuple[Agent, Metrics]:
    """All agents after one update. `batch` is [B, …], or [N, B, …] with one minibatch for each of several agents."""
    each, own_batch = jnp.arange(problem.spec.num_agents), _own_batches(config, problem)
    if config.order == "sequential":
        agents, metrics = jax.lax.scan(lambda agents, i: _update_in_place(config, problem, agents, batch, i, key), agents, each)
    else:
        columns = jax.vmap(column)(batch, each) if own_batch else batch
        agents, metrics = jax.vmap(
            lambda own, mine, batch, i: update_agent(config, problem, own, agents, mine, batch, i, key),
            in_axes=(0, 0 if own_batch else agents_axis(batch), 0 if own_batch else None, 0),
        )(agents, columns, batch, each)
    return agents, gather(config, problem, batch, metrics)


def gather(config: Config, problem: Problem, batch: Transition, figures: Metrics) -> Metrics:
    """The metrics of an update from every agent's figures: TD errors of a sample all share are a mean over those who played."""
    if TD_ERRORS not in figures or _own_batches(config, problem):
        return figures
    shared = jnp.sum(figures[TD_ERRORS], axis=0) / jnp.maximum(jnp.sum(batch.alive, axis=1), 1)
    return figures | {TD_ERRORS: shared}


def _own_batches(config: Config, problem: Problem) -> bool:
    """Whether a batch has a leading axis of agents; a single agent's does not."""
    return config.minibatch == "per-agent" and problem.spec.num_agents > 1


def in_columns(batch: Transition) -> Transition:
    """A minibatch [B, …] as [..., B]."""
    return jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 0, -1), batch)


def column(batch: Transition, i: Int[Array, ""]) -> Transition:
    """Agent i's part of a batch."""
    return jax.tree.map(lambda leaf, axis: leaf if axis is None else jnp.take(leaf, i, axis=axis), batch, agents_axis(batch))


def update_one(
    config: Config, problem: Problem, agents: Agent, batch: Transition, i: Int[Array, ""], key: Key
) -> tuple[Agent, dict[str, Float[Array, "*b"]]]:
    """Agent i and its figures after an update, from the same batch as `update`."""
    if _own_batches(config, problem):
        batch = jax.tree.map(lambda leaf: leaf[i], batch)
    own = jax.tree.map(lambda leaf: leaf[i], agents)
    return update_agent(config, problem, own, agents, column(batch, i), batch, i, key)


def _update_in_place(
    config: Config, problem: Problem, agents: Agent, batch: Transition, i: Int[Array, ""], key: Key
) -> tuple[Agent, dict[str, Float[Array, "*b"]]]:
    agent, metrics = update_one(config, problem, agents, batch, i, key)
    return jax.tree.map(lambda leaf, row: leaf.at[i].set(row), agents, agent), metrics


def init(config: Config, problem: Problem, key: Key) -> Agent:
    """Fresh agents; targets start as copies of their networks."""
    spec = problem.spec

    def init_agent(key: Key, obs_mask: jax.Array, act_mask: jax.Array, seen: jax.Array) -> Agent:
        key_actor, key_critic = jax.random.split(key)
        actor = init_mlp(key_actor, obs_mask, config.hidden, act_mask, config.norm, config.init)
        critic = init_mlp(key_critic, seen, config.hidden, jnp.ones(1), config.norm, config.init)
        copy = jax.tree.map(jnp.copy, (actor, critic))
        adam = _adam(config.lr)
        rewards = Moments(jnp.zeros(()), jnp.zeros(()), jnp.zeros(())) if config.standardise_rewards else None
        return Agent(actor, critic, *copy, actor_opt=adam.init(actor), critic_opt=adam.init(critic), rewards=rewards)

    masks = (spec.obs_mask, spec.act_mask, visible(spec, problem.sees))
    return jax.vmap(init_agent)(jax.random.split(key, spec.num_agents), *(jnp.asarray(mask, jnp.float32) for mask in masks))


def policy_outputs(policy: Acting, obs: Float[Array, "E N O"]) -> Float[Array, "E N A"]:
    """Every actor's raw outputs for its own observation."""
    return jax.vmap(mlp, in_axes=(0, 1), out_axes=1)(policy.actor, obs)


def begin(config: Config, problem: Problem, key: Key) -> Carry:
    """The Ornstein-Uhlenbeck noise of one world at rest, if it is in use."""
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
    """Exploring actions: sampled for discrete agents, with additive noise for continuous ones."""
    heads = problem.heads
    key_gumbel, key_noise = jax.random.split(key)
    outputs = masked(policy_outputs(policy, obs), legal)
    noise = gumbel(key_gumbel, outputs.shape)
    if config.world_action == "soft":
        action = relaxed(heads, outputs, noise, config.temperature, straight_through=False)
    else:
        action = sampled(heads, outputs, noise)
    if heads.mask is None or not (heads.mask & ~heads.discrete).any():
        return action, carry, ()
    shock = jax.random.normal(key_noise, outputs.shape)
    if config.noise == "ou":
        shock = carry = 0.85 * carry + np.sqrt(1 - 0.85**2) * shock  # stationary with unit variance
    scale = config.noise_start + (config.noise_end - config.noise_start) * jnp.minimum(step / config.noise_steps, 1.0)
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
    """Actions without noise, in the form in which training gave them to the world."""
    outputs = masked(policy_outputs(policy, obs), legal)
    none = jnp.zeros_like(outputs)
    if config.world_action == "soft":
        return relaxed(problem.heads, outputs, none, config.temperature, straight_through=False), carry
    return sampled(problem.heads, outputs, none), carry


def make(config: Config, spec: Spec, sees: np.ndarray, axis: str | None = None) -> Algorithm:
    """The algorithm for a spec, its critics seeing what `sees` [N, N] allows."""
    problem = Problem(spec=spec, heads=heads_of(spec), sees=sees, axis=axis)
    return Algorithm(
        init=lambda key: init(config, problem, key),
        begin=lambda key: begin(config, problem, key),
        act=lambda *args: act(config, problem, *args),
        greedy=lambda *args: greedy(config, problem, *args),
        update=lambda *args: update(config, problem, *args),
        policy=lambda agents: Acting(agents.actor),
        metrics=METRICS,
        # Not a lambda: it travels to learners in other processes.
        update_one=partial(update_one, config, problem) if config.order == "snapshot" else None,
        gather=lambda *args: gather(config, problem, *args),
    )


def actors(config: Config, spec: Spec, policy: Acting) -> Actors:
    """Returns the policy as plain networks."""
    rules = {name: getattr(config, name) for name in ("world_action", "temperature", "noise")}
    return Actors(policy.actor, rules | {name: getattr(config, name) for name in ("noise_start", "noise_end", "noise_steps")})


MADDPG = Entry(
    name="maddpg",
    settings=Config,
    make=make,
    memory=lambda config: Replay(
        per_agent=config.minibatch == "per-agent",
        priority=(config.priority_exponent, config.priority_beta) if config.replay == "prioritised" else None,
    ),
    actors=actors,
    learners=True,
    splits_batch=True,
)
DDPG = replace(MADDPG, name="ddpg", critic="own")
ENTRIES = (MADDPG, DDPG)
