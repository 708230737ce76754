"""What compiled environments share: defaults, padding and the checks of their arguments."""

from collections.abc import Sequence
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from counterpoint.core.errors import UsageError
from counterpoint.core.picture import Picture
from counterpoint.core.spaces import Discrete, Spec
from counterpoint.core.types import Key, Metric, State, Step


class World:
    """A compiled environment: subclasses are frozen dataclasses whose fields are their arguments.

    Only `name`, `max_steps`, `spec`, `reset` and `step` are needed; the rest has defaults.
    """

    name: ClassVar[str]
    has_masks: ClassVar[bool] = False

    @property
    def spec(self) -> Spec:
        raise NotImplementedError

    def reset(self, key: Key) -> tuple[State, Float[Array, "N O"]]:
        raise NotImplementedError

    def step(self, key: Key, state: State, action: Float[Array, "N A"]) -> tuple[State, Step]:
        raise NotImplementedError

    def metrics(self, state: State) -> dict[str, Metric]:
        """Returns the metrics of a state: none, unless the environment has some."""
        return {}

    def legal(self, state: State) -> Bool[Array, "N A"] | None:
        """Returns which action entries are legal: all, unless the environment has action masks."""
        return None

    def draw(self, state: State) -> Picture | None:
        """Returns a picture of the state: none, unless the environment can draw itself."""
        return None

    @property
    def compiled(self) -> "World":
        return self

    def encode(self, agent: int, observation: Any) -> np.ndarray:
        """Returns an agent's observation as a vector."""
        return np.asarray(observation, np.float32)

    def decode(self, agent: int, vector: np.ndarray) -> Any:
        """Returns an action vector as the agent's native action: one integer if discrete, an array if continuous.

        Several heads make one integer, the first head counting fastest (as in mpe2: move + 5·word).
        """
        space = self.spec.action_spaces[agent]
        if not isinstance(space, Discrete):
            return vector
        choices = self.integers_of_choice(agent, space.choices(vector))
        return int(sum(c * np.prod(space.heads[:h], dtype=int) for h, c in enumerate(choices)))

    def integers_of_choice(self, agent: int, choice: list[int]) -> list[int]:
        """Returns the environment's own integer for the chosen entry of each head."""
        return choice


def pad_stack(groups: Sequence[Float[Array, "_n _o"]]) -> Float[Array, "N O"]:
    """Observations of consecutive groups of agents, each at its true size, as one array padded with zeros."""
    width = max(group.shape[-1] for group in groups)
    return jnp.concatenate([jnp.pad(group, ((0, 0), (0, width - group.shape[-1]))) for group in groups])


def check_choice(settings: Any, field: str, choices: Sequence[str]) -> None:
    """Refuse a field that is none of the choices."""
    value = getattr(settings, field)
    if value not in choices:
        raise UsageError(f"{field} must be one of {', '.join(choices)}, not {value!r}.")


def check_count(settings: Any, field: str, least: int) -> None:
    """Refuse a field that is no whole number of at least `least`."""
    value = getattr(settings, field)
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise UsageError(f"{field} must be a whole number of at least {least}, not {value!r}.")


def check_fraction(settings: Any, field: str) -> None:
    """Refuse a field that is no number between 0 and 1."""
    value = getattr(settings, field)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1:
        raise UsageError(f"{field} must be a number from 0 to 1, not {value!r}.")
