"""Policy ensembles (Lowe et al. 2017, Section 4.3): K sub-policies per agent, one of which plays a whole episode.

Every team draws the index of its sub-policies at the start of an episode. Sub-policy k of agent i learns from the transitions
in which it acted (its own replay D_i^(k)), by the gradient of the ensemble objective J(μ_i) = 1/K Σ_k R_i(μ_i^(k)):

    ∇_θ(k) J = 1/K E_{D(k)} [∇_θ(k) μ^(k)(o_i) ∇_a Q_i(o, a)]

An update draws one index per team, uniformly, and a minibatch in which these indices played. It trains these sub-policies
alone: an unbiased sample of the sum over k, in which the factor 1/K is the chance of being drawn. So an update costs as much as
that of a single policy with the same minibatch. The critics are one per agent and learn in every update.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from counterpoint.algos.base import Agents, Algorithm, Carry, Metrics
from counterpoint.core.errors import UsageError
from counterpoint.core.spaces import Spec
from counterpoint.core.types import Key, Transition

OWN = ("actor", "target_actor", "actor_opt")
"""The parts of an agent that each sub-policy has for itself."""


class EnsembleCarry(NamedTuple):
    """The acting state of one environment."""

    inner: Carry
    member: Int[Array, " T"]
    """The sub-policy of each team."""


def sizes_of(spec: Spec, size: int, teams: Sequence[str] = ()) -> tuple[int, ...]:
    """Returns the number of sub-policies of each team, in the order of the spec; teams that are not named have one."""
    known = tuple(dict.fromkeys(spec.teams))
    if unknown := sorted(set(teams) - set(known)):
        raise UsageError(f"--ensemble-teams {unknown[0]} names no team here: the teams are {', '.join(sorted(known))}.")
    return tuple(size if not teams or team in teams else 1 for team in known)


def with_ensemble(algo: Algorithm, spec: Spec, sizes: tuple[int, ...], name: str) -> Algorithm:
    """Returns the algorithm with sub-policies; `sizes` has their number for each team, in the order of the spec."""
    teams = tuple(dict.fromkeys(spec.teams))
    team_of = np.array([teams.index(team) for team in spec.teams])
    each, most = np.arange(spec.num_agents), max(sizes)
    fields = getattr(jax.eval_shape(algo.init, jax.random.key(0)), "_fields", ())
    if not set(OWN) <= set(fields):
        raise UsageError(f"--ensemble {most} needs the actors of MADDPG's family, and {name} has none: leave it out.")

    def init(key: Key) -> Agents:
        fresh = jax.vmap(algo.init)(jax.random.split(key, most))
        first = jax.tree.map(lambda leaf: leaf[0], fresh)
        return first._replace(**{name: jax.tree.map(_agents_first, getattr(fresh, name)) for name in OWN})

    def begin(key: Key) -> EnsembleCarry:
        chance = jax.random.uniform(jax.random.fold_in(key, 1), (len(sizes),))
        return EnsembleCarry(algo.begin(key), drawn(chance, sizes))

    def of_members(tree: Any, member: Int[Array, " T"]) -> Any:
        """Returns each agent's part of leaves [N, K, …], given the index of each team."""
        return jax.tree.map(lambda leaf: leaf[each, member[team_of]], tree)

    def played(found: Array, member: Int[Array, "E T"]) -> Array:
        """Returns [E, N, …] of the sub-policies that play from [K, E, N, …] of all."""
        index = member[:, team_of].reshape(1, *found.shape[1:3], *(1,) * (found.ndim - 3))
        return jnp.take_along_axis(found, index, axis=0)[0]

    # All sub-policies compute their actions for all environments: products of whole matrices, where gathering the weights of
    # those that play would copy them in every step. The acting state is noise, and does not depend on who plays.
    def act(
        policy: Any, carry: EnsembleCarry, obs: Array, key: Key, step: Array, legal: Any = None
    ) -> tuple[Array, EnsembleCarry, Any]:
        action, inner, extras = jax.vmap(lambda own: algo.act(own, carry.inner, obs, key, step, legal), in_axes=1)(policy)
        first = jax.tree.map(lambda leaf: leaf[0], (inner, extras))
        return played(action, carry.member), EnsembleCarry(first[0], carry.member), (first[1], carry.member)

    def greedy(policy: Any, carry: EnsembleCarry, obs: Array, legal: Any = None) -> tuple[Array, EnsembleCarry]:
        action, inner = jax.vmap(lambda own: algo.greedy(own, carry.inner, obs, legal), in_axes=1)(policy)
        return played(action, carry.member), EnsembleCarry(jax.tree.map(lambda leaf: leaf[0], inner), carry.member)

    def update(agents: Agents, batch: Transition, key: Key) -> tuple[Agents, Metrics]:
        extras, member = batch.extras
        drawn_ones = member[0]  # the same in the whole minibatch
        playing = agents._replace(**{name: of_members(getattr(agents, name), drawn_ones) for name in OWN})
        playing, metrics = algo.update(playing, batch._replace(extras=extras), key)
        after = {
            name: jax.tree.map(
                lambda leaf, new: leaf.at[each, drawn_ones[team_of]].set(new), getattr(agents, name), getattr(playing, name)
            )
            for name in OWN
        }
        return playing._replace(**after), metrics

    return algo._replace(init=init, begin=begin, act=act, greedy=greedy, update=update, update_one=None, gather=None)


def drawn(chance: Array, sizes: tuple[int, ...]) -> Int[Array, " T"]:
    """Returns an index for each team from uniform random numbers."""
    return jnp.minimum((chance * np.array(sizes, np.float32)).astype(jnp.int32), np.array(sizes, np.int32) - 1)


def _agents_first(leaf: Array) -> Array:
    """Returns [K, N, …] as [N, K, …]."""
    return jnp.swapaxes(leaf, 0, 1)


def only_member(policy: Any, member: int, sizes: Sequence[int]) -> Any:
    """Returns an ensemble's policy in which every sub-policy is the one chosen: leaves [N, K, …].

    `sizes` has the number of sub-policies of each agent; one that has fewer plays its last.
    """
    index = np.minimum(member, np.asarray(sizes) - 1)
    each = np.arange(len(index))
    return jax.tree.map(lambda leaf: jnp.repeat(leaf[each, index][:, None], leaf.shape[1], axis=1), policy)
