"""What off-policy actor-critic algorithms share, apart from their losses.

Networks read a minibatch in columns, [features, B]: the batch is the last axis, not the first (ADR 0011). `view_of` gives each
agent's view of a minibatch; `outputs`, `q`, `q_with_own_action` and `target_actions` evaluate networks on it; `gradient`,
`per_living` and `descend` make one optimiser step; `update`, `update_one` and `gather` run an algorithm's rule for one agent
over all agents.

`sees` says which agents each critic sees. What a critic does not see has weight zero forever: its initial weights and its
gradients are masked.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, Int

from counterpoint.algos import onpolicy, recurrent, sharing
from counterpoint.algos.base import TD_ERRORS, Carry, Metrics, Replay
from counterpoint.algos.onpolicy import Network
from counterpoint.algos.sharing import Share, Sharing
from counterpoint.core.actions import Heads, masked
from counterpoint.core.checks import above, at_least, at_most, fraction
from counterpoint.core.errors import UsageError
from counterpoint.core.loading import load_object
from counterpoint.core.nets import (
    COLUMNS,
    Activation,
    Init,
    Model,
    Normalise,
    Params,
    init_mlp,
    mlp,
    mlp_from_first,
    move_averages,
    times,
)
from counterpoint.core.ops import Moments, Tree, add_moments, clip_by_norm, td_target
from counterpoint.core.spaces import Spec
from counterpoint.core.types import Key, Transition

Agents = Any
"""A NamedTuple of an algorithm's own; stacked over agents, every leaf is [N, …], or [M, …] for M shared sets."""
Relax = Callable[[Heads, Array, Array], Array]
"""(heads, outputs[A,B], noise[A,B]) → differentiable actions [A,B] of one agent."""


LONGEST_SEQUENCE = 10_000
"""Steps of the longest sequence."""


@dataclass(frozen=True)
class Settings:
    """Hyperparameters that off-policy algorithms share; the defaults are those of Lowe et al.'s code, except for `minibatch`,
    `order` and `init`."""

    lr: float = 1e-2
    """Adam step size of actors and critics."""
    critic_lr: float = 0.0
    """Adam step size of the critics (0: the same as --lr)."""
    lr_steps: int = 0
    """Updates over which the step sizes fall linearly to zero (0: they stay constant)."""
    gamma: float = 0.95
    """Discount factor."""
    tau: float = 0.01
    """Fraction by which targets move towards their networks after each update."""
    num_units: int = 64
    """Width of the hidden layers of actors and critics."""
    num_layers: int = 2
    """Number of hidden layers."""
    critic_activation: Activation = "relu"
    """Activation of the critics' hidden layers. The gradient of a ReLU critic with respect to the action is piecewise
    constant; SiLU's is smooth, which lets actors come to rest precisely where the value is largest."""
    clip: float = 0.5
    """Largest gradient norm (0: no limit)."""
    clip_by: Literal["variable", "global"] = "variable"
    """Clip each array by its own norm, or all arrays of a network by their common norm."""
    minibatch: Literal["shared", "per-agent"] = "shared"
    """Draw one minibatch for all agents, or one for each."""
    order: Literal["snapshot", "sequential"] = "snapshot"
    """Update all agents from the same snapshot, or one after another."""
    init: Init = "he"
    """Initial hidden weights: He's, scaled for ReLU layers, or Glorot's, as in the authors' code."""
    norm: Normalise = "none"
    """Normalise the hidden layers of actors and critics over their units or over the minibatch."""
    standardise_rewards: bool = False
    """Shift and scale each agent's rewards to mean 0 and variance 1 over all replayed rewards."""
    replay: Literal["uniform", "prioritised"] = "uniform"
    """Draw transitions uniformly, or draw those with large TD errors more often."""
    priority_exponent: float = 0.6
    """Exponent of the TD error in the sampling probability, if prioritised (0: uniform)."""
    priority_beta: float = 0.4
    """How much importance weights correct for prioritised sampling (1: fully)."""
    share: Share = "none"
    """Give every agent parameters of its own, or let the agents of a role, or all agents, share them."""
    n_step: int = 1
    """Rewards per transition: the target sums n discounted rewards before it bootstraps, fewer where an episode ends."""
    recurrent: bool = False
    """Make the last hidden layer of actors and critics a gated recurrent unit, which remembers the episode, and learn from
    sequences of steps instead of single steps."""
    sequence_length: int = 16
    """Steps of a sequence to learn from, if recurrent; a minibatch has batch size / sequence length sequences."""
    burn_in: int = 8
    """Steps before them that only refresh the memory of actors and critics, if recurrent (0: none). What follows the start of
    an episode needs no refreshing."""
    model: str = ""
    """Network of your own for actors and critics, as my_model.py:model."""

    def __post_init__(self) -> None:
        above(self, 0, "lr")
        at_least(self, 1, "num_units", "num_layers", "n_step", "sequence_length")
        at_least(self, 0, "critic_lr", "lr_steps", "clip", "burn_in")
        fraction(self, "gamma", "tau", "priority_exponent", "priority_beta")
        if self.model and self.norm != "none":
            raise UsageError(f"--norm {self.norm} belongs to the built-in networks: leave it out beside --model {self.model}.")
        if self.share != "none" and self.order == "sequential":
            raise UsageError(f"--share {self.share} updates its agents together: leave out --order sequential.")
        if self.share != "none" and self.norm == "batch":
            raise UsageError(f"--norm batch keeps averages of each agent: choose --norm layer beside --share {self.share}.")
        if self.n_step > 1 and self.standardise_rewards:
            raise UsageError(
                f"--n-step {self.n_step} sums rewards before they are replayed, and --standardise-rewards shifts each of them:"
                " leave out one of the two."
            )
        if self.recurrent:
            self._check_recurrent()

    def _check_recurrent(self) -> None:
        """Refuses what sequences and recurrent networks cannot be combined with."""
        for name, usual in (("norm", "none"), ("model", ""), ("replay", "uniform")):
            if (value := getattr(self, name)) != usual:
                raise UsageError(f"--recurrent and --{name} {value} exclude each other: leave out one of them.")
        at_most(self, LONGEST_SEQUENCE, "sequence_length", "burn_in")
        if self.n_step > self.sequence_length:
            raise UsageError(
                f"--n-step {self.n_step} reaches beyond a sequence of --sequence-length {self.sequence_length}: choose fewer"
                " steps or longer sequences."
            )

    @property
    def window(self) -> int:
        """Steps that are replayed together: the sequence and those before it that refresh the memory."""
        return self.burn_in + self.sequence_length

    @property
    def hidden(self) -> tuple[int, ...]:
        """The widths of the hidden layers."""
        return (self.num_units,) * self.num_layers


