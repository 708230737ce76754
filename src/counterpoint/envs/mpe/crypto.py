"""simple_crypto: covert communication (Lowe et al. 2017; MPE2 simple_crypto_v3).

obs eve(4)   = [alice's word]
obs bob(8)   = [key 4, alice's word 4]
obs alice(8) = [goal 4, key 4]
reward eve           = −(squared error of her answer)
reward bob and alice = squared error of Eve's answer − squared error of Bob's; silence counts as no error
Nobody moves. Goal and key are one-hot names of two landmarks, so two of the four symbols never occur. Bob and Eve answer
on what Alice said one step earlier; at the first step they have heard zeros.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from counterpoint.core.types import Metric
from counterpoint.envs.base import Observations
from counterpoint.envs.mpe.scenario import Scenario, State, bodies_of
from counterpoint.envs.mpe.world import Bodies

EVE, BOB, ALICE = range(3)
NUM_WORDS = 4


@dataclass(frozen=True)
class Crypto(Scenario):
    """Alice sends Bob a message under a shared key; Eve listens in."""

    name: ClassVar[str] = "simple_crypto"
    num_goals: ClassVar[int] = 2
    """Goal, then key."""

    @cached_property
    def bodies(self) -> Bodies:
        return bodies_of([0.05] * 3, [0.05] * 2, movable=False, talks=True, num_words=NUM_WORDS)

    @property
    def roles(self) -> tuple[str, ...]:
        return ("eve", "bob", "alice")

    def observe(self, state: State) -> Observations:
        heard = state.comm[ALICE]
        goal, key = jax.nn.one_hot(state.goal, NUM_WORDS, dtype=heard.dtype)
        told = jnp.stack([jnp.concatenate([key, heard]), jnp.concatenate([goal, key])])
        return [heard[None], told]

    def reward(self, state: State) -> Float[Array, " N"]:
        error = jnp.sum((state.comm - jax.nn.one_hot(state.goal[:1], NUM_WORDS, dtype=state.comm.dtype)) ** 2, axis=1)
        error = jnp.where(jnp.all(state.comm == 0, axis=1), 0.0, error)  # silence is free, as in the original
        team = error[EVE] - error[BOB]
        return jnp.stack([-error[EVE], team, team])

    def metrics(self, state: State) -> dict[str, Metric]:
        right = (jnp.argmax(state.comm, axis=1) == state.goal[0]) * 1.0
        return {
            "bob_correct": Metric(right[BOB], "mean"),
            "eve_correct": Metric(right[EVE], "mean"),
            "bob_correct_last": Metric(right[BOB], "last"),
            "eve_correct_last": Metric(right[EVE], "last"),
        }

    def benchmark_data(self, state: State) -> tuple[Float[Array, " _k"], ...]:
        goal = jax.nn.one_hot(state.goal[0], NUM_WORDS, dtype=state.comm.dtype)
        return tuple(jnp.concatenate([state.comm[i], goal]) for i in range(3))

    def goal_landmarks(self, state: State) -> list[int]:
        return [int(state.goal[0])]
