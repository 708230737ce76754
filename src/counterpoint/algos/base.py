"""The contract between an algorithm and the loop."""

from collections.abc import Callable
from typing import Any, NamedTuple

Agents = Any
"""A learner's whole state; per-agent leaves are [N, …]."""
Carry = Any
"""What acting remembers within an episode (noise, recurrent state), one row per world; often empty."""
Metrics = dict[str, Any]
"""Figures of an update by name: scalars, or one number per agent [N]."""


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
