"""What on-policy actor-critic algorithms share, apart from their losses: networks over a rollout, team rewards, returns.

Arrays of a rollout are [T, E, N, …]. A network is a perceptron, or a perceptron with a recurrent unit (`Network`). Its leaves
are [N, …], one network per agent, or [M, …] if agents share M networks (`sharing`).

Learners that pass over a rollout several times read it in minibatches: `pack` makes one matrix of it, whose rows `shuffled`
deals out, and `columns` turns a minibatch so that agents are the first axis and the batch is the last (ADR 0011). A row is
one step, or, with a recurrent unit, the whole rollout of one environment.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float

from counterpoint.algos import sharing
from counterpoint.algos.base import Carry
from counterpoint.algos.sharing import Share, Sharing
from counterpoint.core.actions import Heads, log_softmax_columns, masked
from counterpoint.core.checks import above, at_least, fraction
from counterpoint.core.nets import (
    COLUMNS,
    Gru,
    Layer,
    Normalise,
    Params,
    affine,
    gru,
    gru_from_first,
    init_gru,
    init_mlp,
    mlp,
    times,
)
from counterpoint.core.ops import Moments, add_moments, clip_by_norm, lambda_returns, masked_mean, n_step_returns
from counterpoint.core.spaces import Box, Spec
from counterpoint.core.types import Key, Transition


@dataclass(frozen=True)
class Settings:
    """Hyperparameters that on-policy algorithms share."""

    lr: float = 5e-4
    """Adam step size of the actors."""
    critic_lr: float = 2e-3
    """Adam step size of the critic."""
    gamma: float = 0.97
    """Discount factor."""
    num_units: int = 64
    """Width of the hidden layers of actors and critic."""
    num_layers: int = 2
    """Number of hidden layers."""
    recurrent: bool = False
    """Make the last hidden layer of the actors a gated recurrent unit, which remembers the episode."""
    share: Share = "none"
    """Give every agent an actor of its own, or let the agents of a role, or all agents, share one."""
    learn_from: Literal["team", "own"] = "team"
    """Maximise the mean reward of the agent's team, or the agent's own reward."""
    standardise_rewards: bool = False
    """Shift and scale rewards to mean 0 and variance 1 over all rewards so far."""
    normalise_advantages: bool = False
    """Scale the advantages of each agent to variance 1 in each rollout."""
    clip: float = 1.0
    """Largest gradient norm of a network (0: no limit)."""
    entropy_start: float = 0.03
    """Initial weight of the policy's entropy in the actor's loss."""
    entropy_end: float = 0.003
    """Final weight of the policy's entropy."""
    entropy_steps: int = 1_000_000
    """Environment steps over which the weight of the entropy changes linearly."""

    def __post_init__(self) -> None:
        above(self, 0, "lr", "critic_lr")
        at_least(self, 1, "num_units", "num_layers", "entropy_steps")
        at_least(self, 0, "clip", "entropy_start", "entropy_end")
        fraction(self, "gamma")

    @property
    def hidden(self) -> tuple[int, ...]:
        """The widths of the hidden layers."""
        return (self.num_units,) * self.num_layers


class Problem(NamedTuple):
    """What is fixed for a run."""

    spec: Spec
    heads: Heads
    side: np.ndarray
    """[N, N]: whether the reward of agent j counts for agent i."""
    sees: np.ndarray | None = None
    """[N, N]: whether critic i (row) sees agent j; None if the algorithm has one critic that sees all."""


def side_of(config: Settings, spec: Spec) -> np.ndarray:
    """Returns [N, N]: whether the reward of agent j counts for agent i."""
    teams = np.array(spec.teams)
    return np.eye(spec.num_agents, dtype=bool) if config.learn_from == "own" else teams[:, None] == teams[None]


# --- Networks.


class Network(NamedTuple):
    """A perceptron, or a perceptron, a recurrent unit and a last layer."""

    body: Params
    cell: Gru | None = None
    head: Params | None = None


