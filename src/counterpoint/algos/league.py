"""A league: in some episodes one team is played by an earlier version of itself, so that the other does not forget how to
beat it.

The wrapped algorithm learns as it does without a league. What an earlier version did is as good a transition as any other in a
replay memory; learning on-policy leaves it out (`Transition.own`). Every `every` updates the policy is stored in a ring of
`size` members. At the first step of an episode it is decided whether a team is replaced, which team, and by which member:
uniformly, or more often by members against whom the other team earns little. The decision is part of the acting state, and the
ring is part of the agents, so a run that is killed and resumed goes on to the bit.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from counterpoint.algos.base import Agents, Algorithm, Carry, Metrics
from counterpoint.core.spaces import Spec
from counterpoint.core.types import Key, Transition

UNDECIDED, NOBODY = -2, -1
"""Values of `LeagueCarry.member` besides the number of a member."""
MEMORY = 0.05
"""Weight of a new minibatch in the running mean of what a team earns against a member."""


@dataclass(frozen=True)
class League:
    """How opponents are drawn."""

    size: int
    every: int
    share: float
    draw: Literal["uniform", "prioritised"]


class LeaguePolicy(NamedTuple):
    """The part of the agents that acting needs."""

    current: Any
    past: Any
    """Earlier policies; leaves […, S]."""
    added: Int[Array, ""]
    """How many members were ever added."""
    scores: Float[Array, "T S"]
    """The running mean of the reward that the others earn while team t is played by member s."""


class LeagueAgents(NamedTuple):
    """The learner and the league."""

    learner: Agents
    past: Any
    added: Int[Array, ""]
    """How many members were ever added."""
    updates: Int[Array, ""]
    scores: Float[Array, "T S"]


class LeagueCarry(NamedTuple):
    """The acting state of one environment."""

    current: Carry
    past: Carry
    member: Int[Array, ""]
    team: Int[Array, ""]
    """The team that the member plays."""
    chance: Float[Array, " 3"]
    """Random numbers that decide this episode."""


def with_league(algo: Algorithm, spec: Spec, league: League, axis: str | None = None) -> Algorithm:
    """Returns the algorithm with opponents from its own past."""
    teams = tuple(dict.fromkeys(spec.teams))
    belongs = np.array([[own == team for own in spec.teams] for team in teams])

    def init(key: Key) -> LeagueAgents:
        learner = algo.init(key)
        past = jax.tree.map(lambda leaf: jnp.zeros((*leaf.shape, league.size), leaf.dtype), algo.policy(learner))
        zero = jnp.zeros((), jnp.int32)
        return LeagueAgents(learner, past, zero, zero, jnp.zeros((len(teams), league.size)))

    def policy(agents: LeagueAgents) -> LeaguePolicy:
        return LeaguePolicy(algo.policy(agents.learner), agents.past, agents.added, agents.scores)

    def begin(key: Key) -> LeagueCarry:
        current, past, chance = jax.random.split(key, 3)
        zero = jnp.zeros((), jnp.int32)
        return LeagueCarry(algo.begin(current), algo.begin(past), zero + UNDECIDED, zero, jax.random.uniform(chance, (3,)))

    def act(
        policy: LeaguePolicy, carry: LeagueCarry, obs: Array, key: Key, step: Array, legal: Any = None
    ) -> tuple[Array, LeagueCarry, Any]:
        key_now, key_past = jax.random.split(key)
        member, team = jax.vmap(partial(decide, league, policy))(carry.member, carry.team, carry.chance)
        action, current, extras = algo.act(policy.current, carry.current, obs, key_now, step, legal)

        members = jax.tree.map(lambda leaf: jnp.moveaxis(leaf, -1, 0), policy.past)  # one member's numbers lie together

        def earlier(member: Array, carry: Carry, obs: Array, key: Key, legal: Any) -> tuple[Array, Carry]:
            chosen = jax.tree.map(lambda leaf: leaf[jnp.maximum(member, 0)], members)
            lead = jax.tree.map(lambda leaf: leaf[None], (carry, obs, legal))
            action, carry, _ = algo.act(chosen, lead[0], lead[1], key, step, lead[2])
            return action[0], jax.tree.map(lambda leaf: leaf[0], carry)

        keys = jax.random.split(key_past, obs.shape[0])
        theirs, past = jax.vmap(earlier)(member, carry.past, obs, keys, legal)
        replaced = jnp.asarray(belongs)[team] & (member >= 0)[:, None]
        played = (extras, number_of(league, policy.added, member), team)
        return jnp.where(replaced[..., None], theirs, action), LeagueCarry(current, past, member, team, carry.chance), played

    def greedy(policy: LeaguePolicy, carry: LeagueCarry, obs: Array, legal: Any = None) -> tuple[Array, LeagueCarry]:
        action, current = algo.greedy(policy.current, carry.current, obs, legal)
        return action, carry._replace(current=current)

    def update(agents: LeagueAgents, batch: Transition, key: Key) -> tuple[LeagueAgents, Metrics]:
        extras, number, team = batch.extras
        carry = None if batch.carry is None else batch.carry.current
        own = ~(jnp.asarray(belongs)[team] & (number >= 0)[..., None])
        learner, metrics = algo.update(agents.learner, batch._replace(extras=extras, carry=carry, own=own), key)
        scores = judged(belongs, agents.scores, batch.reward, slot_of(league, agents.added, number), team, axis)
        updates = agents.updates + 1
        due, slot = updates % league.every == 0, agents.added % league.size
        past = jax.lax.cond(
            due,
            lambda: jax.tree.map(lambda ring, leaf: ring.at[..., slot].set(leaf), agents.past, algo.policy(learner)),
            lambda: agents.past,
        )
        scores = jnp.where(due, scores.at[:, slot].set(average(scores, agents.added)), scores)
        return LeagueAgents(learner, past, agents.added + due, updates, scores), metrics

    return algo._replace(
        init=init, policy=policy, begin=begin, act=act, greedy=greedy, update=update, update_one=None, gather=None
    )


def number_of(league: League, added: Int[Array, ""], slot: Int[Array, "*b"]) -> Int[Array, "*b"]:
    """Returns which of all members ever added is in a slot of the ring."""
    return jnp.where(slot >= 0, added - 1 - (added - 1 - slot) % league.size, slot)


def slot_of(league: League, added: Int[Array, ""], number: Int[Array, "*b"]) -> Int[Array, "*b"]:
    """Returns the slot of a member; `NOBODY` if another one has taken it since the row was stored."""
    return jnp.where((number >= 0) & (number >= added - league.size), number % league.size, NOBODY)


def average(scores: Float[Array, "T S"], added: Int[Array, ""]) -> Float[Array, " T"]:
    """Returns the mean score of the members so far, which a new one gets: nothing is known of it."""
    there = jnp.arange(scores.shape[1]) < added
    return jnp.sum(jnp.where(there, scores, 0.0), axis=1) / jnp.maximum(jnp.sum(there), 1)


def decide(
    league: League, policy: LeaguePolicy, member: Int[Array, ""], team: Int[Array, ""], chance: Float[Array, " 3"]
) -> tuple[Int[Array, ""], Int[Array, ""]]:
    """Returns the member of this episode and the team that it plays; what was decided before stays."""
    side = jnp.minimum((chance[1] * policy.scores.shape[0]).astype(jnp.int32), policy.scores.shape[0] - 1)
    count = jnp.minimum(policy.added, league.size)
    edges = jnp.cumsum(chances(league, count, policy.scores[side]))
    drawn = jnp.minimum(jnp.sum(chance[2] * edges[-1] >= edges), jnp.maximum(count - 1, 0)).astype(jnp.int32)
    drawn = jnp.where((count > 0) & (chance[0] < league.share), drawn, NOBODY)
    undecided = member == UNDECIDED
    return jnp.where(undecided, drawn, member), jnp.where(undecided, side, team)


def chances(league: League, count: Int[Array, ""], scores: Float[Array, " S"]) -> Float[Array, " S"]:
    """Returns the chance of each member: equal, or exp(−z) of the standardised reward that the others earn against it."""
    there = jnp.arange(league.size) < count
    weights = there.astype(jnp.float32)
    if league.draw == "prioritised":
        size = jnp.maximum(count, 1)
        mean = jnp.sum(jnp.where(there, scores, 0.0)) / size
        spread = jnp.sqrt(jnp.sum(jnp.where(there, (scores - mean) ** 2, 0.0)) / size)
        weights = jnp.where(there, jnp.exp(-(scores - mean) / jnp.maximum(spread, 1e-6)), 0.0)
    return weights / jnp.maximum(jnp.sum(weights), 1e-9)


def judged(
    belongs: np.ndarray,
    scores: Float[Array, "T S"],
    reward: Float[Array, "*b N"],
    member: Int[Array, "*b"],
    team: Int[Array, "*b"],
    axis: str | None = None,
) -> Float[Array, "T S"]:
    """Returns the running means after another minibatch: the reward of the agents that a member plays against."""
    reward, member, team = reward.reshape(-1, reward.shape[-1]), member.ravel(), team.ravel()
    others = jnp.asarray(~belongs, reward.dtype)[team]
    earned = jnp.sum(reward * others, axis=1) / jnp.maximum(jnp.sum(others, axis=1), 1.0)
    here = (jax.nn.one_hot(team, scores.shape[0])[:, :, None] * jax.nn.one_hot(member, scores.shape[1])[:, None, :]).reshape(
        len(member), -1
    )
    total, count = earned @ here, jnp.sum(here, axis=0)
    if axis:
        total, count = jax.lax.psum((total, count), axis)
    mean, seen = (total / jnp.maximum(count, 1.0)).reshape(scores.shape), (count > 0).reshape(scores.shape)
    return jnp.where(seen, (1 - MEMORY) * scores + MEMORY * mean, scores)
