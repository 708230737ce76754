"""An environment as a run describes it in spec.json: its agents and spaces, without the environment itself.

Exports and tables need nothing else, so that a run from somebody else is read without executing anything that it names.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from counterpoint.core.checks import shown
from counterpoint.core.errors import UsageError
from counterpoint.core.spaces import ActionSpace, Box, Discrete, Spec
from counterpoint.core.types import Environment
from counterpoint.runs import Run

LARGEST = 1_000_000
"""The largest number of agents, observation entries or choices that a description may have."""


@dataclass(frozen=True)
class Recorded:
    """What an environment is. It can be neither stepped nor drawn."""

    name: str
    max_steps: int
    spec: Spec
    has_masks: bool
    integers: tuple[tuple[tuple[int, ...], ...], ...]
    """The environment's own integer for each choice of each head, by agent."""
    joined: tuple[bool, ...]
    """Whether an agent's native action is a single number."""

    @property
    def compiled(self) -> None:
        return None

    def encode(self, agent: int, observation: Any) -> np.ndarray:
        """Returns an observation that is a vector already."""
        return np.asarray(observation, np.float32).ravel()

    def decode(self, agent: int, vector: np.ndarray) -> Any:
        """Returns an action vector as the agent's native action: one integer, one per head, or the vector itself."""
        space = self.spec.action_spaces[agent]
        if isinstance(space, Box):
            return np.asarray(vector, np.float32)
        digits = [table[k] for table, k in zip(self.integers[agent], space.choices(vector), strict=True)]
        if not self.joined[agent]:
            return np.array(digits)
        return digits[0] if len(digits) == 1 else int(np.ravel_multi_index(digits, space.heads, order="F"))


def record(run: Run, env: Environment) -> None:
    """Writes the description of an environment into the folder of its run, unless it is there already."""
    facts = _facts(env)
    try:
        known = run.load_spec()
    except UsageError:  # it is damaged
        known = None
    if known is None or any(known.get(name) != value for name, value in facts.items()):
        run.save_spec(facts)


def read(run: Run) -> Recorded | None:
    """Returns the environment that a run describes, or None if it describes none (older runs)."""
    facts = run.load_spec()
    if facts is None:
        return None
    try:
        spaces = tuple(map(_space, facts["action_spaces"]))
        sizes = tuple(_whole(size, 0) for size in facts["obs_sizes"])
        agents, roles, teams = (tuple(map(str, facts[name])) for name in ("agents", "roles", "teams"))
        if len(sizes) * max((*sizes, *(space.size for space in spaces))) > LARGEST:
            raise ValueError(f"more than {LARGEST} numbers per step")
        tables = tuple(tuple(tuple(int(k) for k in head) for head in agent) for agent in facts["integers"])
        spec = Spec(agents, roles, teams, sizes, spaces)
        joined = tuple(map(bool, facts["joined"]))
        if len(tables) != spec.num_agents or len(joined) != spec.num_agents:
            raise ValueError("a list has not one entry per agent")
        for space, heads in zip(spaces, tables, strict=True):
            if isinstance(space, Discrete) and tuple(map(len, heads)) != space.heads:
                raise ValueError("the choices do not fit their integers")
        return Recorded(str(facts["name"]), _whole(facts["max_steps"], 1), spec, bool(facts["has_masks"]), tables, joined)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise UsageError(f"{run.path / 'spec.json'} cannot be used ({shown(str(error), 120)}): pass --env again.") from None


def _facts(env: Environment) -> dict[str, Any]:
    spec, each = env.spec, range(env.spec.num_agents)
    return {
        "name": env.name,
        "max_steps": env.max_steps,
        "has_masks": bool(env.has_masks),
        "agents": list(spec.agents),
        "roles": list(spec.roles),
        "teams": list(spec.teams),
        "obs_sizes": list(spec.obs_sizes),
        "action_spaces": [_plain(space) for space in spec.action_spaces],
        "integers": [integers(env, i) for i in each],
        "joined": [joined(env, i) for i in each],
    }


def joined(env: Environment, i: int) -> bool:
    """Returns whether an agent's native action is a single number."""
    space = env.spec.action_spaces[i]
    return isinstance(space, Box) or np.ndim(env.decode(i, space.one_hot([0] * len(space.heads)))) == 0


def integers(env: Environment, i: int) -> list[list[int]]:
    """Returns the environment's own integer for each choice of each head, however it counts them."""
    space = env.spec.action_spaces[i]
    if isinstance(space, Box):
        return []
    tables = []
    for head, width in enumerate(space.heads):
        choices = [[k * (other == head) for other in range(len(space.heads))] for k in range(width)]
        tables.append([_digits(env.decode(i, space.one_hot(choice)), space.heads)[head] for choice in choices])
    return tables


def _digits(action: Any, heads: tuple[int, ...]) -> list[int]:
    """Returns a native action as one integer per head."""
    if np.ndim(action) == 0 and len(heads) > 1:
        return [int(digit) for digit in np.unravel_index(int(action), heads, order="F")]
    return [int(digit) for digit in np.ravel(action)]


def _plain(space: ActionSpace) -> dict[str, Any]:
    if isinstance(space, Discrete):
        return {"heads": list(space.heads)}
    return {"size": space.size, "low": _bounds(space.low), "high": _bounds(space.high)}


def _bounds(bound: float | tuple[float, ...]) -> float | list[float]:
    return list(bound) if isinstance(bound, tuple) else float(bound)


def _space(facts: dict[str, Any]) -> ActionSpace:
    if "heads" in facts:
        return Discrete(tuple(_whole(width, 1) for width in facts["heads"]))
    low, high = (tuple(map(float, b)) if isinstance(b, list) else float(b) for b in (facts["low"], facts["high"]))
    return Box(_whole(facts["size"], 1), low, high)


def _whole(value: Any, least: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= LARGEST:
        raise ValueError(f"{value!r} is not a number from {least} to {LARGEST}")
    return value
