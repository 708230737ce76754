"""simple_adversary: physical deception (Lowe et al. 2017; MPE2 simple_adversary_v3).

obs good (4N + 2V)      = [goal 2, landmarks 2N, others]        all relative, others in index order
obs adversary (2 fewer) = [landmarks 2N, others]
reward adversary = −(its distance to the goal); openai: squared
reward good      = Σ over adversaries of their distance to the goal − distance of the nearest good agent
With `num_agent_neighbors` and `num_landmark_neighbors`, only the nearest are listed, nearest first, and zeros fill the rest;
good agents always see the goal.
One adversary (V = 1) is the published game; with more, the good team's reward sums over them, as its formula says.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float

from counterpoint.core.types import Metric
from counterpoint.envs.base import Observations, check_count, check_neighbors
from counterpoint.envs.mpe.scenario import Scenario, State, bodies_of
from counterpoint.envs.mpe.world import Bodies, between, length, seen_landmarks, seen_others

LANDMARK_RADIUS = 0.08


@dataclass(frozen=True)
class Adversary(Scenario):
    """N good agents know which of N landmarks is the goal and hide it from an adversary that does not."""

    N: int = 2
    """Good agents, and landmarks."""
    num_adversaries: int = 1
    """Adversaries."""
    num_agent_neighbors: int | None = None
    """Other agents that an agent observes, nearest first (None: all, in index order)."""
    num_landmark_neighbors: int | None = None
    """Landmarks that an agent observes, nearest first (None: all, in index order)."""

    name: ClassVar[str] = "simple_adversary"
    num_goals: ClassVar[int] = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count(self, "N", 1)
        check_count(self, "num_adversaries", 1)
        check_neighbors(self)

    @cached_property
    def bodies(self) -> Bodies:
        return bodies_of([0.15] * (self.num_adversaries + self.N), [LANDMARK_RADIUS] * self.N)

    @property
    def roles(self) -> tuple[str, ...]:
        return ("adversary",) * self.num_adversaries + ("agent",) * self.N

    def observe(self, state: State) -> Observations:
        v = self.num_adversaries
        landmarks = seen_landmarks(state.position, state.landmarks, self.num_landmark_neighbors)
        others = seen_others(state.position, self.num_agent_neighbors)
        seen = jnp.concatenate([landmarks, others], axis=1)
        goal = state.landmarks[state.goal] - state.position
        return [seen[:v], jnp.concatenate([goal[v:], seen[v:]], axis=1)]

    def goal_distance(self, state: State) -> Float[Array, " N"]:
        return length(state.landmarks[state.goal] - state.position)

    def reward(self, state: State) -> Float[Array, " N"]:
        v, distance = self.num_adversaries, self.goal_distance(state)
        hunt = -(distance[:v] ** 2) if self.flavour == "openai" else -distance[:v]
        hide = jnp.sum(distance[:v]) - jnp.min(distance[v:])
        return jnp.concatenate([hunt, jnp.broadcast_to(hide, (self.N,))])

    def metrics(self, state: State) -> dict[str, Metric]:
        v, distance = self.num_adversaries, self.goal_distance(state)
        good, adversary = jnp.min(distance[v:]), jnp.min(distance[:v])
        near = 2 * LANDMARK_RADIUS  # the radius of the original's unshaped reward; the paper states none
        return {
            "good_distance": Metric(good, "mean"),
            "adversary_distance": Metric(adversary, "mean"),
            "good_success": Metric((good < near) * 1.0, "last"),
            "adversary_success": Metric((adversary < near) * 1.0, "last"),
        }

    def benchmark_data(self, state: State) -> tuple[Float[Array, " _k"], ...]:
        goal = self.goal_distance(state)[:, None] ** 2
        landmarks = length(between(state.position, state.landmarks)) ** 2
        good = jnp.concatenate([landmarks, goal], axis=1)
        return tuple(good[i] if i >= self.num_adversaries else goal[i] for i in range(self.num_agents))
