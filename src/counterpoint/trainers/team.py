"""On-policy learners for a loop of your own: ask for actions, report what happened, and train now and then.

    for each step:           actions = trainer.get_actions(observations);  trainer.experience(rewards, next_observations, …)
    every so many episodes:  trainer.train()

`train` computes the algorithm's `update`, as in a compiled run. Observations and actions are lists with one entry per agent,
in a fixed order.
"""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from counterpoint.algos.base import Algorithm
from counterpoint.core import prng
from counterpoint.core.actions import to_world
from counterpoint.core.errors import UsageError
from counterpoint.core.spaces import ActionSpace, Box, Spec
from counterpoint.core.types import Transition
from counterpoint.trainers import files


class Episodes(NamedTuple):
    """The contents of a memory in order: T steps of N agents, padded to the largest agent."""

    observations: np.ndarray
    """[T, N, O]."""
    actions: np.ndarray
    """[T, N, A]: one-hot, or numbers in [−1, 1]."""
    pi: np.ndarray
    """[T, N, A]: the probabilities from which discrete actions were drawn."""
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
    legal: np.ndarray
    """[T, N, A]: the actions that were legal."""
    next_legal: np.ndarray
    """[T, N, A]: the actions that were legal after the step."""


class Memory:
    """Stores the steps of one or several episodes in order."""

    def __init__(self) -> None:
        self._steps: list[tuple[Any, ...]] = []

    def __len__(self) -> int:
        return len(self._steps)

    def add(self, *step: Any) -> None:
        """Stores a step, given by the fields of `Episodes` without their first axis."""
        if len(step) != len(Episodes._fields):
            raise UsageError(f"a step has {len(Episodes._fields)} parts ({', '.join(Episodes._fields)}), not {len(step)}.")
        self._steps.append(step)

    def get(self) -> Episodes:
        """Returns all steps so far."""
        if not self._steps:
            raise UsageError("the memory is empty: call experience after each step before get or train.")
        return Episodes(*(np.stack(column) for column in zip(*self._steps, strict=True)))

    def clear(self) -> None:
        """Forgets all steps."""
        self._steps = []


