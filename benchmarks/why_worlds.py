"""Small worlds that fail on purpose, for `why`: each field is a mistake that a user's own world can have."""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from counterpoint import Box, Discrete, Metric, Step, World


class CueState(NamedTuple):
    cue: jax.Array
    """Two numbers in [−1, 1], drawn anew at each step, or within the same quadrant for a whole episode."""
    hits: jax.Array
    time: jax.Array


@dataclass(frozen=True)
class Cue(World):
    """One agent sees a point and should name its quadrant, or with `continuous` point at half of it."""

    continuous: bool = False
    reward_scale: float = 1.0
    """What a right answer pays, or the squared distance costs."""
    obs_scale: float = 1.0
    """The unit of the observation."""
    obs_shift: float = 0.0
    """Where the observation has its origin."""
    growth: float = 1.0
    """By what the observation is multiplied at each step: what follows the last one was never learned from."""
    stays: bool = False
    """Whether all points of an episode are in the same quadrant."""
    max_steps: int = 10

    name: ClassVar[str] = "cue"
    agents: ClassVar[int] = 1

    @property
    def actions(self):
        return Box(2, -1.0, 1.0) if self.continuous else Discrete((4,))

    def reset(self, key):
        state = CueState(self._draw(key), jnp.zeros(()), jnp.zeros((), jnp.int32))
        return state, self.observe(state)

    def step(self, key, state, action):
        if self.continuous:
            distance = jnp.sum((action[0] - 0.5 * state.cue) ** 2)
            reward, hit = -distance, distance < 0.05
        else:
            quadrant = (state.cue[0] > 0) + 2 * (state.cue[1] > 0)
            reward = action[0, quadrant]
            hit = jnp.argmax(action[0]) == quadrant
        cue = self._draw(key)
        if self.stays:
            cue = jnp.abs(cue) * jnp.sign(state.cue)
        state = CueState(cue, state.hits + hit, state.time + 1)
        over = jnp.full(1, state.time >= self.max_steps)
        reward = jnp.full(1, self.reward_scale * reward)
        return state, Step(self.observe(state), reward, jnp.zeros(1, bool), over)

    def observe(self, state):
        return self.obs_scale * self.growth**state.time * state.cue[None] + self.obs_shift

    def metrics(self, state):
        return {"success": Metric(state.hits / jnp.maximum(state.time, 1), "last")}

    def _draw(self, key):
        return jax.random.uniform(key, (2,), minval=-1.0, maxval=1.0)


class LeverState(NamedTuple):
    pulled: jax.Array
    time: jax.Array


@dataclass(frozen=True)
class Levers(World):
    """A stag hunt: the first of two levers pays 1; the second pays `prize` to both if both pull it, and costs `fine` alone."""

    prize: float = 4.0
    fine: float = 2.0
    max_steps: int = 5

    name: ClassVar[str] = "levers"
    agents: ClassVar[int] = 2
    actions: ClassVar[Discrete] = Discrete((2,))

    def reset(self, key):
        state = LeverState(jnp.zeros(()), jnp.zeros((), jnp.int32))
        return state, self.observe(state)

    def step(self, key, state, action):
        bold, other = action[:, 1], action[::-1, 1]
        reward = bold * (self.prize * other - self.fine * (1 - other)) + (1 - bold)
        state = LeverState(bold[0] * bold[1], state.time + 1)
        over = jnp.full(2, state.time >= self.max_steps)
        return state, Step(self.observe(state), reward, jnp.zeros(2, bool), over)

    def observe(self, state):
        return jnp.full((2, 1), state.time / self.max_steps)

    def metrics(self, state):
        return {"success": Metric(state.pulled, "mean")}


class StairsState(NamedTuple):
    height: jax.Array
    top: jax.Array
    """Whether the agent arrived at the top."""
    time: jax.Array


@dataclass(frozen=True)
class Stairs(World):
    """One agent climbs stairs of three steps: one of its four actions climbs, and any other ends the episode.

    The top pays 1. At the foot the second action pays `decoy`, which is more than a beginner earns by climbing.
    """

    decoy: float = 0.2
    max_steps: int = 3

    name: ClassVar[str] = "stairs"
    agents: ClassVar[int] = 1
    actions: ClassVar[Discrete] = Discrete((4,))

    def reset(self, key):
        state = StairsState(jnp.zeros((), jnp.int32), jnp.zeros(()), jnp.zeros((), jnp.int32))
        return state, self.observe(state)

    def step(self, key, state, action):
        choice = jnp.argmax(action[0])
        climbs = choice == jnp.array([0, 2, 3, 0])[state.height]
        lured = (state.height == 0) & (choice == 1)
        height = state.height + climbs
        top = (height == 3).astype(jnp.float32)
        state = StairsState(height, top, state.time + 1)
        reward = jnp.full(1, top + self.decoy * lured)
        return state, Step(self.observe(state), reward, jnp.full(1, ~climbs | (height == 3)), jnp.zeros(1, bool))

    def observe(self, state):
        return jax.nn.one_hot(state.height, 4)[None]

    def metrics(self, state):
        return {"success": Metric(state.top, "last")}
