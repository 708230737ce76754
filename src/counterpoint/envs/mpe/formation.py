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
from jaxtyping import Array, Float

from counterpoint.envs.base import Observations
from counterpoint.envs.mpe.matching import Arrangement
from counterpoint.envs.mpe.scenario import State, bodies_of
from counterpoint.envs.mpe.world import Bodies, between

RADIUS = 0.5


@dataclass(frozen=True)
class Formation(Arrangement):
    """N agents form a circle around a landmark."""

    name: ClassVar[str] = "simple_formation"
    flavours: ClassVar[tuple[str, ...]] = ("mpe2",)
    outcomes: ClassVar[tuple[str, str]] = ("formed the circle", "did not form the circle")
    landmark_box: ClassVar[float] = 0.5

    @cached_property
    def bodies(self) -> Bodies:
        return bodies_of([0.05] * self.N, [0.03], collides=True)

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
