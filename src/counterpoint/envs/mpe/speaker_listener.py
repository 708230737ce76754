"""simple_speaker_listener: cooperative communication (Lowe et al. 2017; MPE2 simple_speaker_listener_v4).

obs speaker(3)   = [colour of the goal]
obs listener(11) = [velocity 2, landmarks 6 (relative), speaker's word 3]
reward of both = −(distance between the listener and the goal)²; openai: twice that
"""

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from counterpoint.core.types import Metric
from counterpoint.envs.base import Observations
from counterpoint.envs.mpe.scenario import Scenario, State, bodies_of
from counterpoint.envs.mpe.world import Bodies, length

SPEAKER, LISTENER = range(2)
COLOURS = 0.15 + 0.5 * np.eye(3)
AGENT_RADIUS, LANDMARK_RADIUS = 0.075, 0.04


@dataclass(frozen=True)
class SpeakerListener(Scenario):
    """A speaker that cannot move tells a listener that does not know which landmark to go to."""

    name: ClassVar[str] = "simple_speaker_listener"
    outcomes: ClassVar[tuple[str, str]] = ("reached the goal", "missed the goal")
    num_goals: ClassVar[int] = 1

    @cached_property
    def bodies(self) -> Bodies:
        return bodies_of([AGENT_RADIUS] * 2, [LANDMARK_RADIUS] * 3, movable=[False, True], talks=[True, False], num_words=3)

    @property
    def roles(self) -> tuple[str, ...]:
        return ("speaker", "listener")

    def observe(self, state: State) -> Observations:
        colour = jnp.asarray(COLOURS, state.position.dtype)[state.goal[0]]
        landmarks = (state.landmarks - state.position[None, LISTENER]).reshape(6)
        listener = jnp.concatenate([state.velocity[LISTENER], landmarks, state.comm[SPEAKER]])
        return [colour[None], listener[None]]

    def reward(self, state: State) -> Float[Array, " N"]:
        squared = jnp.sum((state.position[LISTENER] - state.landmarks[state.goal[0]]) ** 2)
        return jnp.broadcast_to(-squared * (2.0 if self.flavour == "openai" else 1.0), (2,))

    def metrics(self, state: State) -> dict[str, Metric]:
        distance = length(state.position[LISTENER] - state.landmarks[state.goal[0]])
        reached = distance < AGENT_RADIUS + LANDMARK_RADIUS
        return {
            "distance": Metric(distance, "mean"),
            "final_distance": Metric(distance, "last"),
            "success": Metric(reached * 1.0, "last"),
        }

    def benchmark_data(self, state: State) -> tuple[Float[Array, " _k"], ...] | None:
        return tuple(self.reward(state)[:, None]) if self.flavour == "mpe2" else None
