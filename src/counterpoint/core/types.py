"""The vocabulary: what worlds, learners and the loop say to each other. No logic beyond checks and derived sizes.

Axis letters, always in this order: T time · E parallel worlds · B batch · N agents · O observation · A action.
O and A are the largest over agents; what is beyond an agent's own size is zero.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple, Protocol

import jax
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from counterpoint.core.errors import UsageError
from counterpoint.core.picture import Picture

Key = jax.Array
"""A typed JAX random key (`counterpoint.core.prng.key`)."""

Reduction = Literal["sum", "mean", "last", "max"]
"""How a per-step figure becomes one number per episode."""


@dataclass(frozen=True)
class Discrete:
    """One choice per head; the action vector is the heads' one-hot (or relaxed) vectors side by side."""

    heads: tuple[int, ...]

    @property
    def size(self) -> int:
        return sum(self.heads)


@dataclass(frozen=True)
class Box:
    """A real vector with every entry between low and high."""

    size: int
    low: float
    high: float


ActionSpace = Discrete | Box


@dataclass(frozen=True)
class Spec:
    """Who plays in a world and what each agent sees and does; agents are named here and are the axis N elsewhere."""

    agents: tuple[str, ...]
    roles: tuple[str, ...]
    """Agents of one role are interchangeable."""
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


class Step(NamedTuple):
    """What one step of a world returns; obs is the true successor, never that of a new episode."""

    obs: Float[Array, "N O"]
    reward: Float[Array, " N"]
    terminated: Bool[Array, " N"]
    """The game is over for this agent (and stays so until reset). The future is worth nothing."""
    truncated: Bool[Array, " N"]
    """Time is up. The future is worth what it was; only the recording stops."""


class Transition(NamedTuple):
    """A step as learners read it. Leading axes are [T, E] from a rollout, [B] from replay."""

    obs: Float[Array, "*b N O"]
    action: Float[Array, "*b N A"]
    reward: Float[Array, "*b N"]
    next_obs: Float[Array, "*b N O"]
    terminated: Bool[Array, "*b N"]
    """Cut the bootstrap here, and nowhere else: a time limit does not set it."""
    alive: Bool[Array, "*b N"]
    """False where the agent had finished before this step: nothing to learn from."""
    done: Bool[Array, "*b"]
    """The episode ended with this step, for whatever reason."""
    weight: Float[Array, "*b"] | None = None
    """How much the sample counts, if the memory does not draw all with the same chance."""
    index: Int[Array, "*b"] | None = None
    """Where such a memory keeps it."""
    carry: Any = None
    """What acting remembered before this step, [*b, …] each; a memory of single steps does not keep it."""


State = Any
"""A world's own NamedTuple of arrays."""


class Env(Protocol):
    """A world: a frozen dataclass whose fields are its arguments. Pure: no reset by itself, no jit, no logging."""

    @property
    def name(self) -> str: ...
    @property
    def max_steps(self) -> int: ...
    @property
    def spec(self) -> Spec: ...
    @property
    def metric_reductions(self) -> dict[str, Reduction]:
        """The world's figures by name, and how each becomes one number per episode."""
        ...

    def reset(self, key: Key) -> tuple[State, Float[Array, "N O"]]: ...
    def step(self, key: Key, state: State, action: Float[Array, "N A"]) -> tuple[State, Step]: ...
    def metrics(self, state: State) -> dict[str, Float[Array, ""]]:
        """The figures of `metric_reductions` for the state a step returned."""
        ...

    def draw(self, state: State) -> Picture: ...
