"""Environments from elsewhere, opened and put into our words: PettingZoo (parallel or in turns) and Gymnasium.

NumPy only, so that the processes that step them need no JAX. An environment is named by where its factory is found,
`package.module:factory` or `path/to/file.py:factory`, which any process, also one that takes a run up again, can open.
"""

import contextlib
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from counterpoint.core.errors import UsageError
from counterpoint.core.numpy_policy import Space, choices

LONGEST = 1000
"""Steps after which an episode is cut off if neither the user nor the environment says when."""
ALONE = "agent_0"
"""What the only agent of a Gymnasium environment is called."""


class Facts(NamedTuple):
    """Who plays in an environment, and what they see and do after flattening."""

    agents: tuple[str, ...]
    obs_sizes: tuple[int, ...]
    spaces: tuple[Space, ...]
    max_steps: int
    """Its own limit, or 0 if it names none."""


def address(factory: Callable[..., Any] | str) -> str:
    """Where a factory is found again: its own text if it is one already."""
    if isinstance(factory, str):
        return factory
    name = getattr(factory, "__qualname__", "<unnamed>")
    if "<" in name:
        raise UsageError(f"env={name} cannot be found again by a run that resumes: give a function or class of a module.")
    module = sys.modules.get(factory.__module__)
    file = getattr(module, "__file__", None)
    if factory.__module__ != "__main__":
        return f"{factory.__module__}:{name}"
    if file is None:
        raise UsageError(f"env={name} lives in an interactive session and cannot be found again: put it into a file.")
    return f"{Path(file).resolve()}:{name}"


def find(text: str) -> Callable[..., Any]:
    """The factory at an address."""
    place, _, name = text.rpartition(":")
    if not place or not name:
        raise UsageError(f"--env {text} must be package.module:factory or path/to/file.py:factory.")
    try:
        module = _load_file(Path(place)) if place.endswith(".py") else _load_module(place)
    except UsageError:
        raise
    except Exception as error:
        raise UsageError(f"--env {text} cannot be imported ({type(error).__name__}: {_line(error)}).") from error
    try:
        factory = reduce(getattr, name.split("."), module)
    except AttributeError:
        raise UsageError(f"--env {text}: {place} has no {name}; check the name after the colon.") from None
    if not callable(factory):
        raise UsageError(f"--env {text} is no function or class that makes an environment.")
    return factory


def _load_module(place: str) -> Any:
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.append(str(Path.cwd()))  # as `python -m` does: the user's own module lies where the command is typed
    return importlib.import_module(place)


def _load_file(path: Path) -> Any:
    if not path.exists():
        raise UsageError(f"--env {path}: there is no such file.")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"--env {path} cannot be loaded as Python.")
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(path.stem, module)
    sys.path.insert(0, str(path.resolve().parent))
    spec.loader.exec_module(module)
    return module


def _line(error: BaseException) -> str:
    return next(iter(str(error).splitlines()), "")


def open_env(text: str, arguments: Mapping[str, Any], render: bool = False) -> Any:
    """The environment at an address as a parallel one; with `render`, one that draws pictures, or None if it cannot."""
    try:
        import gymnasium
        from pettingzoo import AECEnv
        from pettingzoo.utils.conversions import aec_to_parallel
    except ModuleNotFoundError as error:
        raise UsageError(
            f"--env needs {error.name}, which is not installed: pip install 'counterpoint[pettingzoo]'."
        ) from error
    factory = find(text)
    if render and "render_mode" not in arguments:
        if not _takes(factory, "render_mode"):
            return None
        arguments = {**arguments, "render_mode": "rgb_array"}
    try:
        env = factory(**arguments)
    except Exception as error:
        given = ", ".join(f"{name}={value!r}" for name, value in arguments.items())
        raise UsageError(f"--env {text}: making it with ({given}) failed ({type(error).__name__}: {_line(error)}).") from error
    if isinstance(env, AECEnv):
        try:
            return aec_to_parallel(env)
        except Exception as error:
            raise UsageError(
                f"--env {text} lets agents act in turns, and PettingZoo cannot make it parallel ({_line(error)})."
            ) from error
    if isinstance(env, gymnasium.Env):
        return Alone(env)
    if not all(hasattr(env, name) for name in ("possible_agents", "reset", "step", "observation_space", "action_space")):
        raise UsageError(f"--env {text} made a {type(env).__name__}, which is no PettingZoo or Gymnasium environment.")
    return env


