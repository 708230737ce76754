"""A matrix game of two teams with known values, and players for it."""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from counterpoint.core.spaces import Discrete
from counterpoint.core.types import Metric, Step
from counterpoint.envs.base import World

PAYOFF = np.array([[0.0, -1.0, 1.0], [1.0, 0.0, -1.0], [-1.0, 1.0, 0.0]], np.float32)
"""Of the row for rock, paper and scissors (row) against the column's."""


class State(NamedTuple):
    step: jax.Array
    payoff: jax.Array


@dataclass(frozen=True)
class RockPaperScissors(World):
    """Row and column choose at the same time, `max_steps` times; what one wins the other loses."""

    name: ClassVar[str] = "rps"
    agents: ClassVar[tuple[str, ...]] = ("row_0", "col_0")
    teams: ClassVar[tuple[str, ...]] = ("row", "col")
    actions: ClassVar[Any] = Discrete((3,))
    max_steps: int = 1

    def reset(self, key: Any) -> tuple[State, jax.Array]:
        return State(jnp.zeros((), jnp.int32), jnp.zeros(())), jnp.ones((2, 1))

    def step(self, key: Any, state: State, action: jax.Array) -> tuple[State, Step]:
        payoff = action[0] @ jnp.asarray(PAYOFF) @ action[1]
        late = jnp.full(2, state.step + 1 >= self.max_steps)
        return State(state.step + 1, payoff), Step(jnp.ones((2, 1)), jnp.stack([payoff, -payoff]), jnp.zeros(2, bool), late)

    def metrics(self, state: State) -> dict[str, Metric]:
        return {"payoff": Metric(state.payoff, "sum")}


def _all(obs: dict[str, Any], choice: Any) -> dict[str, Any]:
    return {agent: jnp.asarray(choice) for agent in obs}


def rock(obs: dict[str, Any]) -> dict[str, Any]:
    return _all(obs, 0)


def paper(obs: dict[str, Any]) -> dict[str, Any]:
    return _all(obs, 1)


def scissors(obs: dict[str, Any]) -> dict[str, Any]:
    return _all(obs, 2)


def mostly_rock(obs: dict[str, Any], key: Any) -> dict[str, Any]:
    """Rock in half of the games, otherwise the two others equally often: the best response, paper, earns ¼ per game."""
    return _all(obs, jax.random.choice(key, 3, p=jnp.array([0.5, 0.25, 0.25])))


def silent(obs: dict[str, Any]) -> dict[str, Any]:
    return {}


def too_wide(obs: dict[str, Any]) -> dict[str, Any]:
    return {agent: jnp.ones(4) for agent in obs}


def for_the_column(obs: dict[str, Any]) -> dict[str, Any]:
    return {"col_0": jnp.where(obs["col_0"][0] > 0, 2, 1)}