def init_network(
    config: Settings, key: Key, inputs: Float[Array, " I"], outputs: Float[Array, " H"], norm: Normalise = "none"
) -> Network:
    """Returns a fresh network; `inputs` and `outputs` are 1 where entries are real and 0 where they are padding."""
    width, depth = config.num_units, config.num_layers
    if not config.recurrent:
        return Network(init_mlp(key, inputs, config.hidden, outputs, norm))
    key_body, key_cell, key_head = jax.random.split(key, 3)
    ones = jnp.ones(width)
    return Network(
        body=init_mlp(key_body, inputs, (width,) * (depth - 2), ones, norm) if depth > 1 else (),
        cell=init_gru(key_cell, ones if depth > 1 else inputs, width),
        head=init_mlp(key_head, ones, (), outputs),
    )


def sharing_of(config: Any, spec: Spec) -> Sharing | None:
    """Returns which agents share an actor, or None if nobody does."""
    return sharing.sharing_of(config.share, spec)


def init_actors(config: Settings, spec: Spec, key: Key) -> Network:
    """Returns fresh actors, stacked over agents, or over the sets that they share."""
    obs_mask, act_mask = (np.asarray(mask, np.float32) for mask in (spec.obs_mask, spec.act_mask))
    shared = sharing_of(config, spec)
    if shared is not None:
        obs_mask, act_mask = sharing.union(shared, obs_mask), sharing.union(shared._replace(ids=False), act_mask)
    keys = jax.random.split(key, obs_mask.shape[0])
    return jax.vmap(lambda key, inputs, outputs: init_network(config, key, inputs, outputs))(
        keys, jnp.asarray(obs_mask), jnp.asarray(act_mask)
    )


def orthogonal(network: Network, gain: float) -> Network:
    """Returns one network (leaves without an axis of agents) with orthogonal weights instead of independent ones.

    The gain of hidden layers is √2, for they precede a ReLU, that of recurrent gates 1, and that of the last layer `gain`.
    """
    root = math.sqrt(2.0)

    def gates(layer: Layer) -> Layer:
        parts = [nearest_orthogonal(part) for part in jnp.split(layer.weight, 3, axis=-1)]
        return layer._replace(weight=jnp.concatenate(parts, axis=-1))

    def layers(params: Params, last: float) -> Params:
        gains = [root] * (len(params) - 1) + [last]
        return tuple(
            layer._replace(weight=scale * nearest_orthogonal(layer.weight)) for layer, scale in zip(params, gains, strict=True)
        )

    if network.cell is None or network.head is None:
        return Network(layers(network.body, gain))
    cell = Gru(gates(network.cell.inputs), gates(network.cell.state))
    return Network(layers(network.body, root) if network.body else (), cell, layers(network.head, gain))


def nearest_orthogonal(weight: Float[Array, "I H"]) -> Float[Array, "I H"]:
    """Returns the nearest matrix with orthonormal rows or columns, whichever are fewer; rows and columns of zeros stay zero."""
    left, sizes, right = jnp.linalg.svd(weight, full_matrices=False)
    real = (sizes > 1e-4 * sizes[0]).astype(weight.dtype)
    return jnp.where(weight != 0, (left * jnp.broadcast_to(real, left.shape)) @ right, 0.0)


def begin(config: Settings, spec: Spec) -> Carry:
    """Returns what one environment's agents remember at the start of an episode: nothing."""
    return jnp.zeros((spec.num_agents, config.num_units)) if config.recurrent else ()


def policy(config: Any, spec: Spec, actor: Network, hidden: Carry, obs: Float[Array, "*b N O"]) -> Any:
    """Returns the logits [*b, N, A] of every agent and its hidden state after this step; of the settings it reads `share`."""
    return forward(sharing_of(config, spec), actor, hidden, obs)


