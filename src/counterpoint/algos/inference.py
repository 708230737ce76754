"""Inferring other agents' policies (Lowe et al. 2017, Section 4.2): agents learn without knowing how the others act.

Agent i keeps an approximation μ̂_i^j of each other agent j. Before each update of its critic it takes one step up the
log-likelihood of the newest actions of j, with a bonus for entropy (Eq. 7):

    L(φ_i^j) = − E [log μ̂_i^j(a_j | o_j) + λ H(μ̂_i^j)]
    y = r_i + γ Q'_i(o', μ̂'_i^1(o'_1), …, μ'_i(o'_i), …, μ̂'_i^N(o'_N))                 Eq. 8

Log-probabilities, not samples, go into Q. The critic therefore reads the logarithm of every discrete action, the replayed ones
too, cut off and scaled by `actions.shown_log`. A relaxed action is counted as the choice that it stands for: its largest entry,
which the policy draws with exactly its probability. Continuous actions are approximated by their mean (least squares).

`wrapped` turns the functions of an algorithm of MADDPG's family into those of the same algorithm with inferred policies.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Int

from counterpoint.algos import offpolicy
from counterpoint.algos.offpolicy import Problem
from counterpoint.core.actions import Heads, log_probabilities, masked, one_hot_best
from counterpoint.core.nets import Params
from counterpoint.core.ops import polyak
from counterpoint.core.spaces import Discrete, Spec
from counterpoint.core.types import Key, Transition

LOSS, KL, DISTANCE = "inference_loss", "inference_kl", "inference_distance"


class Newest(NamedTuple):
    """The newest transitions, in rows."""

    obs: Float[Array, "R N O"]
    action: Float[Array, "R N A"]
    alive: Bool[Array, "R N"]
    legal: Bool[Array, "R N A"] | None = None


class Inferring(NamedTuple):
    """An agent of the algorithm and its approximations of the others; stacked over agents, every leaf is [N, …]."""

    learner: Any
    inferred: Params
    """[N, …]: the approximation of every agent j; that of itself is not used."""
    inferred_target: Params
    inferred_opt: optax.OptState

    @property
    def actor(self) -> Any:
        """The agent's own actor, for acting."""
        return self.learner.actor


def inference_loss(heads: Heads, entropy: float, actor: Params, newest: Newest, problem: Problem) -> Float[Array, ""]:
    """Returns −E[log μ̂(a | o) + λ H(μ̂)] over the living samples of one agent (Eq. 7); `newest` has no axis of agents."""
    raw = masked(heads, offpolicy.outputs(problem, actor, newest.obs.T).T, newest.legal)
    log = log_probabilities(heads, raw)
    probability = jnp.exp(log) if heads.discrete is None else jnp.where(_wide(heads.discrete, log), jnp.exp(log), 0.0)
    chosen = one_hot_best(heads, newest.action)
    likely = jnp.sum(chosen * log, axis=-1)
    bonus = -jnp.sum(probability * jnp.maximum(log, -1e8), axis=-1)
    if heads.discrete is not None:
        continuous = _wide(heads.mask & ~heads.discrete, raw)
        likely -= 0.5 * jnp.sum(jnp.where(continuous, (newest.action - jnp.tanh(raw)) ** 2, 0.0), axis=-1)
    alive = newest.alive.astype(raw.dtype)
    return -jnp.sum(alive * (likely + entropy * bonus)) / jnp.maximum(jnp.sum(alive), 1.0)


def divergence(heads: Heads, problem: Problem, approximation: Params, actor: Any, newest: Newest) -> Float[Array, ""]:
    """Returns the mean KL(μ̂ ‖ μ) over the living samples of one agent's discrete heads."""
    logs = [
        log_probabilities(heads, masked(heads, offpolicy.outputs(problem, net, newest.obs.T).T, newest.legal))
        for net in (approximation, actor)
    ]
    weight = jnp.exp(logs[0]) if heads.discrete is None else jnp.where(_wide(heads.discrete, logs[0]), jnp.exp(logs[0]), 0.0)
    apart = jnp.sum(weight * (jnp.maximum(logs[0], -1e8) - jnp.maximum(logs[1], -1e8)), axis=-1)
    alive = newest.alive.astype(apart.dtype)
    return jnp.sum(alive * apart) / jnp.maximum(jnp.sum(alive), 1.0)


def distance(heads: Heads, problem: Problem, approximation: Params, actor: Any, newest: Newest) -> Float[Array, ""]:
    """Returns the mean squared distance of μ̂'s actions from μ's, in [−1, 1], over the living samples of a continuous agent."""
    actions = [jnp.tanh(offpolicy.outputs(problem, net, newest.obs.T).T) for net in (approximation, actor)]
    squares = (actions[0] - actions[1]) ** 2
    apart = jnp.sum(jnp.where(_wide(heads.mask & ~heads.discrete, squares), squares, 0.0), axis=-1)
    alive = newest.alive.astype(apart.dtype)
    return jnp.sum(alive * apart) / jnp.maximum(jnp.sum(alive), 1.0)


