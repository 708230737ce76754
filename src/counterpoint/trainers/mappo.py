"""MAPPO and IPPO for a loop of your own; `team.py` says how to use them. `train` computes `mappo.update`, as in a run."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import numpy as np

from counterpoint.algos import mappo
from counterpoint.core.actions import heads_of, masked, softmax
from counterpoint.core.spaces import action_space_of
from counterpoint.trainers.team import TeamTrainer


class MappoTrainer(TeamTrainer):
    """A team that learns by MAPPO, or by IPPO with `local_critics`; `action_spaces` are ours or Gymnasium's, of any kind.

    An agent that has finished needs nothing until the episode ends: its entries in all lists may be None.
    """

    def __init__(
        self,
        obs_sizes: Sequence[int],
        action_spaces: Sequence[Any],
        config: mappo.Config | None = None,
        seed: int = 0,
        local_critics: bool = False,
    ) -> None:
        sees = np.eye(len(obs_sizes), dtype=bool) | (not local_critics)
        spaces = [action_space_of(space, f"agent {i}") for i, space in enumerate(action_spaces)]
        super().__init__(obs_sizes, spaces, config or mappo.Config(), partial(mappo.make, sees=sees), seed)

    def _sample(self, agents: mappo.Agents, carry: Any, obs: jax.Array, key: jax.Array, step: jax.Array, legal: Any) -> Any:
        acting, heads = self._algo.policy(agents), heads_of(self.spec)
        problem = mappo.Problem(self.spec, heads, np.eye(self.spec.num_agents, dtype=bool))
        raw, _ = mappo.outputs(self.config, problem, acting, carry, obs, follow=False)
        action, carry, _ = self._algo.act(acting, carry, obs, key, step, legal)
        return action, softmax(heads, masked(heads, raw, legal)), carry
