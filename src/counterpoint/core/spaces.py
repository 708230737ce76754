"""Action spaces and who plays: the vocabulary that needs neither jax nor gymnasium.

`action_space_of` is the one translator from Gymnasium's spaces; everything else in the package speaks `Discrete` and `Box`.
"""

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from counterpoint.core.errors import UsageError


@dataclass(frozen=True)
class Discrete:
    """One choice per head; the action vector holds the heads' one-hot (or relaxed) vectors side by side."""

    heads: tuple[int, ...]

    @property
    def size(self) -> int:
        return sum(self.heads)

    def choices(self, vector: np.ndarray) -> list[int]:
        """Returns the index of the largest entry of each head."""
        edges = pairwise(np.cumsum((0, *self.heads)).tolist())
        return [int(np.argmax(vector[start:stop])) for start, stop in edges]

    def one_hot(self, choices: Any) -> np.ndarray:
        """Returns the action vector of one index per head."""
        return np.concatenate([np.eye(width, dtype=np.float32)[k] for width, k in zip(self.heads, choices, strict=True)])


@dataclass(frozen=True)
class Box:
    """A real vector with every entry between its bounds: one pair for all entries, or one bound per entry."""

    size: int
    low: float | tuple[float, ...]
    high: float | tuple[float, ...]

    @property
    def half_width(self) -> np.ndarray:
        """[size]: half the distance between the bounds."""
        return np.broadcast_to((np.asarray(self.high) - np.asarray(self.low)) / 2, (self.size,))

    @property
    def middle(self) -> np.ndarray:
        """[size]: halfway between the bounds."""
        return np.broadcast_to((np.asarray(self.high) + np.asarray(self.low)) / 2, (self.size,))


ActionSpace = Discrete | Box


def action_space_of(space: Any, agent: str = "the agent") -> ActionSpace:
    """Returns our action space for one of ours or one of Gymnasium's (Discrete, MultiDiscrete, MultiBinary, Box)."""
    if isinstance(space, Discrete | Box):
        return space
    kind = type(space).__name__
    if kind == "Discrete":
        return Discrete((int(space.n),))
    if kind == "MultiDiscrete":
        return Discrete(tuple(int(width) for width in np.ravel(space.nvec)))
    if kind == "MultiBinary":
        return Discrete((2,) * int(np.prod(space.shape)))
    if kind == "Box":
        low, high = np.ravel(space.low).astype(float), np.ravel(space.high).astype(float)
        if not (np.isfinite(low).all() and np.isfinite(high).all() and (low < high).all()):
            raise UsageError(f"the actions of {agent} need finite bounds with low < high, not {space}: wrap the environment.")
        if len(set(low.tolist())) == len(set(high.tolist())) == 1:
            return Box(low.size, float(low[0]), float(high[0]))
        return Box(low.size, tuple(low.tolist()), tuple(high.tolist()))
    raise UsageError(
        f"the actions of {agent}, {space}, are of an unsupported kind: use Discrete, MultiDiscrete, MultiBinary or Box."
    )


def default_team(agent: str) -> str:
    """Returns the team of an agent if nobody names one: "adversary" if its name starts so, else "good"."""
    return "adversary" if agent.startswith("adversary") else "good"


@dataclass(frozen=True)
class Spec:
    """The agents of an environment and what each observes and does; agents have names here and are the axis N elsewhere."""

    agents: tuple[str, ...]
    roles: tuple[str, ...]
    """Agents with the same role are interchangeable."""
    teams: tuple[str, ...]
    """Agents of one team share an interest: "good", "adversary"."""
    obs_sizes: tuple[int, ...]
    action_spaces: tuple[ActionSpace, ...]

    def __post_init__(self) -> None:
        lengths = {len(self.agents), len(self.roles), len(self.teams), len(self.obs_sizes), len(self.action_spaces)}
        if len(lengths) != 1 or len(set(self.agents)) != len(self.agents):
            raise UsageError(f"a Spec needs one entry per distinct agent in every field, got {self}")

    @property
    def num_agents(self) -> int:
        return len(self.agents)

    @property
    def act_sizes(self) -> tuple[int, ...]:
        return tuple(space.size for space in self.action_spaces)

    @property
    def obs_size(self) -> int:
        return max(self.obs_sizes)

    @property
    def act_size(self) -> int:
        return max(self.act_sizes)

    @cached_property
    def obs_mask(self) -> np.ndarray:
        """True where an entry of obs[N, O] is real, not padding."""
        return np.arange(self.obs_size) < np.array(self.obs_sizes)[:, None]

    @cached_property
    def act_mask(self) -> np.ndarray:
        """True where an entry of action[N, A] is real, not padding."""
        return np.arange(self.act_size) < np.array(self.act_sizes)[:, None]
