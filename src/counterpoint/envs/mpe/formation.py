"""simple_formation: agents arrange themselves on a circle (MPE2 simple_formation_v1).

obs(6) = [velocity 2, position 2, landmark 2 (relative)]
reward = −mean over agents of the distance to the assigned place, each at most 2; the same for everybody
The N places are evenly spaced on a circle of radius 0.5 around the landmark. The first lies in the direction of the agent with
the smallest angle in [0, 2π); agents and places are matched so that the sum of distances is least.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from counterpoint.core.types import Metric
from counterpoint.envs.base import Observations, check_count
from counterpoint.envs.mpe.matching import matched
from counterpoint.envs.mpe.scenario import Scenario, State, bodies_of
from counterpoint.envs.mpe.world import Bodies, between, length

RADIUS = 0.5
IN_PLACE = 0.05
FARTHEST = 2.0


@dataclass(frozen=True)
class Formation(Scenario):
    """N agents form a circle around a landmark."""

    N: int = 4
    """Agents."""
    terminate_on_success: bool = False
    """End the game when every agent is within 0.05 of its place."""

    name: ClassVar[str] = "simple_formation"
    flavours: ClassVar[tuple[str, ...]] = ("mpe2",)
    outcomes: ClassVar[tuple[str, str]] = ("formed the circle", "did not form the circle")
    landmark_box: ClassVar[float] = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count(self, "N", 1)

    @cached_property
    def bodies(self) -> Bodies:
        return bodies_of([0.05] * self.N, [0.03], collides=True)

    @property
    def roles(self) -> tuple[str, ...]:
        return ("agent",) * self.N

    def observe(self, state: State) -> Observations:
        landmark = between(state.position, state.landmarks).reshape(self.N, 2)
        return jnp.concatenate([state.velocity, state.position, landmark], axis=1)

    def places(self, state: State) -> Float[Array, "N 2"]:
        """Returns the places on the circle."""
        relative = state.position - state.landmarks
        angle = jnp.arctan2(relative[:, 1], relative[:, 0])
        first = jnp.min(jnp.where(angle < 0, angle + 2 * np.pi, angle))
        turned = first + np.arange(self.N) * (2 * np.pi / self.N)
        return state.landmarks + RADIUS * jnp.stack([jnp.cos(turned), jnp.sin(turned)], axis=1)

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
