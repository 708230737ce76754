"""The contract between an algorithm and the loop."""

from collections.abc import Callable
from typing import Any, NamedTuple

from jaxtyping import Array, Float

Agents = Any
"""A learner's whole state; per-agent leaves are [N, …]."""
Carry = Any
"""What acting remembers within an episode (noise, recurrent state), one row per world; often empty."""
Metrics = dict[str, Float[Array, " N"]]
"""Figures of an update by name, one number per agent."""


TD_ERRORS = "td_errors"
"""Beside the metrics of an update whose batch has weights: how wrong the critics were about each sample, in its shape."""


class Algorithm(NamedTuple):
    """An algorithm bound to its settings and a spec."""

    init: Callable[..., Agents]
    """(key) → agents."""
    begin: Callable[..., Carry]
    """() → the carry of one world at the start of an episode."""
    act: Callable[..., Any]
    """(agents, carry, obs[E,N,O], key, step[]) → (action[E,N,A], carry): exploring, as training does."""
    greedy: Callable[..., Any]
    """(agents, carry, obs[E,N,O]) → (action[E,N,A], carry): without noise."""
    update: Callable[..., Any]
    """(agents, batch, key) → (agents, metrics)."""
    acting: Callable[[Agents], Agents]
    """(agents) → only what acting needs, the rest None: the policy as it is saved."""
    metrics: tuple[str, ...]
    """The names of an update's figures."""
    update_one: Callable[..., Any] | None = None
    """(agents, batch, i, key) → (agent i, its figures): a pure function, so that any process may compute it; together they
    are `update`. None if agents learn one after another."""
    gather: Callable[..., Any] | None = None
    """(batch, figures [N, …] of all agents) → the metrics of `update`."""
