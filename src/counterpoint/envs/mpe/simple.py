"""simple: one agent walks to one landmark (MPE2 simple_v3).

obs(4) = [velocity 2, landmark 2 (relative)]
reward = −(distance to the landmark)²
"""

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float

from counterpoint.core.types import Metric
from counterpoint.envs.base import Observations
from counterpoint.envs.mpe.scenario import Scenario, State, bodies_of
from counterpoint.envs.mpe.world import Bodies, length


@dataclass(frozen=True)
class Simple(Scenario):
    """One agent, one landmark: minus the squared distance between them."""

    name: ClassVar[str] = "simple"
    outcomes: ClassVar[tuple[str, str]] = ("reached the goal", "missed the goal")

    @cached_property
    def bodies(self) -> Bodies:
        return bodies_of([0.05], [0.05])

    @property
    def roles(self) -> tuple[str, ...]:
        return ("agent",)

    def observe(self, state: State) -> Observations:
        return jnp.concatenate([state.velocity, state.landmarks - state.position], axis=1)

    def reward(self, state: State) -> Float[Array, " N"]:
        return -jnp.sum((state.position - state.landmarks) ** 2, axis=1)

    def metrics(self, state: State) -> dict[str, Metric]:
        distance = length(state.position - state.landmarks)[0]
        return {
            "distance": Metric(distance, "mean"),
            "success": Metric((distance < 0.1) * 1.0, "last"),
        }
