"""The vocabulary of environments, algorithms and the loop. No logic beyond checks and derived sizes.

Axis letters, always in this order: T time · E parallel environments · B batch · N agents · O observation · A action.
O and A are the largest over agents; entries beyond an agent's own size are zero.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple, Protocol

import jax
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from counterpoint.core.picture import Picture
from counterpoint.core.spaces import Spec

Key = jax.Array
"""A typed JAX random key (`counterpoint.core.prng.key`)."""

Reduction = Literal["sum", "mean", "last", "max"]
"""How a per-step metric becomes one number per episode."""


@partial(jax.tree_util.register_dataclass, data_fields=["value"], meta_fields=["reduction"])
@dataclass(frozen=True)
class Metric:
    """A number that an environment measures at each step, and how it becomes one number per episode."""

    value: Float[Array, "*b"]
    reduction: Reduction = "mean"


class Step(NamedTuple):
    """The result of one step; obs is the true successor, never the first observation of a new episode."""

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
    """The importance weight of a sample, if the memory does not draw uniformly."""
    index: Int[Array, "*b"] | None = None
    """The place of a sample in such a memory."""
    carry: Any = None
    """The acting state before this step, [*b, …] each; a memory of single steps does not keep it."""
    legal: Bool[Array, "*b N A"] | None = None
    """True where an action entry was legal, if the environment has action masks."""
    next_legal: Bool[Array, "*b N A"] | None = None
    discount: Float[Array, "*b"] | None = None
    """γᵐ of a transition that spans m steps, whose reward is the discounted sum of theirs; None if it is a single step."""
    extras: Any = ()
    """What acting left for learning, [*b, …] each: log-probabilities, the sub-policy that was drawn."""
    own: Bool[Array, "*b N"] | None = None
    """False where an earlier version of the policy acted for the agent: nothing to learn on-policy. None if none ever does."""
    begins: Bool[Array, "*b"] | None = None
    """True where memory begins anew, if a batch consists of sequences: their first steps and those of episodes."""


State = Any
"""An environment's own NamedTuple of arrays."""


class Environment(Protocol):
    """What an environment is: its name, its agents and its time limit. Compiled and external environments both are this."""

    @property
    def name(self) -> str: ...
    @property
    def max_steps(self) -> int: ...
    @property
    def spec(self) -> Spec: ...
    @property
    def has_masks(self) -> bool:
        """Whether some actions are illegal at times."""
        ...

    @property
    def compiled(self) -> "Env | None":
        """The environment as pure JAX functions, or None if Python steps it."""
        ...

    def encode(self, agent: int, observation: Any) -> np.ndarray:
        """Returns an agent's native observation as a vector."""
        ...

    def decode(self, agent: int, vector: np.ndarray) -> Any:
        """Returns an action vector (in the environment's range) as the agent's native action."""
        ...


class Env(Environment, Protocol):
    """What a compiled environment can do. Pure functions: no automatic reset, no jit, no logging."""

    def reset(self, key: Key) -> tuple[State, Float[Array, "N O"]]: ...
    def step(self, key: Key, state: State, action: Float[Array, "N A"]) -> tuple[State, Step]: ...
    def metrics(self, state: State) -> dict[str, Metric]:
        """Returns the metrics of the state that a step returned."""
        ...

    def legal(self, state: State) -> Bool[Array, "N A"] | None:
        """Returns which action entries are legal now, or None if all always are."""
        ...

    def draw(self, state: State) -> Picture | None: ...
