"""Compiled worlds as PettingZoo `ParallelEnv`s, for code that was written against mpe2.

Names and dicts of NumPy arrays outside, one padded array per step inside. Each world is compiled once and shared by all its
instances; an instance owns its state and its stream of random numbers.
"""

import contextlib
import math
import operator
import time
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from counterpoint.core import prng
from counterpoint.core.errors import UsageError
from counterpoint.core.spaces import Box, Discrete
from counterpoint.core.types import Env, State
from counterpoint.envs import make
from counterpoint.envs.own import as_world

try:
    from gymnasium import logger, spaces
    from pettingzoo import ParallelEnv
    from pettingzoo.utils.env_logger import EnvLogger
except ModuleNotFoundError:  # an extra: `to_pettingzoo` says so
    if TYPE_CHECKING:
        raise
    ParallelEnv, spaces = object, None

RENDER_MODES = ("human", "rgb_array")
FPS = 10


def to_pettingzoo(
    env_or_name: Any,
    *,
    seed: int | None = None,
    render_mode: str | None = None,
    benchmark_data: bool = False,
    multi_discrete: bool = False,
    **arguments: Any,
) -> "ParallelWorld":
    """Returns a world, or the built-in world of that name with these arguments, as a PettingZoo `ParallelEnv`.

    `seed` starts the stream of random numbers that `reset()` without a seed continues (default: a fresh one each time).
    `benchmark_data` fills the infos as mpe2 does. `multi_discrete` gives agents that both move and talk their two choices
    as MultiDiscrete([5, words]) instead of mpe2's single integer. Action masks appear as `info["action_mask"]`.
    """
    if spaces is None:
        raise UsageError("to_pettingzoo needs PettingZoo, which is not installed: pip install counterpoint[pettingzoo].")
    if render_mode is not None and render_mode not in RENDER_MODES:
        raise UsageError(f"render_mode must be one of {', '.join(RENDER_MODES)} or None, not {render_mode!r}.")
    if isinstance(env_or_name, str):
        env_or_name = make(env_or_name, **arguments)
    elif arguments:
        raise UsageError(
            f"{', '.join(arguments)} can only be given with a world's name; this {as_world(env_or_name).name} is made already."
        )
    return ParallelWorld(as_world(env_or_name), seed, render_mode, benchmark_data, multi_discrete)