def _takes(factory: Callable[..., Any], name: str) -> bool:
    try:
        parameters = inspect.signature(factory).parameters
    except (TypeError, ValueError):
        return False
    return name in parameters or any(p.kind is p.VAR_KEYWORD for p in parameters.values())


class Alone:
    """A Gymnasium environment as a team of one."""

    def __init__(self, env: Any) -> None:
        self.env = env
        self.possible_agents = [ALONE]
        self.agents: list[str] = []

    def observation_space(self, agent: str) -> Any:
        return self.env.observation_space

    def action_space(self, agent: str) -> Any:
        return self.env.action_space

    def reset(self, seed: int | None = None) -> tuple[dict[str, Any], dict[str, Any]]:
        obs, info = self.env.reset(seed=seed)
        self.agents = [ALONE]
        return {ALONE: obs}, {ALONE: info}

    def step(self, actions: dict[str, Any]) -> tuple[dict[str, Any], ...]:
        obs, reward, terminated, truncated, info = self.env.step(actions[ALONE])
        if terminated or truncated:
            self.agents = []
        return tuple({ALONE: value} for value in (obs, reward, terminated, truncated, info))

    def render(self) -> Any:
        return self.env.render()

    def close(self) -> None:
        self.env.close()


def facts_of(env: Any, text: str) -> Facts:
    """What the learner must know of an environment."""
    from gymnasium import spaces

    agents = tuple(env.possible_agents)
    if not agents:
        raise UsageError(f"--env {text} names no possible_agents: it must know all of its agents from the start.")
    sizes = []
    for agent in agents:
        seen = env.observation_space(agent)
        try:
            size = int(spaces.flatdim(seen))
        except (NotImplementedError, ValueError):
            raise UsageError(f"--env {text}: what {agent} sees, {seen}, has no fixed number of entries.") from None
        sizes.append(size)
    actions = tuple(_action_space(env.action_space(agent), agent, text) for agent in agents)
    return Facts(agents, tuple(sizes), actions, _own_limit(env))


def _own_limit(env: Any) -> int:
    """The number of steps after which the environment says it ends an episode, if it does."""
    for name in ("max_cycles", "max_steps", "_max_episode_steps"):
        for layer in (env, getattr(env, "unwrapped", None), getattr(env, "env", None), getattr(env, "aec_env", None)):
            with contextlib.suppress(Exception):
                if layer is not None and 0 < int(getattr(layer, name)) <= 10**6:
                    return int(getattr(layer, name))
    return 0


def _action_space(space: Any, agent: str, text: str) -> Space:
    from gymnasium import spaces

    if isinstance(space, spaces.Discrete):
        return Space(int(space.n), (int(space.n),))
    if isinstance(space, spaces.MultiDiscrete):
        heads = tuple(int(width) for width in np.ravel(space.nvec))
        return Space(sum(heads), heads)
    if isinstance(space, spaces.MultiBinary):
        count = int(np.prod(space.shape))
        return Space(2 * count, (2,) * count)
    if isinstance(space, spaces.Box):
        if not (np.isfinite(space.low).all() and np.isfinite(space.high).all()):
            raise UsageError(f"--env {text}: the actions of {agent} have no bounds ({space}); wrap it so that they do.")
        return Space(int(np.prod(space.shape)))
    raise UsageError(
        f"--env {text}: the actions of {agent}, {space}, are of a kind that no learner here knows: Discrete, MultiDiscrete,"
        " MultiBinary and Box are."
    )


