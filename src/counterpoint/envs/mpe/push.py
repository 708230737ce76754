"""simple_push: keep-away (Lowe et al. 2017; MPE2 simple_push_v3), for any number of agents, adversaries and landmarks.

obs agent     = [velocity 2, goal 2, own colour 3, landmarks 2L, landmark colours 3L, others]     positions relative
obs adversary = [velocity 2, landmarks 2L, others]
reward agent     = −(distance to the goal)
reward adversary = distance of the nearest good agent to the goal − own distance to it
A colour names a landmark, so colours carry the goal. With L ≤ 2 they are the original's; beyond, evenly spaced hues of the
same strength.
"""

import colorsys
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from counterpoint.core.types import Metric
from counterpoint.envs.base import Observations, check_count
from counterpoint.envs.mpe.scenario import Scenario, State, bodies_of
from counterpoint.envs.mpe.world import Bodies, between, length, off_diagonal


@dataclass(frozen=True)
class Push(Scenario):
    """Good agents go to a goal they know; adversaries push them away from it and must guess it."""

    num_good: int = 1
    """Good agents."""
    num_adversaries: int = 1
    """Adversaries."""
    num_targets: int = 2
    """Landmarks, one of them the goal."""

    name: ClassVar[str] = "simple_push"
    num_goals: ClassVar[int] = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        for field in ("num_good", "num_adversaries", "num_targets"):
            check_count(self, field, 1)

    @cached_property
    def bodies(self) -> Bodies:
        return bodies_of([0.05] * (self.num_adversaries + self.num_good), [0.05] * self.num_targets, collides=True)

    @property
    def roles(self) -> tuple[str, ...]:
        return ("adversary",) * self.num_adversaries + ("agent",) * self.num_good

    @cached_property
    def hues(self) -> np.ndarray:
        """Returns [L, 3]: a unit of colour per landmark, added to grey."""
        if self.num_targets <= 2:
            return np.eye(3)[1 : 1 + self.num_targets]
        count = self.num_targets
        return np.array([colorsys.hsv_to_rgb((1 / 3 + i / count) % 1, 1, 1) for i in range(count)])

    def observe(self, state: State) -> Observations:
        v, total = self.num_adversaries, self.num_agents
        goal, dtype = state.goal[0], state.position.dtype
        landmarks = between(state.position, state.landmarks).reshape(total, -1)
        others = off_diagonal(between(state.position, state.position)).reshape(total, -1)
        to_goal = state.landmarks[state.goal] - state.position
        own = jnp.asarray(0.25 + 0.5 * self.hues, dtype)[goal]
        colours = jnp.asarray(0.1 + 0.8 * self.hues, dtype).reshape(-1)
        good = [state.velocity, to_goal, jnp.tile(own, (total, 1)), landmarks, jnp.tile(colours, (total, 1)), others]
        adversary = jnp.concatenate([state.velocity, landmarks, others], axis=1)
        return [adversary[:v], jnp.concatenate(good, axis=1)[v:]]

    def goal_distance(self, state: State) -> Float[Array, " N"]:
        return length(state.landmarks[state.goal] - state.position)

    def reward(self, state: State) -> Float[Array, " N"]:
        v, distance = self.num_adversaries, self.goal_distance(state)
        return jnp.concatenate([jnp.min(distance[v:]) - distance[:v], -distance[v:]])

    def metrics(self, state: State) -> dict[str, Metric]:
        v, distance = self.num_adversaries, self.goal_distance(state)
        good, adversary = jnp.min(distance[v:]), jnp.min(distance[:v])
        return {
            "good_distance": Metric(good, "mean"),
            "adversary_distance": Metric(adversary, "mean"),
            "good_success": Metric((good < 0.1) * 1.0, "last"),
            "adversary_success": Metric((adversary < 0.1) * 1.0, "last"),
        }
