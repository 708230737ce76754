"""Small worlds that fail on purpose, for `why`: each field is a mistake that a user's own world can have."""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from counterpoint import Box, Discrete, Metric, Step, World


class CueState(NamedTuple):
    cue: jax.Array
    """Two numbers in [−1, 1], drawn anew at each step."""
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
        state = CueState(self._draw(key), state.hits + hit, state.time + 1)
        over = jnp.full(1, state.time >= self.max_steps)
        reward = jnp.full(1, self.reward_scale * reward)
        return state, Step(self.observe(state), reward, jnp.zeros(1, bool), over)

    def observe(self, state):
        return self.obs_scale * state.cue[None]

    def metrics(self, state):
        return {"success": Metric(state.hits / jnp.maximum(state.time, 1), "last")}

    def _draw(self, key):
        return jax.random.uniform(key, (2,), minval=-1.0, maxval=1.0)


class LeverState(NamedTuple):
    pulled: jax.Array
    time: jax.Array


@dataclass(frozen=True)
class Levers(World):
    """Two agents choose a lever each: the first pays a little to each, the second `prize` if both pull it, else a fine."""

    prize: float = 3.0
    fine: float = 1.0
    max_steps: int = 5

    name: ClassVar[str] = "levers"
    agents: ClassVar[int] = 2
    actions: ClassVar[Discrete] = Discrete((2,))

    def reset(self, key):
        state = LeverState(jnp.zeros(()), jnp.zeros((), jnp.int32))
        return state, self.observe(state)

    def step(self, key, state, action):
        bold = action[:, 1]
        both = bold[0] * bold[1]
        alone = bold[0] + bold[1] - 2 * both
        reward = self.prize * both - self.fine * alone + (1 - bold[0]) * (1 - bold[1])
        state = LeverState(both, state.time + 1)
        over = jnp.full(2, state.time >= self.max_steps)
        return state, Step(self.observe(state), jnp.full(2, reward), jnp.zeros(2, bool), over)

    def observe(self, state):
        return jnp.full((2, 1), state.time / self.max_steps)

    def metrics(self, state):
        return {"success": Metric(state.pulled, "mean")}