def memory_of(config: Settings) -> Replay:
    """Returns the memory that the settings ask for."""
    priority = (config.priority_exponent, config.priority_beta) if config.replay == "prioritised" else None
    if config.recurrent:  # returns of several steps are computed within the sequences
        return Replay(per_agent=config.minibatch == "per-agent", sequence=(config.burn_in, config.sequence_length))
    lookahead = (config.n_step, config.gamma) if config.n_step > 1 else None
    newest = getattr(config, "infer_policies", False)
    return Replay(per_agent=config.minibatch == "per-agent", priority=priority, n_step=lookahead, newest=newest)


class Problem(NamedTuple):
    """What is fixed for a run: how agents act, which agents each critic sees, and the devices."""

    spec: Spec
    heads: Heads
    sees: np.ndarray
    """[N, N]: whether critic i (row) sees agent j."""
    axis: str | None = None
    """The device axis that a minibatch is split over, if it is split."""
    ensemble: tuple[int, ...] = ()
    """The number of each agent's sub-policies, if some have several: then the minibatch is split over the axis MEMBERS too, and
    each part has other sub-policies but the same critics."""
    model: Model | None = None
    """The user's own network; None means the built-in perceptron."""
    critic_activation: Activation = "relu"
    sharing: Sharing | None = None
    """Which agents share parameters; None means that nobody does."""
    unread: np.ndarray | None = None
    """[N, A]: entries of its own action that critic i does not read, because it values each choice; None if it reads all."""
    length: int = 0
    """Steps of the sequences that a minibatch consists of, if networks remember (`recurrent`); 0 if it has single steps."""


class Acting(NamedTuple):
    """The part of the agents that acting needs."""

    actor: Params | Any


class View(NamedTuple):
    """Agent i's view of a minibatch, in columns: everything that its losses read."""

    inputs: Float[Array, "I B"]
    """The input of a critic: all observations, then all actions, as replayed."""
    obs: Float[Array, "O B"]
    action: Float[Array, "A B"]
    """The agent's replayed action."""
    legal: Bool[Array, "A B"] | None
    alive: Float[Array, " B"]
    """1 where the agent still played, otherwise 0."""
    weight: Float[Array, " B"]
    """`alive` times the importance weight of the sample."""
    heads: Heads
    """The agent's row of the tables."""
    first: Int[Array, ""]
    """Where the agent's action begins in `inputs`."""
    begins: Bool[Array, " B"] | None = None
    """Where memory begins anew, if networks remember."""


# --- Layout.


def in_columns(batch: Transition) -> Transition:
    """Returns a minibatch [B, …] as […, B]."""
    return jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 0, -1), batch)


AGENTS_AXIS = Transition(obs=1, action=1, reward=1, next_obs=1, terminated=1, alive=1, done=None)  # pyright: ignore[reportArgumentType]
"""Where a batch [B, N, …] has its agents."""


def agents_axis(batch: Transition) -> Transition:
    """Returns where each array of a batch has its agents."""
    masks = None if batch.legal is None else 1
    extras = jax.tree.map(lambda _: None, batch.extras)
    return AGENTS_AXIS._replace(legal=masks, next_legal=masks, extras=extras)  # pyright: ignore[reportArgumentType]


