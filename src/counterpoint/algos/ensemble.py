"""Policy ensembles (Lowe et al. 2017, Section 4.3): K sub-policies per agent, one of which plays a whole episode.

Every team draws the index of its sub-policies at the start of an episode. Sub-policy k of agent i learns from the transitions
in which it acted (its own replay D_i^(k)), by the gradient of the ensemble objective J(μ_i) = 1/K Σ_k R_i(μ_i^(k)):

    ∇_θ(k) J = 1/K E_{D(k)} [∇_θ(k) μ^(k)(o_i) ∇_a Q_i(o, a)]

A minibatch has K parts. Every sub-policy of a team plays in one of them; which ones meet is drawn for each update. So in each
update every sub-policy takes one step, on 1/K of the minibatch, and an update costs as much as that of a single policy. The
critics are one per agent and learn from the whole minibatch, and so do the policies of teams without an ensemble.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from counterpoint.algos.base import Agents, Algorithm, Carry, Metrics
from counterpoint.algos.offpolicy import MEMBERS
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


def of_agents(spec: Spec, sizes: tuple[int, ...]) -> tuple[int, ...]:
    """Returns the number of sub-policies of each agent, given that of each team."""
    teams = tuple(dict.fromkeys(spec.teams))
    return tuple(sizes[teams.index(team)] for team in spec.teams)


def with_ensemble(algo: Algorithm, spec: Spec, sizes: tuple[int, ...]) -> Algorithm:
    """Returns the algorithm with sub-policies; `sizes` has their number for each team, K or 1, in the order of the spec.

    To learn, the algorithm must have been made for such an ensemble (`Entry.ensembles`).
    """
    teams = tuple(dict.fromkeys(spec.teams))
    team_of = np.array([teams.index(team) for team in spec.teams])
    each, most = np.arange(spec.num_agents), max(sizes)

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

    # In several environments all sub-policies compute actions for all of them: products of whole matrices, where gathering the
    # weights of those that play would copy them for each. The acting state is noise, and does not depend on who plays.
    def act(
        policy: Any, carry: EnsembleCarry, obs: Array, key: Key, step: Array, legal: Any = None
    ) -> tuple[Array, EnsembleCarry, Any]:
        if obs.shape[0] == 1:
            action, inner, extras = algo.act(of_members(policy, carry.member[0]), carry.inner, obs, key, step, legal)
            return action, EnsembleCarry(inner, carry.member), (extras, carry.member)
        action, inner, extras = jax.vmap(lambda own: algo.act(own, carry.inner, obs, key, step, legal), in_axes=1)(policy)
        first = jax.tree.map(lambda leaf: leaf[0], (inner, extras))
        return played(action, carry.member), EnsembleCarry(first[0], carry.member), (first[1], carry.member)

    def greedy(policy: Any, carry: EnsembleCarry, obs: Array, legal: Any = None) -> tuple[Array, EnsembleCarry]:
        action, inner = jax.vmap(lambda own: algo.greedy(own, carry.inner, obs, legal), in_axes=1)(policy)
        return played(action, carry.member), EnsembleCarry(jax.tree.map(lambda leaf: leaf[0], inner), carry.member)

    def update(agents: Agents, batch: Transition, key: Key) -> tuple[Agents, Metrics]:
        extras, member = batch.extras
        parts = jax.tree.map(lambda leaf: leaf.reshape(most, -1, *leaf.shape[1:]), (batch._replace(extras=extras), member))
        members = parts[1][:, 0]  # the same in a whole part

        def of_part(part: Transition, member: Int[Array, " T"], key: Key) -> tuple[Agents, Metrics]:
            playing = agents._replace(**{name: of_members(getattr(agents, name), member) for name in OWN})
            return algo.update(playing, part, key)

        found, metrics = jax.vmap(of_part, axis_name=MEMBERS)(parts[0], members, jax.random.split(key, most))
        own = {
            name: jax.tree.map(
                lambda leaf, new: leaf.at[each[None], members[:, team_of]].set(new), getattr(agents, name), getattr(found, name)
            )
            for name in OWN
        }
        critics = jax.tree.map(lambda leaf: leaf[0], found)  # every part has computed the same
        return critics._replace(**own), jax.tree.map(lambda leaf: jnp.mean(leaf, axis=0), metrics)

    return algo._replace(init=init, begin=begin, act=act, greedy=greedy, update=update, update_one=None, gather=None)


def dealt(chance: Float[Array, "T K"], sizes: tuple[int, ...]) -> Int[Array, "K T"]:
    """Returns who plays in each part of a minibatch, given random numbers: every sub-policy of a team in one part."""
    return jnp.where(np.array(sizes)[:, None] > 1, jnp.argsort(chance, axis=1), 0).T


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
