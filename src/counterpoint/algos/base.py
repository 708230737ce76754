"""The contract between an algorithm and the rest: what it computes (`Algorithm`) and what others ask of it (`Entry`).

An algorithm is one file: settings, losses, update, and an `Entry` at its end. The files in this package are found by
`find`; one of the user's own is named by its address, my_algorithm.py:entry.
"""

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Array, Float

from counterpoint.core.errors import UsageError
from counterpoint.core.loading import is_address, load_object
from counterpoint.core.spaces import Box, Spec

Agents = Any
"""The whole state of a learner; leaves that belong to agents are [N, …]."""
Carry = Any
"""The acting state within an episode (noise, recurrent state, a drawn sub-policy) of one environment; often empty."""
Metrics = dict[str, Float[Array, " N"]]
"""The metrics of an update by name, one number per agent."""


TD_ERRORS = "td_errors"
"""Beside the metrics of an update whose batch has weights: the absolute TD error of each sample, in its shape."""


class Algorithm(NamedTuple):
    """An algorithm bound to its settings and a spec. `legal` is bool[E,N,A], or None without action masks."""

    init: Callable[..., Agents]
    """(key) → agents."""
    policy: Callable[[Agents], Any]
    """(agents) → the part that acting needs: what a run saves as its policy."""
    begin: Callable[..., Carry]
    """(key) → the carry of one environment at the start of an episode."""
    act: Callable[..., Any]
    """(policy, carry, obs[E,N,O], key, step[], legal) → (action[E,N,A], carry, extras): explores, as in training."""
    greedy: Callable[..., Any]
    """(policy, carry, obs[E,N,O], legal) → (action[E,N,A], carry): without noise."""
    update: Callable[..., Any]
    """(agents, batch, key) → (agents, metrics)."""
    metrics: tuple[str, ...]
    """The names of an update's metrics."""
    update_one: Callable[..., Any] | None = None
    """(agents, batch, i, key) → (agent i, its metrics): a pure function that any process may compute; all agents together
    give `update`. None if agents learn one after another."""
    gather: Callable[..., Any] | None = None
    """(batch, metrics [N, …] of all agents) → the metrics of `update`."""


@dataclass(frozen=True)
class Replay:
    """A memory that outlives the rollout: minibatches are drawn from it."""

    per_agent: bool = False
    """Draw one minibatch for each agent."""
    priority: tuple[float, float] | None = None
    """Draw by TD error: the exponent of the priority and β of the importance weights."""
    newest: bool = False
    """Give an update the newest transitions as well, as the extras of its minibatch."""
    n_step: tuple[int, float] | None = None
    """Store n-step transitions: n and the discount factor; None stores single steps."""
    sequence: tuple[int, int] | None = None
    """Draw sequences of successive steps instead of single steps: how many refresh memory, and how many to learn from."""


@dataclass(frozen=True)
class Rollout:
    """A memory of the last rollout alone, for on-policy learning."""


class Actors(NamedTuple):
    """A policy as plain networks, for NumPy, ONNX and worker processes."""

    layers: Any
    """`nets.Params` stacked over agents, leaves [N, …], or `onpolicy.Network` if actors are recurrent."""
    rules: Mapping[str, Any]
    """How outputs become actions: fields of `numpy_policy.Rules`."""
    std: Any = None
    """[N, A]: learnt standard deviations of continuous actions, instead of the rules' schedule; None if none are learnt."""


@dataclass(frozen=True)
class Entry:
    """Everything that others ask of an algorithm."""

    name: str
    settings: type
    """A frozen dataclass that checks itself; its fields become command-line options."""
    make: Callable[..., Algorithm]
    """(settings, spec, sees[N, N], axis) → the algorithm; `sees` says which agents each critic sees, `axis` names the device
    axis that a minibatch is split over, or is None."""
    memory: Callable[[Any], Replay | Rollout] = lambda settings: Replay()
    """(settings) → the memory to learn from."""
    training: Mapping[str, Any] = field(default_factory=dict)
    """Defaults of the training group that differ from the usual ones."""
    actions: tuple[Literal["discrete", "continuous"], ...] = ("discrete", "continuous")
    critic: Literal["joint", "own"] = "joint"
    """Whether critics see all agents or their own only."""
    actors: Callable[[Any, Spec, Any], Actors | None] = lambda settings, spec, policy: None
    """(settings, spec, policy) → the policy as plain networks, or None if it is something else. Export and worker
    processes need it."""
    learners: bool = False
    """Whether `update_one` exists, so that remote learners can compute updates."""
    splits_batch: bool = False
    """Whether devices can share one seed's minibatch."""
    ensembles: bool = False
    """Whether `make` takes `ensemble`, the number of each agent's sub-policies."""
    recurrent: Callable[[Any], bool] = lambda settings: False
    """(settings) → whether acting remembers earlier observations."""
    refuses: tuple[str, ...] = ()
    """Settings of which it takes only the default, though its family has them."""
    address: str = ""
    """Where the entry was found, if it is not one of ours."""

    @property
    def title(self) -> str:
        """The name that a run records: the address of an algorithm of the user's own."""
        return self.address or self.name

    def check(self, spec: Spec, env: str) -> None:
        """Refuses action spaces that the algorithm cannot use."""
        for agent, space in zip(spec.agents, spec.action_spaces, strict=True):
            kind = "continuous" if isinstance(space, Box) else "discrete"
            if kind not in self.actions:
                needed = " or ".join(self.actions)
                other = next((entry.name for entry in entries().values() if kind in entry.actions), "another")
                or_actions = f" or --actions {needed}" if env.startswith("simple") else ""
                raise UsageError(
                    f"{self.name} needs {needed} actions, and those of {agent} in {env} are {kind}: choose --algorithm"
                    f" {other}{or_actions}."
                )


@cache
def entries() -> dict[str, Entry]:
    """Returns the algorithms of this package by name: every module here may define `ENTRIES`."""
    found: dict[str, Entry] = {}
    for module in iter_modules(import_module("counterpoint.algos").__path__):
        for entry in getattr(import_module(f"counterpoint.algos.{module.name}"), "ENTRIES", ()):
            found[entry.name] = entry
    return found


def find(algorithm: "str | Entry") -> Entry:
    """Returns the entry of a name, of an address such as my_algorithm.py:entry, or the entry itself."""
    if isinstance(algorithm, Entry):
        return algorithm
    if is_address(algorithm):
        entry = load_object(algorithm, "--algorithm")
        if not isinstance(entry, Entry):
            raise UsageError(f"--algorithm {algorithm} is a {type(entry).__name__}, not a counterpoint.Entry.")
        return entry if entry.address else Entry(**{**vars(entry), "address": algorithm})
    known = entries()
    if algorithm not in known:
        close = difflib.get_close_matches(algorithm, list(known), 1)
        hint = f" (perhaps {close[0]}?)" if close else ""
        raise UsageError(
            f"unknown algorithm {algorithm!r}{hint}; known are {', '.join(known)}, or give your own as my_algorithm.py:entry."
        )
    return known[algorithm]


def visibility(spec: Spec, joint: Mapping[str, bool]) -> np.ndarray:
    """Returns [N, N]: whether critic i (row) sees agent j, given which teams have joint critics."""
    central = np.array([joint[team] for team in spec.teams])
    return central[:, None] | np.eye(spec.num_agents, dtype=bool)