def column(batch: Transition, i: Int[Array, ""]) -> Transition:
    """Returns agent i's part of a batch."""
    return jax.tree.map(lambda leaf, axis: leaf if axis is None else jnp.take(leaf, i, axis=axis), batch, agents_axis(batch))


def joint(obs: Float[Array, "N O B"], action: Float[Array, "N A B"]) -> Float[Array, "I B"]:
    """Returns the input of a critic: all observations, then all actions."""
    batch = obs.shape[-1]
    return jnp.concatenate([obs.reshape(-1, batch), action.reshape(-1, batch)])


def visible(spec: Spec, sees: np.ndarray, unread: np.ndarray | None = None) -> np.ndarray:
    """Returns [N, I]: 1 where an entry of the joint vector is real and critic i sees it."""
    obs = sees[:, :, None] & spec.obs_mask[None]
    action = sees[:, :, None] & spec.act_mask[None]
    n = spec.num_agents
    if unread is not None:
        action[np.arange(n), np.arange(n)] &= ~unread
    return np.concatenate([obs.reshape(n, -1), action.reshape(n, -1)], axis=1).astype(np.float32)


def view_of(problem: Problem, mine: Transition, batch: Transition, i: Int[Array, ""]) -> View:
    """Returns agent i's view of a minibatch in columns, of which `mine` is its own part."""
    spec = problem.spec
    alive = mine.alive.astype(mine.reward.dtype)
    own_actions = i * spec.act_size if problem.sharing is None else 0 * i  # a shared critic lists the agent itself first
    return View(
        inputs=seen_by(problem, joint(batch.obs, batch.action), i),
        obs=sharing.with_index(problem.sharing, mine.obs, i),
        action=mine.action,
        legal=mine.legal,
        alive=alive,
        weight=alive if mine.weight is None else alive * mine.weight / max_over(problem.axis, mine.weight),
        heads=jax.tree.map(lambda table: jnp.asarray(table)[i], problem.heads),
        first=spec.num_agents * spec.obs_size + own_actions,
        begins=batch.begins,
    )


# --- Networks.


@cache
def load_model(address: str) -> Model:
    """Returns the user's network at an address."""
    model = load_object(address, "--model")
    if not (callable(getattr(model, "init", None)) and callable(getattr(model, "apply", None))):
        raise UsageError(f"--model {address} is a {type(model).__name__}, not a counterpoint.Model(init, apply).")
    return model


def with_networks(config: Settings, problem: Problem) -> Problem:
    """Returns the problem with the networks that the settings ask for."""
    shared = sharing.sharing_of(config.share, problem.spec)
    length = config.window if config.recurrent else 0
    problem = problem._replace(critic_activation=config.critic_activation, sharing=shared, length=length)
    return problem._replace(model=load_model(config.model)) if config.model and problem.model is None else problem


def init_net(
    config: Settings, problem: Problem, key: Key, inputs: Float[Array, " I"], outputs: Float[Array, " H"]
) -> Params | Any:
    """Returns a fresh network; `inputs` and `outputs` are 1 where entries are real and 0 where they are padding."""
    if problem.model is not None:
        return problem.model.init(key, inputs, outputs)
    if config.recurrent:
        return recurrent.init_network(key, inputs, config.hidden, outputs, config.init)
    return init_mlp(key, inputs, config.hidden, outputs, config.norm, config.init)


def outputs(
    problem: Problem,
    actor: Params | Any,
    obs: Float[Array, "O B"],
    learning: bool = False,
    begins: Bool[Array, " B"] | None = None,
) -> Float[Array, "A B"]:
    """Returns the raw outputs of one actor; one that remembers follows sequences, which start where it `begins` anew."""
    if begins is not None:
        return recurrent.run(actor, obs, begins, problem.length).outputs
    if problem.model is None:
        return mlp(actor, obs, learning=learning, units=COLUMNS)
    return problem.model.apply(actor, obs.T).T


def acting_outputs(problem: Problem, actor: Params | Any, obs: Float[Array, "E N O"]) -> Float[Array, "E N A"]:
    """Returns the raw outputs of every actor for its own observation."""
    apply, shared = mlp if problem.model is None else problem.model.apply, problem.sharing
    if shared is not None:
        obs = sharing.with_indices(shared, obs)
        if shared.num_sets == 1:
            return apply(jax.tree.map(lambda leaf: leaf[0], actor), obs)
        actor = sharing.expanded(shared, actor)
    return jax.vmap(apply, in_axes=(0, 1), out_axes=1)(actor, obs)


def remembering_outputs(
    config: Settings, problem: Problem, actor: Params | Any, carry: Carry, obs: Float[Array, "E N O"]
) -> tuple[Float[Array, "E N A"], Carry]:
    """Returns the raw outputs of every actor for its own observation, and the carry with what recurrent actors remember."""
    if not config.recurrent:
        return acting_outputs(with_networks(config, problem), actor, obs), carry
    raw, hidden = recurrent.act(config, problem.spec, actor, carry.hidden, obs)  # pyright: ignore[reportArgumentType]
    return raw, carry._replace(hidden=hidden)


