"""The worlds of the ensembles (Lowe et al. 2017, Section 5.4), as the authors released them in August 2017.

They differ from the particle worlds of the same names: whoever is at the target earns 1 more, and the prey of predator-prey is
twice as strong as its four predators, without a largest speed. Metrics count what the release counts as success, at every step.
Starting positions are those of the particle worlds; the release keeps bodies apart at the start.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float

from counterpoint.core.types import Metric
from counterpoint.envs.mpe.adversary import Adversary
from counterpoint.envs.mpe.push import Push
from counterpoint.envs.mpe.scenario import State, bodies_of
from counterpoint.envs.mpe.tag import Tag, boundary_cost
from counterpoint.envs.mpe.world import Bodies, between, length

SCORE = "score"
"""The metric of the adversary: steps at the target, or steps within the predators' reach."""


@dataclass(frozen=True)
class KeepAway(Push):
    """An agent and an adversary at one target: within 0.05 of it, either earns 1 more."""

    name: ClassVar[str] = "keep_away"
    near: ClassVar[float] = 0.05

    def reward(self, state: State) -> Float[Array, " N"]:
        return super().reward(state) + (self.goal_distance(state) <= self.near)

    def metrics(self, state: State) -> dict[str, Metric]:
        distance = self.goal_distance(state)[: self.num_adversaries]
        return super().metrics(state) | {SCORE: Metric(jnp.any(distance <= self.near) * 1.0, "sum")}


@dataclass(frozen=True)
class Deception(Adversary):
    """Physical deception: an adversary within 0.1 of the target earns 1 more."""

    name: ClassVar[str] = "deception"
    near: ClassVar[float] = 0.1

    def reward(self, state: State) -> Float[Array, " N"]:
        distance = self.goal_distance(state)
        hide = jnp.sum(distance[: self.num_adversaries]) - jnp.min(distance[self.num_adversaries :])
        return jnp.where(self.adversary, (distance < self.near) - distance, hide)

    def metrics(self, state: State) -> dict[str, Metric]:
        distance = self.goal_distance(state)[: self.num_adversaries]
        return super().metrics(state) | {SCORE: Metric(jnp.any(distance <= self.near) * 1.0, "sum")}


@dataclass(frozen=True)
class Chase(Tag):
    """Four predators around one obstacle chase a prey that is twice as strong; all are drawn to each other by distances."""

    num_adversaries: int = 4
    num_obstacles: int = 1

    name: ClassVar[str] = "chase"
    reach: ClassVar[float] = 0.135
    prize: ClassVar[float] = 5.0

    @cached_property
    def bodies(self) -> Bodies:
        v, g, obstacles = self.num_adversaries, self.num_good, self.num_obstacles
        return bodies_of(
            [0.075] * v + [0.05] * g, [0.2] * obstacles, collides=[True] * (v + g + obstacles), accel=[3.0] * v + [6.0] * g
        )

    def apart(self, state: State) -> Float[Array, "V G"]:
        """Returns the distances between predators and prey."""
        v = self.num_adversaries
        return length(between(state.position[:v], state.position[v:]))

    def reward(self, state: State) -> Float[Array, " N"]:
        apart = self.apart(state)
        nearest = jnp.min(apart, axis=0)
        caught = self.prize * (nearest <= self.reach)
        hunt = jnp.sum(caught - jnp.sum(apart, axis=0))
        flee = nearest - caught - boundary_cost(state.position[self.num_adversaries :])
        return jnp.concatenate([jnp.broadcast_to(hunt, (self.num_adversaries,)), flee])

    def metrics(self, state: State) -> dict[str, Metric]:
        return super().metrics(state) | {SCORE: Metric(jnp.any(self.apart(state) <= self.reach) * 1.0, "sum")}
