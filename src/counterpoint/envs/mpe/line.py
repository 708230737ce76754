"""simple_line: agents line up between two landmarks (MPE2 simple_line_v1).

obs(8) = [velocity 2, position 2, landmarks 4 (relative)]
reward = −mean over agents of the distance to the assigned place, each at most 2; the same for everybody
The landmarks are 1.25 apart in a random direction. The N places are evenly spaced from the first landmark to the second; agents
and places are matched so that the sum of distances is least.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from counterpoint.core.types import Key, Metric
from counterpoint.envs.base import Observations, check_count, pad_stack
from counterpoint.envs.mpe.matching import matched
from counterpoint.envs.mpe.scenario import Scenario, State, bodies_of
from counterpoint.envs.mpe.world import Bodies, between, length

SEPARATION = 1.25
FIRST_BOX = 0.25
IN_PLACE = 0.05
FARTHEST = 2.0
TURNS = np.deg2rad(5.0) * np.arange(72)
"""The directions tried, from the drawn one on, until the second landmark is on the screen."""


@dataclass(frozen=True)
class Line(Scenario):
    """N agents form a line from one landmark to the other."""

    N: int = 4
    """Agents."""
    terminate_on_success: bool = False
    """End the game when every agent is within 0.05 of its place."""

    name: ClassVar[str] = "simple_line"
    flavours: ClassVar[tuple[str, ...]] = ("mpe2",)
    outcomes: ClassVar[tuple[str, str]] = ("formed the line", "did not form the line")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count(self, "N", 1)

    @cached_property
    def bodies(self) -> Bodies:
        return bodies_of([0.03] * self.N, [0.02] * 2, collides=True)

    @property
    def roles(self) -> tuple[str, ...]:
        return ("agent",) * self.N

    def reset(self, key: Key) -> tuple[State, Float[Array, "N O"]]:
        key, key_turn = jax.random.split(key)
        state, _ = super().reset(key)
        first = FIRST_BOX * state.landmarks[0]
        theta = jax.random.uniform(key_turn, (), maxval=2 * np.pi) + TURNS
        tried = first[None] + SEPARATION * jnp.stack([jnp.cos(theta), jnp.sin(theta)], axis=1)
        inside = jnp.all(jnp.abs(tried) < 1.0, axis=1)
        state = state._replace(landmarks=jnp.stack([first, tried[jnp.argmax(inside)]]))
        return state, pad_stack(self.observe(state))

    def observe(self, state: State) -> Observations:
        landmarks = between(state.position, state.landmarks).reshape(self.N, 4)
        return jnp.concatenate([state.velocity, state.position, landmarks], axis=1)

    def places(self, state: State) -> Float[Array, "N 2"]:
        """Returns the places on the line."""
        first, second = state.landmarks
        share = np.arange(self.N) / max(self.N - 1, 1)
        return first[None] + share[:, None] * (second - first)[None]

    def apart(self, state: State) -> Float[Array, " N"]:
        """Returns the distance of each agent to its assigned place."""
        return matched(length(between(state.position, self.places(state))))

    def reward(self, state: State) -> Float[Array, " N"]:
        return jnp.broadcast_to(-jnp.mean(jnp.minimum(self.apart(state), FARTHEST)), (self.N,))

    def success(self, state: State) -> Bool[Array, ""]:
        return jnp.all(self.apart(state) < IN_PLACE) if self.terminate_on_success else super().success(state)

    def metrics(self, state: State) -> dict[str, Metric]:
        apart = self.apart(state)
        return {
            "distance": Metric(jnp.mean(apart), "mean"),
            "final_distance": Metric(jnp.mean(apart), "last"),
            "in_place": Metric(jnp.sum((apart < IN_PLACE) * 1.0), "last"),
            "success": Metric(jnp.all(apart < IN_PLACE) * 1.0, "last"),
        }