def plain_actors(config: Settings, spec: Spec, actor: Params | Any) -> Params | Network | None:
    """Returns one network per agent that acts like the actors, or None if there is none."""
    shared = sharing.sharing_of(config.share, spec)
    if config.recurrent:
        return onpolicy.plain_network(shared, actor) if actor else actor  # pyright: ignore[reportArgumentType]
    return None if config.model else sharing.plain(shared, actor)


def q(
    problem: Problem,
    critic: Params | Any,
    inputs: Float[Array, "I B"],
    learning: bool = False,
    begins: Bool[Array, " B"] | None = None,
) -> Float[Array, " B"]:
    """Returns Q of joint observations and actions; a critic that remembers follows sequences, see `outputs`."""
    if begins is not None:
        return recurrent.run(critic, inputs, begins, problem.length, problem.critic_activation).outputs[0]
    if problem.model is not None:
        return problem.model.apply(critic, inputs.T)[..., 0]
    product = times(critic[0].weight, inputs, COLUMNS)
    return mlp_from_first(critic, product, learning, COLUMNS, problem.critic_activation)[0]


def q_with_own_action(problem: Problem, critic: Params | Any, view: View, action: Float[Array, "A B"]) -> Float[Array, " B"]:
    """Returns Q with the agent's own replayed action replaced by `action`, for learning.

    Only the agent's part of the critic's first product changes; the rest is the one that the critic's own loss computes. A
    critic that remembers, remembers the replayed actions of earlier steps.
    """
    if view.begins is not None:
        before = recurrent.run(critic, view.inputs, view.begins, problem.length, problem.critic_activation).before
        inputs = jax.lax.dynamic_update_slice_in_dim(view.inputs, action, view.first, axis=0)
        return recurrent.step(critic, inputs, before, problem.critic_activation)[0]
    if problem.model is not None:
        return q(problem, critic, jax.lax.dynamic_update_slice_in_dim(view.inputs, action, view.first, axis=0))
    own_rows = jax.lax.dynamic_slice_in_dim(critic[0].weight, view.first, action.shape[0])
    product = times(critic[0].weight, view.inputs, COLUMNS) + times(own_rows, action - view.action, COLUMNS)
    return mlp_from_first(critic, product, True, COLUMNS, problem.critic_activation)[0]


def next_q(problem: Problem, critic: Params | Any, next_inputs: Float[Array, "I B"], *past: Array) -> Float[Array, " B"]:
    """Returns Q of what follows each step; `past_of` the view are what a critic that remembers has read before."""
    return next_values(problem, critic, next_inputs, *past)[0] if past else q(problem, critic, next_inputs)


def next_values(
    problem: Problem,
    critic: Network | Any,
    next_inputs: Float[Array, "I B"],
    inputs: Float[Array, "I B"],
    begins: Bool[Array, " B"],
) -> Float[Array, "H B"]:
    """Returns the outputs for what follows each step of a network that remembers the step and those before it."""
    after = recurrent.run(critic, inputs, begins, problem.length, problem.critic_activation).after
    return recurrent.step(critic, next_inputs, after, problem.critic_activation)


def past_of(view: View) -> tuple[Array, ...]:
    """Returns what a critic that remembers has read when it is asked about the next step; nothing if it does not remember."""
    return () if view.begins is None else (view.inputs, view.begins)


def all_outputs(
    problem: Problem, actor: Params | Any, obs: Float[Array, "N O B"], begins: Bool[Array, " B"] | None = None
) -> Float[Array, "N A B"]:
    """Returns the raw outputs of the actors of all agents, one after another."""
    obs = _indexed(problem, obs)
    if begins is not None:
        run = partial(outputs, problem, begins=begins)
        return jax.vmap(run)(actor, obs)
    return jax.vmap(one_by_one(lambda actor, obs: outputs(problem, actor, obs)))(actor, obs)


def next_outputs(problem: Problem, actor: Params | Any, batch: Transition) -> Float[Array, "N A B"]:
    """Returns the raw outputs of the actors of all agents for the next observations."""
    if batch.begins is None:
        return all_outputs(problem, actor, batch.next_obs)

    begins = batch.begins

    def follow(actor: Network | Any, next_obs: Array, obs: Array) -> Array:
        return recurrent.step(actor, next_obs, recurrent.run(actor, obs, begins, problem.length).after)

    return jax.vmap(follow)(actor, _indexed(problem, batch.next_obs), _indexed(problem, batch.obs))


def _indexed(problem: Problem, obs: Float[Array, "N O B"]) -> Float[Array, "N I B"]:
    """Returns the observations of all agents, followed by their indices if actors read them."""
    if problem.sharing is None or not problem.sharing.ids:
        return obs
    return jax.vmap(lambda obs, i: sharing.with_index(problem.sharing, obs, i))(obs, jnp.arange(len(obs)))


