"""simple_spread: cooperative navigation (Lowe et al. 2017; MPE2 simple_spread_v3).

obs(6N) = [velocity 2, position 2, landmarks 2N (relative), others 2(N−1) (relative), zeros 2(N−1)]
reward = −(1 − local_ratio) · Σ over landmarks of the distance to the nearest agent − local_ratio · own collisions
openai: everybody receives the sum over agents of −Σ distances − collisions, each agent also counting itself once.
The zeros are the silent others' words; the original carries them, so do we.
With `num_agent_neighbors` and `num_landmark_neighbors`, only the nearest are listed, nearest first, and zeros fill the rest.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from counterpoint.core.types import Metric
from counterpoint.envs.base import Observations, check_count, check_fraction, check_neighbors, check_stage
from counterpoint.envs.mpe.scenario import Scenario, State, bodies_of
from counterpoint.envs.mpe.world import (
    UNROLLED,
    Bodies,
    between,
    fold,
    in_lanes,
    length,
    off_diagonal,
    seen_in_crowd,
    seen_landmarks,
    seen_others,
    squared_distances,
)

CAPTURE_DISTANCE = 0.1


@dataclass(frozen=True)
class Spread(Scenario):
    """N agents cover N landmarks without bumping into each other."""

    N: int = 3
    """Agents, and landmarks."""
    local_ratio: float = 0.5
    """Weight of an agent's own collisions against the team's distances (mpe2 only)."""
    terminate_on_success: bool = False
    """End the game when every landmark has an agent within 0.1."""
    num_agent_neighbors: int | None = None
    """Other agents that an agent observes, nearest first (None: all, in index order)."""
    num_landmark_neighbors: int | None = None
    """Landmarks that an agent observes, nearest first (None: all, in index order)."""
    curriculum: bool = False
    """Learn in stages: stage 0 has no collision penalty, stage 1 is the game."""
    curriculum_stage: int = 0
    """The stage, if there is a curriculum."""

    name: ClassVar[str] = "simple_spread"
    outcomes: ClassVar[tuple[str, str]] = ("covered every landmark", "left a landmark uncovered")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count(self, "N", 1)
        check_fraction(self, "local_ratio")
        check_neighbors(self)
        check_stage(self, stages=2)

    @cached_property
    def bodies(self) -> Bodies:
        return bodies_of([0.15] * self.N, [0.05] * self.N, collides=True)

    @property
    def roles(self) -> tuple[str, ...]:
        return ("agent",) * self.N

    def observe(self, state: State) -> Observations:
        if self.N > UNROLLED and self.num_agent_neighbors is None and self.num_landmark_neighbors is None:
            return seen_in_crowd(state.velocity, state.position, state.landmarks, num_silent=2 * (self.N - 1))
        landmarks = seen_landmarks(state.position, state.landmarks, self.num_landmark_neighbors)
        others = seen_others(state.position, self.num_agent_neighbors)
        return jnp.concatenate([state.velocity, state.position, landmarks, others, jnp.zeros_like(others)], axis=1)

    def reward(self, state: State) -> Float[Array, " N"]:
        distance, bumps = -jnp.sum(self.nearest(state)), self.bumps(state)
        if self.curriculum and self.curriculum_stage == 0:
            bumps = jnp.zeros_like(bumps)
        if self.flavour == "openai":  # each counts itself as a collision, and everybody receives everybody's reward
            shared = self.N * distance - jnp.sum(bumps) - self.N
            return jnp.broadcast_to(shared, (self.N,))
        return (1 - self.local_ratio) * distance - self.local_ratio * bumps

    def nearest(self, state: State) -> Float[Array, " L"]:
        """Returns the distance from each landmark to its nearest agent."""
        if self.N > UNROLLED:
            return jnp.sqrt(jnp.min(squared_distances(state.position, in_lanes(state.landmarks)), axis=0)[: self.N])
        return fold(jnp.minimum, length(between(state.position, state.landmarks)), axis=0)

    def bumps(self, state: State) -> Float[Array, " N"]:
        """Returns how many other agents each agent overlaps."""
        if self.N > UNROLLED:  # sums over rows; everybody overlaps itself
            apart = jnp.sqrt(squared_distances(state.position, in_lanes(state.position)))
            return jnp.sum((apart < 2 * self.bodies.radius[0]).astype(apart.dtype), axis=0)[: self.N] - 1
        apart = length(off_diagonal(between(state.position, state.position)))
        return fold(jnp.add, (apart < 2 * self.bodies.radius[0]).astype(apart.dtype), axis=1)

    def success(self, state: State) -> Bool[Array, ""]:
        return jnp.all(self.nearest(state) < CAPTURE_DISTANCE) if self.terminate_on_success else super().success(state)

    def metrics(self, state: State) -> dict[str, Metric]:
        nearest = self.nearest(state)
        return {
            "collisions": Metric(jnp.sum(self.bumps(state)) / 2, "sum"),
            "distance": Metric(jnp.sum(nearest), "mean"),
            "occupied": Metric(jnp.sum((nearest < CAPTURE_DISTANCE) * 1.0), "last"),
            "success": Metric(jnp.all(nearest < CAPTURE_DISTANCE) * 1.0, "last"),
        }

    def benchmark_data(self, state: State) -> tuple[Float[Array, " _k"], ...]:
        nearest = self.nearest(state)
        bumps = self.bumps(state) + (self.flavour == "openai")
        total, occupied = jnp.sum(nearest), jnp.sum(nearest < CAPTURE_DISTANCE)
        return tuple(jnp.stack([-total - bumps[i], bumps[i], total, occupied]) for i in range(self.N))
