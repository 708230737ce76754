"""How much actions differ from step to step, from sums that cost next to nothing.

An evaluation adds up every agent's actions, their squares and how often they were at a bound, in JAX or in NumPy alike: the
functions that it calls use operators only. `action_statistics` turns the sums into the numbers of a report. Squares are needed
because discrete actions may be probabilities: a policy whose likeliest choice never changes may still tell a lot by them.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from counterpoint.core.spaces import ActionSpace, Box, Discrete, Spec

AT_BOUND = 0.98
"""From here on an action in [−1, 1] is at a bound."""
ACTION_VARIATION, MESSAGE_VARIATION, SHARE_AT_BOUND = "action_variation", "message_variation", "at_bound"
STATISTICS = (ACTION_VARIATION, MESSAGE_VARIATION, SHARE_AT_BOUND)
"""The names of all statistics."""


class ActionSums(NamedTuple):
    """Sums over steps in which an agent was alive and had a choice, [..., N, A] each."""

    count: Any
    """How many steps those were, for each entry."""
    total: Any
    """Of the actions."""
    square: Any
    """Of the squared actions."""
    bound: Any
    """How often a continuous action was at a bound; None if no agent has continuous actions."""

    def plus(self, other: "ActionSums") -> "ActionSums":
        """Returns the sums of both."""
        return ActionSums(*(None if mine is None else mine + theirs for mine, theirs in zip(self, other, strict=True)))


def no_actions(spec: Spec, *lead: int) -> ActionSums:
    """Returns sums over no steps, of the shape [*lead, N, A]."""
    zero = np.zeros((*lead, *spec.act_mask.shape), np.float32)
    return ActionSums(zero, zero, zero, zero if _is_box(spec).any() else None)


def stacked(sums: Sequence[ActionSums]) -> ActionSums:
    """Returns NumPy sums along a new first axis."""
    return ActionSums(*(None if each[0] is None else np.stack(each) for each in zip(*sums, strict=True)))


def action_sums(spec: Spec, action: Any, alive: Any, legal: Any = None) -> ActionSums:
    """Returns the sums of one step.

    `action` [..., N, A] is in [−1, 1] where it is continuous; `alive` [..., N] and `legal` [..., N, A] are of the same moment.
    """
    lead = action.ndim - 2
    counts = alive[..., None] & _below(lead, spec.act_mask)
    if legal is not None:
        counts = counts & _has_choice(spec, legal)
    count = counts.astype(np.float32)
    total, box = action * count, _is_box(spec)
    bound = (abs(action) >= AT_BOUND) * count * _below(lead, box) if box.any() else None
    return ActionSums(count, total, action * total, bound)


def action_statistics(spec: Spec, sums: ActionSums, words: Mapping[int, slice]) -> dict[str, dict[str, float]]:
    """Returns each statistic by agent, from sums [N, A]; `words` are the entries of the actions of agents that speak.

    `action_variation` is the standard deviation of an action between steps, of the head that varies most: 0 if an agent always
    does the same, at most 1. `message_variation` is that of what it says. `at_bound` is the share of continuous actions at a
    bound. A number is NaN if an agent had no choice in any step.
    """
    found: dict[str, dict[str, float]] = {name: {} for name in STATISTICS}
    for i, (agent, space) in enumerate(zip(spec.agents, spec.action_spaces, strict=True)):
        own = ActionSums(*(None if each is None else np.asarray(each, np.float64)[i, : space.size] for each in sums))
        found[ACTION_VARIATION][agent] = _variation(own, heads_at(space))
        if i in words:
            found[MESSAGE_VARIATION][agent] = _variation(own, [words[i]])
        if isinstance(space, Box):
            found[SHARE_AT_BOUND][agent] = float(own.bound.sum() / own.count.sum()) if own.count.any() else np.nan
    return {name: by_agent for name, by_agent in found.items() if by_agent}


def heads_at(space: ActionSpace) -> list[slice]:
    """Returns where each head of an action is; every number of a continuous action is one of its own."""
    heads = space.heads if isinstance(space, Discrete) else (1,) * space.size
    return [slice(start, stop) for start, stop in pairwise(np.cumsum((0, *heads)).tolist())]


def words_of(env: Any) -> dict[int, slice]:
    """Returns which entries of the actions are words, by agent, in worlds whose agents speak."""
    env = getattr(env, "world", env)  # with other teams or another limit
    bodies: Any = getattr(env, "bodies", None)
    if not getattr(bodies, "num_words", 0) or not hasattr(env, "spec_heads"):
        return {}
    heads = {int(i): env.spec_heads(int(i)) for i in np.flatnonzero(bodies.talks)}
    return {i: slice(sum(each[:-1]), sum(each)) for i, each in heads.items()}


def _variation(sums: ActionSums, heads: list[slice]) -> float:
    """Returns the largest standard deviation of a head's actions; NaN if there never was a choice."""
    count = np.where(sums.count > 0, sums.count, np.nan)
    variance = np.maximum(sums.square / count - (sums.total / count) ** 2, 0.0)
    found = [float(variance[head].sum()) for head in heads]
    return float(np.sqrt(max((each for each in found if not np.isnan(each)), default=np.nan)))


@lru_cache(maxsize=16)
def _is_box(spec: Spec) -> np.ndarray:
    """Returns [N, A]: which entries belong to continuous actions."""
    return spec.act_mask & np.array([isinstance(space, Box) for space in spec.action_spaces])[:, None]


@lru_cache(maxsize=16)
def _same_head(spec: Spec) -> np.ndarray:
    """Returns [N, A, A]: 1 where two entries belong to the same head."""
    same = np.zeros((*spec.act_mask.shape, spec.act_size), np.float32)
    for i, space in enumerate(spec.action_spaces):
        for head in heads_at(space):
            same[i, head, head] = 1
    return same


def _has_choice(spec: Spec, legal: Any) -> Any:
    """Returns [..., N, A]: the entries of continuous actions and of heads with several legal choices."""
    lead = legal.ndim - 2
    return ((legal[..., None, :] * _below(lead, _same_head(spec))).sum(-1) > 1) | _below(lead, _is_box(spec))


def _below(lead: int, table: np.ndarray) -> np.ndarray:
    """Returns a table with that many leading axes of length 1."""
    return table.reshape((1,) * lead + table.shape)
