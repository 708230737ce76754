"""simple_reference: each agent knows where the other must go (MPE2 simple_reference_v3).

obs(21) = [velocity 2, landmarks 6 (relative), colour of the partner's goal 3, partner's word 10]
reward = −(local_ratio · distance between the partner and its goal + (1 − local_ratio) · mean of both distances)
openai: both receive minus the sum of both squared distances.
`goal[i]` is the landmark agent i knows, which agent 1 − i must reach.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from counterpoint.core.types import Metric
from counterpoint.envs.base import Observations, check_fraction
from counterpoint.envs.mpe.scenario import Scenario, State, bodies_of
from counterpoint.envs.mpe.world import Bodies, between, length

COLOURS = 0.25 + 0.5 * np.eye(3)


@dataclass(frozen=True)
class Reference(Scenario):
    """Two agents move and talk; each must be told its goal by the other."""

    local_ratio: float = 0.5
    """Weight of an agent's own term against the mean of both (mpe2 only)."""

    name: ClassVar[str] = "simple_reference"
    outcomes: ClassVar[tuple[str, str]] = ("both reached their goals", "not both reached their goals")
    num_goals: ClassVar[int] = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        check_fraction(self, "local_ratio")

    @cached_property
    def bodies(self) -> Bodies:
        return bodies_of([0.05] * 2, [0.05] * 3, talks=True, num_words=10)

    @property
    def roles(self) -> tuple[str, ...]:
        return ("agent",) * 2

    def observe(self, state: State) -> Observations:
        landmarks = between(state.position, state.landmarks).reshape(2, 6)
        colour = jnp.asarray(COLOURS, state.position.dtype)[state.goal]
        return jnp.concatenate([state.velocity, landmarks, colour, state.comm[::-1]], axis=1)

    def partner_distance(self, state: State) -> Float[Array, " N"]:
        """Returns the distance between the partner of agent i and the goal that agent i knows."""
        return length(state.position[::-1] - state.landmarks[state.goal])

    def reward(self, state: State) -> Float[Array, " N"]:
        distance = self.partner_distance(state)
        if self.flavour == "openai":
            return jnp.broadcast_to(-jnp.sum(distance**2), (2,))
        return -(self.local_ratio * distance + (1 - self.local_ratio) * jnp.mean(distance))

    def metrics(self, state: State) -> dict[str, Metric]:
        distance = self.partner_distance(state)
        return {
            "distance": Metric(jnp.mean(distance), "mean"),
            "final_distance": Metric(jnp.mean(distance), "last"),
            "success": Metric(jnp.mean((distance < 0.1) * 1.0), "last"),
        }