class TeamTrainer:
    """A team that learns from its own episodes.

    An agent that has finished needs nothing until the episode ends: its entries in all lists may be None.
    """

    def __init__(self, obs_sizes: Sequence[int], spaces: Sequence[ActionSpace], config: Any, make: Any, seed: int) -> None:
        names = tuple(f"agent_{i}" for i in range(len(obs_sizes)))
        self.spec = Spec(names, names, ("good",) * len(names), tuple(obs_sizes), tuple(spaces))
        self.config, self.memory = config, Memory()
        self._algo: Algorithm = make(config, self.spec)
        self._seed, self._key = seed, prng.key(seed)
        self._draws = 0
        self.agents: Any = jax.jit(self._algo.init)(self._next_key())
        self._draw = jax.jit(self._sample)
        self._greedy = jax.jit(lambda agents, *args: self._algo.greedy(self._algo.policy(agents), *args))
        self._update = jax.jit(self._algo.update)
        self._began: Any = None
        self._asked: tuple[np.ndarray, ...] | None = None
        self._legal: np.ndarray | None = None
        """[N, A]: the mask of the last actions, if the environment has action masks."""
        self._has_masks = False
        self._new_episode()

    def _new_episode(self) -> None:
        self._carry = jax.tree.map(lambda leaf: leaf[None], self._algo.begin(self._key))
        self._playing = np.ones(self.spec.num_agents, bool)

    def _next_key(self) -> jax.Array:
        self._draws += 1
        return jax.random.fold_in(self._key, self._draws)

    def _sample(self, agents: Any, carry: Any, obs: jax.Array, key: jax.Array, step: jax.Array, legal: Any) -> Any:
        """Returns actions [1, N, A], the probabilities of discrete ones, and the carry."""
        raise NotImplementedError

    def get_actions(self, observations: Sequence[Any], greedy: bool = False, legal: Sequence[Any] | None = None) -> list[Any]:
        """Returns each agent's action: drawn from its policy, and `experience` must follow; or the likeliest, without it.

        It is an integer, a list of integers if the agent has several heads, or an array in the environment's range. `legal` has
        each agent's action mask, if the environment has masks. The action of an agent that has finished means nothing. Call
        `reset` before and after episodes that are played greedily.
        """
        obs, mask = self._stacked(observations), None if legal is None else self._masks(legal)
        allowed = None if mask is None else mask[None]
        if greedy:
            action, self._carry = self._greedy(self.agents, self._carry, obs[None], allowed)
        else:
            before, step = self._carry, self.agents.step + len(self.memory)
            action, pi, self._carry = self._draw(self.agents, before, obs[None], self._next_key(), step, allowed)
            if not len(self.memory):
                self._began, self._has_masks = before, False
            self._asked, self._legal = (obs, np.asarray(action)[0], np.asarray(pi)[0]), mask
        vectors = np.asarray(to_world(self.spec, action))[0]
        return [_native(space, vectors[i, : space.size]) for i, space in enumerate(self.spec.action_spaces)]

    def experience(
        self,
        rewards: Sequence[Any],
        next_observations: Sequence[Any],
        terminated: Sequence[Any],
        truncated: Sequence[Any] | bool = False,
        next_legal: Sequence[Any] | None = None,
    ) -> None:
        """Stores what the last actions led to: `terminated` ends the game for an agent, `truncated` only its recording.

        If `get_actions` was given action masks, `next_legal` has the masks that belong to `next_observations`.
        """
        if self._asked is None:
            raise UsageError("experience follows get_actions, once: ask for actions first.")
        if (next_legal is None) != (self._legal is None):
            raise UsageError("action masks come in pairs: give legal to get_actions and next_legal to experience, or neither.")
        shape = (self.spec.num_agents,)
        if np.shape(np.asarray(rewards, object)) != shape or np.shape(np.asarray(terminated, object)) != shape:
            raise UsageError(
                f"rewards and terminated need one entry for each of {shape[0]} agents, not {rewards!r}, {terminated!r}."
            )
        over = np.array([bool(flag) for flag in terminated])
        ended = over | np.asarray(truncated, bool) | ~self._playing
        seen, reward = self._stacked(next_observations, ~self._playing | over), self._rewards(rewards)
        legal = self.spec.act_mask if self._legal is None else self._legal
        after = self.spec.act_mask if next_legal is None else self._masks(next_legal, ended)
        self._has_masks |= next_legal is not None
        self.memory.add(*self._asked, reward, seen, over, self._playing, np.asarray(ended.all()), legal, after)
        self._asked, self._playing = None, ~ended
        if ended.all():
            self._new_episode()

    def reset(self) -> None:
        """Begins another episode: forgets what was remembered within the last one."""
        self._new_episode()

    def train(self) -> dict[str, np.ndarray]:
        """Learns from the memory, clears it, and returns the metrics of the update by agent."""
        steps = self.memory.get()
        length = len(steps.done)
        padded = 1 << (length - 1).bit_length()  # compiles for few lengths; nobody played the steps that are added
        rows = [np.concatenate([part, np.zeros((padded - length, *part.shape[1:]), part.dtype)])[:, None] for part in steps]
        obs, action, _, reward, next_obs, terminated, alive, done, legal, next_legal = map(jnp.asarray, rows)
        batch = Transition(obs, action, reward, next_obs, terminated, alive, done)
        batch = batch._replace(carry=jax.tree.map(lambda leaf: leaf[None], self._began))
        if self._has_masks:
            batch = batch._replace(legal=legal, next_legal=next_legal)
        before = self.agents.step
        agents, metrics = self._update(self.agents, batch, self._next_key())
        self.agents = agents._replace(step=before + length)
        self.memory.clear()
        self._began = self._carry
        return {name: np.asarray(value) for name, value in metrics.items()}

    def save(self, save_dir: str | Path, scenario: str, number: int | None = None) -> Path:
        """Writes networks, targets and optimisers to <save_dir>/<scenario>/team/ and returns the file's path.

        The file is trainer.safetensors, or <number>_trainer.safetensors. The memory is not saved: save after `train`.
        """
        path = files.path_of(_folder(save_dir, scenario), number)
        about = {"steps": int(self.agents.step), "draws": self._draws, "seed": self._seed}
        files.save(path, self.agents, self.spec, about | {"learning": dataclasses.asdict(self.config)})
        return path

    def load(self, save_dir: str | Path, scenario: str, number: int | None = None) -> None:
        """Restores what `save` wrote, the model with that number or the one with the most steps, and begins an episode."""
        folder = _folder(save_dir, scenario)
        path = files.path_of(folder, number) if number is not None else files.newest(folder) or files.path_of(folder)
        self.agents, about = files.load(path, self.agents, self.spec, "this team")
        self._draws, self._seed = about["draws"], about["seed"]
        self._key, self._asked = prng.key(self._seed), None
        self.memory.clear()
        self._new_episode()

    def _stacked(self, observations: Sequence[Any], optional: np.ndarray | None = None) -> np.ndarray:
        """Returns the observations of all agents, padded; zeros for None, which agents may give that have finished."""
        spec, optional = self.spec, ~self._playing if optional is None else optional
        self._check_length(observations, "an observation")
        stacked = np.zeros((spec.num_agents, spec.obs_size), np.float32)
        for i, (seen, size) in enumerate(zip(observations, spec.obs_sizes, strict=True)):
            if seen is None and optional[i]:
                continue
            if seen is None or np.shape(seen) != (size,):
                shape = "None" if seen is None else np.shape(seen)
                raise UsageError(f"the observation of agent {i} must have shape ({size},), not {shape}.")
            stacked[i, :size] = seen
        return stacked

    def _masks(self, legal: Sequence[Any], finished: np.ndarray | None = None) -> np.ndarray:
        """Returns action masks [N, A]; all actions are legal for agents that have finished and give None or no action."""
        spec, finished = self.spec, ~self._playing if finished is None else finished
        self._check_length(legal, "an action mask")
        masks = spec.act_mask.copy()
        for i, (mask, size) in enumerate(zip(legal, spec.act_sizes, strict=True)):
            if finished[i] and (mask is None or not np.any(mask)):
                continue
            if mask is None or np.shape(mask) != (size,):
                shape = "None" if mask is None else np.shape(mask)
                raise UsageError(f"the action mask of agent {i} must have shape ({size},), not {shape}.")
            if not np.any(mask):
                raise UsageError(f"the action mask of agent {i} allows nothing: an agent that plays needs a legal action.")
            masks[i, :size] = np.asarray(mask, bool)
        return masks

    def _rewards(self, rewards: Sequence[Any]) -> np.ndarray:
        for i, reward in enumerate(rewards):
            if reward is None and self._playing[i]:
                raise UsageError(f"agent {i} still plays and needs a reward, not None.")
        return np.array([0.0 if reward is None else float(reward) for reward in rewards], np.float32)

    def _check_length(self, entries: Sequence[Any], what: str) -> None:
        if len(entries) != self.spec.num_agents:
            raise UsageError(f"there are {self.spec.num_agents} agents, not {len(entries)}: give {what} of each.")


def _native(space: ActionSpace, vector: np.ndarray) -> Any:
    """Returns an action vector as the environment expects it."""
    if isinstance(space, Box):
        return vector
    chosen = space.choices(vector)
    return chosen[0] if len(chosen) == 1 else chosen


def _folder(save_dir: str | Path, scenario: str) -> Path:
    return Path(save_dir).expanduser() / scenario / "team"
