"""simple_world_comm: predators with a talking leader, prey with food and forests to hide in (MPE2 simple_world_comm_v3).

obs adversary = [velocity 2, position 2, landmarks, others seen, velocities of good agents seen, flags, leader's word 4]
obs good      = [velocity 2, position 2, landmarks, others seen, flags, velocities of other good agents seen]
reward adversary = 5 · touches of all prey − 0.1 · distance to the nearest prey
reward good      = −5 · touches of itself + 2 · food eaten − 0.05 · distance to food − 2 · cost of leaving the screen
openai: the distance to food counts with the opposite sign.
Landmarks are obstacles, food, forests, in this order; they and others are relative. A flag per forest is +1 inside, −1 outside.
One sees another if both are in the same forest or neither is in any; the leader sees everybody; what is not seen is zero.
The two orders of flags and velocities are the original's.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from counterpoint.core.types import Metric
from counterpoint.envs.base import Observations, check_count
from counterpoint.envs.mpe.scenario import Scenario, State, bodies_of
from counterpoint.envs.mpe.tag import boundary_cost
from counterpoint.envs.mpe.world import Bodies, between, length, off_diagonal, touching

NUM_WORDS = 4


@dataclass(frozen=True)
class WorldComm(Scenario):
    """A pack led by one that sees everything hunts prey that eat and hide."""

    num_good: int = 2
    """Prey."""
    num_adversaries: int = 4
    """Predators, the leader among them."""
    num_obstacles: int = 1
    """Obstacles in the way."""
    num_food: int = 2
    """Food for the prey."""
    num_forests: int = 2
    """Forests to hide in."""

    name: ClassVar[str] = "simple_world_comm"
    landmark_box: ClassVar[float] = 0.9

    def __post_init__(self) -> None:
        super().__post_init__()
        for field in ("num_good", "num_adversaries", "num_food"):
            check_count(self, field, 1)
        for field in ("num_obstacles", "num_forests"):
            check_count(self, field, 0)

    @cached_property
    def bodies(self) -> Bodies:
        v, g = self.num_adversaries, self.num_good
        obstacles, soft = self.num_obstacles, self.num_food + self.num_forests
        return bodies_of(
            [0.075] * v + [0.045] * g,
            [0.2] * obstacles + [0.03] * self.num_food + [0.3] * self.num_forests,
            collides=[True] * (v + g + obstacles) + [False] * soft,
            accel=[3.0] * v + [4.0] * g,
            max_speed=[1.0] * v + [1.3] * g,
            talks=[True] + [False] * (v + g - 1),
            num_words=NUM_WORDS,
        )

    @property
    def roles(self) -> tuple[str, ...]:
        return ("leadadversary",) + ("adversary",) * (self.num_adversaries - 1) + ("agent",) * self.num_good

    @property
    def landmark_roles(self) -> tuple[str, ...]:
        return ("obstacle",) * self.num_obstacles + ("food",) * self.num_food + ("forest",) * self.num_forests

    @cached_property
    def parts(self) -> tuple[slice, slice, slice]:
        """Returns the places of obstacles, food and forests among the landmarks."""
        a, b = self.num_obstacles, self.num_obstacles + self.num_food
        return slice(0, a), slice(a, b), slice(b, None)

    def in_forest(self, state: State) -> Bool[Array, "N W"]:
        _, _, forests = self.parts
        n, radius = self.num_agents, self.bodies.radius
        return touching(state.position, state.landmarks[forests], radius[:n], radius[n:][forests])

    def observe(self, state: State) -> Observations:
        v, total, dtype = self.num_adversaries, self.num_agents, state.position.dtype
        inside = self.in_forest(state)
        same = jnp.any(inside[:, None] & inside[None], axis=-1)
        outside = ~jnp.any(inside, axis=1)
        leader = (np.arange(total) == 0)[:, None]
        sees = (same | (outside[:, None] & outside[None]) | leader).astype(dtype)

        landmarks = between(state.position, state.landmarks).reshape(total, -1)
        others = off_diagonal(between(state.position, state.position) * sees[..., None]).reshape(total, -1)
        common = jnp.concatenate([state.velocity, state.position, landmarks, others], axis=1)
        flags = jnp.where(inside, 1.0, -1.0).astype(dtype)
        speeds = state.velocity[None, v:] * sees[:, v:, None]
        word = jnp.tile(state.comm[:1], (v, 1))
        adversary = [common[:v], speeds[:v].reshape(v, -1), flags[:v], word]
        good = [common[v:], flags[v:], off_diagonal(speeds[v:]).reshape(self.num_good, -1)]
        return [jnp.concatenate(adversary, axis=1), jnp.concatenate(good, axis=1)]

    def touches(self, state: State) -> Bool[Array, "V G"]:
        """Returns which predator touches which prey."""
        v, n, radius = self.num_adversaries, self.num_agents, self.bodies.radius
        return touching(state.position[:v], state.position[v:], radius[:v], radius[v:n])

    def eaten(self, state: State) -> Float[Array, " G"]:
        """Returns how many food items each prey touches."""
        v, n, radius = self.num_adversaries, self.num_agents, self.bodies.radius
        _, food, _ = self.parts
        hits = touching(state.position[v:], state.landmarks[food], radius[v:n], radius[n:][food])
        return jnp.sum(hits.astype(state.position.dtype), axis=1)

    def reward(self, state: State) -> Float[Array, " N"]:
        v = self.num_adversaries
        _, food, _ = self.parts
        hunters, prey = state.position[:v], state.position[v:]
        touches = self.touches(state).astype(prey.dtype)
        hunt = 5.0 * jnp.sum(touches) - 0.1 * jnp.min(length(between(hunters, prey)), axis=1)
        hunger = 0.05 * jnp.min(length(between(prey, state.landmarks[food])), axis=1)
        sign = 1.0 if self.flavour == "openai" else -1.0  # the original rewards being far from food
        flee = -5.0 * jnp.sum(touches, axis=0) - 2.0 * boundary_cost(prey) + 2.0 * self.eaten(state) + sign * hunger
        return jnp.concatenate([hunt, flee])

    def metrics(self, state: State) -> dict[str, Metric]:
        touches = self.touches(state)
        return {
            "touches": Metric(jnp.sum(touches * 1.0), "sum"),
            "caught": Metric(jnp.any(touches) * 1.0, "max"),
            "food": Metric(jnp.sum(self.eaten(state)), "sum"),
        }

    def benchmark_data(self, state: State) -> tuple[Float[Array, " _k"], ...]:
        touched = jnp.sum(self.touches(state) * 1.0, axis=1)
        return tuple(jnp.pad(touched, (0, self.num_good))[:, None])