def target_actions(
    problem: Problem, target_actor: Params | Any, batch: Transition, relax: Relax, noise: Float[Array, "N A B"]
) -> Float[Array, "N A B"]:
    """Returns the next actions of all target actors."""
    raw = next_outputs(problem, target_actor, batch)
    return jax.vmap(lambda heads, raw, legal, noise: relax(heads, masked_columns(heads, raw, legal), noise))(
        problem.heads, raw, batch.next_legal, noise
    )


def masked_columns(heads: Heads, raw: Float[Array, "A B"], legal: Bool[Array, "A B"] | None) -> Float[Array, "A B"]:
    """Returns `actions.masked` for one agent's minibatch in columns."""
    return raw if legal is None else masked(heads, raw.T, legal.T).T


def output_cost(weight: float, problem: Problem, view: View, raw: Float[Array, "A B"]) -> Float[Array, ""]:
    """Returns the weighted mean, over living samples, of the mean square of an actor's real and legal outputs."""
    if view.legal is None and has_zero_padding(problem):
        share = 1.0 if view.heads.mask is None else jnp.mean(view.heads.mask, dtype=raw.dtype)
        return weight * jnp.mean(view.alive[None] * raw**2) / share
    mask = jnp.ones(raw.shape[0], bool) if view.heads.mask is None else view.heads.mask
    counts = jnp.broadcast_to(mask[:, None], raw.shape) & (True if view.legal is None else view.legal)
    squares = jnp.sum(jnp.where(counts, raw**2, 0.0), axis=0)
    return weight * jnp.mean(view.alive * squares / jnp.maximum(jnp.sum(counts, axis=0), 1))


def has_zero_padding(problem: Problem) -> bool:
    """Returns whether actors give zero where an agent's action is padded; not so if another agent of its set acts there."""
    spec, shared = problem.spec, problem.sharing
    if problem.model is not None:
        return False
    if shared is None:
        return True
    acts = sharing.union(shared._replace(ids=False), spec.act_mask)
    return bool((acts[shared.sets] == spec.act_mask).all())


# --- Rewards.


def fresh_moments(config: Settings) -> Moments | None:
    """Returns moments of no rewards, or None if rewards are not standardised."""
    return Moments(jnp.zeros(()), jnp.zeros(()), jnp.zeros(())) if config.standardise_rewards else None


def see_rewards(
    problem: Problem, moments: Moments | None, reward: Float[Array, " B"], alive: Float[Array, " B"]
) -> Moments | None:
    """Returns the moments of one agent's rewards, or of its set's, after another minibatch."""
    return add_rewards(sum_over_sharers(problem, mean_over(axes_of(problem))), moments, reward, alive)


def add_rewards(
    mean: Callable[[Any], Any], moments: Moments | None, reward: Float[Array, "*b"], alive: Float[Array, "*b"]
) -> Moments | None:
    """Returns the moments after another minibatch, of which only the living samples count; `mean` is over devices and sets."""
    if moments is None:
        return None
    count = mean(jnp.sum(alive))
    centre = mean(jnp.sum(alive * reward)) / jnp.maximum(count, 1.0)
    spread = mean(jnp.sum(alive * (reward - centre) ** 2)) / jnp.maximum(count, 1.0)
    return add_moments(moments, count, centre, spread)


def standardised(moments: Moments | None, reward: Float[Array, "*b"]) -> Float[Array, "*b"]:
    """Returns rewards with mean 0 and variance 1 according to the moments; without moments, the rewards themselves."""
    if moments is None:
        return reward
    return (reward - moments.mean) / jnp.maximum(jnp.sqrt(moments.variance), 1e-4)


def discount_of(config: Settings, mine: Transition) -> float | Float[Array, " B"]:
    """Returns what the value of the next observation counts: γ, or γᵐ of each sample that spans m steps."""
    return config.gamma if mine.discount is None else mine.discount


def targets(
    config: Settings,
    problem: Problem,
    mine: Transition,
    batch: Transition,
    reward: Float[Array, " B"],
    next_value: Float[Array, " B"],
) -> Float[Array, " B"]:
    """Returns r + γ V(s') of one agent's minibatch in columns, over several steps if the settings say so."""
    if config.recurrent and config.n_step > 1:
        stops = recurrent.stops(batch.alive, batch.terminated, batch.done, problem.length)
        over = mine.terminated
        return recurrent.targets(reward, next_value, over, stops, problem.length, config.gamma, config.n_step)
    return td_target(reward, mine.terminated, next_value, discount_of(config, mine))


# --- Devices.


MEMBERS = "members"
"""The axis of the parts of a minibatch that different sub-policies played."""


def axes_of(problem: Problem) -> tuple[str, ...]:
    """Returns the axes over which a minibatch is split."""
    return (*([problem.axis] if problem.axis else []), *([MEMBERS] if problem.ensemble else []))


def mean_over(axis: str | tuple[str, ...] | None) -> Callable[[Any], Any]:
    """Returns the function that averages a tree over the devices of an axis, as one vector: devices wait for each other only
    once."""
    return (lambda tree: _mean_as_vector(tree, axis)) if axis else lambda tree: tree