def forward(shared: Sharing | None, actor: Network, hidden: Carry, obs: Float[Array, "*b N O"]) -> Any:
    """Returns what every agent's network puts out [*b, N, A] and its hidden state after this step."""
    inputs = sharing.with_indices(shared, obs)
    if actor.cell is None or actor.head is None:
        return each(shared, mlp)(actor.body, inputs), hidden
    hidden = each(shared, gru)(actor.cell, hidden, each(shared, _features)(actor.body, inputs))
    return each(shared, mlp)(actor.head, hidden), hidden


def unroll(
    config: Settings, spec: Spec, actor: Network, hidden: Carry, obs: Float[Array, "T E N O"], done: Bool[Array, "T E"]
) -> tuple[Float[Array, "T E N A"], Carry]:
    """Returns the logits of a rollout that began with `hidden` [E, …], and the hidden states after each step [T, E, …]."""
    if actor.cell is None or actor.head is None:
        return policy(config, spec, actor, hidden, obs)[0], ()
    cell, shared = actor.cell, sharing_of(config, spec)
    features = each(shared, _features)(actor.body, sharing.with_indices(shared, obs))
    gates = each(shared, affine)(cell.inputs, features)

    def proceed(hidden: jax.Array, now: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        gates, done = now
        after = each(shared, gru_from_first)(cell, hidden, gates)
        return jnp.where(done[:, None, None], 0.0, after), after

    _, after = jax.lax.scan(proceed, hidden, (gates, done))
    return each(shared, mlp)(actor.head, after), after


def _features(body: Params, inputs: Float[Array, "*b I"]) -> Float[Array, "*b H"]:
    return jax.nn.relu(mlp(body, inputs)) if body else inputs


def run_columns(
    network: Network, x: Float[Array, "*t I B"], start: Any = (), done: Bool[Array, "T B"] | None = None
) -> tuple[Float[Array, "*t H B"], Any]:
    """Returns one agent's outputs for a minibatch in columns, and its hidden states [T, B, H] after each step.

    A perceptron takes [I, B]; a recurrent unit takes [T, I, B], begins with `start` [B, H] and forgets where `done`.
    """
    if network.cell is None or network.head is None:
        return mlp(network.body, x, units=COLUMNS), ()
    cell = network.cell
    assert done is not None

    def proceed(hidden: jax.Array, now: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        gates, done = now
        after = gru_from_first(cell, hidden, gates)
        return jnp.where(done[:, None], 0.0, after), after

    _, after = jax.lax.scan(proceed, start, (_gates(network, x), done))  # pyright: ignore[reportArgumentType]
    return mlp(network.head, after.swapaxes(-1, -2), units=COLUMNS), after


def next_columns(network: Network, x: Float[Array, "*t I B"], after: Any) -> Float[Array, "*t H B"]:
    """Returns one agent's outputs for what follows each step of a minibatch, given its hidden states after the steps."""
    if network.cell is None or network.head is None:
        return mlp(network.body, x, units=COLUMNS)
    hidden = gru_from_first(network.cell, after, _gates(network, x))
    return mlp(network.head, hidden.swapaxes(-1, -2), units=COLUMNS)


def _gates(network: Network, x: Float[Array, "*t I B"]) -> Float[Array, "*t B G"]:
    """Returns the inputs' part of the recurrent gates, in rows."""
    assert network.cell is not None
    features = jax.nn.relu(mlp(network.body, x, units=COLUMNS)) if network.body else x
    product = times(network.cell.inputs.weight, features, COLUMNS).swapaxes(-1, -2)
    return product + jnp.broadcast_to(network.cell.inputs.bias, product.shape)


def indices(spec: Spec, like: Float[Array, "*b N O"]) -> Float[Array, "*b N N"]:
    """Returns the index of every agent as a one-hot vector."""
    n = spec.num_agents
    return jnp.broadcast_to(jnp.eye(n), (*like.shape[:-2], n, n))


def each(sharers: Sharing | None, function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns (params [N, …], arrays [*b, N, …]) → the function with every agent's own params, or with shared ones [M, …]."""

    def apply(params: Any, *arrays: jax.Array) -> jax.Array:
        if sharers is not None and sharers.num_sets == 1:
            return function(shared(params), *arrays)
        if sharers is not None:
            params = sharing.expanded(sharers, params)
        return jax.vmap(function, in_axes=(0, *(-2 for _ in arrays)), out_axes=-2)(params, *arrays)

    return apply


def shared(params: Any) -> Any:
    """Returns the network that all agents share, without its axis of one."""
    return jax.tree.map(lambda leaf: leaf[0], params)


def plain_actors(config: Any, spec: Spec, actor: Network) -> Params | Network | None:
    """Returns one network per agent that acts like the actors, or None if that is impossible."""
    shared = sharing_of(config, spec)
    return plain_network(shared, actor) if config.recurrent else sharing.plain(shared, actor.body)


def plain_network(shared: Sharing | None, actor: Network) -> Network | None:
    """Returns one recurrent network per agent that acts like the shared ones, as `sharing.plain` does for perceptrons."""
    if shared is None:
        return actor
    each = sharing.expanded(shared, actor)
    if not shared.ids:
        return each
    assert actor.cell is not None
    assert each.cell is not None
    folded = sharing.plain(shared, actor.body or (actor.cell.inputs,))
    if folded is None:
        return None
    return each._replace(body=folded) if actor.body else each._replace(cell=each.cell._replace(inputs=folded[0]))


# --- Rewards and returns.


def team_mean(values: Float[Array, "*b N"], side: np.ndarray, counts: Bool[Array, "*b N"]) -> Float[Array, "*b N"]:
    """Returns for each agent the mean over those on its side that count; 0 if none does."""
    weight, members = counts.astype(values.dtype), jnp.asarray(side.T, values.dtype)
    return (jnp.where(counts, values, 0.0) @ members) / jnp.maximum(weight @ members, 1.0)


def see_rewards(problem: Problem, moments: Moments | None, batch: Transition) -> tuple[Moments | None, Float[Array, "T E N"]]:
    """Returns the moments after this rollout and the rewards to learn from: team means, standardised if there are moments."""
    reward, counts = team_mean(batch.reward, problem.side, jnp.ones_like(batch.alive)), learning(batch)
    if moments is None:
        return None, reward
    mean = agent_means(reward, counts)
    variance = agent_means((reward - jnp.broadcast_to(mean, reward.shape)) ** 2, counts)
    moments = add_moments(moments, jnp.sum(counts, axis=(0, 1)).astype(jnp.float32), mean, variance)
    centre, size = (jnp.broadcast_to(x, reward.shape) for x in (moments.mean, jnp.sqrt(moments.variance)))
    return moments, (reward - centre) / jnp.maximum(size, 1e-4)


def fresh_moments(config: Settings, spec: Spec) -> Moments | None:
    """Returns moments of no rewards, or None if rewards are not standardised."""
    none_seen = jnp.zeros(spec.num_agents)
    return Moments(none_seen, none_seen, none_seen) if config.standardise_rewards else None


def playing_on(batch: Transition) -> Bool[Array, "T E N"]:
    """Returns which agents still play after each step. A time limit does not end the game."""
    return batch.alive & ~batch.terminated


class Returns(NamedTuple):
    """How returns are computed: with λ, or, if `n_steps` is not 0, with that many rewards."""

    gamma: float
    td_lambda: float
    n_steps: int = 0


def team_returns(
    kind: Returns, problem: Problem, batch: Transition, reward: Float[Array, "T E N"], next_value: Float[Array, "T E N"]
) -> Float[Array, "T E N"]:
    """Returns targets for the values of the actions taken, given rewards and every agent's value of the next state.

    While a team plays on, the value of its future is the mean over its members that still play.
    """
    value = team_mean(next_value, problem.side, playing_on(batch))
    cut = team_stops(problem, batch)
    if kind.n_steps:
        return n_step_returns(reward, value, cut, kind.gamma, kind.n_steps)
    return lambda_returns(reward, value, cut, kind.gamma, kind.td_lambda)


def learning(batch: Transition) -> Bool[Array, "T E N"]:
    """Returns which steps teach an agent: those that it took itself, by the policy that learns."""
    return batch.alive if batch.own is None else batch.alive & batch.own


def team_stops(problem: Problem, batch: Transition) -> Bool[Array, "T E N"]:
    """Returns where nobody on an agent's side plays on in the recording."""
    over = jnp.ones_like(batch.alive).at[:-1].set(~batch.alive[1:] | batch.done[:-1, :, None])
    return jnp.all(over[..., None, :] | ~jnp.asarray(problem.side)[None, None], axis=-1)


def own_returns(
    kind: Returns, problem: Problem, batch: Transition, reward: Float[Array, "T E N"], next_value: Float[Array, "T E N"]
) -> Float[Array, "T E N"]:
    """Returns TD(λ) targets with every agent's own value of the next state; minus the value now, they are GAE's advantages.

    The future of an agent that has finished while its team plays on is worth the mean of what those who play say.
    """
    playing = playing_on(batch)
    value = jnp.where(playing, next_value, team_mean(next_value, problem.side, playing))
    return lambda_returns(reward, value, team_stops(problem, batch), kind.gamma, kind.td_lambda)


# --- Minibatches.


def as_rows(recurrent: bool, leaf: Array) -> Array:
    """Returns an array [T, E, …] of a rollout with one row per step, or, if recurrent, with one row per environment."""
    return leaf.swapaxes(0, 1) if recurrent else leaf.reshape(-1, *leaf.shape[2:])


def columns(recurrent: bool, leaf: Array) -> Array:
    """Returns rows [B, N, …] as [N, …, B], or, if recurrent, rows [B, T, N, …] as [N, T, …, B]."""
    turned = jnp.moveaxis(leaf, 0, -1)
    return turned.swapaxes(0, 1) if recurrent else turned


def pack(tree: Any) -> Float[Array, "R D"]:
    """Returns a tree of arrays [R, …] as one matrix, so that shuffling is one gather of rows."""
    return jnp.concatenate([leaf.reshape(leaf.shape[0], -1).astype(jnp.float32) for leaf in jax.tree.leaves(tree)], axis=1)


def unpack(like: Any, rows: Float[Array, "B D"]) -> Any:
    """Returns the tree of packed rows, given another with the same structure, shapes and types."""
    leaves = jax.tree.leaves(like)
    parts = jnp.split(rows, np.cumsum([math.prod(leaf.shape[1:]) for leaf in leaves])[:-1], axis=1)
    arrays = [
        (part > 0 if leaf.dtype == bool else part).reshape(-1, *leaf.shape[1:])
        for part, leaf in zip(parts, leaves, strict=True)
    ]
    return jax.tree.unflatten(jax.tree.structure(like), arrays)


def shuffled(rows: Float[Array, "R D"], num_batches: int, key: Key) -> Float[Array, "M B D"]:
    """Returns the rows in random order as minibatches of one size; rows of zeros fill the last, in which nobody is alive.

    There are fewer minibatches than asked for if some would be empty.
    """
    count = rows.shape[0]
    num_batches = min(num_batches, count)
    if num_batches == 1:
        return rows[None]
    order = jnp.argsort(jax.random.bits(key, (count,)))
    mixed = rows.at[order].get(mode="promise_in_bounds", unique_indices=True)
    size = -(-count // num_batches)
    num_batches = -(-count // size)  # fewer, rather than some without a row
    return jnp.pad(mixed, ((0, num_batches * size - count), (0, 0))).reshape(num_batches, size, -1)


# --- Policies.

LOG_2_PI = math.log(2 * math.pi)


def log_policy(
    heads: Heads,
    raw: Float[Array, "*t A B"],
    log_std: Float[Array, " A"] | None,
    action: Float[Array, "*t A B"],
    legal: Bool[Array, "*t A B"] | None,
) -> tuple[Float[Array, "*t B"], Float[Array, "*t B"]]:
    """Returns log π of one agent's actions and the entropy of π, given the actor's outputs, for a minibatch in columns.

    Discrete heads are softmax distributions over legal choices. A continuous action is Gaussian around the tanh of its output
    and clipped to [−1, 1]: at a bound its probability is that of everything beyond (Fujita and Maeda 2018, arXiv:1802.07564).
    The entropy is that of the Gaussian before clipping.
    """
    if legal is not None:
        raw = masked(heads, raw.swapaxes(-1, -2), legal.swapaxes(-1, -2)).swapaxes(-1, -2)
    log_pi = log_softmax_columns(heads, raw)
    taken, entropy = action * log_pi, -jnp.exp(log_pi) * log_pi
    if heads.same is None:
        return jnp.sum(taken, axis=-2), jnp.sum(entropy, axis=-2)
    discrete, real = (jnp.broadcast_to(jnp.asarray(table)[:, None], raw.shape) for table in (heads.discrete, heads.mask))
    if log_std is not None:
        spread = jnp.broadcast_to(log_std[:, None], raw.shape)
        density = clipped_gaussian(action, jnp.tanh(jnp.where(discrete, 0.0, raw)), spread)
        taken = jnp.where(discrete, taken, density)
        entropy = jnp.where(discrete, entropy, spread + (LOG_2_PI + 1) / 2)
    return jnp.sum(jnp.where(real, taken, 0.0), axis=-2), jnp.sum(jnp.where(real, entropy, 0.0), axis=-2)


def clipped_gaussian(x: Float[Array, "*b"], mean: Float[Array, "*b"], log_std: Float[Array, "*b"]) -> Float[Array, "*b"]:
    """Returns the log-density of a Gaussian inside (−1, 1), and at a bound the log-probability of everything beyond it."""
    std = jnp.exp(log_std)
    inside = -(((x - mean) / std) ** 2) / 2 - log_std - LOG_2_PI / 2
    above, below = (jax.scipy.stats.norm.logcdf((side * mean - 1.0) / std) for side in (1.0, -1.0))
    return jnp.where(x >= 1.0, above, jnp.where(x <= -1.0, below, inside))


# --- Means over agents.


def agent_means(values: Float[Array, "T E N"], counts: Bool[Array, "T E N"]) -> Float[Array, " N"]:
    """Returns the mean of each agent over the steps that count."""
    return jax.vmap(masked_mean, in_axes=-1)(values, counts)


def normalised(advantage: Float[Array, "T E N"], alive: Bool[Array, "T E N"]) -> Float[Array, "T E N"]:
    """Returns advantages whose mean square is 1 for each agent."""
    size = jnp.sqrt(agent_means(advantage**2, alive))
    return advantage / jnp.broadcast_to(jnp.maximum(size, 1e-6), advantage.shape)


def num_heads(problem: Problem, like: Float[Array, "*b N"]) -> Float[Array, "*b N"]:
    """Returns the number of heads of each agent."""
    counts = np.array([len(space.heads) for space in problem.spec.action_spaces if not isinstance(space, Box)], np.float32)
    return jnp.broadcast_to(counts, like.shape)


# --- One optimiser step.


def adam(lr: float) -> Any:
    """Returns Adam, loosely typed: optax's annotations do not admit our parameters."""
    return optax.adam(lr)


def descend(config: Settings, lr: float, params: Any, grads: Any, opt: optax.OptState) -> tuple[Any, optax.OptState]:
    """Returns stacked networks after one step of Adam, with the gradient of each network clipped by its own norm."""
    grads = jax.vmap(lambda grads: clip_by_norm(grads, config.clip, per_variable=False))(grads)
    updates, opt = adam(lr).update(grads, opt)
    return jax.tree.map(jnp.add, params, updates), opt
