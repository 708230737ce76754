"""A world of your own: agents gather at a beacon that only the scout can see.

Train it: counterpoint train --env examples/own_world.py:Gather --scenario-args n=3
"""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp

from counterpoint.core.picture import Circle, Picture
from counterpoint.core.spaces import Box
from counterpoint.core.types import Metric, Step
from counterpoint.envs.base import World, pad_stack


class State(NamedTuple):
    position: jax.Array  # [N, 2]
    beacon: jax.Array  # [2]
    step: jax.Array


@dataclass(frozen=True)
class Gather(World):
    """One scout sees the beacon; the others see the scout. All are paid for being near the beacon."""

    n: int = 2
    """Agents."""
    max_steps: int = 20
    """Steps until time is up."""

    actions = Box(2, -1.0, 1.0)

    @property
    def agents(self):
        return ("scout", *(f"follower_{i}" for i in range(self.n - 1)))

    def observe(self, state):
        beacon, scout = state.beacon[None] - state.position[:1], state.position[:1] - state.position[1:]
        return [jnp.concatenate([state.position[:1], beacon], axis=1), scout]

    def distance(self, state):
        return jnp.sqrt(jnp.sum((state.position - state.beacon[None]) ** 2, axis=1) + 1e-6)

    def reset(self, key):
        place = jax.random.uniform(key, (self.n + 1, 2), minval=-1.0, maxval=1.0)
        state = State(position=place[1:], beacon=place[0], step=jnp.zeros((), jnp.int32))
        return state, pad_stack(self.observe(state))

    def step(self, key, state, action):
        position = jnp.clip(state.position + 0.1 * action, -1.0, 1.0)
        state = state._replace(position=position, step=state.step + 1)
        late = jnp.full(self.n, state.step >= self.max_steps)
        reward = -self.distance(state)
        return state, Step(pad_stack(self.observe(state)), reward, terminated=jnp.zeros_like(late), truncated=late)

    def metrics(self, state):
        return {"distance": Metric(jnp.mean(self.distance(state)), "last")}

    def draw(self, state):
        shapes = [Circle(*state.beacon.tolist(), 0.06, "goal")]
        for name, (x, y) in zip(self.spec.agents, state.position.tolist(), strict=True):
            shapes.append(Circle(x, y, 0.05, name.split("_")[0], name, trail=name))
        return Picture((-1.2, -1.2, 1.2, 1.2), tuple(shapes), f"step {int(state.step)}")
