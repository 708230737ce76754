"""Environments from elsewhere, opened and put into our words: PettingZoo (parallel or in turns) and Gymnasium.

NumPy only, so that the processes that step them need no JAX. An environment is named by where its factory is found,
`package.module:factory` or `path/to/file.py:factory`, which any process, also one that takes a run up again, can open.
"""

import contextlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from counterpoint.core.errors import UsageError
from counterpoint.core.loading import first_line, load_object
from counterpoint.core.spaces import ActionSpace, Box, Spec, action_space_of

LONGEST = 1000
"""Steps after which an episode is cut off if neither the user nor the environment says when."""
ALONE = "agent_0"
"""What the only agent of a Gymnasium environment is called."""


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
    factory = load_object(text, "--env")
    if render and "render_mode" not in arguments:
        if not _takes(factory, "render_mode"):
            return None
        arguments = {**arguments, "render_mode": "rgb_array"}
    try:
        env = factory(**arguments)
    except Exception as error:
        given = ", ".join(f"{name}={value!r}" for name, value in arguments.items())
        raise UsageError(
            f"--env {text}: making it with ({given}) failed ({type(error).__name__}: {first_line(error)})."
        ) from error
    if isinstance(env, AECEnv):
        try:
            return aec_to_parallel(env)
        except Exception as error:
            raise UsageError(
                f"--env {text} lets agents act in turns, and PettingZoo cannot make it parallel ({first_line(error)})."
            ) from error
    if isinstance(env, gymnasium.Env):
        return SingleAgent(env)
    if not all(hasattr(env, name) for name in ("possible_agents", "reset", "step", "observation_space", "action_space")):
        raise UsageError(f"--env {text} made a {type(env).__name__}, which is no PettingZoo or Gymnasium environment.")
    return env


def _brief(error: BaseException) -> str:
    return f"{type(error).__name__}: {first_line(error)}"


def _takes(factory: Callable[..., Any], name: str) -> bool:
    try:
        parameters = inspect.signature(factory).parameters
    except (TypeError, ValueError):
        return False
    return name in parameters or any(p.kind is p.VAR_KEYWORD for p in parameters.values())


class SingleAgent:
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


def spec_of(env: Any, text: str, rules: Sequence[str]) -> Spec:
    """Returns an environment's agents, teams, flattened observation sizes and action spaces."""
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
            raise UsageError(f"--env {text}: the observation of {agent}, {seen}, has no fixed number of entries.") from None
        sizes.append(size)
    actions = tuple(action_space_of(env.action_space(agent), f"{agent} in --env {text}") for agent in agents)
    teams = teams_of(agents, rules)
    return Spec(agents, teams, teams, tuple(sizes), actions)


def own_limit(env: Any) -> int:
    """The number of steps after which the environment says it ends an episode, if it does."""
    for name in ("max_cycles", "max_steps", "_max_episode_steps"):
        for layer in (env, getattr(env, "unwrapped", None), getattr(env, "env", None), getattr(env, "aec_env", None)):
            with contextlib.suppress(Exception):
                if layer is not None and 0 < int(getattr(layer, name)) <= 10**6:
                    return int(getattr(layer, name))
    return 0


class EnvCopy:
    """One copy of an environment: arrays in, arrays out. An agent that is not there sees zeros and earns nothing."""

    def __init__(self, env: Any, spec: Spec, max_steps: int) -> None:
        self.env, self.spec, self.max_steps = env, spec, max_steps
        self._see = [flattener(env.observation_space(agent)) for agent in spec.agents]
        self._do = [
            from_learner(env.action_space(agent), own) for agent, own in zip(spec.agents, spec.action_spaces, strict=True)
        ]
        self._shape = spec.obs_mask.shape
        self.obs = np.zeros(self._shape, np.float32)
        self.alive = np.zeros(spec.num_agents, bool)
        self.length = 0

    def reset(self, seed: int) -> None:
        """A new episode; the same seed gives the same one, if the environment keeps its word."""
        seen, _ = self.env.reset(seed=seed)
        self.obs, self.alive = self._observations(seen)
        self.length = 0

    def step(self, action: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, bool]:
        """One step for these action vectors [N, A]: next_obs, reward, terminated, and whether the episode is over."""
        agents = self.spec.agents
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
        for i, agent in enumerate(self.spec.agents):
            if agent in seen:
                obs[i, : self.spec.obs_sizes[i]] = self._see[i](seen[agent])
                there[i] = True
        return obs, there


def flattener(space: Any) -> Callable[[Any], np.ndarray]:
    """Returns the function from a native observation to a vector."""
    from gymnasium import spaces

    if isinstance(space, spaces.Box):
        return np.ravel
    return lambda value: np.asarray(spaces.flatten(space, value))


def native(space: Any, own: ActionSpace) -> Callable[[np.ndarray], Any]:
    """Returns the function from an action vector, in the environment's range, to the native action."""
    if isinstance(own, Box):
        low, high, shape, dtype, size = space.low.ravel(), space.high.ravel(), space.shape, space.dtype, own.size
        return lambda vector: np.clip(vector[:size], low, high).astype(dtype).reshape(shape)
    start = np.ravel(getattr(space, "start", 0))
    if type(space).__name__ == "Discrete":
        first = int(start[0])
        return lambda vector: first + own.choices(vector)[0]
    return lambda vector: (np.array(own.choices(vector)) + start).astype(space.dtype).reshape(space.shape)


def from_learner(space: Any, own: ActionSpace) -> Callable[[np.ndarray], Any]:
    """Returns the function from a learner's action vector, real entries in [−1, 1], to the native action."""
    convert = native(space, own)
    if not isinstance(own, Box):
        return convert
    half, middle, size = own.half_width, own.middle, own.size
    return lambda vector: convert(middle + half * vector[:size])


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