class ParallelWorld(ParallelEnv):
    """A compiled world as a PettingZoo environment. Agents leave `agents` when they finish; `step` never resets."""

    def __init__(self, env: Env, seed: int | None, render_mode: str | None, benchmark_data: bool, multi_discrete: bool) -> None:
        spec = env.spec
        self.env = env
        self.render_mode = render_mode
        self.benchmark_data = benchmark_data
        self.max_cycles = env.max_steps
        self.metadata = {
            "name": env.name,
            "render_modes": list(RENDER_MODES),
            "is_parallelizable": True,
            "render_fps": FPS,
        }
        self.possible_agents = list(spec.agents)
        self.agents = []
        self.observation_spaces = {a: _unbounded(size) for a, size in zip(spec.agents, spec.obs_sizes, strict=True)}
        self.action_spaces = {
            a: _gym_space(space, multi_discrete) for a, space in zip(spec.agents, spec.action_spaces, strict=True)
        }
        self.state_space = _unbounded(sum(spec.obs_sizes))
        self.world_state: State = None
        """The functional state. Set it to put the world anywhere; observations follow with the next step."""
        self._index = {agent: i for i, agent in enumerate(spec.agents)}
        self._obs = np.zeros((spec.num_agents, spec.obs_size), np.float32)
        self._random = _generator(seed)
        self._window = None
        self._next_frame = 0.0

    def observation_space(self, agent: str) -> "spaces.Space":
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> "spaces.Space":
        return self.action_spaces[agent]

    def reset(self, seed: int | None = None, options: dict | None = None) -> tuple[dict, dict]:
        if seed is not None:
            self._random = _generator(seed)
        reset, _ = _compiled(self.env, self.benchmark_data)
        self.world_state, obs, legal = reset(self._key_data())
        self._obs = np.asarray(obs)
        self.agents = self.possible_agents[:]
        if self.render_mode == "human":
            self.render()
        return self._observations(), self._infos(legal)

    def step(self, actions: Mapping[str, Any]) -> tuple[dict, dict, dict, dict, dict]:
        self._check_reset()
        if not self.agents:
            return {}, {}, {}, {}, {}
        _, step = _compiled(self.env, self.benchmark_data)
        self.world_state, sheet, benchmark, legal = step(self._key_data(), self.world_state, self._action_array(actions))
        sheet = np.asarray(sheet)
        self._obs = sheet[:, :-3]
        rewards = self._named(sheet[:, -3])
        terminated, truncated = self._named(sheet[:, -2] > 0), self._named(sheet[:, -1] > 0)
        infos = self._infos(legal)
        if self.benchmark_data:
            for agent in self.agents:
                infos[agent]["benchmark_data"] = _mpe2_benchmark(self.env.name, benchmark, self._index[agent])
        observations = self._observations()
        self.agents = [agent for agent in self.agents if not (terminated[agent] or truncated[agent])]
        if self.render_mode == "human":
            self.render()
        return observations, rewards, terminated, truncated, infos

    def state(self) -> Float[np.ndarray, " S"]:
        """Returns all agents' latest observations in the order of `possible_agents`, finished agents included."""
        return np.concatenate([self._obs_of(agent) for agent in self.possible_agents])

    def render(self) -> np.ndarray | None:
        if self.render_mode is None:
            logger.warn("render() draws nothing without a render_mode: give to_pettingzoo(render_mode='rgb_array') or 'human'.")
            return None
        self._check_reset()
        from counterpoint.viz.render import rgb

        picture = self.env.draw(jax.device_get(self.world_state))
        if picture is None:
            raise UsageError(f"{self.env.name} cannot draw itself: give it a method draw(state), or leave out render_mode.")
        image = np.array(rgb(picture))  # a copy: callers may draw into it
        if self.render_mode == "rgb_array":
            return image
        if self._window is None:
            from counterpoint.viz.window import Window

            self._window = Window(self.env.name)
        time.sleep(max(0.0, self._next_frame - time.monotonic()))  # at the pace of render_fps, not of the machine
        self._next_frame = time.monotonic() + 1 / FPS
        self._window.show(image)
        return None

    def close(self) -> None:
        if self._window is not None:
            self._window.close()
            self._window = None

    def __str__(self) -> str:
        return self.env.name

    def _check_reset(self) -> None:
        if self.world_state is None:
            raise UsageError(f"{self.env.name} has not started: call reset() first.")

    def _key_data(self) -> np.ndarray:
        return np.frombuffer(self._random.bytes(8), np.uint32)

    def _named(self, values: np.ndarray) -> dict[str, Any]:
        """Returns values as plain Python numbers by the names of the active agents."""
        values = values.tolist()
        return {agent: values[self._index[agent]] for agent in self.agents}

    def _obs_of(self, agent: str) -> Float[np.ndarray, " _o"]:
        i = self._index[agent]
        return np.array(self._obs[i, : self.env.spec.obs_sizes[i]], np.float32)  # a copy: callers may write into it

    def _observations(self) -> dict[str, np.ndarray]:
        return {agent: self._obs_of(agent) for agent in self.agents}

    def _infos(self, legal: Any) -> dict[str, dict[str, Any]]:
        """Returns the agents' infos: their legal actions, if the world has action masks."""
        if legal is None:
            return {agent: {} for agent in self.agents}
        table = np.asarray(legal)
        return {agent: {"action_mask": self._mask_of(agent, table[self._index[agent]])} for agent in self.agents}

    def _mask_of(self, agent: str, legal: np.ndarray) -> Any:
        """Returns an agent's mask in the form that its action space's `sample` takes; None for continuous actions."""
        i, space = self._index[agent], self.action_spaces[agent]
        own = self.env.spec.action_spaces[i]
        if isinstance(own, Box):
            return None
        if isinstance(space, spaces.MultiDiscrete):
            edges = np.cumsum(own.heads)[:-1]
            return tuple(part.astype(np.int8) for part in np.split(legal[: own.size], edges))
        allowed = _action_table(self.env, i, own.heads) <= legal[: own.size]  # every chosen entry is legal
        return allowed.all(axis=1).astype(np.int8)

    def _action_array(self, actions: Mapping[str, Any]) -> Float[np.ndarray, "N A"]:
        """Returns the active agents' actions as one array; zeros for those that have finished."""
        spec = self.env.spec
        for name in actions:
            if name not in self._index:
                raise UsageError(f"{self.env.name} has no agent {name!r}; its agents are {', '.join(spec.agents)}.")
        array = np.zeros((spec.num_agents, spec.act_size), np.float32)
        for agent in self.agents:
            if agent not in actions:
                raise UsageError(f"{agent} has no action; step() needs one for each of {', '.join(self.agents)}.")
            i = self._index[agent]
            space = spec.action_spaces[i]
            if isinstance(space, Box):
                array[i, : space.size] = _box_vector(agent, actions[agent], space)
            else:
                row = _table_row(agent, actions[agent], self.action_spaces[agent])
                array[i, : space.size] = _action_table(self.env, i, space.heads)[row]
        return array


