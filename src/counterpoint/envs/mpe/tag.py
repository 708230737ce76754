"""simple_tag: predators chase prey among obstacles (Lowe et al. 2017; MPE2 simple_tag_v3).

obs = [velocity 2, position 2, obstacles (relative), others (relative), velocities of the other good agents], 2 for each
reward adversary = 10 · touches of all prey by all adversaries
reward good      = −10 · touches of itself − a growing cost of leaving the screen
With `num_agent_neighbors` and `num_landmark_neighbors`, only the nearest are listed, nearest first, and zeros fill the rest;
then each listed agent has a velocity, which is zero for adversaries.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from counterpoint.core.types import Metric
from counterpoint.envs.base import Observations, check_count, check_neighbors, check_stage
from counterpoint.envs.mpe.scenario import Scenario, State, bodies_of
from counterpoint.envs.mpe.world import Bodies, nearest_others, off_diagonal, seen_landmarks, seen_others, slots, touching

PREY_SPEED = (0.5, 0.75, 1.0)
"""The prey's share of its full speed and force, by stage of the curriculum."""


def boundary_cost(position: Float[Array, "N 2"]) -> Float[Array, " N"]:
    """Returns the cost of leaving the screen: zero inside 0.9, a ramp to 1, an exponential capped at 10 beyond."""
    x = jnp.abs(position)
    cost = jnp.where(x < 0.9, 0.0, jnp.where(x < 1.0, (x - 0.9) * 10.0, jnp.minimum(jnp.exp(2 * x - 2), 10.0)))
    return cost[:, 0] + cost[:, 1]


def good_velocities(velocity: Float[Array, "N 2"], num_adversaries: int) -> tuple[Float[Array, "V _"], Float[Array, "G _"]]:
    """Returns the velocities of the good agents that adversaries see (all) and that good agents see (the others')."""
    good = velocity[num_adversaries:]
    g = good.shape[0]
    everyone = jnp.tile(good.reshape(1, 2 * g), (num_adversaries, 1))
    return everyone, off_diagonal(jnp.tile(good[None], (g, 1, 1))).reshape(g, 2 * (g - 1))


@dataclass(frozen=True)
class Tag(Scenario):
    """Slower predators hunt faster prey as a pack."""

    num_good: int = 1
    """Prey."""
    num_adversaries: int = 3
    """Predators."""
    num_obstacles: int = 2
    """Obstacles in the way."""
    terminate_on_success: bool = False
    """End the game when every prey is touched at the same time."""
    num_agent_neighbors: int | None = None
    """Other agents that an agent observes, nearest first (None: all, in index order)."""
    num_landmark_neighbors: int | None = None
    """Obstacles that an agent observes, nearest first (None: all, in index order)."""
    curriculum: bool = False
    """Learn in stages: the prey has half its speed in stage 0, three quarters in stage 1 and all of it in stage 2."""
    curriculum_stage: int = 0
    """The stage, if there is a curriculum."""

    name: ClassVar[str] = "simple_tag"
    landmark_box: ClassVar[float] = 0.9

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count(self, "num_good", 1)
        check_count(self, "num_adversaries", 1)
        check_count(self, "num_obstacles", 0)
        check_neighbors(self)
        check_stage(self, stages=len(PREY_SPEED))

    @cached_property
    def bodies(self) -> Bodies:
        v, g, obstacles = self.num_adversaries, self.num_good, self.num_obstacles
        speed = PREY_SPEED[self.curriculum_stage] if self.curriculum else 1.0
        return bodies_of(
            [0.075] * v + [0.05] * g,
            [0.2] * obstacles,
            collides=[True] * (v + g + obstacles),
            accel=[3.0] * v + [4.0 * speed] * g,
            max_speed=[1.0] * v + [1.3 * speed] * g,
        )

    @property
    def roles(self) -> tuple[str, ...]:
        return ("adversary",) * self.num_adversaries + ("agent",) * self.num_good

    @property
    def landmark_roles(self) -> tuple[str, ...]:
        return ("obstacle",) * self.num_obstacles

    def observe(self, state: State) -> Observations:
        v, count = self.num_adversaries, self.num_agent_neighbors
        obstacles = seen_landmarks(state.position, state.landmarks, self.num_landmark_neighbors)
        others = seen_others(state.position, count)
        common = jnp.concatenate([state.velocity, state.position, obstacles, others], axis=1)
        if count is not None:
            fleeing = jnp.where(self.adversary[:, None], 0.0, state.velocity)
            return jnp.concatenate([common, slots(fleeing[nearest_others(state.position, count)], count)], axis=1)
        seen_by_adversary, seen_by_good = good_velocities(state.velocity, v)
        return [
            jnp.concatenate([common[:v], seen_by_adversary], axis=1),
            jnp.concatenate([common[v:], seen_by_good], axis=1),
        ]

    def touches(self, state: State) -> Bool[Array, "V G"]:
        """Returns which predator touches which prey."""
        v, n, radius = self.num_adversaries, self.num_agents, self.bodies.radius
        return touching(state.position[:v], state.position[v:], radius[:v], radius[v:n])

    def reward(self, state: State) -> Float[Array, " N"]:
        touches = self.touches(state).astype(state.position.dtype)
        hunt = jnp.broadcast_to(10.0 * jnp.sum(touches), (self.num_adversaries,))
        flee = -10.0 * jnp.sum(touches, axis=0) - boundary_cost(state.position[self.num_adversaries :])
        return jnp.concatenate([hunt, flee])

    def success(self, state: State) -> Bool[Array, ""]:
        return jnp.all(self.touches(state).any(axis=0)) if self.terminate_on_success else super().success(state)

    def metrics(self, state: State) -> dict[str, Metric]:
        touches = self.touches(state)
        return {
            "touches": Metric(jnp.sum(touches * 1.0), "sum"),
            "caught": Metric(jnp.any(touches) * 1.0, "max"),
        }

    def benchmark_data(self, state: State) -> tuple[Float[Array, " _k"], ...]:
        touched = jnp.sum(self.touches(state) * 1.0, axis=1)
        return tuple(jnp.pad(touched, (0, self.num_good))[:, None])
