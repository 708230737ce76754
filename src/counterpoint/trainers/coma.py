"""COMA for a loop of your own; `team.py` says how to use it. `train` computes `coma.update`, as in a compiled run."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from counterpoint.algos import coma
from counterpoint.core.actions import heads_of
from counterpoint.core.spaces import Discrete
from counterpoint.trainers.team import Episodes as Episodes
from counterpoint.trainers.team import Memory as Memory
from counterpoint.trainers.team import TeamTrainer


class ComaTrainer(TeamTrainer):
    """A team that learns by COMA, with discrete actions.

    An agent that has finished needs nothing until the episode ends: its entries in all lists may be None.
    """

    def __init__(
        self, obs_sizes: Sequence[int], num_actions: Sequence[int], config: coma.Config | None = None, seed: int = 0
    ) -> None:
        spaces = [Discrete((int(count),)) for count in num_actions]
        super().__init__(obs_sizes, spaces, config or coma.Config(), coma.make, seed)

    def _sample(self, agents: coma.Agents, carry: Any, obs: jax.Array, key: jax.Array, step: jax.Array, legal: Any) -> Any:
        heads, c = heads_of(self.spec), self.config
        logits, carry = coma.policy(c, self.spec, agents.actor, carry, obs)
        epsilon = c.epsilon(step)
        pi = coma.probabilities(heads, logits, jnp.broadcast_to(epsilon, logits.shape[:-1]), legal)
        return coma.draw(heads, pi, legal, key), pi, carry