@lru_cache(maxsize=64)
def _compiled(env: Env, benchmark: bool) -> tuple[Callable, Callable]:
    """Returns the world's reset and step, each as one compiled call.

    step returns the new state, one sheet [N, O + 3] = [obs, reward, terminated, truncated], the benchmark data and the legal
    actions (None without). One sheet, because fetching an array costs as much as stepping a small world.
    """

    def reset(key_data):
        state, obs = env.reset(prng.wrap(key_data))
        return state, obs, env.legal(state)

    def step(key_data, state, action):
        state, result = env.step(prng.wrap(key_data), state, action)
        columns = jnp.stack([x.astype(result.obs.dtype) for x in (result.reward, result.terminated, result.truncated)], axis=1)
        figures = getattr(env, "benchmark_data", None) if benchmark else None
        return state, jnp.concatenate([result.obs, columns], axis=1), figures(state) if figures else None, env.legal(state)

    return jax.jit(reset), jax.jit(step)


@lru_cache(maxsize=1024)
def _action_table(env: Env, agent: int, heads: tuple[int, ...]) -> Float[np.ndarray, "K _a"]:
    """Returns the action vector of each integer that an agent can choose: the first head is the fastest digit, as in mpe2."""
    choices = [tuple(map(int, np.unravel_index(k, heads, order="F"))) for k in range(math.prod(heads))]
    of_integers = getattr(env, "action_of_integers", None)
    if of_integers:
        return np.stack([of_integers(agent, choice) for choice in choices])
    one_hots = [np.eye(size, dtype=np.float32) for size in heads]
    return np.stack([np.concatenate([rows[k] for rows, k in zip(one_hots, choice, strict=True)]) for choice in choices])


def _table_row(agent: str, action: Any, space: "spaces.Space") -> int:
    """Returns the row of `_action_table` for an action of a Discrete or MultiDiscrete space."""
    legal = f"an action of {space}"
    with contextlib.suppress(TypeError):  # from what is no integer
        if isinstance(space, spaces.MultiDiscrete):
            choice, sizes = [operator.index(part) for part in action], space.nvec.tolist()
            legal = f"{len(sizes)} integers below {', '.join(map(str, sizes))}"
            if len(choice) == len(sizes) and all(0 <= k < size for k, size in zip(choice, sizes, strict=True)):
                return int(np.ravel_multi_index(choice, sizes, order="F"))
        elif isinstance(space, spaces.Discrete):
            row, legal = operator.index(action), f"an integer from 0 to {space.n - 1}"
            if 0 <= row < space.n:
                return row
    raise UsageError(f"{agent} cannot take action {action!r}: give {legal}.")


def _box_vector(agent: str, action: Any, space: Box) -> Float[np.ndarray, " _a"]:
    """Returns the action clipped to its space; warns, as mpe2 does, if it lies outside."""
    try:
        vector = np.asarray(action, np.float32)
    except (TypeError, ValueError):
        vector = np.empty(0)
    if vector.shape != (space.size,) or np.isnan(vector).any():
        raise UsageError(f"{agent} cannot take action {action!r}: give {space.size} numbers, none of them NaN.")
    clipped = np.clip(vector, space.low, space.high)
    if (clipped != vector).any():
        EnvLogger.warn_action_out_of_bound(action, _gym_space(space, False), "clipping to space")
    return clipped


def _unbounded(size: int) -> "spaces.Box":
    return spaces.Box(-np.inf, np.inf, (size,), np.float32)


def _gym_space(space: Discrete | Box, multi_discrete: bool) -> "spaces.Space":
    if isinstance(space, Box):
        low, high = (np.broadcast_to(np.asarray(bound, np.float32), (space.size,)) for bound in (space.low, space.high))
        return spaces.Box(low, high, (space.size,), np.float32)
    if multi_discrete and len(space.heads) > 1:
        return spaces.MultiDiscrete(list(space.heads))
    return spaces.Discrete(math.prod(space.heads))


def _generator(seed: int | None) -> np.random.Generator:
    """Returns a random generator; without a seed, the operating system's entropy starts it."""
    try:
        return np.random.default_rng(None if seed is None else operator.index(seed))
    except (TypeError, ValueError):
        raise UsageError(f"seed must be a whole number of at least 0, not {seed!r}.") from None


def _mpe2_benchmark(world: str, flat: tuple[Float[Array, " _k"], ...] | None, agent: int) -> Any:
    """Returns an agent's benchmark data as mpe2 gives them: numbers, tuples or arrays, depending on the scenario."""
    if flat is None:
        return {}
    figures = np.array(flat[agent])
    values = figures.tolist()
    if world == "simple_crypto":
        said, goal = np.split(figures, 2)
        return said, goal
    if world == "simple_spread":
        reward, collisions, distance, occupied = values
        return reward, int(collisions), distance, int(occupied)
    if world == "collect_treasure":
        first, present = map(int, values)
        return None if first < 0 else first, present
    if world in ("simple_tag", "simple_world_comm"):
        return int(values[0])
    return values[0] if len(values) == 1 else tuple(values)
