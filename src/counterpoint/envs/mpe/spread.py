"""simple_spread: cooperative navigation (Lowe et al. 2017; MPE2 simple_spread_v3).

obs(6N) = [velocity 2, position 2, landmarks 2N (relative), others 2(N−1) (relative), zeros 2(N−1)]
reward = −(1 − local_ratio) · Σ over landmarks of the distance to the nearest agent − local_ratio · own collisions
openai: everybody receives the sum over agents of −Σ distances − collisions, each agent also counting itself once.
The zeros are the silent others' words; the original carries them, so do we.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from counterpoint.core.types import Metric
from counterpoint.envs.base import Observations, check_count, check_fraction
from counterpoint.envs.mpe.scenario import Scenario, State, bodies_of
from counterpoint.envs.mpe.world import Bodies, between, fold, length, off_diagonal

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

    name: ClassVar[str] = "simple_spread"
    outcomes: ClassVar[tuple[str, str]] = ("covered every landmark", "left a landmark uncovered")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count(self, "N", 1)
        check_fraction(self, "local_ratio")

    @cached_property
    def bodies(self) -> Bodies:
        return bodies_of([0.15] * self.N, [0.05] * self.N, collides=True)

    @property
    def roles(self) -> tuple[str, ...]:
        return ("agent",) * self.N

    def observe(self, state: State) -> Observations:
        n = self.N
        landmarks = between(state.position, state.landmarks).reshape(n, 2 * n)
        others = off_diagonal(between(state.position, state.position)).reshape(n, 2 * (n - 1))
        return jnp.concatenate([state.velocity, state.position, landmarks, others, jnp.zeros_like(others)], axis=1)

    def reward(self, state: State) -> Float[Array, " N"]:
        distance, bumps = -jnp.sum(self.nearest(state)), self.bumps(state)
        if self.flavour == "openai":  # each counts itself as a collision, and everybody receives everybody's reward
            shared = self.N * distance - jnp.sum(bumps) - self.N
            return jnp.broadcast_to(shared, (self.N,))
        return (1 - self.local_ratio) * distance - self.local_ratio * bumps

    def nearest(self, state: State) -> Float[Array, " L"]:
        """Returns the distance from each landmark to its nearest agent."""
        return fold(jnp.minimum, length(between(state.position, state.landmarks)), axis=0)

    def bumps(self, state: State) -> Float[Array, " N"]:
        """Returns how many other agents each agent overlaps."""
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