class Copy:
    """One copy of an environment: arrays in, arrays out. An agent that is not there sees zeros and earns nothing."""

    def __init__(self, env: Any, facts: Facts, max_steps: int) -> None:
        self.env, self.facts, self.max_steps = env, facts, max_steps
        self._see, self._do = flatteners(env, facts), native_actions(env, facts)
        self._shape = (len(facts.agents), max(facts.obs_sizes))
        self.obs = np.zeros(self._shape, np.float32)
        self.alive = np.zeros(len(facts.agents), bool)
        self.length = 0

    def reset(self, seed: int) -> None:
        """A new episode; the same seed gives the same one, if the environment keeps its word."""
        seen, _ = self.env.reset(seed=seed)
        self.obs, self.alive = self._observations(seen)
        self.length = 0

    def step(self, action: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, bool]:
        """One step for these action vectors [N, A]: next_obs, reward, terminated, and whether the episode is over."""
        agents = self.facts.agents
        chosen = {agent: self._do[i](action[i]) for i, agent in enumerate(agents) if self.alive[i]}
        seen, rewards, terminated, truncated, _ = self.env.step(chosen)
        self.length += 1
        next_obs, _ = self._observations(seen)
        reward, ended, alive = np.zeros(len(agents), np.float32), ~self.alive, self.alive.copy()
        for i, agent in enumerate(agents):
            if not self.alive[i]:
                continue
            reward[i] = rewards.get(agent, 0.0)
            over = bool(terminated.get(agent, agent not in seen))
            ended[i] = over
            alive[i] = not (over or truncated.get(agent, False))
        if not self.alive.all():
            for agent in self.env.agents:
                if not self.alive[i := agents.index(agent)]:  # joined in the middle of the episode
                    alive[i], ended[i] = True, False
        done = not alive.any() or self.length >= self.max_steps
        self.obs, self.alive = next_obs, alive
        return next_obs, reward, ended, done

    def _observations(self, seen: Mapping[str, Any]) -> tuple[np.ndarray, np.ndarray]:
        obs, there = np.zeros(self._shape, np.float32), np.zeros(self._shape[0], bool)
        for i, agent in enumerate(self.facts.agents):
            if agent in seen:
                obs[i, : self.facts.obs_sizes[i]] = self._see[i](seen[agent])
                there[i] = True
        return obs, there


def _flattener(space: Any) -> Callable[[Any], np.ndarray]:
    from gymnasium import spaces

    if isinstance(space, spaces.Box):
        return np.ravel
    return lambda value: np.asarray(spaces.flatten(space, value))


def _native(space: Any, own: Space) -> Callable[[np.ndarray], Any]:
    """From an action vector to what the environment takes."""
    from gymnasium import spaces

    if isinstance(space, spaces.Discrete):
        first, size = int(space.start), own.size
        return lambda vector: first + int(vector[:size].argmax())
    if isinstance(space, spaces.Box):
        low, high, shape, dtype, size = space.low.ravel(), space.high.ravel(), space.shape, space.dtype, own.size
        half, middle = (high - low) / 2, (high + low) / 2
        return lambda vector: np.clip(middle + half * vector[:size], low, high).astype(dtype).reshape(shape)
    start = np.ravel(getattr(space, "start", 0))
    return lambda vector: (np.array(choices(own, vector)) + start).astype(space.dtype).reshape(space.shape)


def native_actions(env: Any, facts: Facts) -> list[Callable[[np.ndarray], Any]]:
    """For each agent, from an action vector to what the environment takes."""
    return [_native(env.action_space(agent), space) for agent, space in zip(facts.agents, facts.spaces, strict=True)]


def flatteners(env: Any, facts: Facts) -> list[Callable[[Any], np.ndarray]]:
    """For each agent, from what the environment shows to a vector."""
    return [_flattener(env.observation_space(agent)) for agent in facts.agents]


def teams_of(agents: Sequence[str], rules: Sequence[str]) -> tuple[str, ...]:
    """Each agent's team: by the first rule PATTERN=TEAM that fits its name, else "adversary" if its name begins so."""
    from fnmatch import fnmatchcase

    pairs = []
    for rule in rules:
        pattern, sign, team = rule.partition("=")
        if not sign or not pattern or not team:
            raise UsageError(f"--teams {rule} must have the form NAME=TEAM, such as wolf_*=adversary.")
        if not any(fnmatchcase(agent, pattern) for agent in agents):
            raise UsageError(f"--teams {rule} fits none of the agents {', '.join(agents)}.")
        pairs.append((pattern, team))
    named = {agent: "adversary" if agent.startswith("adversary") else "good" for agent in agents}
    return tuple(next((team for pattern, team in pairs if fnmatchcase(agent, pattern)), named[agent]) for agent in agents)