def measures_of(spec: Spec) -> dict[str, tuple[Callable[..., Any], np.ndarray]]:
    """Returns how far approximations are from policies, by metric: the function, and the agents [N] that it applies to.

    A deterministic policy has no divergence, so continuous agents are measured by the distance of their actions.
    """
    discrete = np.array([isinstance(space, Discrete) for space in spec.action_spaces])
    measures = {KL: (divergence, discrete), DISTANCE: (distance, ~discrete)}
    return {name: (function, agents) for name, (function, agents) in measures.items() if agents.any()}


def metrics_of(spec: Spec) -> tuple[str, ...]:
    """Returns the names of the metrics that inferred policies add."""
    return (LOSS, *measures_of(spec))


def _wide(table: Any, like: Array) -> Array:
    return jnp.broadcast_to(table, like.shape)


def wrapped(
    init: Callable[..., Any], update_agent: offpolicy.UpdateAgent
) -> tuple[Callable[..., Inferring], offpolicy.UpdateAgent]:
    """Returns `init` and `update_agent` with inferred policies; minibatches then carry the newest samples as extras.

    `update_agent` shows logarithms to the critics.
    """
    return partial(_init, init), partial(_update_agent, update_agent)


def _init(init: Callable[..., Any], config: Any, problem: Problem, key: Key) -> Inferring:
    learner = init(config, problem, key)
    networks = offpolicy.with_networks(config, problem)
    n = problem.spec.num_agents

    def fresh(key: Key) -> Params:
        masks = (jnp.asarray(problem.spec.obs_mask, jnp.float32), jnp.asarray(problem.spec.act_mask, jnp.float32))
        keys = jax.random.split(key, n)
        return jax.vmap(lambda key, obs, act: offpolicy.init_net(config, networks, key, obs, act))(keys, *masks)

    inferred = jax.vmap(fresh)(jax.random.split(jax.random.fold_in(key, 77), n))
    opt = jax.vmap(jax.vmap(offpolicy.adam(config, config.infer_lr).init))(inferred)
    return Inferring(learner, inferred, jax.tree.map(jnp.copy, inferred), opt)


def _update_agent(
    update_agent: offpolicy.UpdateAgent,
    config: Any,
    problem: Problem,
    own: Inferring,
    agents: Inferring,
    mine: Transition,
    batch: Transition,
    i: Int[Array, ""],
    key: Key,
) -> tuple[Inferring, dict[str, Array]]:
    """Returns agent i after one step of its approximations and one update against them."""
    networks, n = offpolicy.with_networks(config, problem), problem.spec.num_agents
    newest: Newest = batch.extras
    inferred, opt, losses = infer(config, networks, own.inferred, own.inferred_opt, newest)
    target = polyak(own.inferred_target, inferred, config.tau)
    true = agents.learner.actor
    others = (jnp.arange(n) != i).astype(losses.dtype)
    metrics = {LOSS: jnp.sum(others * losses) / jnp.maximum(jnp.sum(others), 1.0)}
    for name, (function, rows) in measures_of(problem.spec).items():
        measure = _each(networks, lambda heads, a, b, seen, function=function: function(heads, networks, a, b, seen))
        apart, counted = measure(inferred, true, _by_agent(newest)), others * rows
        # Without another agent of the kind there is nothing to measure: 0 / 0, an empty cell of the run's table.
        metrics[name] = jnp.sum(counted * apart) / jnp.sum(counted)
    metrics = offpolicy.mean_over(problem.axis)(metrics)

    targets = jax.tree.map(lambda leaf, mine: leaf.at[i].set(mine), own.inferred_target, own.learner.target_actor)
    known = agents.learner._replace(target_actor=targets)
    plain = (mine._replace(extras=()), batch._replace(extras=()))
    learner, found = update_agent(config, problem, own.learner, known, *plain, i, key)
    return Inferring(learner, inferred, target, opt), found | metrics


def infer(
    config: Any, problem: Problem, inferred: Params, opt: optax.OptState, newest: Newest
) -> tuple[Params, optax.OptState, Float[Array, " N"]]:
    """Returns one agent's approximations of all agents after one step on the newest samples, and the losses before it."""

    def loss(heads: Heads, net: Params, seen: Newest) -> tuple[Array, Params]:
        return jax.value_and_grad(lambda net: inference_loss(heads, config.infer_entropy, net, seen, problem))(net)

    losses, grads = _each(problem, loss)(inferred, _by_agent(newest))
    grads = offpolicy.mean_over(problem.axis)(grads)
    descend = partial(offpolicy.descend, config, config.infer_lr)
    inferred, opt = jax.vmap(descend)(inferred, grads, opt)
    return inferred, opt, losses


def _each(problem: Problem, function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns the function of one agent's heads over all agents."""
    if problem.heads.same is None:
        return jax.vmap(partial(function, problem.heads))
    tables = jax.tree.map(jnp.asarray, problem.heads)
    return lambda *trees: jax.vmap(function)(tables, *trees)


def _by_agent(newest: Newest) -> Newest:
    """Returns [R, N, …] as [N, R, …]."""
    return jax.tree.map(lambda leaf: jnp.swapaxes(leaf, 0, 1), newest)
