"""COMA for those who write the loop themselves: ask for actions, tell what came of them, train now and then.

    for each step:           actions = trainer.get_actions(observations);  trainer.experience(rewards, next_observations, …)
    every so many episodes:  trainer.train()

What `train` computes is `coma.update`, as in a compiled run; observations and actions are one per agent, in a fixed order.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from counterpoint.algos import coma
from counterpoint.core import prng
from counterpoint.core.actions import gumbel, heads_of, sampled
from counterpoint.core.errors import UsageError
from counterpoint.core.ops import linear
from counterpoint.core.spaces import Discrete, Spec
from counterpoint.core.types import Transition


class Episodes(NamedTuple):
    """What a memory holds, in order; T steps of N agents, padded to the largest."""

    observations: np.ndarray
    """[T, N, O]."""
    actions: np.ndarray
    """[T, N, A], one-hot."""
    pi: np.ndarray
    """[T, N, A]: the probabilities from which the actions were drawn."""
    rewards: np.ndarray
    """[T, N]."""
    next_observations: np.ndarray
    """[T, N, O]."""
    terminated: np.ndarray
    """[T, N]: the game was over for the agent."""
    playing: np.ndarray
    """[T, N]: the agent had not finished before the step."""
    done: np.ndarray
    """[T]: the episode ended with the step."""


class Memory:
    """Steps of one or several episodes, one after another."""

    def __init__(self) -> None:
        self._steps: list[tuple[Any, ...]] = []

    def __len__(self) -> int:
        return len(self._steps)

    def add(self, *step: Any) -> None:
        """Remembers a step, given by the fields of `Episodes` without their first axis."""
        if len(step) != len(Episodes._fields):
            raise UsageError(f"a step has {len(Episodes._fields)} parts ({', '.join(Episodes._fields)}), not {len(step)}.")
        self._steps.append(step)

    def get(self) -> Episodes:
        """All steps so far."""
        if not self._steps:
            raise UsageError("the memory is empty: call experience after each step before get or train.")
        return Episodes(*(np.stack(column) for column in zip(*self._steps, strict=True)))

    def clear(self) -> None:
        """Forgets everything."""
        self._steps = []


class ComaTrainer:
    """A team that learns by COMA, with discrete actions."""

    def __init__(
        self, obs_sizes: Sequence[int], num_actions: Sequence[int], config: coma.Config | None = None, seed: int = 0
    ) -> None:
        names = tuple(f"agent_{i}" for i in range(len(obs_sizes)))
        spaces = tuple(Discrete((int(count),)) for count in num_actions)
        self.spec = Spec(names, names, ("good",) * len(names), tuple(obs_sizes), spaces)
        self.config, self.memory = config or coma.Config(), Memory()
        self._algo = coma.make(self.config, self.spec)
        self._key = prng.key(seed)
        self._draws = 0
        self.agents: coma.Agents = jax.jit(self._algo.init)(self._next_key())
        self._draw = jax.jit(self._sample)
        self._greedy = jax.jit(lambda agents, *args: self._algo.greedy(self._algo.policy(agents), *args))
        self._update = jax.jit(self._algo.update)
        self._began: Any = None
        self._asked: tuple[np.ndarray, ...] | None = None
        self._new_episode()

    def _new_episode(self) -> None:
        self._carry = jax.tree.map(lambda leaf: leaf[None], self._algo.begin(self._key))
        self._playing = np.ones(self.spec.num_agents, bool)

    def _next_key(self) -> jax.Array:
        self._draws += 1
        return jax.random.fold_in(self._key, self._draws)

    def _sample(self, agents: coma.Agents, carry: Any, obs: jax.Array, key: jax.Array, step: jax.Array) -> Any:
        heads, c = heads_of(self.spec), self.config
        logits, carry = coma.policy(c, self.spec, agents.actor, carry, obs)
        epsilon = linear(c.epsilon_start, c.epsilon_end, c.epsilon_steps, step)
        pi = coma.probabilities(heads, logits, jnp.broadcast_to(epsilon, logits.shape[:-1]))
        return sampled(heads, jnp.log(jnp.maximum(pi, 1e-8)), gumbel(key, pi.shape)), pi, carry

    def get_actions(self, observations: Sequence[Any], greedy: bool = False) -> list[int]:
        """What each agent does: drawn from its policy, and `experience` must follow; or the likeliest, and nothing follows.

        Call `reset` before and after episodes that are played greedily.
        """
        obs = self._stacked(observations)
        if greedy:
            action, self._carry = self._greedy(self.agents, self._carry, obs[None])
        else:
            before, step = self._carry, self.agents.step + len(self.memory)
            action, pi, self._carry = self._draw(self.agents, before, obs[None], self._next_key(), step)
            if not len(self.memory):
                self._began = before
            self._asked = obs, np.asarray(action)[0], np.asarray(pi)[0]
        return [int(choice) for choice in np.argmax(np.asarray(action)[0], axis=-1)]

    def experience(
        self,
        rewards: Sequence[Any],
        next_observations: Sequence[Any],
        terminated: Sequence[bool],
        truncated: Sequence[bool] | bool = False,
    ) -> None:
        """What came of the last actions; `terminated` says for whom the game is over, `truncated` whose time is up."""
        if self._asked is None:
            raise UsageError("experience follows get_actions, once: ask for actions first.")
        over = np.asarray(terminated, bool)
        ended = over | np.asarray(truncated, bool) | ~self._playing
        seen, shape = self._stacked(next_observations), (self.spec.num_agents,)
        if np.shape(rewards) != shape or over.shape != shape:
            raise UsageError(
                f"rewards and terminated need one entry for each of {shape[0]} agents, not {rewards!r}, {terminated!r}."
            )
        self.memory.add(*self._asked, np.asarray(rewards, np.float32), seen, over, self._playing, np.asarray(ended.all()))
        self._asked, self._playing = None, ~ended
        if ended.all():
            self._new_episode()

    def reset(self) -> None:
        """Forgets what was remembered within the episode: another one begins."""
        self._new_episode()

    def train(self) -> dict[str, np.ndarray]:
        """Learns from the memory, empties it, and returns the figures of the update by agent."""
        steps = self.memory.get()
        length = len(steps.done)
        padded = 1 << (length - 1).bit_length()  # few lengths are compiled; what is added was played by nobody
        rows = [np.concatenate([part, np.zeros((padded - length, *part.shape[1:]), part.dtype)])[:, None] for part in steps]
        obs, action, _, reward, next_obs, terminated, alive, done = map(jnp.asarray, rows)
        batch = Transition(obs, action, reward, next_obs, terminated, alive, done)
        batch = batch._replace(carry=jax.tree.map(lambda leaf: leaf[None], self._began))
        before = self.agents.step
        agents, figures = self._update(self.agents, batch, self._next_key())
        self.agents = agents._replace(step=before + length)
        self.memory.clear()
        self._began = self._carry
        return {name: np.asarray(value) for name, value in figures.items()}

    def _stacked(self, observations: Sequence[Any]) -> np.ndarray:
        """Observations of all agents, padded."""
        spec = self.spec
        if len(observations) != spec.num_agents:
            raise UsageError(f"there are {spec.num_agents} agents, not {len(observations)}: give an observation of each.")
        stacked = np.zeros((spec.num_agents, spec.obs_size), np.float32)
        for i, (seen, size) in enumerate(zip(observations, spec.obs_sizes, strict=True)):
            if np.shape(seen) != (size,):
                raise UsageError(f"the observation of agent {i} must have shape ({size},), not {np.shape(seen)}.")
            stacked[i, :size] = seen
        return stacked