def _mean_as_vector(tree: Tree, axis: str | tuple[str, ...]) -> Tree:
    vector, tree_of = ravel_pytree(tree)
    return tree_of(jax.lax.pmean(vector, axis))


def sum_over_sharers(problem: Problem, mean: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Returns the function that averages a tree over devices and sums it over the agents that share parameters."""
    shared = problem.sharing
    return mean if shared is None else lambda tree: sharing.summed(shared, mean(tree))


def max_over(axis: str | None, values: Float[Array, " B"]) -> Float[Array, ""]:
    """Returns the maximum of a minibatch that devices may share."""
    return jax.lax.pmax(jnp.max(values), axis) if axis else jnp.max(values)


# --- One optimiser step.


def one_by_one(function: Callable[..., Any], problem: Problem | None = None) -> Callable[..., Any]:
    """Returns the function, which `vmap` turns into a loop on CPUs: one agent's minibatch fits into a core's cache.

    Networks that remember follow sequences in many small steps, which cost less for all agents together.
    """
    together = problem is not None and problem.length > 0
    return function if together or jax.default_backend() != "cpu" else jax.custom_batching.sequential_vmap(function)


def with_averages(
    problem: Problem, params: Params | Any, inputs: Float[Array, "I B"], activation: Activation = "relu"
) -> Params | Any:
    """Returns a network whose running averages (batch normalisation) have seen another minibatch."""
    if problem.model is not None or problem.length:  # networks that remember are not normalised
        return params
    return move_averages(params, inputs, mean_over(problem.axis), activation)


def gradient(loss: Callable[..., Any], problem: Problem, has_aux: bool = False) -> Callable[..., Any]:
    """Returns (params, view, …) → (value of the loss, gradient with respect to params), one agent after another."""
    return one_by_one(jax.value_and_grad(loss, has_aux=has_aux), problem)


def gradient_if(loss: Callable[..., Any], problem: Problem) -> Callable[..., Any]:
    """Returns (due, params, …) → (value of the loss, gradient), or zeros without computing them if nothing is due."""

    def compute(due: Bool[Array, ""], params: Params | Any, *rest: Any) -> Any:
        nothing = (jnp.zeros((), jax.tree.leaves(params)[0].dtype), jax.tree.map(jnp.zeros_like, params))
        return jax.lax.cond(due, lambda: jax.value_and_grad(loss)(params, *rest), lambda: nothing)

    return one_by_one(compute, problem)


def only_visible(problem: Problem, grads: Params | Any, i: Int[Array, ""]) -> Params | Any:
    """Returns the gradient of critic i without the weights of what it does not see."""
    if sees_everything(problem) or problem.model is not None:  # a network of the user's own reads zeros there: see `seen_by`
        return grads
    if problem.sharing is not None:
        seen = jnp.asarray(visible_to_sets(problem, problem.sharing))[jnp.asarray(problem.sharing.sets)[i]]
    else:
        seen = jnp.asarray(visible(problem.spec, problem.sees, problem.unread))[i]
    if problem.length:
        return recurrent.masked_inputs(grads, seen)  # pyright: ignore[reportArgumentType]
    return (grads[0]._replace(weight=grads[0].weight * seen[:, None]), *grads[1:])


def seen_by(problem: Problem, inputs: Float[Array, "I B"], i: Int[Array, ""]) -> Float[Array, "J B"]:
    """Returns the joint vector as critic i reads it; the masked weights of the built-in critic already ignore the rest."""
    if problem.sharing is not None:
        return _own_first(problem, problem.sharing, inputs, i)
    if sees_everything(problem) or problem.model is None:
        return inputs
    return inputs * jnp.asarray(visible(problem.spec, problem.sees, problem.unread))[i][:, None]


def sees_everything(problem: Problem) -> bool:
    """Returns whether every critic reads the whole joint vector."""
    return bool(problem.sees.all()) and problem.unread is None


def _own_first(problem: Problem, shared: Sharing, inputs: Float[Array, "I B"], i: Int[Array, ""]) -> Float[Array, "J B"]:
    """Returns the joint vector as a shared critic reads it: agent i first, then the others, then the index of i if needed."""
    spec, batch = problem.spec, inputs.shape[-1]
    n, order = spec.num_agents, jnp.asarray(sharing.own_first(spec.num_agents))[i]
    cut = n * spec.obs_size
    obs, action = inputs[:cut].reshape(n, -1, batch)[order], inputs[cut:].reshape(n, -1, batch)[order]
    seen = sharing.with_index(shared, joint(obs, action), i)
    if sees_everything(problem) or problem.model is None:
        return seen
    return seen * jnp.asarray(visible_to_sets(problem, shared))[jnp.asarray(shared.sets)[i]][:, None]


def visible_to_sets(problem: Problem, shared: Sharing) -> np.ndarray:
    """Returns [M, J]: 1 where an entry of what a shared critic reads is real for some agent of the set, and seen."""
    spec = problem.spec
    n = spec.num_agents
    sharing.require_like_critics(shared, problem.sees)
    if problem.unread is not None:
        unread, read = problem.unread, spec.act_mask & ~problem.unread
        if any((unread[own].any(axis=0) & read[own].any(axis=0)).any() for own in shared.members):
            raise UsageError("agents with discrete and with continuous actions cannot share parameters: choose --share role.")
    seen = visible(spec, problem.sees, problem.unread)
    parts = (part.reshape(n, n, -1) for part in np.split(seen, [n * spec.obs_size], axis=1))
    return sharing.union(shared, np.concatenate([sharing.listed_own_first(part).reshape(n, -1) for part in parts], axis=1))


def masks_of(problem: Problem) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns what networks read and write, 1 where entries are real: observations, actions, and what critics see.

    They have a row for each agent, or for each set if agents share.
    """
    spec, shared = problem.spec, problem.sharing
    if shared is None:
        return spec.obs_mask, spec.act_mask, visible(spec, problem.sees, problem.unread)
    acts = sharing.union(shared._replace(ids=False), spec.act_mask)
    return sharing.union(shared, spec.obs_mask), acts, visible_to_sets(problem, shared)


def per_living(problem: Problem, view: View, means: tuple[Any, Any], actor: Int[Array, ""] | None = None) -> tuple[Any, Any]:
    """Returns gradients and metrics as means over the living samples, given means over all samples in which only the living
    count. The gradients of agents that share parameters are summed. `actor` is the agent whose policy the gradient is of; None
    stands for a critic.

    This is the only point at which devices, sharers and the parts of sub-policies meet for a gradient.
    """
    share, means = mean_over(problem.axis)((jnp.mean(view.alive), means))
    if problem.ensemble:
        share, means = _of_members(problem.ensemble, actor, share, means)
    grads, metrics = jax.tree.map(lambda leaf: leaf / jnp.maximum(share, 1e-6), means)
    return grads if problem.sharing is None else sharing.summed(problem.sharing, grads), metrics


def _of_members(
    sizes: tuple[int, ...], actor: Int[Array, ""] | None, share: Float[Array, ""], means: tuple[Any, Any]
) -> tuple[Float[Array, ""], tuple[Any, Any]]:
    """Returns means over all parts of a minibatch; of an actor with sub-policies its own part alone, with the factor 1/K."""
    together = jax.lax.pmean((share, means), MEMBERS)
    if actor is None:
        return together
    size = jnp.asarray(np.array(sizes))[actor]
    own = (share, (jax.tree.map(lambda leaf: leaf / size, means[0]), means[1]))
    return jax.tree.map(lambda all_parts, one: jnp.where(size == 1, all_parts, one), together, own)


def adam(config: Settings, lr: float) -> Any:
    """Returns Adam, loosely typed: optax's annotations do not admit our parameters, such as a layer without a norm."""
    return optax.adam(optax.linear_schedule(lr, 0.0, config.lr_steps) if config.lr_steps else lr)


def steps_of(opt: Any) -> Int[Array, ""]:
    """Returns how many steps an optimiser has made."""
    return opt[0].count


def descend(config: Settings, lr: float, params: Tree, grads: Tree, opt: optax.OptState) -> tuple[Tree, optax.OptState]:
    """Returns a network and its optimiser after one step down the clipped gradient."""
    grads = clip_by_norm(grads, config.clip, per_variable=config.clip_by == "variable")
    updates, opt = adam(config, lr).update(grads, opt)
    return jax.tree.map(jnp.add, params, updates), opt


def critic_loss(
    problem: Problem, critic: Params | Any, view: View, y: Float[Array, " B"]
) -> tuple[Float[Array, ""], Float[Array, " B"]]:
    """Returns the mean of (Q_i(o, a) − y)², and the values."""
    values = q(problem, critic, view.inputs, learning=True, begins=view.begins)
    return jnp.mean(view.weight * (values - y) ** 2), values


def train_critic(
    config: Settings,
    problem: Problem,
    critic: Params | Any,
    opt: optax.OptState,
    view: View,
    y: Float[Array, " B"],
    i: Int[Array, ""],
) -> tuple[Params | Any, optax.OptState, Float[Array, " B"], dict[str, Float[Array, ""]]]:
    """Returns critic i after one step towards y, its optimiser, its values before the step, and metrics."""
    critic = with_averages(problem, critic, view.inputs, config.critic_activation)
    (loss, values), grads = gradient(partial(critic_loss, problem), problem, has_aux=True)(critic, view, y)
    grads = only_visible(problem, grads, i)
    metrics = {"critic_loss": loss, "q": jnp.mean(view.alive * values), "td_target": jnp.mean(view.alive * y)}
    grads, metrics = per_living(problem, view, (grads, metrics))
    return *descend(config, config.critic_lr or config.lr, critic, grads, opt), values, metrics


# --- All agents.


def init_agents(init_agent: Callable[..., Agents], config: Settings, problem: Problem, key: Key, *more: np.ndarray) -> Agents:
    """Returns fresh agents by (config, problem, key, observations[O], actions[A], seen[I], …) → one agent.

    The arrays are 1 where entries are real and, for the critic, visible; `more` are [N, …] and follow them.
    """
    problem = with_networks(config, problem)
    if problem.sharing is not None:
        more = tuple(sharing.union(problem.sharing._replace(ids=False), mask) for mask in more)
    masks = (*masks_of(problem), *more)
    return jax.vmap(partial(init_agent, config, problem))(
        jax.random.split(key, len(masks[0])), *(jnp.asarray(mask, jnp.float32) for mask in masks)
    )


UpdateAgent = Callable[..., tuple[Any, dict[str, Any]]]
"""(config, problem, own, agents, mine, batch, i, key) → (agent i, its metrics): the body of an algorithm's "for each agent".

`own` is agent i of `agents`, `mine` its column of `batch`; the other agents are only read.
"""


def update(
    update_agent: UpdateAgent, config: Settings, problem: Problem, agents: Agents, batch: Transition, key: Key
) -> tuple[Agents, Metrics]:
    """Returns all agents after one update. `batch` is [B, …], or [N, B, …] with one minibatch for each of several agents."""
    each, own_batch = jnp.arange(problem.spec.num_agents), has_own_batches(config, problem)
    if config.order == "sequential":
        agents, metrics = jax.lax.scan(
            lambda agents, i: _update_in_place(update_agent, config, problem, agents, batch, i, key), agents, each
        )
    else:
        columns = jax.vmap(column)(batch, each) if own_batch else batch
        axes = (0 if own_batch else agents_axis(batch), 0 if own_batch else None, 0)
        shared = sharing.sharing_of(config.share, problem.spec)
        if shared is not None:
            agents, metrics = _update_sets(update_agent, config, problem, shared, agents, (columns, batch, each), axes, key)
        else:
            agents, metrics = jax.vmap(
                lambda own, mine, batch, i: update_agent(config, problem, own, agents, mine, batch, i, key), in_axes=(0, *axes)
            )(agents, columns, batch, each)
    return agents, gather(config, problem, batch, metrics)


def _update_sets(
    update_agent: UpdateAgent,
    config: Settings,
    problem: Problem,
    shared: Sharing,
    sets: Agents,
    inputs: tuple[Any, ...],
    axes: tuple[Any, ...],
    key: Key,
) -> tuple[Agents, Metrics]:
    """Returns all sets of parameters after one update: every agent computes its gradient, and each set makes one step."""
    agents = sharing.expanded(shared, sets)
    single = shared.num_sets == 1  # then the step is computed once, not once for every agent
    own = jax.tree.map(lambda leaf: leaf[0], sets) if single else agents
    agents, metrics = jax.vmap(
        lambda own, mine, batch, i: update_agent(config, problem, own, agents, mine, batch, i, key),
        in_axes=(None if single else 0, *axes),
        axis_name=sharing.AGENTS,
    )(own, *inputs)
    return sharing.merged(shared, agents), metrics


def update_one(
    update_agent: UpdateAgent,
    config: Settings,
    problem: Problem,
    agents: Agents,
    batch: Transition,
    i: Int[Array, ""],
    key: Key,
) -> tuple[Any, dict[str, Float[Array, "*b"]]]:
    """Returns agent i and its metrics after an update, from the same batch as `update`."""
    if has_own_batches(config, problem):
        batch = jax.tree.map(lambda leaf: leaf[i], batch)
    own = jax.tree.map(lambda leaf: leaf[i], agents)
    return update_agent(config, problem, own, agents, column(batch, i), batch, i, key)


def _update_in_place(
    update_agent: UpdateAgent,
    config: Settings,
    problem: Problem,
    agents: Agents,
    batch: Transition,
    i: Int[Array, ""],
    key: Key,
) -> tuple[Agents, dict[str, Float[Array, "*b"]]]:
    agent, metrics = update_one(update_agent, config, problem, agents, batch, i, key)
    return jax.tree.map(lambda leaf, row: leaf.at[i].set(row), agents, agent), metrics


def gather(config: Settings, problem: Problem, batch: Transition, metrics: Metrics) -> Metrics:
    """Returns the metrics of an update from those of every agent; the TD error of a shared sample is a mean over its living
    agents."""
    if TD_ERRORS not in metrics or has_own_batches(config, problem):
        return metrics
    shared = jnp.sum(metrics[TD_ERRORS], axis=0) / jnp.maximum(jnp.sum(batch.alive, axis=1), 1)
    return metrics | {TD_ERRORS: shared}


def learn_apart(config: Settings) -> bool:
    """Returns whether agents learn independently of each other, so that other processes can compute their updates."""
    return config.order == "snapshot" and config.share == "none" and not config.recurrent


def has_own_batches(config: Settings, problem: Problem) -> bool:
    """Returns whether a batch has a leading axis of agents; that of a single agent has none."""
    return config.minibatch == "per-agent" and problem.spec.num_agents > 1
